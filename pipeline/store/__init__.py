"""The speaker store: everything that enrollment learned, on disk."""
