"""Margins to posteriors: sigmoids and other estimators, and the rules that couple many machines into one posterior."""
