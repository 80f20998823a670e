"""Measurements by hand, never part of the tests: `python -m benchmarks.<name>` prints a table."""
