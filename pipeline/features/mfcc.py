"""Mel-frequency cepstral coefficients of frames.

Filters on Slaney's scale have unit area, and the transform is an orthonormal DCT-II, so the values are those of
``librosa.feature.mfcc`` with ``center=False`` and ``top_db=None``, on the same windowed frames.

Root cepstra use a root of each band's power in place of its logarithm (Lim, Spectral root homomorphic deconvolution
system, 1979), so that weak bands, mostly noise, count less. The exponent 1 / 15 approximates the firing rate of the
auditory nerve (Kim and Stern, Power-normalized cepstral coefficients for robust speech recognition, 2016).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from pipeline.features.plp import Array, SpectralFeatures, mel_edges, under_mel_filters

MELS = 40
POWER_FLOOR = 1e-10


def mel_cepstrum(rate: int, frame_length: int, count: int, *, root: float | None = None) -> SpectralFeatures:
    """Return the function from windowed frames (T, ``frame_length``) at ``rate`` Hz to c_1..c_count (T, count).

    c_k = sqrt(2 / M) sum over m = 0..M - 1 of l_m cos(pi k (2 m + 1) / (2 M)), with l_m = 10 log10 of the power in mel
    band m, or that power raised to ``root``. c_0, the level, is left out as it is for linear prediction.
    """
    k, n = np.arange(1, count + 1)[:, None], np.arange(MELS)[None, :]
    dct = np.sqrt(2.0 / MELS) * np.cos(np.pi * k * (2 * n + 1) / (2 * MELS))

    def cepstrum(powers: Array) -> Array:
        level = 10.0 * np.log10(powers) if root is None else powers**root
        # einsum, not a BLAS product: BLAS may round differently for different numbers of frames.
        return np.asarray(np.einsum("tm,cm->tc", level, dct))

    return mel_powers(rate, frame_length).then(cepstrum)


@lru_cache(maxsize=8)
def mel_powers(rate: int, frame_length: int) -> SpectralFeatures:
    """Return the function from frames (T, ``frame_length``) at ``rate`` Hz to their powers (T, MELS) in mel bands."""
    edges = mel_edges(MELS, 0.0, rate / 2)
    in_bands = under_mel_filters(rate, frame_length, edges, (2.0 / (edges[2:] - edges[:-2]))[:, None])
    return in_bands.then(lambda powers: np.maximum(powers, POWER_FLOOR))
