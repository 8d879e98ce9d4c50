"""Compiled statistics of stretches, and what segment machines make of them: sums over the sounds that frames hold.

Of a frame few of the sounds have a share that counts, and of the few frames that a stream brings at a time most of what
numpy takes is its calls. What is found of a frame does not depend on which frames stand beside it. Importing this
module loads numba.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline.compiling import compiled
from pipeline.machines.exponential import exponential, greater

# A sound with less of a frame than this is passed over: all of them together move no sum by a millionth.
LEAST_SHARE = 1e-10


@compiled("void(f8[:,::1], f8[::1], f8[::1])")
def to_shares(log: Any, intercepts: Any, loudness: Any) -> None:
    """Shares of frames in sounds, times ``loudness`` (T,), in place of ``log`` (T, K).

    They are densities less ``intercepts`` (K,), which may lack a constant of each frame.
    """
    frames, count = log.shape
    shares = np.empty(count, np.float32)
    for t in range(frames):
        largest = log[t, 0] + intercepts[0]
        for k in range(count):
            log[t, k] += intercepts[k]
            largest = greater(largest, log[t, k])
        for k in range(count):
            shares[k] = np.float32(log[t, k] - largest)
        total = np.float32(0.0)
        for k in range(count):
            share = exponential(shares[k])
            shares[k] = share
            total += share
        scale = loudness[t] / total
        for k in range(count):
            log[t, k] = scale * shares[k]


@compiled("void(f8[:,::1], f8[:,::1], f8[:,::1], f8[:,::1], f8[:,::1])")
def sum_shares(shares: Any, standard: Any, means: Any, per_deviation: Any, sums: Any) -> None:
    """``SegmentSpace.statistics`` of frames ``standard`` (T, d) by their ``shares`` (T, K), in ``sums`` (K, 1 + d)."""
    (frames, count), features = shares.shape, standard.shape[1]
    total = np.empty(features)
    for k in range(count):
        occupancy = 0.0
        total[:] = 0.0
        for t in range(frames):
            share = shares[t, k]
            if share > LEAST_SHARE:
                occupancy += share
                for j in range(features):
                    total[j] += share * standard[t, j]
        sums[k, 0] = occupancy
        for j in range(features):
            sums[k, 1 + j] = (total[j] - occupancy * means[k, j]) * per_deviation[k, j]


@compiled("f8(f8[:,::1], f8, f8[::1], f4[::1])")
def heard(statistics: Any, relevance: Any, mean: Any, vector: Any) -> Any:
    """``SegmentSpace.vector`` of ``statistics`` (K, 1 + d) less the ``mean`` (K d,) into ``vector``; its length."""
    count, features = statistics.shape[0], statistics.shape[1] - 1
    squares = 0.0
    for k in range(count):
        believed = 1.0 / (statistics[k, 0] + relevance)
        for j in range(features):
            place = k * features + j
            value = statistics[k, 1 + j] * believed - mean[place]
            squares += value * value
            vector[place] = value
    return np.sqrt(squares)
