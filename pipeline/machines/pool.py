"""The shared pool: every speaker's centroids side by side, and the one RBF kernel over them.

K(x, y) = exp(-|x - y|^2 / (2 sigma^2)). Every machine of every kind is a set of coefficients over this pool, so a
frame meets each centroid once, whatever the number of machines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Precision:
    """How exactly margins are found: ``sums`` is the type of products, ``kernel`` that of exponentials.

    Named "float64" or "float32" where both are one; "mixed" sums in double precision what is exponentiated in single.
    A processor takes four to five times as long for an exponential in double precision, unless it has AVX-512, and
    seven digits of a kernel value are more than a margin needs. Its sums do need them: they are what makes margins the
    same, but for a rounding, however many frames are taken together.
    """

    sums: np.dtype[Any]
    kernel: np.dtype[Any]

    @classmethod
    def named(cls, name: str) -> Precision:
        """Of the name that settings give: "float64", "mixed" or "float32"."""
        if name == "mixed":
            return cls(np.dtype("float64"), np.dtype("float32"))
        return cls(np.dtype(name), np.dtype(name))

    def exponentiate(self, exponents: NDArray[Any]) -> NDArray[Any]:
        """``exponents``, of type ``sums``, turned into kernel values where they are."""
        # One call casts piece by piece, in the processor's nearest cache.
        found: NDArray[Any] = np.exp(exponents, out=exponents, dtype=self.kernel, casting="same_kind")
        return found


def rbf_kernel(x: Array, y: Array, sigma: float) -> Array:
    """Kernel matrix (n, m) between the rows of ``x`` (n, d) and of ``y`` (m, d)."""
    scale = 1.0 / (sigma * sigma)
    # In place from here on: over a whole pool this is the largest array of all.
    exponent = np.asarray((x * scale) @ y.T)
    exponent -= (0.5 * scale) * (x * x).sum(1)[:, None]
    exponent -= (0.5 * scale) * (y * y).sum(1)[None, :]
    np.minimum(exponent, 0.0, out=exponent)
    return np.exp(exponent, out=exponent)


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
        """Rows of one speaker's centroids."""
        return slice(int(self.offsets[speaker]), int(self.offsets[speaker + 1]))

    def codebook(self, speaker: int) -> Array:
        """Centroids (k, d) of one speaker."""
        return self.centroids[self.rows(speaker)]

    @cached_property
    def owner(self) -> NDArray[np.int64]:
        """Speaker (M,) that each centroid belongs to."""
        return np.repeat(np.arange(len(self)), np.diff(self.offsets))

    def gram(self, first: int, second: int) -> Array:
        """Kernel tile (k_first, k_second) between two speakers' centroids."""
        return rbf_kernel(self.codebook(first), self.codebook(second), self.sigma)
