"""Scorers of claims on a store: among everybody, or each in its panel where the store has panels."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.machines.population import Population
from pipeline.panel_scoring import PanelScorer, is_of_panel
from pipeline.scoring import ClaimScorer
from pipeline.store import SpeakerStore


class ClaimScorers:
    """Makes scorers of ``systems`` on ``store``; what all claims share is read once.

    Raises what ``SpeakerStore.scoring_settings`` and ``SpeakerStore.population`` raise.
    """

    def __init__(self, store: SpeakerStore, systems: Sequence[str]) -> None:
        self._store = store
        self._systems = tuple(systems)
        self._settings = store.scoring_settings(self._systems)
        self._in_panels = store.config.machines.rivals != "all"
        among_all = [name for name in self._systems if not (self._in_panels and is_of_panel(name))]
        self._among_all = tuple(among_all)
        self._everybody: Population | None = store.population(self._among_all) if among_all else None

    def of(self, claims: Sequence[int], systems: Sequence[str] | None = None) -> ClaimScorer:
        """The scorer of ``claims``, speaker numbers, under ``systems``: all, or some and parts that they sum."""
        asked = self._systems if systems is None else tuple(systems)
        among_all = None
        if self._everybody is not None:
            its_own = [name for name in asked if not (self._in_panels and is_of_panel(name))]
            among_all = ClaimScorer(self._everybody, claims, its_own, self._settings)
        judged_in_panels = tuple(name for name in asked if is_of_panel(name)) if self._in_panels else ()
        if among_all is not None and not judged_in_panels:
            return among_all
        panels = self._store.panels(claims)
        part = self._store.part(panels.speakers.tolist(), judged_in_panels)
        return PanelScorer(part, panels.numbered(), asked, self._settings, among_all=among_all)
