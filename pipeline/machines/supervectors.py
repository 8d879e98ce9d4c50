"""GMM-supervector machines: one linear machine per speaker over whole segments of speech, all solved at once.

A segment's supervector holds, for each component of the universal background model, how far its frames lie from the
component's mean (Campbell, Sturim and Reynolds, Support vector machines using GMM supervectors for speaker
verification, 2006). After subtraction of the population's mean and scaling to unit length, linear machines, one speaker
against the rest, give its margins (``pipeline.machines.supervector_training``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from pipeline.machines.encoder import LEAST_LENGTH, BackgroundModel

Array = NDArray[np.float64]
Vectors = NDArray[np.float32]
F = TypeVar("F", bound=np.floating[Any])
Segment = tuple[NDArray[np.floating[Any]], NDArray[np.floating[Any]]]
"""Two arrays with one row per frame."""


@dataclass(frozen=True)
class SupervectorMachines:
    """Supervector machines of N speakers over the background models ``ubms``.

    ``mean`` (D,) is that of the training vectors, ``coef`` (N, D) has the coefficients.
    """

    ubms: tuple[BackgroundModel, ...]
    mean: Array
    coef: Vectors

    def margins(self, statistics: Sequence[Array]) -> Array:
        """Return the margins (N,) w_n . (v - mean) / |v - mean| of a segment with the supervector v.

        They are near 1 for its speaker and -1 / (N - 1) for others. ``statistics`` has an array (K, 1 + d) for each
        background model. Products are summed in single precision, in which ``coef`` is stored, because a stream is
        scored often.
        """
        vector = (supervector(self.ubms, statistics) - self.mean).astype(np.float32)
        length = max(math.sqrt(vector @ vector), LEAST_LENGTH)
        return np.asarray(self.coef @ vector, dtype=np.float64) / length


def supervector(ubms: Sequence[BackgroundModel], statistics: Sequence[Array]) -> Array:
    """Return the supervector (D,) of a segment: the concatenated vectors of its ``statistics`` under each model."""
    return np.concatenate([ubm.vector(its) for ubm, its in zip(ubms, statistics, strict=True)])


def segments_of(utterances: Sequence[Segment], frames: int, most: int) -> list[Segment]:
    """Cut and join ``utterances`` into at most ``most`` segments of about ``frames`` frames.

    Shorter utterances are joined to the next ones; longer ones are cut into windows that overlap by half. If this gives
    more than ``most``, segments are made longer; if there are still too many, some are dropped at even intervals.
    """
    total = sum(len(vectors) for vectors, _ in utterances)
    wanted = max(frames, -(-total // most))
    segments: list[Segment] = []
    waiting: list[Segment] = []
    for vectors, weights in utterances:
        if len(vectors) >= 1.5 * wanted:
            starts = range(0, len(vectors) - wanted + 1, max(1, wanted // 2))
            segments += [(vectors[s : s + wanted], weights[s : s + wanted]) for s in starts]
            continue
        waiting.append((vectors, weights))
        if sum(len(part) for part, _ in waiting) >= wanted:
            segments.append(_joined(waiting))
            waiting = []
    if waiting and (not segments or sum(len(part) for part, _ in waiting) >= wanted / 2):
        segments.append(_joined(waiting))
    if len(segments) <= most:
        return segments
    return [segments[n] for n in np.linspace(0, len(segments) - 1, most).round().astype(int)]


def _joined(parts: Sequence[Segment]) -> Segment:
    return np.concatenate([vectors for vectors, _ in parts]), np.concatenate([weights for _, weights in parts])


def unit(vectors: NDArray[F]) -> NDArray[F]:
    """Scale ``vectors`` (..., D) to length 1; zero stays zero."""
    return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), LEAST_LENGTH))
