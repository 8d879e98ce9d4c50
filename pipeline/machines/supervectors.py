"""GMM-supervector machines: one linear machine a speaker over whole segments of speech, all solved at once.

A segment's supervector holds, for each component of the universal background model, how far its frames lie from the
component's mean (Campbell, Sturim and Reynolds, Support vector machines using GMM supervectors for speaker
verification, 2006). Less the population's mean and of unit length, it is judged by linear machines, one speaker against
the rest (``pipeline.machines.supervector_training``).
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
"""Two arrays with a row a frame."""


@dataclass(frozen=True)
class SupervectorMachines:
    """Supervector machines of N speakers over the background models ``ubms``.

    ``mean`` (D,) of the training vectors, ``coef`` (N, D).
    """

    ubms: tuple[BackgroundModel, ...]
    mean: Array
    coef: Vectors

    def margins(self, statistics: Sequence[Array]) -> Array:
        """Return the margins (N,) w_n . (v - mean) / |v - mean| of a segment with the supervector v.

        They are near 1 for its speaker and -1 / (N - 1) for others. ``statistics`` (K, 1 + d) are those under each
        background model. Products are summed in single precision, in which ``coef`` is stored: a stream asks often.
        """
        vector = (supervector(self.ubms, statistics) - self.mean).astype(np.float32)
        length = max(math.sqrt(vector @ vector), LEAST_LENGTH)
        return np.asarray(self.coef @ vector, dtype=np.float64) / length


def supervector(ubms: Sequence[BackgroundModel], statistics: Sequence[Array]) -> Array:
    """Return the supervector (D,) of a segment's ``statistics`` under each background model, end to end."""
    return np.concatenate([ubm.vector(its) for ubm, its in zip(ubms, statistics, strict=True)])


def segments_of(utterances: Sequence[Segment], frames: int, most: int) -> list[Segment]:
    """Cut and join ``utterances`` to segments of about ``frames`` frames, ``most`` of them at the most.

    Utterances shorter than that are joined to their followers; longer ones are cut into windows that overlap by half.
    Where that would make more than ``most``, segments are longer, and of those that still are too many some are left
    out, evenly.
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
