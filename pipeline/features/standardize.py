"""Global standardisation: one mean and scale a feature, learned once when a store is made and then frozen."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Standardizer:
    """x -> (x - mean) / scale, with ``mean`` and ``scale`` (d,); a feature that never changes keeps scale 1."""

    mean: Array
    scale: Array

    @classmethod
    def fit(cls, vectors: Array) -> Standardizer:
        """Learn mean and standard deviation of the rows of ``vectors`` (T, d)."""
        scale = vectors.std(axis=0)
        return cls(vectors.mean(axis=0), np.where(scale > 0, scale, 1.0))

    def __call__(self, vectors: Array) -> Array:
        """Standardise ``vectors`` (T, d)."""
        return (vectors - self.mean) / self.scale
