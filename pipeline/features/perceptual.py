"""Perceptual linear prediction: an all-pole model of the spectrum as the ear divides and compresses it.

Hermansky, Perceptual linear predictive (PLP) analysis of speech, 1990, with today's parts: mel bands for the critical
bands, the stream's pre-emphasis for the equal-loudness curve, and a power of about one third for loudness. The model is
the one that ``lpc`` solves, of a spectrum whose poles are spent where hearing resolves it, and whose weak bands, in
noise and between formants, count less than their decibels would make them.
"""

from __future__ import annotations

from functools import cached_property

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

    ``bands`` triangular mel filters (``mel_filters``) from 100 Hz to 0.4875 of the rate;
    their powers are raised to ``compression``. ``compiled`` as for ``lpc.levinson_durbin``.
    """

    def __init__(
        self, rate: int, frame_length: int, order: int, *, bands: int, compression: float, compiled: bool = False
    ) -> None:
        # Bins of 32 Hz at most, so that the narrowest filter holds a few.
        self._size = 1 << (max(frame_length, rate // 32) - 1).bit_length()
        bins = np.arange(self._size // 2 + 1, dtype=np.float64) * (rate / self._size)
        self._filters = mel_filters(bins, bands, LOWEST_HZ, HIGHEST_SHARE * rate)
        self._bands = BandSums(self._filters)
        self._compression = compression
        self._compiled = compiled
        # The autocorrelation is the inverse transform of the power spectrum, sampled at the middle of each band.
        lags, middles = np.arange(order + 1)[:, None], (np.arange(bands) + 0.5)[None, :] / bands
        self._cosines = np.cos(np.pi * lags * middles) / bands

    def __call__(self, frames: Array) -> Array:
        """Coefficients (T, order) of windowed ``frames`` (T, L)."""
        spectrum = np.fft.rfft(frames, self._size, axis=1)
        solve = self._compiled_autocorrelation if self._compiled else self._autocorrelation
        return levinson_durbin(solve(spectrum), compiled=self._compiled).coefficients

    def _autocorrelation(self, spectrum: NDArray[np.complex128]) -> Array:
        """Of band powers as they are heard (T, order + 1)."""
        power = spectrum.real**2 + spectrum.imag**2
        loudness = (self._bands(power) + POWER_FLOOR) ** self._compression
        # einsum, not a BLAS product: BLAS may round differently for different numbers of frames.
        return np.asarray(np.einsum("tb,kb->tk", loudness, self._cosines))

    def _compiled_autocorrelation(self, spectrum: NDArray[np.complex128]) -> Array:
        from pipeline.features.frame_kernels import perceptual_autocorrelation

        found = np.empty((len(spectrum), len(self._cosines)))
        perceptual_autocorrelation(
            spectrum.view(np.float64), self._filters, self._reach, POWER_FLOOR, self._compression, self._cosines, found
        )
        return found

    @cached_property
    def _reach(self) -> NDArray[np.int64]:
        """First bin of each filter, and the one after its last (B, 2); two 0 for one that holds none."""
        found = np.zeros((len(self._filters), 2), dtype=np.int64)
        for band, weights in enumerate(self._filters):
            bins = np.flatnonzero(weights)
            if len(bins):
                found[band] = bins[0], bins[-1] + 1
        return found


class BandSums:
    """Products of rows with triangular ``filters`` (B, F), of which only neighbours overlap, without their zeros.

    Filters of even numbers lie side by side, and so do those of odd ones: two weighted copies of a row, each summed
    between the filters' beginnings. A row's sums do not depend on which rows stand beside it.
    """

    def __init__(self, filters: Array) -> None:
        heard = np.any(filters > 0, axis=1)
        first = np.where(heard, (filters > 0).argmax(axis=1), filters.shape[1] - 1)
        # One that holds no bin begins where the next does, so that beginnings are in order; its sum is set to 0.
        starts = np.minimum.accumulate(first[::-1])[::-1]
        self._heard = heard
        self._halves = [(filters[half::2].sum(axis=0), starts[half::2]) for half in (0, 1)]

    def __call__(self, rows: Array) -> Array:
        """Sums (T, B) of ``rows`` (T, F)."""
        sums = np.empty((len(rows), len(self._heard)))
        for half, (weights, starts) in enumerate(self._halves):
            np.add.reduceat(rows * weights, starts, axis=1, out=sums[:, half::2])
        sums[:, ~self._heard] = 0.0
        return sums


def mel_filters(frequencies: Array, bands: int, lowest: float, highest: float) -> Array:
    """Triangles of height 1, (bands, F), over ``frequencies`` (F,) in Hz, evenly spaced in mel between two limits.

    What ``librosa.filters.mel`` gives with ``norm=None``; written out because importing librosa takes longer than
    verifying an utterance.
    """
    edges = _hertz(np.linspace(_mel(lowest), _mel(highest), bands + 2))
    rising = (frequencies - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    falling = (edges[2:, None] - frequencies) / (edges[2:] - edges[1:-1])[:, None]
    return np.asarray(np.maximum(0.0, np.minimum(rising, falling)))


# Slaney's scale (Auditory Toolbox, 1998): linear up to 1 kHz, 15 mel, then 27 mel for each factor of 6.4.
_KNEE_HZ, _KNEE_MEL, _STEP = 1000.0, 15.0, np.log(6.4) / 27.0


def _mel(hertz: float) -> float:
    return float(hertz * _KNEE_MEL / _KNEE_HZ if hertz < _KNEE_HZ else _KNEE_MEL + np.log(hertz / _KNEE_HZ) / _STEP)


def _hertz(mel: Array) -> Array:
    beyond = _KNEE_HZ * np.exp(_STEP * (np.maximum(mel, _KNEE_MEL) - _KNEE_MEL))
    return np.asarray(np.where(mel < _KNEE_MEL, mel * _KNEE_HZ / _KNEE_MEL, beyond))
