"""Measurements by hand: `python -m benchmarks` runs those of speed, `python -m
benchmarks.<name>` any of them.
"""
