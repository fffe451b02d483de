"""What was said: read back, erased, looked through."""
