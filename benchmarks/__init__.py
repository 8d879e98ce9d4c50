"""Experiments and measurements; none of it is needed to use the package."""
