"""Audio: bytes to samples. Files, pipes, a microphone, corpora, and augmentation."""
