"""Compiled work on a few frames at a time, as a stream brings them: of theirs, most of what numpy takes is its calls.

The same sums as numpy's in another order, so that numbers agree to rounding (1e-12 of their size). A frame's do not
depend on which frames stand beside it. Importing this module loads numba.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline.compiling import compiled


@compiled("b1(f8[::1], f8)", exact=True)
def within(samples: Any, limit: Any) -> Any:
    """Whether the sum of squares of ``samples`` (n,), and so each of them, is at most ``limit``; not where one is NaN.

    Silently: numpy warns of a signalling NaN, unless it is told not to, which takes longer than all the rest.
    """
    total = 0.0
    for sample in samples:
        total += sample * sample
    return total <= limit


@compiled("void(f8[::1], i8, i8[::1], f8[::1], f8[:,::1])")
def windowed(samples: Any, step: Any, numbers: Any, window: Any, frames: Any) -> None:
    """``frames`` (T, L) of ``samples``, each less its own mean and times ``window`` (L,).

    There is one every ``step``, and those wanted are ``numbers`` (T,).
    """
    length = frames.shape[1]
    for t in range(len(frames)):
        first, total = numbers[t] * step, 0.0
        frame = samples[first : first + length]
        for i in range(length):
            total += frame[i]
        mean = total / length
        for i in range(length):
            frames[t, i] = (frame[i] - mean) * window[i]


@compiled("void(f8[::1], i8, i8, f8[::1])")
def variances(samples: Any, step: Any, length: Any, found: Any) -> None:
    """Variance of each frame of ``length`` samples, one every ``step``, ``found`` (T,)."""
    for t in range(len(found)):
        frame, total = samples[t * step : t * step + length], 0.0
        for i in range(length):
            total += frame[i]
        mean, power = total / length, 0.0
        for i in range(length):
            power += (frame[i] - mean) ** 2
        found[t] = power / length


@compiled("void(f8[:,::1], f8[:,::1], i8[:,::1], f8, f8, f8[:,::1], f8[:,::1])")
def perceptual_autocorrelation(
    spectrum: Any, filters: Any, reach: Any, floor: Any, compression: Any, cosines: Any, found: Any
) -> None:
    """Autocorrelation (T, p + 1) of compressed band powers, ``found``; ``PerceptualPrediction`` tells of what.

    ``spectrum`` (T, 2 F) are real and imaginary parts in turn, ``filters`` (B, F) reach from ``reach[:, 0]`` up to, not
    including, ``reach[:, 1]``; ``cosines`` (p + 1, B).
    """
    bands, bins = filters.shape
    power, loudness = np.empty(bins), np.empty(bands)
    for t in range(len(spectrum)):
        for f in range(bins):
            power[f] = spectrum[t, 2 * f] ** 2 + spectrum[t, 2 * f + 1] ** 2
        for b in range(bands):
            total, reached = 0.0, slice(reach[b, 0], reach[b, 1])
            weights, powers = filters[b, reached], power[reached]
            for f in range(len(weights)):
                total += weights[f] * powers[f]
            loudness[b] = (total + floor) ** compression
        for k in range(len(cosines)):
            total = 0.0
            for b in range(bands):
                total += loudness[b] * cosines[k, b]
            found[t, k] = total
