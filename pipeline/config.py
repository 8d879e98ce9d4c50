"""Settings: frozen, typed, read from TOML; an unknown key, a wrong type or an impossible value is a ConfigError.

Every default is written here and nowhere else. ``configs/*.toml`` name only what they change.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from pipeline.errors import ConfigError
from pipeline.files import find_config, read_bounded

_MOST_BYTES = 2**18  # of a settings file
_MOST_COLUMNS = 1000

MachineKind = Literal[
    "one_vs_one", "one_class", "one_vs_rest", "supervector", "gmm", "normalised_supervector", "normalised_gmm",
    "embedding",
]  # fmt: skip
Analysis = Literal["frames", "supervector", "gmm", "embedding"]
Augmentation = Literal["telephone", "babble", "noise", "room", "codec", "band", "coloured"]
Action = Literal["off", "warn", "refuse"]
System = Literal[
    "boar", "poar", "boao", "poao", "rpoao", "worst_rival", "refined_worst_rival",
    "supervector", "supervector_rival", "gmm", "gmm_rival",
    "normalised_supervector", "normalised_supervector_rival", "normalised_gmm", "normalised_gmm_rival",
    "embedding", "embedding_rival", "fused",
]  # fmt: skip


def _distinct(values: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(values)) != len(values):
        raise ValueError("the same kind is named twice")
    return values


Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class VadConfig(_Section):
    """Voice activity detection: levels in dB, rates in dB a second (``pipeline.features.vad``).

    Levels are those of the band from ``low_hz`` to ``high_hz``; 0 and half of ``features.rate`` make it the whole band.
    """

    low_hz: Annotated[float, Field(ge=0, le=500)] = 150.0
    high_hz: Annotated[float, Field(ge=1000, allow_inf_nan=False)] = 4000.0
    range_db: Positive = 30.0
    min_margin_db: NonNegative = 8.0
    max_margin_db: NonNegative = 15.0
    margin_share: Share = 0.4
    rise_db_per_second: NonNegative = 3.0
    fall_db_per_second: NonNegative = 1.0
    start_seconds: NonNegative = 0.4
    start_floor_db: Annotated[float, Field(ge=-100, le=0)] = -60.0

    @model_validator(mode="after")
    def _margins_in_order(self) -> Self:
        if self.min_margin_db > self.max_margin_db:
            raise ValueError(
                f"min_margin_db ({self.min_margin_db:g}) must not exceed max_margin_db ({self.max_margin_db:g})"
            )
        return self


class AnalysisConfig(_Section):
    """Analysis of a frame. ``order`` is the LPC order and the number of static features of every kind.

    ``bands`` and ``compression`` are those of perceptual linear prediction (kind "plp"); ``delta_scale`` is the weight
    of the deltas.
    """

    kind: Literal["lpc", "lpcc", "plp", "mfcc"] = "plp"
    method: Literal["autocorrelation", "burg"] = "autocorrelation"
    order: Annotated[int, Field(ge=1, le=39)] = 20
    bands: Annotated[int, Field(ge=8, le=128)] = 32
    compression: Annotated[float, Field(gt=0, le=1)] = 0.33
    delta_scale: Positive = 3.0

    @model_validator(mode="after")
    def _bands_suffice(self) -> Self:
        if self.kind == "plp" and self.order >= self.bands:
            raise ValueError(f"order ({self.order}) must be below the number of bands ({self.bands})")
        return self


class GmmAnalysisConfig(AnalysisConfig):
    """Analysis of a frame for GMMs."""

    kind: Literal["lpc", "lpcc", "plp", "mfcc"] = "mfcc"


class FeatureSettings(AnalysisConfig):
    """Front end: the analysis of frames for machines over frames, and those for machines over whole utterances.

    Supervector machines and GMMs have an analysis each. A frame is analysed once where they are the same. With
    ``log_mel`` there are log mel bands too, which machines over embeddings read (``pipeline.features.filterbank``).
    """

    kind: Literal["lpc", "lpcc", "plp", "mfcc"] = "lpcc"
    order: Annotated[int, Field(ge=1, le=39)] = 12
    rate: Annotated[int, Field(ge=4000, le=96000)] = 16000
    frame_ms: Annotated[float, Field(ge=5, le=200)] = 30.0
    step_ms: Annotated[float, Field(ge=1, le=100)] = 10.0
    window: Literal["hamming", "hann", "rectangular"] = "hamming"
    pre_emphasis: Annotated[float, Field(ge=0, lt=1)] = 0.97
    deltas: bool = True
    delta_width: Annotated[int, Field(ge=1, le=20)] = 2
    log_mel: bool = False
    vad: VadConfig = VadConfig()
    supervector: AnalysisConfig = AnalysisConfig()
    gmm: GmmAnalysisConfig = GmmAnalysisConfig()

    @model_validator(mode="after")
    def _frame_fits(self) -> Self:
        if self.step_ms > self.frame_ms:
            raise ValueError(f"step_ms ({self.step_ms:g}) must not exceed frame_ms ({self.frame_ms:g})")
        order = max(analysis.order for analysis in self.analyses.values())
        if self.frame_step < 1 or self.frame_length <= order + 1:
            raise ValueError(f"a frame of {self.frame_length} samples is too short for order {order}")
        if self.log_mel and (self.rate != 16000 or self.step_ms != 10.0 or self.frame_ms < 25.0):
            raise ValueError(
                "log_mel: encoders are trained on frames every 10 ms at 16 kHz, so rate must be 16000, step_ms 10 and"
                f" frame_ms 25 or more, got {self.rate}, {self.step_ms:g} and {self.frame_ms:g}"
            )
        return self

    @property
    def analyses(self) -> dict[Analysis, AnalysisConfig]:
        """The analyses of a frame by the machines that read them: those over frames, supervector machines and GMMs."""
        named: dict[Analysis, AnalysisConfig] = {"frames": self, "supervector": self.supervector, "gmm": self.gmm}
        fields = AnalysisConfig.model_fields
        return {name: AnalysisConfig(**{key: getattr(one, key) for key in fields}) for name, one in named.items()}

    @property
    def for_utterances(self) -> Self:
        """The same front end without the analysis for machines over frames."""
        return self.model_copy(update=self.supervector.model_dump())

    @property
    def dimensions(self) -> dict[Analysis, int]:
        """Lengths of the feature vectors of each analysis, deltas included."""
        return {name: analysis.order * (2 if self.deltas else 1) for name, analysis in self.analyses.items()}

    @property
    def frame_length(self) -> int:
        """Samples a frame."""
        return round(self.rate * self.frame_ms / 1000)

    @property
    def frame_step(self) -> int:
        """Samples from one frame's start to the next."""
        return round(self.rate * self.step_ms / 1000)

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
    """Kinds of machines. ``C`` is the soft-margin cost of the two-class kinds, ``nu`` the one-class kind's.

    ``one_class_scale`` is the sum of the one-class coefficients: "schoelkopf" 1, "libsvm" nu times the number of
    centroids, or a number; by "ratio" it is 1 / rho, so that margins are (f - rho) / rho. ``gram_gib`` limits each
    matrix of products that training holds whole: the supervector machines' over all segments of speech, in single
    precision, which are thinned out until it fits. A one-vs-rest machine whose own matrix would be larger, a quarter of
    a GiB at most, is trained slowly without.
    Without "one_vs_rest" among the ``kinds``, evaluation trains these machines where a system that reads them is named.
    ``cohort`` is how many of the most similar speakers each speaker has pair machines against, or "all": with a number
    R, the machines of a speaker and those of a claim cost O(R), and a claim is judged among the speaker and those R:
    everybody, as long as no more than R + 1 are enrolled.
    """

    kinds: Annotated[tuple[MachineKind, ...], AfterValidator(_distinct)] = (
        "one_vs_one",
        "one_class",
        "supervector",
        "gmm",
        "normalised_supervector",
        "normalised_gmm",
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


class UbmConfig(_Section):
    """The universal background model (``pipeline.machines.ubm``): a mixture of ``components`` Gaussians."""

    components: Annotated[int, Field(ge=1, le=4096)] = 256


class SegmentConfig(_Section):
    """Least-squares machines over segments of speech.

    ``ridge`` is that of the least squares. Enrollment speech is cut into segments of ``segment_seconds`` of speech, at
    most ``max_segments`` a speaker.
    """

    ridge: Positive = 3.0
    segment_seconds: Positive = 0.5
    max_segments: Annotated[int, Field(ge=2, le=10000)] = 80


class EmbeddingConfig(SegmentConfig):
    """Machines over embeddings by a neural encoder of your own (``pipeline.machines.encoder``).

    The network is the ONNX file at ``path`` with the digest ``sha256``; it maps log mel bands (1, frames, 80), less
    their mean, to an embedding (1, d). Windows of it are as long as the segments of enrollment speech.
    """

    path: str = ""
    sha256: Annotated[str, Field(pattern=r"^([0-9a-f]{64})?$")] = ""
    ridge: Positive = 1.0
    segment_seconds: Annotated[float, Field(ge=0.25, le=30)] = 1.5
    max_segments: Annotated[int, Field(ge=2, le=10000)] = 128


class UtteranceMachineConfig(SegmentConfig):
    """Machines over statistics of whole utterances (``pipeline.machines.branches``).

    ``relevance`` is the relevance factor in frames. A frame has half its weight at ``half_db`` below the loudest so
    far.
    """

    relevance: Positive = 2.0
    half_db: Positive = 30.0


class SupervectorConfig(UtteranceMachineConfig):
    """GMM-supervector machines over recordings as they are (``pipeline.machines.supervectors``).

    While fewer than ``speeds_below`` speakers are enrolled, their speech at other ``speeds`` makes pseudo-speakers.
    """

    speeds: tuple[Annotated[float, Field(ge=0.5, le=2.0)], ...] = (0.9, 1.1)
    speeds_below: Annotated[int, Field(ge=0)] = 100

    def has_pseudo_speakers(self, speakers: int) -> bool:
        """Check whether the machines of so many speakers are trained on pseudo-speakers too."""
        return bool(self.speeds) and speakers < self.speeds_below

    @field_validator("speeds")
    @classmethod
    def _speeds_are_other_voices(cls, speeds: tuple[float, ...]) -> tuple[float, ...]:
        if 1.0 in speeds or len(set(speeds)) != len(speeds):
            raise ValueError("a speed is named twice, or is that of the recording itself")
        return speeds


class NormalisedConfig(UtteranceMachineConfig):
    """Machines over utterances less their mean, trained on augmented versions beside the recordings.

    The mean of an utterance begins with ``mean_prior`` frames of zero. The UBM of the supervector machines has so many
    ``components``.
    """

    components: Annotated[int, Field(ge=1, le=4096)] = 512

    ridge: Positive = 1.0
    segment_seconds: Positive = 1.0
    max_segments: Annotated[int, Field(ge=2, le=10000)] = 128
    half_db: Positive = 10.0
    mean_prior: Positive = 50.0


class GmmConfig(_Section):
    """GMMs adapted from the UBM to each speaker by structural MAP (``pipeline.machines.gmm``).

    ``relevance`` is the relevance factor in frames of a component's mean; what it lacks comes from the mean offset of
    its group. There are ``groups`` of components, from fine to coarse, with the relevance factor ``group_relevance``.
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


class AugmentationConfig(_Section):
    """Data augmentation: versions of the enrollment audio that the normalised machines are trained on beside it.

    ``kinds``: a telephone line, babble of ``voices`` other voices, white noise, a reverberant room, a random codec, a
    random band with noise, noise of a random colour. Signal-to-noise ratios, but for those of bands, are drawn between
    ``min_snr_db`` and ``max_snr_db``. Each kind is made of the ``share`` of a speaker's utterances, two at the least.
    """

    kinds: Annotated[tuple[Augmentation, ...], AfterValidator(_distinct)] = get_args(Augmentation)
    voices: Annotated[int, Field(ge=1, le=100)] = 6
    min_snr_db: Annotated[float, Field(ge=-20, le=60)] = 0.0
    max_snr_db: Annotated[float, Field(ge=-20, le=60)] = 20.0
    share: Annotated[float, Field(gt=0, le=1)] = 0.4

    @model_validator(mode="after")
    def _ratios_in_order(self) -> Self:
        if self.min_snr_db > self.max_snr_db:
            raise ValueError(f"min_snr_db ({self.min_snr_db:g}) must not exceed max_snr_db ({self.max_snr_db:g})")
        return self


class PosteriorConfig(_Section):
    """Margins to binary posteriors s(``slope`` * margin) (Xin, Wu and Pan 2002, eq. 10)."""

    slope: Positive = 1.0


class ScoringConfig(_Section):
    """Scoring of a claim: the default ``system``, and the least speech that may be scored."""

    system: System = "fused"
    dtype: Literal["float64", "mixed", "float32"] = "mixed"
    min_seconds: Annotated[float, Field(ge=0, le=86400)] = 0.5


class ThresholdConfig(_Section):
    """The default threshold, from utterances held out at enrollment.

    ``holdout`` is the share of each speaker's speech held out while the hold-out pass trains on the rest;
    ``trial_seconds`` the speech joined into one held-out trial. Scores that are log-likelihood ratios are decided at
    the least expected cost, by the ``prior`` of a target trial and the costs of the two errors.
    These ratios depend on two assumptions: ``unknown_impostors`` is the share of impostors who are not enrolled, and
    ``unfamiliar_impostors`` how many times as likely as a claimant an impostor is to come by an unfamiliar condition: a
    channel, a room or noise unlike those of the enrollment speech and of its augmented versions.
    """

    holdout: Annotated[float, Field(gt=0, le=0.5)] = 0.2
    trial_seconds: Positive = 2.0
    prior: Annotated[float, Field(gt=0, lt=1)] = 0.4
    cost_miss: Positive = 1.0
    cost_false_accept: Positive = 1.0
    unknown_impostors: Share = 0.5
    unfamiliar_impostors: Annotated[float, Field(ge=1, le=1000)] = 8.0


class ChecksConfig(_Section):
    """Enrollment checks (``pipeline.enrollment.checks``): each off, a warning or a refusal.

    ``clipping``: more than the share ``max_clipped`` of a speaker's samples is clipped. ``noise``: the signal-to-noise
    ratio is below ``min_snr_db``. ``duplicates``: a recording duplicates one of another speaker. ``consistency``: the
    mean log-likelihood ratio of a speaker's held-out utterances is below ``min_consistency`` times the typical one.
    ``matches``: that of the utterances claimed for somebody else is more than ``max_match`` times so. Verification
    warns of ``clipping`` and ``noise``, too, unless they are off.
    """

    clipping: Action = "warn"
    max_clipped: Share = 0.001
    noise: Action = "warn"
    min_snr_db: Finite = 10.0
    duplicates: Action = "refuse"
    consistency: Action = "warn"
    min_consistency: NonNegative = 0.55
    matches: Action = "warn"
    max_match: NonNegative = 0.5


class DuplicateAudioConfig(_Section):
    """Duplicate-audio detection (``pipeline.features.fingerprints``): ``keep`` fingerprints of enrolled recordings."""

    keep: bool = True


class Config(_Section):
    """All settings of a store; ``seed`` is the only source of randomness.

    ``configs/default.toml`` lists every section and key with its meaning.

    Examples
    --------
    >>> import pipeline
    >>> pipeline.Config().features.order
    12
    """

    seed: Seed = 0
    features: FeatureSettings = FeatureSettings()
    codebook: CodebookConfig = CodebookConfig()
    machines: MachineConfig = MachineConfig()
    ubm: UbmConfig = UbmConfig()
    supervector: SupervectorConfig = SupervectorConfig()
    normalised: NormalisedConfig = NormalisedConfig()
    embedding: EmbeddingConfig = EmbeddingConfig()
    gmm: GmmConfig = GmmConfig()
    augmentation: AugmentationConfig = AugmentationConfig()
    posterior: PosteriorConfig = PosteriorConfig()
    scoring: ScoringConfig = ScoringConfig()
    threshold: ThresholdConfig = ThresholdConfig()
    checks: ChecksConfig = ChecksConfig()
    duplicate_audio: DuplicateAudioConfig = DuplicateAudioConfig()

    @model_validator(mode="after")
    def _embeddings_have_an_encoder(self) -> Self:
        if "embedding" in self.machines.kinds:
            missing = [f"embedding.{key}" for key in ("path", "sha256") if not getattr(self.embedding, key)]
            missing += [] if self.features.log_mel else ["features.log_mel = true"]
            if missing:
                raise ValueError(f"machines.kinds has embedding, which needs {', '.join(missing)}")
        return self

    @property
    def min_frames(self) -> int:
        """Speech frames below which nothing is scored: at least one."""
        # A whole number of frames must not be missed by the last bit of a quotient.
        return max(1, math.ceil(self.scoring.min_seconds / self.features.step_seconds - 1e-9))


def load_config(path: Path | str | None = None, overrides: Iterable[str] = ()) -> Config:
    """Read settings from a TOML file or preset (defaults without one), then apply ``section.key=value`` overrides.

    Raises ConfigError naming the file and the key.

    Parameters
    ----------
    path : path, optional
        A TOML file with some of the sections and keys of ``configs/default.toml``, or the name of a preset.
    overrides : iterable of str
        ``section.key=value``, the value as in TOML.

    Returns
    -------
    Config

    Examples
    --------
    >>> import pipeline
    >>> pipeline.load_config(overrides=["machines.C=1"]).machines.C
    1.0
    """
    if not isinstance(path, Path | str | None):
        raise ConfigError(
            f"settings: the path of a file or the name of a preset was expected, got {type(path).__name__}"
        )
    path = find_config(path) if isinstance(path, str) else path
    table: dict[str, Any] = {} if path is None else _read_toml(path)
    for override in [overrides] if isinstance(overrides, str) else overrides:
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
        return _parse_toml(read_bounded(path, _MOST_BYTES).decode("utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: settings cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise ConfigError(f"{path}: not TOML: {error}") from None


def _parse_toml(text: str) -> dict[str, Any]:
    """Parse TOML; raises ValueError, within a bounded time for any text."""
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


def _names(table: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of sections and, with their section, of settings."""
    for key, value in table.items():
        yield key
        if isinstance(value, Mapping):
            yield from (f"{key}.{name}" for name in _names(value))


def _explain(source: str, detail: Any) -> str:
    key = ".".join(str(part) for part in detail["loc"] if not str(part).startswith(("literal", "constrained")))
    if detail["type"] == "extra_forbidden":
        known = {name.lower(): name for name in _names(Config().model_dump())}
        near = [known[name] for name in get_close_matches(key.lower(), known, n=3)]
        return f"{source}: {key}: there is no such setting" + (f"; did you mean {', '.join(near)}?" if near else "")
    if detail["type"] == "value_error":
        return f"{source}: {key or 'settings'}: {detail['ctx']['error']}"
    return f"{source}: {key or 'settings'}: {detail['msg']}, got {detail['input']!r}"
