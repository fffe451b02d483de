"""Instruction and memory files of projects, read for a search and never stored."""
