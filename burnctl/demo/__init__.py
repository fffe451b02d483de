"""A made-up machine: a few days of sessions of three harnesses, to try everything on without logs of one's own."""
