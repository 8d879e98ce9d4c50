"""Margins to posteriors: sigmoids, and the rules that couple many machines into one number."""
