"""Standing instruction and memory files of projects: found and read when a client searches them, never stored."""
