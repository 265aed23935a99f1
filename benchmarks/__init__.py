"""Measurements, each a command: ``python -m benchmarks.NAME [--quick] [--data DIR] --json FILE``."""
