"""Perceptual linear prediction: an all-pole model of the spectrum as the ear divides and compresses it.

Hermansky, Perceptual linear predictive (PLP) analysis of speech, 1990, with today's parts: mel bands for the critical
bands, the stream's pre-emphasis for the equal-loudness curve, and a power of about one third for loudness. The model is
the one that ``lpc`` solves, of a spectrum whose poles are spent where hearing resolves it, and whose weak bands, in
noise and between formants, count less than their decibels would make them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pipeline.features.lpc import levinson_durbin

Array = NDArray[np.float64]

LOWEST_HZ = 100.0
HIGHEST_SHARE = 0.4875  # of the sampling rate: 7.8 kHz of 16
# Of full-scale power in a band. Below it there is nothing to hear, and silence must not divide by zero.
POWER_FLOOR = 1e-8


class PerceptualPrediction:
    """Predictor coefficients a_1..a_order of frames of ``frame_length`` samples at ``rate`` Hz.

    ``bands`` mel filters (``librosa.filters.mel``, Slaney's scale, unit peaks) from 100 Hz to 0.4875 of the rate;
    their powers are raised to ``compression``.
    """

    def __init__(self, rate: int, frame_length: int, order: int, *, bands: int, compression: float) -> None:
        import librosa

        # Bins of 32 Hz at most, so that the narrowest filter holds a few.
        self._size = 1 << (max(frame_length, rate // 32) - 1).bit_length()
        mel = librosa.filters.mel(
            sr=rate, n_fft=self._size, n_mels=bands, fmin=LOWEST_HZ, fmax=HIGHEST_SHARE * rate, norm=None
        )
        self._mel = np.asarray(mel, dtype=np.float64)
        self._compression = compression
        # The autocorrelation is the inverse transform of the power spectrum, sampled at the middle of each band.
        lags, middles = np.arange(order + 1)[:, None], (np.arange(bands) + 0.5)[None, :] / bands
        self._cosines = np.cos(np.pi * lags * middles) / bands

    def __call__(self, frames: Array) -> Array:
        """Coefficients (T, order) of windowed ``frames`` (T, L)."""
        spectrum = np.fft.rfft(frames, self._size, axis=1)
        power = spectrum.real**2 + spectrum.imag**2
        # einsum, not a BLAS product: BLAS may round differently for different numbers of frames.
        loudness = (np.einsum("tf,bf->tb", power, self._mel) + POWER_FLOOR) ** self._compression
        return levinson_durbin(np.einsum("tb,kb->tk", loudness, self._cosines)).coefficients
