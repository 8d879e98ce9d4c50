"""What every map from a binary machine's margins to posteriors is: fitted once, then log-odds of any margins.

Conventions of the room. A margin f is positive on the positive class's side. A posterior is P(positive | f), kept as
its log-odds log(p / (1 - p)), natural logs; the sign conventions of the papers (Platt's A is negative where margins
are informative) stay inside the estimators.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pipeline.errors import FitError
from pipeline.posteriors.sigmoid import probability

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]


class MarginPosterior(ABC):
    """Base of the estimators: ``__init__`` stores settings, ``fit`` learns and returns self, learned names end in _."""

    kind: ClassVar[str]
    """Name in settings files and tables."""

    @abstractmethod
    def fit(self, margins: ArrayLike, positive: ArrayLike, weights: ArrayLike | None = None) -> Self:
        """Learn from ``margins`` (n,), the classes ``positive`` (n,) and, optionally, ``weights`` (n,) >= 0.

        A weight of 2 is the same as the trial given twice. Raises FitError for what ``checked`` refuses.
        """

    @abstractmethod
    def log_odds(self, margins: ArrayLike) -> Array:
        """Log-odds of the positive class at ``margins``, any shape; never NaN for finite margins."""

    def probability(self, margins: ArrayLike) -> Array:
        """P(positive | margin) in [0, 1] at ``margins``, any shape."""
        return np.asarray(probability(self.log_odds(margins)), dtype=float)


def checked(
    margins: ArrayLike, positive: ArrayLike, weights: ArrayLike | None = None, *, both: bool = True
) -> tuple[Array, Flags, Array]:
    """Margins (n,), classes (n,) and weights (n,) as arrays.

    Raises FitError unless they are of one length, finite, with no negative weight, and, with ``both``, of both classes
    at a weight above 0. Classes are True or 1 for positive, False, 0 or -1 for negative.
    """
    f = np.asarray(margins, dtype=np.float64)
    labels: NDArray[Any] = np.asarray(positive)
    w = np.ones(f.shape) if weights is None else np.asarray(weights, dtype=np.float64)
    if f.ndim != 1 or labels.shape != f.shape or w.shape != f.shape:
        raise FitError(
            "margins, classes and weights: one number a trial expected, got shapes"
            f" {f.shape}, {labels.shape}, {w.shape}"
        )
    if not np.isfinite(f).all():
        raise FitError(f"margins: finite numbers expected, got {f[~np.isfinite(f)][0]}")
    if not np.isfinite(w).all() or (w < 0).any():
        raise FitError("weights: finite numbers of at least 0 expected")
    if not np.isin(labels, (-1, 0, 1)).all():
        raise FitError(
            f"classes: 1 or True, and 0, -1 or False expected, got {labels[~np.isin(labels, (-1, 0, 1))][0]}"
        )
    flags = labels == 1
    if both and not (w[flags].sum() > 0 and w[~flags].sum() > 0):
        raise FitError(
            "classes: trials of both classes needed, got"
            f" {int((w[flags] > 0).sum())} positive and {int((w[~flags] > 0).sum())} negative ones"
        )
    return f, flags, w
