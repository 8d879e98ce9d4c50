"""Claims to running scores, each judged in its panel of the hardest rivals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from pipeline.features.stream import FeatureBlock
from pipeline.machines.panels import PanelMargins, Panels
from pipeline.machines.population import Population
from pipeline.posteriors.coupling import RULES, Posterior
from pipeline.scoring import ClaimScorer, FrameMargins, ScoringSettings

Array = NDArray[np.float64]


class PanelScorer(ClaimScorer):
    """C claims under several systems: pair rules judge each in its panel, rules of other machines among everybody.

    ``population`` holds everybody in the ``panels``, by the numbers that these go by, and the segment machines of
    everybody; ``numbers`` (C,) are the claims' own among the latter (default: those of the panels). ``among_all``
    scores the same claims under the systems of one-vs-rest machines, if any are asked for.
    """

    def __init__(
        self,
        population: Population,
        panels: Panels,
        systems: Iterable[str],
        settings: ScoringSettings,
        *,
        numbers: Sequence[int] | None = None,
        among_all: ClaimScorer | None = None,
    ) -> None:
        self._panels = panels
        self._among_all = among_all
        asked = tuple(systems)
        of_panels = [name for name in asked if among_all is None or name not in among_all.systems]
        super().__init__(population, panels.claims, of_panels, settings)
        self.systems = asked
        self.claims = panels.slots
        self._whole_claims = panels.claims if numbers is None else np.array(numbers, dtype=np.int64)

    def _margin_scorer(self, _asked: NDArray[np.int64], kinds: frozenset[str]) -> FrameMargins:
        settings = self.settings
        return PanelMargins(self._population, self._panels, kinds, dtype=settings.dtype, compiled=settings.compiled)

    def with_posterior(self, posterior: Posterior) -> PanelScorer:
        """See ClaimScorer."""
        changed = super().with_posterior(posterior)
        if not isinstance(changed, PanelScorer):
            raise AssertionError("a copy is of another class than what was copied")
        changed._among_all = None if self._among_all is None else self._among_all.with_posterior(posterior)
        return changed

    def sums(self, frames: FeatureBlock) -> dict[str, Array]:
        """See ClaimScorer."""
        return super().sums(frames) | ({} if self._among_all is None else self._among_all.sums(frames))

    def finish(
        self, sums: Mapping[str, Array], frames: int, *, segment_margins: Array | None = None, absent: int | None = None
    ) -> dict[str, Array]:
        """See ClaimScorer."""
        found = super().finish(sums, frames, segment_margins=segment_margins, absent=absent)
        return found | ({} if self._among_all is None else self._among_all.finish(sums, frames, absent=absent))

    def _without(self, values: Array, absent: int | None, stand_in: float) -> Array:
        if absent is None or values.ndim == 1:
            return super()._without(values, absent, stand_in)
        return np.where(self._panels.members == absent, stand_in, values)


def is_of_panel(system: str) -> bool:
    """Whether claims are judged in panels alone under ``system``: by the rules of pair and one-class machines."""
    return RULES[system].needs <= {"one_vs_one", "one_class"}


def is_of_rest(system: str) -> bool:
    """Whether ``system`` asks one-vs-rest machines, and so the centroids of everybody."""
    return "one_vs_rest" in RULES[system].needs


def scorer_among(
    population: Population, claims: Sequence[int], systems: Iterable[str], settings: ScoringSettings
) -> ClaimScorer:
    """The scorer of ``claims`` on a whole ``population``: in panels where it says who rivals are."""
    asked = tuple(systems)
    if population.rivals is None:
        return ClaimScorer(population, claims, asked, settings)
    rest = [name for name in asked if is_of_rest(name)]
    return PanelScorer(
        population,
        Panels.of(claims, population.rivals.nearest[np.array(claims, dtype=np.int64)]),
        asked,
        settings,
        among_all=ClaimScorer(population, claims, rest, settings) if rest else None,
    )
