"""Reproduction of the papers' tables: data, one module per paper, and the command ``python -m benchmarks.papers``."""
