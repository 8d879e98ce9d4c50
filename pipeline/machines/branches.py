"""Kinds of machines over whole utterances: of utterances as recorded, less their mean, of embeddings, or of pitch.

Supervector machines and GMMs read features of different analyses, and normalised supervectors those of two, end to end,
so that their errors differ. A branch has one universal background model for each analysis. The statistics of the raw
branch contain the channel, which helps while it is that of the enrollment; machines of the normalised branch are
trained on augmented versions of the recordings too, and hold on other channels.
"""

from __future__ import annotations

import math
from collections.abc import Container
from dataclasses import dataclass
from typing import Literal

from pipeline.config import Analysis, Config, SegmentConfig, UtteranceMachineConfig


@dataclass(frozen=True, slots=True)
class Branch:
    """Machines over utterances as they were recorded, or less their mean, over embeddings, or over pitches.

    ``prefix`` begins the arrays' names.
    """

    prefix: str

    @property
    def segments(self) -> str:
        """Return the name of each speaker's array of segments that supervector machines are trained on."""
        return f"{self.prefix}segments"

    def settings(self, config: Config) -> SegmentConfig:
        """Return the section of the settings that the branch is trained by."""
        sections: dict[Branch, SegmentConfig] = {NORMALISED: config.normalised, EMBEDDED: config.embedding}
        return sections.get(self, config.supervector)

    def mean_prior(self, config: Config) -> float:
        """Return how many frames of zero the mean of an utterance begins with: infinity where none is subtracted."""
        return config.normalised.mean_prior if self is NORMALISED else math.inf

    def has_pseudo_speakers(self, config: Config, speakers: int) -> bool:
        """Check whether machines of so many ``speakers`` are trained on pseudo-speakers too."""
        return self is RAW and config.supervector.has_pseudo_speakers(speakers)


RAW = Branch("")
NORMALISED = Branch("normalised.")
EMBEDDED = Branch("embedding.")
PITCHED = Branch("pitch.")


@dataclass(frozen=True, slots=True)
class Background:
    """A universal background model of a ``branch``, over the features of an ``analysis``.

    In the embedding and pitch branches, an encoder and pitch counts have its place.
    """

    branch: Branch
    analysis: Analysis

    @property
    def name(self) -> str:
        """Return the beginning of its arrays' names, and the name of an utterance's running sums under it."""
        return f"{self.branch.prefix}{self.analysis}.ubm"

    @property
    def is_trained(self) -> bool:
        """Check whether it is a universal background model, which is trained and stored."""
        return self.branch in (RAW, NORMALISED)

    def settings(self, config: Config) -> UtteranceMachineConfig:
        """Return the section of the settings that a universal background model is trained by."""
        return config.normalised if self.branch is NORMALISED else config.supervector

    def components(self, config: Config) -> int:
        """Return the number of Gaussians."""
        return config.normalised.components if self.branch is NORMALISED else config.ubm.components


@dataclass(frozen=True, slots=True)
class UtteranceKind:
    """One kind of machines over utterances: its ``name``, its ``branch``, and the ``analyses`` that it reads.

    GMMs and histograms read one analysis; supervectors are of all of them, end to end.
    """

    name: str
    branch: Branch
    machine: Literal["supervector", "gmm", "histogram"]
    analyses: tuple[Analysis, ...]

    @property
    def array(self) -> str:
        """Return the name of each speaker's array: coefficients, offsets of the GMM, or shares of the histogram."""
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
    """Return those of the machine ``kinds`` that are over whole utterances."""
    return tuple(kind for kind in UTTERANCE_KINDS if kind.name in kinds)


def reads_augmented(kinds: Container[str]) -> bool:
    """Check whether machines of ``kinds`` are trained on augmented versions of the recordings."""
    return any(kind.branch in (NORMALISED, EMBEDDED) for kind in utterance_kinds_of(kinds))


def trained_branches(kinds: Container[str]) -> tuple[Branch, ...]:
    """Return the branches of the machine ``kinds`` whose training reads everybody's speech: all but that of pitch."""
    return tuple(dict.fromkeys(kind.branch for kind in utterance_kinds_of(kinds) if kind.machine != "histogram"))
