"""Settings: frozen, typed, read from TOML; an unknown key, a wrong type or an impossible value is a ConfigError.

Every default is written here and nowhere else. ``configs/*.toml`` name only what they change.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    field_validator,
    model_serializer,
    model_validator,
)

from pipeline.errors import ConfigError
from pipeline.files import read_bounded

_MOST_BYTES = 2**18  # of a settings file
_MOST_COLUMNS = 1000

MachineKind = Literal["one_vs_one", "one_class", "one_vs_rest", "segment", "mixture"]
Copy = Literal["telephone", "babble", "noise", "room"]
Action = Literal["off", "warn", "refuse"]
PosteriorKind = Literal[
    "fixed",
    "platt",
    "newton",
    "tied_gaussian",
    "two_gaussian",
    "cosine",
    "isotonic",
    "histogram",
    "implied",
]
System = Literal[
    "boar",
    "poar",
    "boao",
    "poao",
    "rpoao",
    "worst_rival",
    "refined_worst_rival",
    "segment",
    "segment_rival",
    "mixture",
    "mixture_rival",
    "fused",
    "hastie_tibshirani",
    "pkpd",
    "wu_lin_weng",
]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class GateConfig(_Section):
    """The causal speech gate: levels in dB, rates in dB a second (``pipeline.features.gate``)."""

    range_db: Positive = 30.0
    least_margin_db: NonNegative = 8.0
    most_margin_db: NonNegative = 15.0
    margin_share: Share = 0.4
    rise_db_per_second: NonNegative = 3.0
    fall_db_per_second: NonNegative = 1.0
    start_seconds: NonNegative = 0.4
    start_floor_db: Annotated[float, Field(ge=-100, le=0)] = -60.0

    @model_validator(mode="after")
    def _margins_in_order(self) -> Self:
        if self.least_margin_db > self.most_margin_db:
            raise ValueError(
                f"least_margin_db ({self.least_margin_db:g}) must not exceed most_margin_db ({self.most_margin_db:g})"
            )
        return self


class FeatureSettings(_Section):
    """Audio to feature vectors. ``order`` is the LPC order and the number of static features of every kind.

    ``bands`` and ``compression`` are those of perceptual linear prediction (kind "plp").
    """

    rate: Annotated[int, Field(ge=4000, le=96000)] = 16000
    frame_ms: Annotated[float, Field(ge=5, le=200)] = 30.0
    step_ms: Annotated[float, Field(ge=1, le=100)] = 10.0
    window: Literal["hamming", "hann", "rectangular"] = "hamming"
    pre_emphasis: Annotated[float, Field(ge=0, lt=1)] = 0.97
    kind: Literal["lpc", "lpcc", "plp", "reflection", "lar", "lsf", "mfcc"] = "plp"
    method: Literal["autocorrelation", "burg"] = "autocorrelation"
    order: Annotated[int, Field(ge=1, le=39)] = 20
    bands: Annotated[int, Field(ge=8, le=128)] = 32
    compression: Annotated[float, Field(gt=0, le=1)] = 0.33
    deltas: bool = True
    delta_width: Annotated[int, Field(ge=1, le=20)] = 2
    delta_scale: Positive = 3.0
    standardize: bool = False
    gate: GateConfig = GateConfig()

    @model_validator(mode="after")
    def _frame_fits(self) -> Self:
        if self.step_ms > self.frame_ms:
            raise ValueError(f"step_ms ({self.step_ms:g}) must not exceed frame_ms ({self.frame_ms:g})")
        if self.frame_step < 1 or self.frame_length <= self.order + 1:
            raise ValueError(f"a frame of {self.frame_length} samples is too short for order {self.order}")
        if self.kind == "plp" and self.order >= self.bands:
            raise ValueError(f"order ({self.order}) must be below the number of bands ({self.bands})")
        return self

    @property
    def frame_length(self) -> int:
        """Samples a frame."""
        return round(self.rate * self.frame_ms / 1000)

    @property
    def frame_step(self) -> int:
        """Samples from one frame's start to the next."""
        return round(self.rate * self.step_ms / 1000)

    @property
    def dimension(self) -> int:
        """Length of a feature vector."""
        return self.order * (2 if self.deltas else 1)

    @property
    def step_seconds(self) -> float:
        """Seconds that one frame stands for."""
        return self.frame_step / self.rate


