"""The papers' published tables again: data, one module a paper, and the command ``python -m benchmarks.papers``."""
