"""Requests that clients leave for the daemon, and folders that they name."""
