"""Verification: a claim and a stream of audio to a decision."""
