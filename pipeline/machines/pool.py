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

    ``kernels`` are ``tile_kernels`` where kernel values are made by compiled code: in single precision from the product
    on, which comes out the same however many frames are taken together, as products of a library do not. Its digits
    suffice where frames and centroids lie within some tens of sigma of their middle, as speech does.
    """

    sums: np.dtype[Any]
    kernel: np.dtype[Any]
    kernels: Any = None

    @classmethod
    def named(cls, name: str, *, compiled: bool = False) -> Precision:
        """Of the name that settings give: "float64", "mixed" or "float32"; ``compiled`` loads numba for the last two.

        Kernel values then differ from numpy's by their last digits. On a processor with AVX2 a claim took a third of
        the time in mixed precision, and six tenths in float32 (benchmarks/SPEED.md).
        """
        sums = np.dtype("float64" if name == "mixed" else name)
        kernel = np.dtype("float64" if name == "float64" else "float32")
        if not compiled or kernel == np.float64:
            return cls(sums, kernel)
        from pipeline.machines import tile_kernels

        return cls(sums, kernel, tile_kernels)

    @property
    def products(self) -> np.dtype[Any]:
        """The type of the frames and centroids that are multiplied, and of the kernel values that come of them."""
        return self.sums if self.kernels is None else self.kernel

    def columns(self, count: int) -> int:
        """How many centroids ``count`` are counted as: compiled code takes whole blocks."""
        return count if self.kernels is None else -(-count // self.kernels.COLUMNS) * int(self.kernels.COLUMNS)

    def laid_out(self, sides: NDArray[Any]) -> NDArray[Any]:
        """``sides`` (N, d + 2, k), k a number of ``columns``, in the order in which they are read."""
        if self.kernels is None:
            return sides
        speakers, depth, size = sides.shape
        blocks = sides.reshape(speakers, depth, size // self.kernels.COLUMNS, self.kernels.COLUMNS)
        return np.ascontiguousarray(blocks.transpose(0, 2, 1, 3))

    def kernel_values(self, frames: NDArray[Any], sides: NDArray[Any], tiles: NDArray[Any]) -> NDArray[Any]:
        """Kernel values of T frames with N speakers' k centroids, in ``tiles`` (N, T, k), all of type ``products``.

        ``frames`` (T, d + 2) end in -|x|^2 / 2 and 1, ``sides`` (N, d + 2, k) in 1 and -|y|^2 / 2, both over sigma: the
        exponent is their product. They are ``laid_out``.
        """
        if self.kernels is None:
            exponents = np.matmul(frames, sides, out=tiles)
            # One call casts piece by piece, in the processor's nearest cache.
            return np.asanyarray(np.exp(exponents, out=exponents, dtype=self.kernel, casting="same_kind"))
        nothing = np.empty((len(sides), 0, tiles.shape[2]), self.sums)
        nowhere = np.empty((len(sides), len(frames), 0), self.sums)
        self.kernels.kernel_sums(frames, sides, nothing, nowhere, np.arange(len(sides)), tiles)
        return tiles

    def kernel_sums(
        self, frames: NDArray[Any], sides: NDArray[Any], coefficients: NDArray[Any], kept: NDArray[np.int64]
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Sums (N, T, w) of the same under ``coefficients`` (N, w, k), and the values (n, T, k) of those ``kept`` (n,).

        By compiled code alone. ``kept`` are in order.
        """
        sums = np.empty((len(sides), len(frames), coefficients.shape[1]), self.sums)
        values = np.empty((len(kept), len(frames), coefficients.shape[2]), self.kernel)
        self.kernels.kernel_sums(frames, sides, coefficients, sums, kept, values)
        return sums, values


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
