"""Enrollment: recordings to a speaker model."""
