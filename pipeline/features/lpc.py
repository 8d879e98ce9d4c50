"""Linear prediction of many frames at once: all-pole models and their equivalent representations.

The polynomial is A(z) = 1 + a_1 z^-1 + ... + a_p z^-p, the sign convention of ``librosa.lpc``; arrays hold a_1..a_p.
Frames without energy have the model A(z) = 1: every coefficient 0, never NaN. All arithmetic is elementwise along
the frame axis, sums are in a fixed order, so the result for one frame does not depend on the other frames in the array.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# White noise added to the frame at -90 dB keeps the recursion stable on pure tones and constants; the absolute
# term, far below one step of 32-bit audio, gives digital silence the defined model A(z) = 1.
RELATIVE_FLOOR = 1e-9
ABSOLUTE_FLOOR = 1e-30


def autocorrelate(frames: Array, order: int) -> Array:
    """Return the autocorrelation r_0..r_order (T, order + 1) of windowed ``frames`` (T, L), unnormalised."""
    length = frames.shape[1]
    lags = [np.einsum("tl,tl->t", frames[:, : length - k], frames[:, k:]) for k in range(min(order + 1, length))]
    lags += [np.zeros(len(frames))] * (order + 1 - len(lags))
    return np.stack(lags, axis=1)


def levinson_durbin(autocorrelation: Array) -> Array:
    """Return coefficients (T, p) that solve the normal equations of every row of ``autocorrelation`` (T, p + 1)."""
    r = _columns(autocorrelation)
    order = r.shape[0] - 1
    backwards = np.ascontiguousarray(r[:0:-1])
    # With a_0 = 1 stored and the energy negated, each order takes only seven numpy calls; for a few frames, calls
    # dominate.
    a = np.zeros((order + 1, r.shape[1]))
    a[0] = 1.0
    products = np.empty_like(a)
    residual, k = np.empty_like(a[0]), np.empty_like(a[0])
    negative_energy = -(r[0] * (1.0 + RELATIVE_FLOOR) + ABSOLUTE_FLOOR)
    for m in range(order):
        # residual = sum over i = 0..m of a_i r_{m + 1 - i}
        terms = np.multiply(a[: m + 1], backwards[order - m - 1 :], out=products[: m + 1])
        np.add.reduce(terms, axis=0, out=residual)
        # k = -residual / E, then a_i += k a_{m + 1 - i}
        np.divide(residual, negative_energy, out=k)
        a[1 : m + 2] += np.multiply(k, a[m::-1], out=terms)
        # E (1 - k^2) = E + k residual, since k E = -residual
        negative_energy -= np.multiply(k, residual, out=residual)
    return np.ascontiguousarray(a[1:, : len(autocorrelation)].T)


def burg(frames: Array, order: int) -> Array:
    """Return coefficients (T, order) by Burg's method (``librosa.lpc``); frames without energy give zeros."""
    import librosa

    out = np.zeros((len(frames), order))
    audible = np.flatnonzero(np.einsum("tl,tl->t", frames, frames) > ABSOLUTE_FLOOR)
    if audible.size:
        coefficients = librosa.lpc(frames[audible], order=order, axis=-1)[:, 1:]
        out[audible] = np.where(np.isfinite(coefficients), coefficients, 0.0)
    return out


def cepstrum(coefficients: Array) -> Array:
    """Return the cepstrum c_1..c_p (T, p) of the all-pole filters 1 / A(z), without gain."""
    a = _columns(coefficients)
    order = len(a)
    backwards = np.ascontiguousarray(a[::-1])
    numbers = np.arange(1, order + 1)[:, None]
    # n c_n = -n a_n - sum over k = 1..n - 1 of k c_k a_{n - k}
    weighted = -numbers * a
    products = np.empty_like(a)
    for n in range(2, order + 1):
        terms = np.multiply(weighted[: n - 1], backwards[order - n + 1 :], out=products[: n - 1])
        weighted[n - 1] -= np.add.reduce(terms, axis=0)
    return np.ascontiguousarray((weighted / numbers)[:, : len(coefficients)].T)


def _columns(rows: Array) -> Array:
    """Transpose ``rows`` (T, n) to (n, T); a single row is doubled, since numpy sums one in another order than many."""
    return np.ascontiguousarray(np.repeat(rows, 2, axis=0).T if len(rows) == 1 else rows.T)
