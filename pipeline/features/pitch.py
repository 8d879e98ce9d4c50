"""Fundamental frequency of each frame: how many times per second the vocal folds open.

Of all features of a voice it is the one that a channel changes least. The period is the lag at which the
autocorrelation of the frame is largest. The power spectrum is first raised to a power below one, which removes most of
the envelope due to formants and channel (root-compressed autocorrelation; cf. Tolonen and Karjalainen, A
computationally efficient multipitch analysis model, 2000). Harmonics suffice: the fundamental itself may be missing, as
by telephone.
"""

from __future__ import annotations

import numpy as np

from pipeline.features.plp import Array, SpectralFeatures, power_spectrum, transform_length

LOWEST_HZ, HIGHEST_HZ = 65.0, 420.0
# Band of the harmonics that are used, and the exponent of their powers.
BAND_HZ = (80.0, 3000.0)
COMPRESSION = 0.33
# A frame is voiced where its largest autocorrelation is above this share of that at lag 0.
VOICED = 0.25
# Subtracted for each doubling of the lag: multiples of a period have the same autocorrelation as the period itself.
OCTAVE_COST = 0.05
# Floor of the window's autocorrelation, as a share of its value at lag 0.
LEAST_OF_WINDOW = 0.05
# Lags are at most 1 / 16,000 s apart: at lower rates the autocorrelation is interpolated.
LAGS_PER_SECOND = 16_000
SILENCE = 1e-12


def fundamental_frequency(rate: int, window: Array) -> SpectralFeatures:
    """Return the function from frames at ``rate`` Hz under the ``window`` (L,) to fundamental frequency and voicing.

    Rows (T, 2) hold log2 of the frequency in Hz and the voicing, from 0 for unvoiced frames to 1. With the
    autocorrelations r of the compressed frame and w of the compressed window, the period is the lag l with the largest

        r_l / r_0 / sqrt(w_l / w_0) - cost * log2(l / shortest lag).

    Dividing by w_l itself would give noise a period at long lags, not dividing would favour short ones.
    """
    size = transform_length(rate, len(window))
    finer = -(-LAGS_PER_SECOND // rate)
    lags_per_second, points = finer * rate, finer * size
    first, last = int(lags_per_second / HIGHEST_HZ), int(lags_per_second / LOWEST_HZ) + 1
    lags = np.arange(first, last + 1)
    bins = np.arange(size // 2 + 1) * (rate / size)
    in_band = np.flatnonzero((bins > BAND_HZ[0]) & (bins < BAND_HZ[1]))
    own = np.fft.irfft(np.abs(np.fft.rfft(window, size)) ** (2.0 * COMPRESSION), points)
    of_window = np.sqrt(np.maximum(own[lags] / own[0], LEAST_OF_WINDOW))
    cost = OCTAVE_COST * np.log2(lags / lags[0])

    def analyse(power: Array) -> Array:
        compressed = np.zeros_like(power)
        compressed[:, in_band] = power[:, in_band] ** COMPRESSION
        correlation = np.fft.irfft(compressed, points, axis=1)
        likeness = correlation[:, first : last + 1] / (correlation[:, :1] + SILENCE) / of_window
        best = np.clip(np.argmax(likeness - cost, axis=1), 1, len(lags) - 2)
        # The vertex of the parabola through the largest value and its neighbours.
        rows = np.arange(len(power))
        before, at, after = (likeness[rows, best + step] for step in (-1, 0, 1))
        bend = before - 2.0 * at + after
        shift = np.clip(0.5 * (before - after) / np.where(bend < -SILENCE, bend, -np.inf), -0.5, 0.5)
        voicing = np.clip((at - VOICED) / (1.0 - VOICED), 0.0, 1.0)
        return np.stack((np.log2(lags_per_second / (lags[best] + shift)), voicing), axis=1)

    return power_spectrum(size).then(analyse)