class CodebookConfig(_Section):
    """k-means centroids of one speaker; below ``min_seconds`` of speech enrollment is refused."""

    centroids: Annotated[int, Field(ge=1, le=20000)] = 200
    min_seconds: NonNegative = 1.5
    max_iterations: Annotated[int, Field(ge=1)] = 50


class MachineConfig(_Section):
    """The machines. ``C`` is the soft-margin cost of the two-class kinds, ``nu`` the one-class kind's.

    ``one_class_scale`` sets what the one-class coefficients sum to: "schoelkopf" 1, "libsvm" nu times the number of
    centroids, or a number. ``gram_gib`` bounds each matrix of kernel values or products that training holds whole: the
    segment machines' over all stretches of speech, in single precision, and of implied posteriors the coefficients and
    the one-vs-rest machines' matrix over all centroids; enrollment that would need more is refused. Where a one-vs-rest
    machine's own matrix, a quarter of a GiB at most, would be larger, the machine is trained slowly without.
    ``rivals`` is how many of the hardest rivals each speaker has pair machines against, or "all": with a number R,
    files of machines and claims cost O(R), and a claim is judged among the speaker and those R.
    """

    kinds: tuple[MachineKind, ...] = ("one_vs_one", "one_class", "one_vs_rest", "segment", "mixture")
    sigma: Positive = 0.3
    C: Positive = 10.0
    nu: Annotated[float, Field(gt=0, lt=1)] = 0.1
    one_class_scale: Literal["schoelkopf", "libsvm"] | Positive = "libsvm"
    gram_gib: Positive = 10.0
    rivals: Literal["all"] | Annotated[int, Field(ge=1)] = "all"

    @model_serializer(mode="wrap")
    def _as_before_there_were_rivals(self, as_table: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without ``rivals`` where they are all, so that programs from before the setting read such stores."""
        table: dict[str, Any] = as_table(self)
        if table.get("rivals") == "all":
            del table["rivals"]
        return table

    @model_validator(mode="after")
    def _rivals_have_machines(self) -> Self:
        if self.rivals != "all" and "one_vs_one" not in self.kinds:
            raise ValueError(
                f"rivals = {self.rivals}: there are no pair machines to choose from; one_vs_one must be in kinds"
            )
        return self

    @model_validator(mode="after")
    def _kinds_make_sense(self) -> Self:
        if len(set(self.kinds)) != len(self.kinds):
            raise ValueError("kinds: the same kind is named twice")
        if "one_class" not in self.kinds:
            raise ValueError("kinds: one_class must be among them (a population of one has no other machine)")
        if "mixture" in self.kinds and "segment" not in self.kinds:
            raise ValueError("kinds: mixture adapts the mixture of segment machines, and segment is not among them")
        return self


class SegmentConfig(_Section):
    """The segment machines (``pipeline.machines.segments``).

    ``components`` of the mixture, ``relevance`` in frames, ``ridge`` of the least squares. Enrollment speech is cut to
    stretches of ``seconds`` of speech, at most ``most`` a speaker. A frame counts half when it is ``half_db`` below the
    loudest so far. While fewer than ``crowd`` speakers are enrolled, their speech at other ``speeds`` stands for voices
    of strangers.
    """

    components: Annotated[int, Field(ge=1, le=4096)] = 256
    relevance: Positive = 2.0
    ridge: Positive = 3.0
    seconds: Positive = 0.5
    most: Annotated[int, Field(ge=2, le=10000)] = 160
    half_db: Positive = 30.0
    speeds: tuple[Annotated[float, Field(ge=0.5, le=2.0)], ...] = (0.9, 1.1)
    crowd: Annotated[int, Field(ge=0)] = 100

    def has_strangers(self, speakers: int) -> bool:
        """Whether the machines of so many speakers are trained on strangers too."""
        return bool(self.speeds) and speakers < self.crowd

    @field_validator("speeds")
    @classmethod
    def _speeds_are_other_voices(cls, speeds: tuple[float, ...]) -> tuple[float, ...]:
        if 1.0 in speeds or len(set(speeds)) != len(speeds):
            raise ValueError("a speed is named twice, or is that of the recording itself")
        return speeds


class MixtureConfig(_Section):
    """The speaker models (``pipeline.machines.mixtures``): the mixture of segment machines, adapted to each speaker.

    What a component's mean moves by is believed by half at ``relevance`` frames, and else drawn to what its group moves
    by; there are so many ``groups``, from fine to coarse, and theirs is believed by half at ``group_relevance`` frames.
    """

    relevance: Positive = 4.0
    groups: tuple[Annotated[int, Field(ge=1, le=4096)], ...] = (32, 8, 1)
    group_relevance: Positive = 16.0

    @field_validator("groups")
    @classmethod
    def _groups_shrink(cls, groups: tuple[int, ...]) -> tuple[int, ...]:
        if any(fine <= coarse for fine, coarse in pairwise(groups)):
            raise ValueError("groups must be fewer from one to the next")
        return groups


class CopyConfig(_Section):
    """Degraded copies of the enrollment audio that machines are trained on beside it.

    ``kinds``: through a telephone line, under ``voices`` other voices, under white noise, in a room with echoes.
    Signal-to-noise ratios are drawn between ``least_snr_db`` and ``most_snr_db``.
    """

    kinds: tuple[Copy, ...] = ()
    voices: Annotated[int, Field(ge=1, le=100)] = 6
    least_snr_db: Annotated[float, Field(ge=-20, le=60)] = 5.0
    most_snr_db: Annotated[float, Field(ge=-20, le=60)] = 15.0

    @model_validator(mode="after")
    def _copies_make_sense(self) -> Self:
        if len(set(self.kinds)) != len(self.kinds):
            raise ValueError("kinds: the same kind is named twice")
        if self.least_snr_db > self.most_snr_db:
            raise ValueError(f"least_snr_db ({self.least_snr_db:g}) must not exceed most_snr_db ({self.most_snr_db:g})")
        return self


class PosteriorConfig(_Section):
    """Margins to binary posteriors, one map a machine (``pipeline.posteriors``).

    ``fixed`` is s(slope * margin), and ``slope`` also stands where nothing can be fitted. The others but ``implied``
    are fitted to held-out frames, which count as one trial every ``dependence`` seconds; a sample of all machines'
    margins counts as ``pooling`` trials of each class beside a machine's own. ``implied`` trains every machine of two
    classes ``machines`` times, reweighted.
    """

    kind: PosteriorKind = "fixed"
    slope: Positive = 1.0
    pooling: NonNegative = 100.0
    dependence: Positive = 0.1
    machines: Annotated[int, Field(ge=1, le=999)] = 19

    @property
    def fitted(self) -> bool:
        """Whether maps are fitted to held-out frames."""
        return self.kind not in ("fixed", "implied")

    @property
    def family(self) -> int | None:
        """Reweighted machines in the place of each machine of two classes, None for the machine itself."""
        return self.machines if self.kind == "implied" else None


class ScoringConfig(_Section):
    """How a claim is scored: the default ``system``, and the least speech that may be scored."""

    system: System = "fused"
    dtype: Literal["float64", "mixed", "float32"] = "mixed"
    min_seconds: Annotated[float, Field(ge=0, le=86400)] = 0.5


class ThresholdConfig(_Section):
    """The default threshold, from utterances held out at enrollment.

    ``holdout`` is the share of each speaker's speech set aside while provisional machines are trained on the rest;
    ``trial_seconds`` the speech joined into one held-out trial. ``prior`` of a true claim and the costs of the two
    errors are for decisions by log-likelihood ratio and for ``verify``'s probability; ``outsiders`` is the share of
    false claims taken to be made by people whom nobody enrolled, on which log-likelihood ratios depend.
    """

    holdout: Annotated[float, Field(gt=0, le=0.5)] = 0.2
    trial_seconds: Positive = 2.0
    prior: Annotated[float, Field(gt=0, lt=1)] = 0.05
    cost_miss: Positive = 1.0
    cost_false_accept: Positive = 1.0
    outsiders: Share = 0.5


class QualityConfig(_Section):
    """The enrollment gate (``pipeline.enrollment_gate``): what is done about each of its findings.

    ``clipping``: more than the share ``most_clipped`` of a speaker's samples is cut off at the top. ``noise``: speech
    stands less than ``least_snr_db`` above the noise. ``duplicates``: a recording is a copy of another speaker's.
    ``consistency``: a speaker's held-out utterances speak for that speaker less than ``least_consistency`` times as
    strongly as is typical of the others'. ``matches``: they speak for somebody else more than ``most_match`` times so.
    """

    clipping: Action = "warn"
    most_clipped: Share = 0.001
    noise: Action = "warn"
    least_snr_db: Finite = 10.0
    duplicates: Action = "refuse"
    consistency: Action = "warn"
    least_consistency: NonNegative = 0.55
    matches: Action = "warn"
    most_match: NonNegative = 0.5


class ReplayConfig(_Section):
    """Copies of recordings that are known (``pipeline.fingerprint``): ``keep`` fingerprints of those enrolled."""

    keep: bool = True


class Config(_Section):
    """All settings of a store; ``seed`` is the only source of randomness."""

    seed: Seed = 0
    features: FeatureSettings = FeatureSettings()
    codebook: CodebookConfig = CodebookConfig()
    machines: MachineConfig = MachineConfig()
    segments: SegmentConfig = SegmentConfig()
    mixture: MixtureConfig = MixtureConfig()
    copies: CopyConfig = CopyConfig()
    posterior: PosteriorConfig = PosteriorConfig()
    scoring: ScoringConfig = ScoringConfig()
    threshold: ThresholdConfig = ThresholdConfig()
    quality: QualityConfig = QualityConfig()
    replay: ReplayConfig = ReplayConfig()

    @model_validator(mode="after")
    def _posteriors_of_rivals(self) -> Self:
        if self.machines.rivals != "all" and self.posterior.fitted:
            raise ValueError(
                f"machines.rivals = {self.machines.rivals}: maps of posteriors are fitted to all pairs of speakers, as"
                f' posterior.kind = {self.posterior.kind!r} asks for; take "fixed" or "implied", or rivals = "all"'
            )
        return self

    @property
    def least_frames(self) -> int:
        """Speech frames below which nothing is scored: at least one."""
        # A whole number of frames must not be missed by the last bit of a quotient.
        return max(1, math.ceil(self.scoring.min_seconds / self.features.step_seconds - 1e-9))


def load_config(path: Path | None = None, overrides: Iterable[str] = ()) -> Config:
    """Read settings from the TOML file ``path`` (defaults without one), then apply ``section.key=value`` overrides.

    Raises ConfigError naming the file and the key.
    """
    table: dict[str, Any] = {} if path is None else _read_toml(path)
    for override in overrides:
        _apply(table, override)
    return parse_config(table, source="settings" if path is None else str(path))


def parse_config(table: Mapping[str, Any], *, source: str) -> Config:
    """Check a nested mapping of settings, as TOML and JSON give it; ``source`` names it in errors."""
    try:
        return Config.model_validate(_tuples(table))
    except ValidationError as error:
        raise ConfigError("\n".join(_explain(source, detail) for detail in error.errors())) from None


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        text = read_bounded(path, _MOST_BYTES).decode("utf-8")
        return _parse_toml(text)
    except OSError as error:
        raise ConfigError(f"{path}: settings cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise ConfigError(f"{path}: not TOML: {error}") from None


def _parse_toml(text: str) -> dict[str, Any]:
    """``text`` as a table; raises ValueError, soon whatever it holds."""
    if max(map(len, text.splitlines()), default=0) > _MOST_COLUMNS:  # keys of many parts take the square of their time
        raise ValueError(f"a line has more than {_MOST_COLUMNS} characters")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _apply(table: dict[str, Any], override: str) -> None:
    """Set one ``section.key=value``; the value is TOML, or else taken as a plain string."""
    key, equals, text = override.partition("=")
    parts = key.strip().split(".")
    if not equals or not all(parts) or len(key) > _MOST_COLUMNS:
        raise ConfigError(f"override {override!r}: must read section.key=value")
    try:
        value = _parse_toml(f"value = {text}")["value"]
    except ValueError:
        value = text.strip()
    for part in parts[:-1]:
        table = table.setdefault(part, {})
        if not isinstance(table, dict):
            raise ConfigError(f"override {override!r}: {part} is a value, not a section")
    table[parts[-1]] = value


def _tuples(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _tuples(item) for key, item in value.items()}
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


def _explain(source: str, detail: Any) -> str:
    key = ".".join(str(part) for part in detail["loc"] if not str(part).startswith(("literal", "constrained")))
    if detail["type"] == "extra_forbidden":
        return f"{source}: {key}: there is no such setting"
    if detail["type"] == "value_error":
        return f"{source}: {key or 'settings'}: {detail['ctx']['error']}"
    return f"{source}: {key or 'settings'}: {detail['msg']}, got {detail['input']!r}"
