"""Sounds that tests of audio share, and what is measured of them."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from pipeline.audio.files import open_audio

RATE = 16_000
LENGTHS = st.integers(0, 3_000)
SEEDS = st.integers(0, 2**32 - 1)
RATES = st.sampled_from([6_000, 8_000, 11_025, 16_000, 44_100, 48_000])
LEVELS = st.integers(-300, 300)
"""Powers of ten."""


def noise(n: int, seed: int = 0) -> np.ndarray:
    return 0.1 * np.random.default_rng(seed).standard_normal(n)


def tone(frequency: float, rate: int = RATE, seconds: float = 1.0, size: float = 0.25) -> np.ndarray:
    return size * np.sin(2 * np.pi * frequency * np.arange(round(seconds * rate)) / rate)


def decode(source, size: int = 4096, **options) -> np.ndarray:
    """A whole file, in blocks of ``size``."""
    with open_audio(source, **options) as audio:
        return np.concatenate([np.empty(0), *audio.blocks(size)])


def middle(samples: np.ndarray) -> np.ndarray:
    """Without the tenths at both ends, where a tone is switched on and off."""
    return samples[len(samples) // 10 : -len(samples) // 10]


def rms(samples: np.ndarray) -> float:
    return float(np.sqrt(np.mean(samples**2)))


def decibels(ratio: float) -> float:
    return float(20 * np.log10(ratio))


def random(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)
