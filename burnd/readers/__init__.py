"""Turns a harness's lines and rows into records, without touching a file, a clock or a database."""
