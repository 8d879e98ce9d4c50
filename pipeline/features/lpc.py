"""Linear prediction of many frames at once: the all-pole model of each, and its equivalent representations.

The polynomial is A(z) = 1 + a_1 z^-1 + ... + a_p z^-p, the sign convention of ``librosa.lpc``; arrays hold a_1..a_p.
Frames without energy have the model A(z) = 1: every coefficient 0, never NaN. All arithmetic is elementwise along
the frame axis, sums are in a fixed order, so the result for one frame does not depend on which frames stand beside it.
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
    # With a_0 = 1 stored and the energy negated, an order takes seven numpy calls, which dominate for a few frames.
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


def reflection_from_coefficients(coefficients: Array) -> Array:
    """Return reflection coefficients (T, p) of models ``coefficients`` (T, p) by the step-down recursion."""
    a = np.ascontiguousarray(coefficients.T)
    order = len(a)
    reflection = np.zeros_like(a)
    for m in range(order - 1, -1, -1):
        k = np.clip(a[m], -1.0 + RELATIVE_FLOOR, 1.0 - RELATIVE_FLOOR)
        reflection[m] = k
        a = (a[:m] - k * a[:m][::-1]) / (1.0 - k * k)
    return np.ascontiguousarray(reflection.T)


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
    """Transpose ``rows`` (T, n) to (n, T), a single row twice: numpy would sum it in another order than many."""
    return np.ascontiguousarray(np.repeat(rows, 2, axis=0).T if len(rows) == 1 else rows.T)


def log_area_ratios(reflection: Array) -> Array:
    """Return log area ratios ln((1 + k) / (1 - k)) of ``reflection`` coefficients, both (T, p)."""
    k = np.clip(reflection, -1.0 + RELATIVE_FLOOR, 1.0 - RELATIVE_FLOOR)
    return np.log1p(k) - np.log1p(-k)


def line_spectral_frequencies(coefficients: Array) -> Array:
    """Return line spectral frequencies (T, p) in radians, ascending in (0, pi), of models ``coefficients`` (T, p).

    They are the angles of the roots of A(z) + z^-(p+1) A(1/z) and A(z) - z^-(p+1) A(1/z) (Itakura 1975), each
    divided by its known root at z = -1 or z = 1.
    """
    frames, order = coefficients.shape
    forward = np.concatenate((np.ones((frames, 1)), coefficients, np.zeros((frames, 1))), axis=1)
    even, odd = forward + forward[:, ::-1], forward - forward[:, ::-1]
    if order % 2 == 0:
        even, odd = _divide(even, -1.0), _divide(odd, 1.0)
    else:
        odd = _divide(_divide(odd, 1.0), -1.0)
    return np.sort(np.concatenate((_upper_angles(even), _upper_angles(odd)), axis=1), axis=1)


def _divide(polynomials: Array, root: float) -> Array:
    """Divide each polynomial (T, n) by (1 - root z^-1), known to be a factor."""
    quotient = polynomials[:, :-1].copy()
    for i in range(1, quotient.shape[1]):
        quotient[:, i] += root * quotient[:, i - 1]
    return quotient


def _upper_angles(polynomials: Array) -> Array:
    """Return the root angles in [0, pi] of monic palindromic ``polynomials`` (T, 2n + 1): n a row."""
    degree = polynomials.shape[1] - 1
    if degree == 0:
        return np.empty((len(polynomials), 0))
    companion = np.zeros((len(polynomials), degree, degree))
    companion[:, 0, :] = -polynomials[:, 1:] / polynomials[:, :1]
    companion[:, np.arange(1, degree), np.arange(degree - 1)] = 1.0
    angles = np.sort(np.abs(np.angle(np.linalg.eigvals(companion))), axis=1)
    return angles[:, ::2]  # conjugate pairs share an angle
