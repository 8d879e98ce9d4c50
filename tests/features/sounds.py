"""Signals that tests of the front end share, ways of cutting them, and what voice activity detection makes of them."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from scipy.signal import lfilter

from pipeline.config import FeatureSettings, VadConfig
from pipeline.features.framing import FrameStream
from pipeline.features.vad import VoiceActivityDetector, speech_level

CHUNKS = st.lists(st.sampled_from((0, 1, 2, 79, 80, 81, 159, 160, 161, 480, 4096)) | st.integers(0, 700), max_size=40)
RATE = 16_000
LENGTH, STEP = 480, 160


def cut(values: np.ndarray, sizes: list[int]) -> list[np.ndarray]:
    """``values`` in chunks of these sizes, whatever is left in one more."""
    ends = np.minimum(np.cumsum([0, *sizes]), len(values))
    return [values[a:b] for a, b in zip(ends, [*ends[1:], len(values)], strict=True)]


def sound(length: int, seed: int = 0, *, rate: int = 16_000) -> np.ndarray:
    """Voiced bursts of changing timbre over 50 dB above a noise, and some digital silence in every second."""
    generator = np.random.default_rng(seed)
    n = np.arange(length)
    pulses = (n % int(generator.integers(rate // 250, rate // 80)) == 0).astype(float)
    angle, radius = generator.uniform(0.1, 2.5, 3), generator.uniform(0.8, 0.97, 3)
    poles = radius * np.exp(1j * angle)
    voiced = lfilter([1.0], np.poly(np.r_[poles, poles.conj()]).real, pulses)
    voiced *= 0.2 / max(float(np.abs(voiced).max(initial=0.0)), 1e-9)
    mixed = voiced * (n * 3 // rate % 2 == 0) + 2e-4 * generator.standard_normal(length)
    mixed[(n % rate) > 0.93 * rate] = 0.0
    return mixed


def hard_sounds(length: int) -> dict[str, np.ndarray]:
    """Signals with little or nothing in them that a model of speech would fit."""
    n, noise = np.arange(length), np.random.default_rng(0).standard_normal(length)
    return {
        "silence": np.zeros(length),
        "constant": np.ones(length),
        "small offset": np.full(length, -1e-3),
        "constant under a window": 0.5 * np.hamming(length),
        "clipped square wave": np.where(np.sin(0.04 * n) >= 0, 1.0, -1.0),
        "alternating": np.where(n % 2, -1.0, 1.0),
        "impulse": np.where(n == length // 2, 1.0, 0.0),
        "impulse at the end": np.where(n == length - 1, -1.0, 0.0),
        "denormal": 5e-320 * noise,
        "square underflows": np.full(length, 1e-170),
        "one bit of 16": np.where(n % 7, 0.0, 2.0**-15),
        "one bit of 32": np.where(n % 3, 0.0, 2.0**-31),
        "full-scale noise": np.clip(noise, -1.0, 1.0),
        "silence then noise": np.where(n < length // 2, 0.0, 0.1 * noise),
        "largest allowed": np.where(n % 5, 2.0**32, -(2.0**32)),
    }


def flags_of(samples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the speech flag, and the level below the peak, of each frame of a 16 kHz recording."""
    return VoiceActivityDetector(VadConfig(), frames_per_second=100.0).push(
        speech_level(FeatureSettings())(FrameStream(LENGTH, STEP).push(samples))
    )


def noise_at(level_db: float, seconds: float, seed: int = 0) -> np.ndarray:
    """White noise of this root-mean-square level, dB below full scale."""
    return np.random.default_rng(seed).standard_normal(int(seconds * RATE)) * 10 ** (level_db / 20)
