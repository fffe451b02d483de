"""What clients leave or say of sessions, and sessions they record themselves, taken in without losing any."""
