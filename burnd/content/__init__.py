"""Reads content back from sidecars and blobs, and searches in it."""
