"""Instruction and memory files of projects, read when a client searches them and never stored."""
