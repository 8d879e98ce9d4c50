"""Kinds of machines over whole utterances: utterances as recorded, mean-normalised utterances, embeddings, or pitch.

Supervector machines and GMMs use features of different analyses, so that their errors differ; normalised supervectors
concatenate those of two. A branch has one universal background model for each analysis. The statistics of the raw
branch contain the channel, which helps as long as it is the enrollment channel; machines of the normalised branch, also
trained on augmented versions of the recordings, are meant for other channels.
"""

from __future__ import annotations

import math
from collections.abc import Container
from dataclasses import dataclass
from typing import Literal

from pipeline.config import Analysis, Config, SegmentConfig, UtteranceMachineConfig


@dataclass(frozen=True, slots=True)
class Branch:
    """Machines over utterances as recorded, over mean-normalised ones, over embeddings, or over pitch.

    Names of the branch's arrays begin with ``prefix``.
    """

    prefix: str

    @property
    def segments(self) -> str:
        """Return the name of each speaker's array of segments that supervector machines are trained on."""
        return f"{self.prefix}segments"

    def settings(self, config: Config) -> SegmentConfig:
        """Return the section of the settings for training the branch."""
        sections: dict[Branch, SegmentConfig] = {NORMALISED: config.normalised, EMBEDDED: config.embedding}
        return sections.get(self, config.supervector)

    def mean_prior(self, config: Config) -> float:
        """Return how many frames of zero are counted into an utterance's mean; infinity if no mean is subtracted."""
        return config.normalised.mean_prior if self is NORMALISED else math.inf

    def has_pseudo_speakers(self, config: Config, speakers: int) -> bool:
        """Check whether machines of a population of ``speakers`` are trained on pseudo-speakers too."""
        return self is RAW and config.supervector.has_pseudo_speakers(speakers)


RAW = Branch("")
NORMALISED = Branch("normalised.")
EMBEDDED = Branch("embedding.")
PITCHED = Branch("pitch.")


@dataclass(frozen=True, slots=True)
class Background:
    """A universal background model of a ``branch``, over the features of an ``analysis``.

    In the embedding and pitch branches, an encoder and pitch counts take its place.
    """

    branch: Branch
    analysis: Analysis

    @property
    def name(self) -> str:
        """Return the prefix of its arrays' names, which also names an utterance's running sums under it."""
        return f"{self.branch.prefix}{self.analysis}.ubm"

    @property
    def is_trained(self) -> bool:
        """Return True if it is a universal background model, which is trained and stored."""
        return self.branch in (RAW, NORMALISED)

    def settings(self, config: Config) -> UtteranceMachineConfig:
        """Return the section of the settings for training the universal background model."""
        return config.normalised if self.branch is NORMALISED else config.supervector

    def components(self, config: Config) -> int:
        """Return the number of Gaussians."""
        return config.normalised.components if self.branch is NORMALISED else config.ubm.components


@dataclass(frozen=True, slots=True)
class UtteranceKind:
    """One kind of machines over utterances: its ``name``, its ``branch``, and the ``analyses`` that it reads.

    GMMs and histograms read one analysis; supervectors concatenate all.
    """

    name: str
    branch: Branch
    machine: Literal["supervector", "gmm", "histogram"]
    analyses: tuple[Analysis, ...]

    @property
    def array(self) -> str:
        """Return the name of the array with one row per speaker: coefficients, GMM offsets, or histogram shares."""
        return f"{self.branch.prefix}{self.machine}"

    @property
    def backgrounds(self) -> tuple[Background, ...]:
        """Return the background models whose statistics the machines read."""
        return tuple(Background(self.branch, analysis) for analysis in self.analyses)


SUPERVECTOR = UtteranceKind("supervector", RAW, "supervector", ("supervector",))
GMM = UtteranceKind("gmm", RAW, "gmm", ("gmm",))
NORMALISED_SUPERVECTOR = UtteranceKind(
    "normalised_supervector", NORMALISED, "supervector", ("supervector", "normalised")
)
NORMALISED_GMM = UtteranceKind("normalised_gmm", NORMALISED, "gmm", ("normalised",))
EMBEDDING = UtteranceKind("embedding", EMBEDDED, "supervector", ("embedding",))
PITCH = UtteranceKind("pitch", PITCHED, "histogram", ("pitch",))
UTTERANCE_KINDS = (SUPERVECTOR, GMM, NORMALISED_SUPERVECTOR, NORMALISED_GMM, PITCH, EMBEDDING)
BACKGROUNDS = tuple(dict.fromkeys(background for kind in UTTERANCE_KINDS for background in kind.backgrounds))


def utterance_kinds_of(kinds: Container[str]) -> tuple[UtteranceKind, ...]:
    """Return those machine ``kinds`` that are over whole utterances."""
    return tuple(kind for kind in UTTERANCE_KINDS if kind.name in kinds)


def reads_augmented(kinds: Container[str]) -> bool:
    """Check whether machines of ``kinds`` are trained on augmented versions of the recordings."""
    return any(kind.branch in (NORMALISED, EMBEDDED) for kind in utterance_kinds_of(kinds))


def trained_branches(kinds: Container[str]) -> tuple[Branch, ...]:
    """Return the branches of the machine ``kinds`` that are trained on everybody's speech: all but pitch."""
    return tuple(dict.fromkeys(kind.branch for kind in utterance_kinds_of(kinds) if kind.machine != "histogram"))
