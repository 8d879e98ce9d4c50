"""Kinds of machines over whole utterances: of utterances as they were recorded, or less their mean.

Supervector machines and GMMs have a universal background model each, over features of an analysis of their own: what
they get wrong differs the more. Raw statistics keep what the channel adds, which helps as long as it is the one of
enrollment; normalised ones, of machines that are trained on augmented versions of the recordings too, hold where it is
another.
"""

from __future__ import annotations

import math
from collections.abc import Container
from dataclasses import dataclass
from typing import Literal

from pipeline.config import Config, UtteranceMachineConfig


@dataclass(frozen=True, slots=True)
class Branch:
    """Machines over utterances as they were recorded, or less their mean; ``prefix`` begins the arrays' names."""

    prefix: str

    def settings(self, config: Config) -> UtteranceMachineConfig:
        """Return the section of the settings that the branch is trained by."""
        return config.normalised if self is NORMALISED else config.supervector

    def mean_prior(self, config: Config) -> float:
        """Return the frames of zero in the mean of an utterance; infinity where it stays as it is."""
        return config.normalised.mean_prior if self is NORMALISED else math.inf


RAW = Branch("")
NORMALISED = Branch("normalised.")


@dataclass(frozen=True, slots=True)
class UtteranceKind:
    """One kind of machines over utterances: its ``name``, its ``branch``, and the ``analysis`` that it reads."""

    name: str
    branch: Branch
    analysis: Literal["supervector", "gmm"]

    @property
    def array(self) -> str:
        """Return the name of each speaker's array: coefficients of the supervector machine, or offsets of the GMM."""
        return f"{self.branch.prefix}{self.analysis}"

    def components(self, config: Config) -> int:
        """Return the number of Gaussians of the background model."""
        return config.normalised.components if self is NORMALISED_SUPERVECTOR else config.ubm.components

    @property
    def sums(self) -> str:
        """Return the name of the running sums of an utterance, among those of other rules."""
        return f"statistics of {self.name}"


SUPERVECTOR = UtteranceKind("supervector", RAW, "supervector")
GMM = UtteranceKind("gmm", RAW, "gmm")
NORMALISED_SUPERVECTOR = UtteranceKind("normalised_supervector", NORMALISED, "supervector")
NORMALISED_GMM = UtteranceKind("normalised_gmm", NORMALISED, "gmm")
UTTERANCE_KINDS = (SUPERVECTOR, GMM, NORMALISED_SUPERVECTOR, NORMALISED_GMM)


def utterance_kinds_of(kinds: Container[str]) -> tuple[UtteranceKind, ...]:
    """Return those of the machine ``kinds`` that are over whole utterances."""
    return tuple(kind for kind in UTTERANCE_KINDS if kind.name in kinds)


def is_normalised(kinds: Container[str]) -> bool:
    """Check whether machines of ``kinds`` are over utterances less their mean."""
    return any(kind.branch is NORMALISED for kind in utterance_kinds_of(kinds))
