"""What was said: read back, deleted by age, erased, looked through."""
