"""Branches: machines over whole utterances as they were recorded, and over utterances less their mean.

Each branch has a universal background model, supervector machines and adapted GMMs of its own. Raw statistics keep what
the channel adds, which helps as long as it is the one of enrollment; normalised ones, of machines that are trained on
augmented versions of the recordings too, hold where it is another.
"""

from __future__ import annotations

import math
from collections.abc import Container
from dataclasses import dataclass

from pipeline.config import Config, UtteranceMachineConfig


@dataclass(frozen=True, slots=True)
class Branch:
    """One branch: the machine kinds ``supervector`` and ``gmm``, and the ``prefix`` of its arrays' names."""

    supervector: str
    gmm: str
    prefix: str

    @property
    def sums(self) -> str:
        """Return the name of the running sums of an utterance, among those of other rules."""
        return f"statistics of {self.supervector}"

    def settings(self, config: Config) -> UtteranceMachineConfig:
        """Return the section of the settings that the branch is trained by."""
        return config.normalised if self is NORMALISED else config.supervector

    def mean_prior(self, config: Config) -> float:
        """Return the frames of zero in the mean of an utterance; infinity where it stays as it is."""
        return config.normalised.mean_prior if self is NORMALISED else math.inf


RAW = Branch("supervector", "gmm", "")
NORMALISED = Branch("normalised_supervector", "normalised_gmm", "normalised.")
BRANCHES = (RAW, NORMALISED)


def branches_of(kinds: Container[str]) -> tuple[Branch, ...]:
    """Return the branches that have machines among the machine ``kinds``."""
    return tuple(branch for branch in BRANCHES if branch.supervector in kinds)
