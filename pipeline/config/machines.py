"""Settings of machines: codebooks, machines over frames, and machines over utterances."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from pipeline.config.values import MachineKind, NonNegative, Positive, Section, distinct


class CodebookConfig(Section):
    """k-means centroids of one speaker; with less than ``min_seconds`` of speech, enrollment is refused."""

    centroids: Annotated[int, Field(ge=1, le=20000)] = 200
    min_seconds: NonNegative = 1.5
    max_iterations: Annotated[int, Field(ge=1)] = 50


class MachineConfig(Section):
    """Kinds of machines. ``C`` is the soft-margin cost of two-class machines, ``nu`` the parameter of one-class ones.

    ``one_class_scale`` is the sum of the one-class coefficients: "schoelkopf" means 1, "libsvm" nu times the number of
    centroids, "ratio" 1 / rho, so that margins are (f - rho) / rho; or a number. ``gram_gib`` limits the memory of a
    Gram matrix. Supervector machines need one over all segments of speech, in single precision: segments are left out
    until it fits. A one-vs-rest machine with a Gram matrix above this limit, or above a quarter of a GiB, is trained
    without one, slowly. If "one_vs_rest" is not among the ``kinds``, evaluation trains these machines when a system
    that needs them is named. ``cohort`` is the number R of most similar speakers against whom each speaker has pair
    machines, or "all". With R, enrolling a speaker and scoring a claim cost O(R), and a claim is judged among the
    claimed speaker and those R, or among everybody while no more are enrolled.
    """

    kinds: Annotated[tuple[MachineKind, ...], AfterValidator(distinct)] = (
        "one_vs_one",
        "one_class",
        "supervector",
        "gmm",
        "normalised_supervector",
        "normalised_gmm",
        "pitch",
    )
    sigma: Positive = 0.5
    C: Positive = 10.0
    nu: Annotated[float, Field(gt=0, lt=1)] = 0.1
    one_class_scale: Literal["schoelkopf", "libsvm", "ratio"] | Positive = "libsvm"
    gram_gib: Positive = 0.1
    cohort: Literal["all"] | Annotated[int, Field(ge=1)] = 100

    @model_validator(mode="after")
    def _kinds_make_sense(self) -> Self:
        if "one_class" not in self.kinds:
            raise ValueError("kinds: one_class must be among them (a population of one has no other machine)")
        return self

    def judged_among(self, speakers: int) -> int:
        """Return the number of speakers, of ``speakers`` enrolled, among whom pair machines judge a claim."""
        return speakers if self.cohort == "all" else min(speakers, self.cohort + 1)


class UbmConfig(Section):
    """The universal background model (``pipeline.machines.ubm``): a mixture of ``components`` Gaussians."""

    components: Annotated[int, Field(ge=1, le=4096)] = 256


class SegmentConfig(Section):
    """Least-squares machines over segments of speech.

    ``ridge`` is the weight of the penalty. Enrollment speech is cut into segments of ``segment_seconds``, at most
    ``max_segments`` per speaker.
    """

    ridge: Positive = 3.0
    segment_seconds: Positive = 0.5
    max_segments: Annotated[int, Field(ge=2, le=10000)] = 80


class EmbeddingConfig(SegmentConfig):
    """Machines over embeddings by your own neural encoder (``pipeline.machines.encoder``).

    The network is the ONNX file at ``path`` with the digest ``sha256``; it maps log mel bands (1, frames, 80), less
    their mean, to an embedding (1, d). Its windows are as long as the segments of enrollment speech.
    """

    path: str = ""
    sha256: Annotated[str, Field(pattern=r"^([0-9a-f]{64})?$")] = ""
    ridge: Positive = 1.0
    segment_seconds: Annotated[float, Field(ge=0.25, le=30)] = 1.5
    max_segments: Annotated[int, Field(ge=2, le=10000)] = 128


class UtteranceMachineConfig(SegmentConfig):
    """Machines over statistics of whole utterances (``pipeline.machines.branches``).

    ``relevance`` is the relevance factor in frames. A frame ``half_db`` below the loudest so far has half the weight.
    """

    relevance: Positive = 2.0
    half_db: Positive = 30.0


class SupervectorConfig(UtteranceMachineConfig):
    """GMM-supervector machines over recordings as they are (``pipeline.machines.supervectors``).

    While fewer than ``speeds_below`` speakers are enrolled, their speech played at other ``speeds`` gives
    pseudo-speakers.
    """

    speeds: tuple[Annotated[float, Field(ge=0.5, le=2.0)], ...] = (0.9, 1.1)
    speeds_below: Annotated[int, Field(ge=0)] = 100

    def has_pseudo_speakers(self, speakers: int) -> bool:
        """Check whether machines of this number of ``speakers`` are trained on pseudo-speakers too."""
        return bool(self.speeds) and speakers < self.speeds_below

    @field_validator("speeds")
    @classmethod
    def _speeds_are_other_voices(cls, speeds: tuple[float, ...]) -> tuple[float, ...]:
        if 1.0 in speeds or len(set(speeds)) != len(speeds):
            raise ValueError("a speed is named twice, or is that of the recording itself")
        return speeds


class NormalisedConfig(UtteranceMachineConfig):
    """Machines over mean-normalised utterances, trained on the recordings and augmented versions of them.

    The mean of an utterance includes ``mean_prior`` frames of zeros. ``components`` is the number of Gaussians in each
    UBM.
    """

    components: Annotated[int, Field(ge=1, le=4096)] = 512
    ridge: Positive = 1.0
    segment_seconds: Positive = 1.0
    max_segments: Annotated[int, Field(ge=2, le=10000)] = 128
    half_db: Positive = 10.0
    mean_prior: Positive = 50.0


class PitchConfig(Section):
    """Histograms of the fundamental frequency (``pipeline.machines.pitch``), with ``bins`` bins.

    ``relevance`` is the relevance factor in voiced frames. A frame ``half_db`` below the loudest so far has half the
    weight.
    """

    bins: Annotated[int, Field(ge=8, le=1024)] = 32
    relevance: Positive = 20.0
    half_db: Positive = 15.0


class GmmConfig(Section):
    """GMMs adapted from the UBM to each speaker by structural MAP (``pipeline.machines.gmm``).

    ``relevance`` is the relevance factor of a component's mean, in frames; the rest of the weight goes to the mean
    offset of its group. There are ``groups`` of components, from fine to coarse, with the relevance factor
    ``group_relevance``.
    """

    relevance: Positive = 4.0
    groups: tuple[Annotated[int, Field(ge=1, le=4096)], ...] = (32, 8, 1)
    group_relevance: Positive = 16.0

    @field_validator("groups")
    @classmethod
    def _groups_shrink(cls, groups: tuple[int, ...]) -> tuple[int, ...]:
        if any(fine <= coarse for fine, coarse in pairwise(groups)):
            raise ValueError("each number of groups must be smaller than the one before")
        return groups
