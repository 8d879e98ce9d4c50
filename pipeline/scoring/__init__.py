"""Scoring: posteriors to utterance scores, log-likelihood ratios and decisions."""
