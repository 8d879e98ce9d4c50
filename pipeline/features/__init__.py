"""Samples to speech feature vectors: pure functions of arrays, and streams of them."""
