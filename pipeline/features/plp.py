"""Perceptual linear prediction: an all-pole model of the spectrum on perceptual scales of frequency and loudness.

Hermansky, Perceptual linear predictive (PLP) analysis of speech, 1990, with common substitutes: mel bands for the
critical bands, the stream's pre-emphasis for the equal-loudness curve, and a power of about one third for loudness. The
all-pole model is fitted to the loudness spectrum as in ``lpc`` to a power spectrum. It has about the resolution of
hearing, and weak bands, in noise and between formants, count less than on a decibel scale.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, reduce

import numpy as np
from numpy.typing import NDArray

from pipeline.features.lpc import levinson_durbin

Array = NDArray[np.float64]

LOWEST_HZ = 100.0
HIGHEST_SHARE = 0.4875  # of the sampling rate: 7.8 kHz at 16 kHz
# Power in a band, relative to full scale, below that of any sound; keeps silence defined.
POWER_FLOOR = 1e-8
BANDS_AT_ONCE = 8


@dataclass(frozen=True)
class SpectralFeatures:
    """Features (T, n) of windowed frames (T, L) in ``steps``: power spectrum, bands, features.

    Several features may begin with the same steps, which ``features.stream`` computes only once.
    """

    steps: tuple[Callable[[Array], Array], ...]

    def __call__(self, frames: Array) -> Array:
        """Return the features of ``frames``."""
        return reduce(lambda values, step: step(values), self.steps, frames)

    def then(self, step: Callable[[Array], Array]) -> SpectralFeatures:
        """Return the features with one more ``step``."""
        return SpectralFeatures((*self.steps, step))


@lru_cache(maxsize=8)
def power_spectrum(size: int) -> SpectralFeatures:
    """Return the function from windowed frames (T, L) to their power (T, ``size`` // 2 + 1) at each frequency."""

    def power(frames: Array) -> Array:
        spectrum = np.fft.rfft(frames, size, axis=1)
        return np.asarray(spectrum.real**2 + spectrum.imag**2)

    return SpectralFeatures((power,))


def perceptual_prediction(
    rate: int, frame_length: int, order: int, *, bands: int, compression: float
) -> SpectralFeatures:
    """Return the function from windowed frames (T, ``frame_length``) at ``rate`` Hz to coefficients (T, order).

    The powers of ``bands`` triangular mel filters (``mel_filters``), from 100 Hz to 0.4875 of the rate, are raised to
    ``compression``.
    """
    in_bands = under_mel_filters(rate, frame_length, mel_edges(bands, LOWEST_HZ, HIGHEST_SHARE * rate))
    # The autocorrelation is the inverse transform of the power spectrum, sampled at the middle of each band:
    # r_k = 1/B sum over b of loudness_b cos(pi k (b + 1/2) / B)
    lags, middles = np.arange(order + 1)[:, None], (np.arange(bands) + 0.5)[None, :] / bands
    cosines = np.cos(np.pi * lags * middles) / bands

    def predict(powers: Array) -> Array:
        loudness = (powers + POWER_FLOOR) ** compression
        return levinson_durbin(np.einsum("tb,kb->tk", loudness, cosines))

    return in_bands.then(predict)


def under_mel_filters(rate: int, frame_length: int, edges: Array, heights: Array | float = 1.0) -> SpectralFeatures:
    """Return the function from windowed frames (T, ``frame_length``) to the powers (T, bands) under mel filters.

    These have the ``edges`` (bands + 2,) in Hz, and the ``heights`` (bands, 1).
    """
    size = transform_length(rate, frame_length)
    bins = np.arange(size // 2 + 1, dtype=np.float64) * (rate / size)
    return power_spectrum(size).then(band_powers(mel_filters(bins, edges) * heights))


def transform_length(rate: int, frame_length: int) -> int:
    """Return the length of the Fourier transform: bins at most 32 Hz apart, several in the narrowest filter."""
    return 1 << (max(frame_length, rate // 32) - 1).bit_length()


def mel_edges(bands: int, lowest: float, highest: float) -> Array:
    """Return the edges and peaks (bands + 2,) of the filters in Hz, evenly spaced in mel."""
    return _hertz(np.linspace(_mel(lowest), _mel(highest), bands + 2))


def mel_filters(frequencies: Array, edges: Array) -> Array:
    """Return triangular filters of height 1, (bands, F), over ``frequencies`` (F,) in Hz.

    They equal ``librosa.filters.mel`` with ``norm=None``; importing librosa takes longer than verifying an utterance.
    """
    rising = (frequencies - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    falling = (edges[2:, None] - frequencies) / (edges[2:] - edges[1:-1])[:, None]
    return np.asarray(np.maximum(0.0, np.minimum(rising, falling)))


def band_powers(filters: Array) -> Callable[[Array], Array]:
    """Return the function from power spectra (T, F) to the powers (T, bands) under ``filters`` (bands, F).

    A few neighbouring filters are applied at a time, over only the frequencies where any of them is not zero.
    """
    parts = []
    for first in range(0, len(filters), BANDS_AT_ONCE):
        several = slice(first, first + BANDS_AT_ONCE)
        there = np.flatnonzero(filters[several].any(axis=0))
        within = slice(int(there[0]), int(there[-1]) + 1)
        parts.append((several, within, np.ascontiguousarray(filters[several, within])))

    def powers(spectra: Array) -> Array:
        result = np.empty((len(spectra), len(filters)))
        for several, within, own in parts:
            # einsum, not a BLAS product: BLAS may round differently for different numbers of frames.
            np.einsum("tf,bf->tb", spectra[:, within], own, out=result[:, several])
        return result

    return powers


# Slaney's scale (Auditory Toolbox, 1998): linear up to 1 kHz, 15 mel, then 27 mel for each factor of 6.4.
_KNEE_HZ, _KNEE_MEL, _STEP = 1000.0, 15.0, np.log(6.4) / 27.0


def _mel(hertz: float) -> float:
    return float(hertz * _KNEE_MEL / _KNEE_HZ if hertz < _KNEE_HZ else _KNEE_MEL + np.log(hertz / _KNEE_HZ) / _STEP)


def _hertz(mel: Array) -> Array:
    beyond = _KNEE_HZ * np.exp(_STEP * (mel - _KNEE_MEL))
    return np.asarray(np.where(mel < _KNEE_MEL, mel * _KNEE_HZ / _KNEE_MEL, beyond))
