"""Scorers of claims on a store: among everybody, or each in its panel where the store has panels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pipeline.machines.population import Population
from pipeline.panel_scoring import PanelScorer, is_of_rest
from pipeline.scoring import ClaimScorer
from pipeline.store import SpeakerStore


class ClaimScorers:
    """Makes scorers of ``systems`` on ``store``, ``compiled`` or not; what all claims share is read once.

    Raises what ``SpeakerStore.scoring_settings`` and ``SpeakerStore.population`` raise.
    """

    def __init__(self, store: SpeakerStore, systems: Sequence[str], *, compiled: bool = False) -> None:
        self._store = store
        self._systems = tuple(systems)
        self._settings = replace(store.scoring_settings(self._systems), compiled=compiled)
        self._in_panels = store.config.machines.rivals != "all"
        among_all = [name for name in self._systems if is_of_rest(name) or not self._in_panels]
        self._among_all = tuple(among_all)
        self._everybody: Population | None = store.population(self._among_all) if among_all else None

    def of(self, claims: Sequence[int], systems: Sequence[str] | None = None) -> ClaimScorer:
        """The scorer of ``claims``, speaker numbers, under ``systems``: all, or some and parts that they sum."""
        asked = self._systems if systems is None else tuple(systems)
        among_all = None
        if self._everybody is not None:
            its_own = [name for name in asked if is_of_rest(name) or not self._in_panels]
            among_all = ClaimScorer(self._everybody, claims, its_own, self._settings)
        others = tuple(name for name in asked if not is_of_rest(name)) if self._in_panels else ()
        if among_all is not None and not others:
            return among_all
        panels = self._store.panels(claims)
        part = self._store.part(panels.speakers.tolist(), others)
        return PanelScorer(part, panels.numbered(), asked, self._settings, numbers=claims, among_all=among_all)
