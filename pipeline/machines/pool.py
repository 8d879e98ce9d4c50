"""The shared pool: every speaker's centroids side by side, and the one RBF kernel over them.

K(x, y) = exp(-|x - y|^2 / (2 sigma^2)). Every machine over frames is a set of coefficients over this pool, so that a
frame is compared with each centroid only once, whatever the number of machines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def precision_of(name: str) -> tuple[np.dtype[Any], np.dtype[Any]]:
    """Return the number types for matrix products and for exponentials at the setting ``name``.

    "float64" and "float32" use one type for both; "mixed" exponentiates in single precision and sums in double, so that
    margins agree up to rounding, however many frames are scored together. Without AVX-512 an exponential in double
    precision takes four to five times as long.
    """
    return np.dtype("float64" if name == "mixed" else name), np.dtype("float64" if name == "float64" else "float32")


def fill_kernel(frames: NDArray[Any], sides: NDArray[Any], tiles: NDArray[Any], kind: np.dtype[Any]) -> NDArray[Any]:
    """Compute kernel values of T frames with N speakers' k centroids in ``tiles`` (N, T, k), exponentials in ``kind``.

    ``frames`` (T, d + 2) end in -|x|^2 / 2 and 1, ``sides`` (N, d + 2, k) in 1 and -|y|^2 / 2, both over sigma: the
    exponent x . y - |x|^2 / 2 - |y|^2 / 2 is their product.
    """
    exponents = np.matmul(frames, sides, out=tiles)
    # A single call casts block by block, in the first-level cache.
    return np.asanyarray(np.exp(exponents, out=exponents, dtype=kind, casting="same_kind"))


@dataclass(frozen=True)
class Pool:
    """Centroids (M, d) of N speakers, speaker n owning rows ``offsets[n]:offsets[n + 1]``."""

    centroids: Array
    offsets: NDArray[np.int64]
    sigma: float

    @classmethod
    def of(cls, codebooks: Sequence[Array], sigma: float) -> Pool:
        """Stack the codebooks [(k_n, d)] of N speakers, in order."""
        offsets = np.cumsum([0, *(len(codebook) for codebook in codebooks)])
        return cls(np.concatenate(list(codebooks)), offsets, sigma)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def rows(self, speaker: int) -> slice:
        """Return the rows of one speaker's centroids."""
        return slice(int(self.offsets[speaker]), int(self.offsets[speaker + 1]))

    def codebook(self, speaker: int) -> Array:
        """Return the centroids (k, d) of one speaker."""
        return self.centroids[self.rows(speaker)]

    @cached_property
    def owner(self) -> NDArray[np.int64]:
        """Return the speaker (M,) of each centroid."""
        return np.repeat(np.arange(len(self)), np.diff(self.offsets))

    @cached_property
    def self_similarity(self) -> Array:
        """Return the mean kernel value (N,) within each speaker's codebook."""
        return np.array([self.mean_kernel(speaker, speaker) for speaker in range(len(self))])

    def gram(self, first: int, second: int, exponentials: str = "float64") -> Array:
        """Return the kernel tile (k_first, k_second) between two speakers' centroids."""
        left, right = self._sides
        exponents = np.asarray(left[self.rows(first)] @ right[self.rows(second)].T)
        np.minimum(exponents, 0.0, out=exponents)
        return np.asarray(np.exp(exponents, out=exponents, dtype=exponentials, casting="same_kind"))

    def mean_kernel(self, first: int, second: int) -> float:
        """Return the mean kernel value between two speakers' centroids, to single precision."""
        return float(self.gram(first, second, "float32").mean())

    @cached_property
    def _sides(self) -> tuple[Array, Array]:
        """Return the centroids (M, d + 2) as either side of the kernel's exponent, see ``fill_kernel``."""
        scaled = self.centroids / self.sigma
        half, one = -0.5 * (scaled * scaled).sum(axis=1, keepdims=True), np.ones((len(scaled), 1))
        return np.concatenate((scaled, half, one), axis=1), np.concatenate((scaled, one, half), axis=1)
