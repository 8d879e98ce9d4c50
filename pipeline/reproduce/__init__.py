"""The published tables again: the data of the papers' experiments, and a module for each paper."""
