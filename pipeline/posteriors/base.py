"""Base of the estimators that map a binary machine's margins to posteriors: fitted once, then log-odds of any margin.

A margin f is positive on the side of the positive class. A posterior p = P(positive | f) is kept as its log-odds
log(p / (1 - p)), in natural logs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pipeline.errors import FitError, UnfittedError
from pipeline.posteriors.settings import check_settings
from pipeline.posteriors.sigmoid import probability

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]


class MarginPosterior(ABC):
    """Base of the estimators: dataclasses of settings, to which ``fit`` adds learned attributes that end in _.

    Examples
    --------
    >>> from pipeline import make_posterior
    >>> fitted = make_posterior("newton").fit([-1.5, -0.5, 0.5, 0.2, 0.8, 1.6], [0, 0, 0, 1, 1, 1])
    >>> fitted.probability([-1.0, 0.0, 1.0]).round(2).tolist()
    [0.23, 0.45, 0.69]
    """

    kind: ClassVar[str]
    """Name in settings files and tables."""

    def fit(self, margins: ArrayLike, positive: ArrayLike, weights: ArrayLike | None = None) -> Self:
        """Fit to the margins of trials of both classes.

        Parameters
        ----------
        margins : array, shape (n,)
            Finite margins of trials that the machine was not trained on (``margins_for``).
        positive : array, shape (n,)
            Classes: True or 1 for positive trials, False, 0 or -1 for negative ones.
        weights : array, shape (n,), optional
            At least 0; a weight of 2 is the same as giving the trial twice.

        Returns
        -------
        self

        Raises
        ------
        FitError
            For other shapes or values, a class without a weight above 0, settings out of range, and a fit that ends at
            numbers that are not finite.
        """
        check_settings(self)
        self._check_settings()
        f, flags, w = checked(margins, positive, weights)
        counts = [int((w[side] > 0).sum()) for side in (flags, ~flags)]
        if 0 in counts:
            raise FitError(f"classes: trials of both classes needed, got {counts[0]} positive, {counts[1]} negative")
        self._fit(f[w > 0], flags[w > 0], w[w > 0])
        return self

    if not TYPE_CHECKING:  # else a type checker accepts any attribute

        def __getattr__(self, name: str) -> Any:
            message = f"{type(self).__name__} has no {name!r}"
            if name.endswith("_") and not name.startswith("_"):
                raise UnfittedError(f"{message}: fit(margins, positive) comes first")
            raise AttributeError(message)

    def _check_settings(self) -> None:  # noqa: B027
        """Raise FitError for settings out of range."""

    @abstractmethod
    def _fit(self, margins: Array, positive: Flags, weights: Array) -> None:
        """Learn from ``checked`` arrays of trials with a weight above 0."""

    def log_odds(self, margins: ArrayLike) -> Array:
        """Return the log-odds of the positive class, in nats; a subclass defines this, or ``probability`` in (0, 1).

        Parameters
        ----------
        margins : array, any shape
            Positive on the positive class's side.

        Returns
        -------
        array of that shape
            NaN for NaN, and never for finite margins.

        Raises
        ------
        FitError, UnfittedError
            For anything but real numbers, and before ``fit``.
        """
        p = self.probability(margins)
        return np.asarray(np.log(p) - np.log1p(-p))

    def probability(self, margins: ArrayLike) -> Array:
        """Return P(positive | margin) in [0, 1] at ``margins``, any shape; raises as ``log_odds``."""
        return np.asarray(probability(self.log_odds(margins)), dtype=float)


class LinearLogOdds(MarginPosterior):
    """Base of the fitted sigmoids P(positive | f) = 1 / (1 + exp(A f + B)): log-odds -(``A_`` f + ``B_``).

    A is negative where margins are informative (Platt 1999, eq. 9).
    """

    A_: float
    B_: float

    def log_odds(self, margins: ArrayLike) -> Array:
        """Return the log-odds at ``margins``, any shape, in nats; infinite if too large for a float."""
        with np.errstate(over="ignore"):
            return np.asarray(-(self.A_ * as_numbers(margins) + self.B_))


@dataclass(frozen=True, slots=True)
class WeightedTrials:
    """Trials (n,): ``margins``, ``target`` probabilities t, ``other`` = 1 - t, ``weights`` > 0; sums N+ and N-.

    The sigmoids minimise F(A, B) = -sum of w (t log p + (1 - t) log(1 - p)) (Platt 1999, eq. 11). No form here can
    overflow, take the log of zero or lose 1 - p to cancellation (Lin, Lin and Weng 2007, section 3.2).
    """

    margins: Array
    target: Array
    other: Array
    weights: Array
    positives: float
    negatives: float

    @property
    def start(self) -> tuple[float, float]:
        """Return the papers' initial A and B: slope zero, smoothed log-odds of the classes."""
        return 0.0, float(np.log((self.negatives + 1.0) / (self.positives + 1.0)))

    def objective(self, A: float, B: float) -> float:
        """Return F(A, B) in nats: eqs. 5 and 6 of Lin, Lin and Weng 2007, infinite where A f + B overflows."""
        with np.errstate(over="ignore", invalid="ignore"):
            z = A * self.margins + B
            losses = np.log1p(np.exp(-np.abs(z))) + np.where(z >= 0.0, self.target, -self.other) * z
            total = float(self.weights @ losses)
        return total if np.isfinite(total) else np.inf

    def slopes(self, A: float, B: float) -> tuple[Array, Array]:
        """Return weighted dF/dz = t - p and d2F/dz2 = p (1 - p), (n,) each, at z = A f + B."""
        z = A * self.margins + B
        p, q = probability(-z), probability(z)
        return self.weights * (self.target * q - self.other * p), self.weights * (p * q)


