"""Follows log files that grow."""
