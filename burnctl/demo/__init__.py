"""A made-up machine: a few days of sessions of two harnesses, to try everything on without logs of one's own."""