def trials_from(margins: Array, positive: Flags, weights: Array, *, smoothed: bool = True) -> WeightedTrials:
    """Return the ``checked`` trials of weight above 0, with targets 0 and 1 or the ends of ``smoothed_range``."""
    n1, n0 = float(weights[positive].sum()), float(weights[~positive].sum())
    if not smoothed:
        return WeightedTrials(margins, positive.astype(float), (~positive).astype(float), weights, n1, n0)
    low, high = smoothed_range(positive, weights)
    target = np.where(positive, high, low)
    other = np.where(positive, 1.0 / (n1 + 2.0), (n0 + 1.0) / (n0 + 2.0))
    return WeightedTrials(margins, target, other, weights, n1, n0)


def smoothed_range(positive: Flags, weights: Array) -> tuple[float, float]:
    """Return 1 / (N- + 2) and (N+ + 1) / (N+ + 2), with N the sums of weights (Platt 1999, eqs. 13 and 14)."""
    positives, negatives = float(weights[positive].sum()), float(weights[~positive].sum())
    return 1.0 / (negatives + 2.0), (positives + 1.0) / (positives + 2.0)


def as_numbers(values: ArrayLike, name: str = "margins") -> Array:
    """Return ``values``, of any shape, as float64; raises FitError unless they are real and unmasked."""
    array = _as_array(values, name)
    if array.dtype.kind not in "fiub" or np.ma.is_masked(values):
        got = "masked ones" if np.ma.is_masked(values) else f"{type(values).__name__} of {array.dtype}"
        raise FitError(f"{name}: real numbers expected, got {got}")
    return np.asarray(array, dtype=np.float64)


def _as_array(values: ArrayLike, name: str) -> NDArray[Any]:
    try:
        return np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise FitError(f"{name}: an array expected, got {type(values).__name__}: {error}") from None


def checked(margins: ArrayLike, positive: ArrayLike, weights: ArrayLike | None = None) -> tuple[Array, Flags, Array]:
    """Return margins (n,), classes (n,) and weights (n,) as arrays.

    Classes are True or 1 for positive, False, 0 or -1 for negative. Raises FitError if lengths differ or numbers are
    not finite, and as ``checked_weights``.
    """
    f, labels = as_numbers(margins), _as_array(positive, "classes")
    if f.ndim != 1 or labels.shape != f.shape:
        raise FitError(f"margins and classes: one of each a trial expected, got shapes {f.shape} and {labels.shape}")
    if not np.isfinite(f).all():
        raise FitError(f"margins: finite numbers expected, got {f[~np.isfinite(f)][0]}")
    unknown = labels[~np.isin(labels, (-1, 0, 1))]
    if unknown.size:
        raise FitError(f"classes: 1 or True, and 0, -1 or False expected, got {unknown[0]}")
    return f, labels == 1, checked_weights(weights, f.size)


def checked_weights(weights: ArrayLike | None, trials: int) -> Array:
    """Return weights (trials,), by default 1; raises FitError unless there is one per trial, finite and at least 0."""
    w = np.ones(trials) if weights is None else as_numbers(weights, "weights")
    if w.shape != (trials,):
        raise FitError(f"weights: one a trial expected, shape ({trials},), got shape {w.shape}")
    if not ((w >= 0) & (w < np.inf)).all():
        raise FitError(f"weights: finite numbers of at least 0 expected, got {w[~((w >= 0) & (w < np.inf))][0]}")
    return w
