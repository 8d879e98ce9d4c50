"""Embeddings of speech by the user's own neural encoder, in place of statistics under a background model.

The network receives windows of log mel bands of speech, less their mean over the window. The embedding of an utterance
is the mean of its windows' embeddings, each scaled to length 1 and weighted by its number of frames. Windows do not
overlap, so that a stream keeps only one running sum and the frames of the last, incomplete window. These frames are
repeated up to the length of a window: the network always sees windows of one length.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.config import EmbeddingConfig
from pipeline.config.audio import LOG_MEL_STEP_MS
from pipeline.errors import ConfigError
from pipeline.extras import library
from pipeline.features.filterbank import BANDS
from pipeline.files import read_bounded
from pipeline.machines.ubm import Array, UniversalBackgroundModel

Bands = NDArray[np.float32]

MOST_BYTES = 2**30  # of a network's file
LEAST_LENGTH = 1e-12
# Number of windows whose embeddings are cached: a held-out trial is scored at several lengths, more than once.
KEPT = 256


@dataclass(frozen=True)
class Encoder:
    """Embeddings (d,) of utterances by the network in ``settings``.

    Has the methods of ``UniversalBackgroundModel`` that training and scoring of supervector machines call: an embedding
    stands for both the statistics and the supervector. Raises ConfigError naming the setting, and UnavailableError
    without onnxruntime, as soon as there is speech.
    """

    settings: EmbeddingConfig

    half_db = math.inf  # all frames have the same weight
    mean_prior = math.inf  # the mean is subtracted in each window

    @property
    def window(self) -> int:
        """Return the number of frames in a window."""
        return round(1000 * self.settings.segment_seconds / LOG_MEL_STEP_MS)

    @cached_property
    def dimension(self) -> int:
        """Return the length d of an embedding."""
        return len(self._embedding(np.zeros((self.window, BANDS), dtype=np.float32)))

    def running_sums(self, frames: Bands, _below_peak: Array, before: Array | None = None) -> Array:
        """Return the running sums after ``frames`` (T, 80): ``before`` are those so far.

        They hold the number of frames in full windows and the sum of embeddings weighted by frames, (1 + d,), then the
        number of frames in the incomplete window and these frames, padded with zeros: (1 + window * 80,).
        """
        size, d = self.window, self.dimension
        sums = np.zeros(2 + d + size * BANDS) if before is None else before.copy()
        waiting = np.concatenate((self._waiting(sums), frames.astype(np.float32, copy=False)))
        full = len(waiting) // size
        for window in waiting[: full * size].reshape(full, size, BANDS):
            sums[0] += size
            sums[1 : 1 + d] += size * self._embedding(window)
        rest = waiting[full * size :]
        sums[1 + d] = len(rest)
        sums[2 + d : 2 + d + rest.size] = rest.ravel()
        return sums

    def utterance_statistics(self, sums: Array) -> Array:
        """Return the embedding (1, d) of an utterance from its running ``sums``."""
        d, rest = self.dimension, self._waiting(sums)
        total = sums[1 : 1 + d].copy()
        if len(rest):
            total += len(rest) * self._embedding(np.resize(rest, (self.window, BANDS)))
        return np.asarray(total[None] / (sums[0] + len(rest)))

    def weighed(self, frames: Bands, _weights: Array, **_unused: object) -> tuple[Bands, Bands]:
        """Return ``frames`` (T, 80) unchanged, and an empty array (T, 0), for ``statistics``."""
        return frames.astype(np.float32), np.empty((len(frames), 0), dtype=np.float32)

    def statistics(self, frames: Bands, _none: Bands) -> Array:
        """Return the embedding (1, d) of the ``frames`` (T, 80) of a segment."""
        return self.utterance_statistics(self.running_sums(frames, np.empty(0)))

    def vector(self, statistics: NDArray[Any]) -> NDArray[Any]:
        """Return the embedding (d,) in ``statistics`` (1, d)."""
        return np.asarray(statistics[0])

    def _waiting(self, sums: Array) -> Bands:
        first = 2 + self.dimension
        return sums[first : first + int(sums[first - 1]) * BANDS].reshape(-1, BANDS).astype(np.float32)

    def _embedding(self, window: Bands) -> Array:
        return _embedded(self.settings.path, self.settings.sha256, len(window), window.tobytes())


BackgroundModel = UniversalBackgroundModel | Encoder
"""A model that gives statistics of speech."""


@lru_cache(maxsize=KEPT)
def _embedded(path: str, sha256: str, frames: int, content: bytes) -> Array:
    """Return the embedding (d,), of length 1, of a window of log mel bands."""
    bands = np.frombuffer(content, dtype=np.float32).reshape(frames, BANDS)
    session, name = _network(path, sha256)
    try:
        made = session.run(None, {name: (bands - bands.mean(axis=0))[None]})[0]
    except Exception as error:  # onnxruntime's errors have no class of their own
        raise ConfigError(
            f"embedding.path: {path}: a network of (1, {frames}, {BANDS}) log mel bands expected, got an error"
            f" ({_brief(error)}); another network, or one for windows of another length (embedding.segment_seconds)?"
        ) from error
    vector = np.asarray(made, dtype=np.float64)
    if vector.ndim != 2 or len(vector) != 1 or not np.isfinite(vector).all():
        what = "numbers that are not finite" if vector.ndim == 2 and len(vector) == 1 else f"the shape {vector.shape}"
        raise ConfigError(f"embedding.path: {path}: an embedding (1, d) expected of a window, got {what}")
    return np.asarray(vector[0] / max(float(np.linalg.norm(vector)), LEAST_LENGTH))


@lru_cache(maxsize=2)
def _network(path: str, sha256: str) -> tuple[Any, str]:
    """Return the network as a session of onnxruntime on one thread, and the name of its input."""
    onnxruntime = library("onnxruntime", "machines.kinds: embedding", "embedding")
    try:
        content = read_bounded(Path(path), MOST_BYTES)
    except OSError as error:
        raise ConfigError(f"embedding.path: {path}: cannot be read: {error.strerror or error}") from None
    digest = hashlib.sha256(content).hexdigest()
    if digest != sha256:
        raise ConfigError(
            f"embedding.sha256: the SHA-256 of {path} should be {sha256}, got {digest}; another network, or damaged"
        )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1  # the same bits on any number of cores
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # as above
        raise ConfigError(f"embedding.path: {path}: not a network in ONNX's format: {_brief(error)}") from error
    (first, *others) = session.get_inputs()
    if others:
        raise ConfigError(f"embedding.path: {path}: a network of one input expected, got {1 + len(others)}")
    return session, first.name


def _brief(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)[:200]
