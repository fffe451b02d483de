"""Requests that clients leave for the daemon: the spool, announcements, claims, and the folders they name."""
