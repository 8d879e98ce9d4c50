"""Scorers of claims on a speaker model: for a claim judged in a cohort, no machine of anybody outside it is read."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from pipeline.machines.cohorts import Cohorts
from pipeline.scoring.claims import ClaimScorer
from pipeline.scoring.rules import RULES
from pipeline.store.model import SpeakerModel


def claim_scorers(model: SpeakerModel, systems: Sequence[str]) -> Callable[..., ClaimScorer]:
    """Return a function from claims, as speaker numbers, to their scorer; data that all claims share are read once.

    Its second argument names the systems to score: some of ``systems`` or of their parts; by default ``systems``.
    Raises as ``SpeakerModel.scoring_settings`` and ``SpeakerModel.population``.
    """
    systems, everybody = tuple(systems), None
    settings = model.scoring_settings(systems)
    if model.has_every_pair or any("one_vs_rest" in RULES[name].needs for name in systems):
        everybody = model.population(systems)

    def scorer(claims: Sequence[int], some: Sequence[str] | None = None) -> ClaimScorer:
        asked = tuple(systems if some is None else some)
        table = model.cohort_table
        if everybody is not None or table is None:
            return ClaimScorer(everybody or model.population(systems), claims, asked, settings)
        # Only machines of speakers in the cohorts are read.
        cohorts = Cohorts.of(claims, table.nearest[np.array(claims, dtype=np.int64)])
        part = model.population(asked, cohorts.speakers.tolist())
        numbers = np.searchsorted(cohorts.speakers, list(claims))
        return ClaimScorer(part, numbers.tolist(), asked, settings, cohorts=cohorts.numbered())

    return scorer
