"""Measures burnd. `make bench` runs it and writes docs/benchmarks.md."""
