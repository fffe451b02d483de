"""A made-up machine with a few days of sessions of three harnesses."""
