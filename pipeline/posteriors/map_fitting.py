"""Maps of machines (``machine_posteriors``) fitted to held-out margins, drawn to the pooled map of their kind.

The classes of a fit count alike, whatever their numbers of frames. A machine's own frames are few speakers', often few
utterances', so each class is joined by a pooled sample of the margins of all machines of the kind, which counts as
``posterior.pooling`` trials: with little speech a machine's map is the pooled one, with much of it nearly its own. As
the sample comes in through the weights of trials, this serves every kind of estimator alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.config import PosteriorConfig
from pipeline.errors import FitError
from pipeline.posteriors.base import MarginPosterior
from pipeline.posteriors.gaussian import TiedGaussian, TwoGaussian
from pipeline.posteriors.kinds import make_posterior
from pipeline.posteriors.machine_posteriors import KNOTS, QUADRATIC, identity_map
from pipeline.posteriors.sigmoid_fits import LinearLogOdds

AnyFloat = NDArray[Any]
Array = NDArray[np.float64]

# Margins of each class that stand for a speaker in the pooled sample, and of all speakers together.
SAMPLE = 64
MOST_POOLED = 256

_QUADRATICS = frozenset({"platt", "newton", "tied_gaussian", "two_gaussian"})
# As published, a tied Gaussian's sigmoid crosses one half at a margin of 0. One-vs-rest margins of frames are nearly
# all negative and one-class ones no better centred: here the crossing is where the classes put it.
_SETTINGS: dict[str, dict[str, str]] = {"tied_gaussian": {"crossing": "bayes"}}


@dataclass(frozen=True)
class Sides:
    """Margins of trials of the machine's own speaker, ``positive`` (n,), and of others, ``negative`` (m,)."""

    positive: AnyFloat
    negative: AnyFloat

    @property
    def both(self) -> bool:
        """Whether there are trials of both classes."""
        return self.positive.size > 0 and self.negative.size > 0

    @classmethod
    def pooled(cls, parts: Sequence[Sides]) -> Sides:
        """All ``parts``, each class as at most ``MOST_POOLED`` evenly spaced quantiles."""
        none = np.empty(0)
        return cls(
            quantiles(np.concatenate([none, *(part.positive for part in parts)]), MOST_POOLED),
            quantiles(np.concatenate([none, *(part.negative for part in parts)]), MOST_POOLED),
        )


def quantiles(margins: AnyFloat, most: int) -> AnyFloat:
    """``margins`` (n,) in order; if more than ``most``, so many evenly spaced quantiles that stand for them."""
    if len(margins) <= most:
        return np.sort(margins)
    return np.asarray(np.quantile(margins, (np.arange(most) + 0.5) / most))


class MapFitter:
    """Fits maps of the kind that ``settings`` name; ``numbers`` is their length P.

    ``settings.kind`` is one of ``kinds.POSTERIORS``.
    """

    def __init__(self, settings: PosteriorConfig) -> None:
        self._settings = settings
        self._quadratic = settings.kind in _QUADRATICS
        self.numbers = QUADRATIC if self._quadratic else KNOTS + 2

    @property
    def none(self) -> AnyFloat:
        """No map (P,): NaN."""
        return np.full(self.numbers, np.nan, dtype=self._dtype)

    def pooled(self, sample: Sides) -> AnyFloat:
        """Map (P,) fitted to a pooled ``sample`` alone; the fixed sigmoid where it says nothing."""
        found = self._fit([(sample, float(len(sample.positive)))]) if sample.both else None
        return identity_map(self._settings.slope, self.numbers).astype(self._dtype) if found is None else found

    def own(self, trials: Sides, count: float, sample: Sides) -> AnyFloat:
        """Map (P,) of one machine from its own ``trials``, each class counting as ``count``, and the pooled ``sample``.

        No map where there are not trials of both classes, or no finite one fits them.
        """
        if not trials.both:
            return self.none
        shared = [(sample, self._settings.pooling)] if sample.both and self._settings.pooling > 0.0 else []
        found = self._fit([(trials, count), *shared])
        return self.none if found is None else found

    @property
    def _dtype(self) -> type[np.floating[Any]]:
        # Tables are long, and seven digits are more than their straight lines are worth.
        return np.float64 if self._quadratic else np.float32

    def _fit(self, parts: Sequence[tuple[Sides, float]]) -> AnyFloat | None:
        """Map (P,) of trials that count as so many in each class; None where no finite one is found."""
        margins = np.concatenate([side for sides, _ in parts for side in (sides.positive, sides.negative)])
        sizes = [len(side) for sides, _ in parts for side in (sides.positive, sides.negative)]
        weights = np.repeat([count for _, count in parts for _ in range(2)] / np.array(sizes, dtype=float), sizes)
        positive = np.repeat([True, False] * len(parts), sizes)
        estimator = make_posterior(self._settings.kind, **_SETTINGS.get(self._settings.kind, {}))
        try:
            estimator.fit(margins, positive, weights)
        except FitError:
            return None
        found = self._map_of(estimator, float(margins.min()), float(margins.max()))
        return found.astype(self._dtype) if np.isfinite(found).all() else None

    def _map_of(self, estimator: MarginPosterior, low: float, high: float) -> Array:
        if isinstance(estimator, LinearLogOdds):
            return np.array([0.0, -estimator.A_, -estimator.B_])
        if isinstance(estimator, TiedGaussian | TwoGaussian):
            return np.array(estimator.quadratic_)
        # Margins all equal make a constant map, of any width.
        low, high = (low, high) if high - low > 1e-6 * max(abs(low), abs(high)) else (low - 1.0, high + 1.0)
        return np.concatenate(((low, high), estimator.log_odds(np.linspace(low, high, KNOTS))))
