"""Settings of audio: voice activity detection, features and augmentation."""

from __future__ import annotations

from typing import Annotated, Literal, Self, get_args

from pydantic import AfterValidator, BaseModel, Field, model_validator

from pipeline.config.values import Analysis, Augmentation, NonNegative, Positive, Section, Share, distinct


class VadConfig(Section):
    """Voice activity detection: levels in dB, rates in dB per second (``pipeline.features.vad``).

    Levels are measured in the band from ``low_hz`` to ``high_hz``; 0 and half of ``features.rate`` give the full band.
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


NARROW_RATE = 8000  # Hz, of telephone lines
# Input of most encoders: sampling rate in Hz, frame step and frame length in milliseconds.
LOG_MEL_RATE, LOG_MEL_STEP_MS, LOG_MEL_FRAME_MS = 16000, 10.0, 25.0

Kind = Literal["lpc", "lpcc", "plp", "mfcc", "root_mfcc"]


class AnalysisConfig(Section):
    """Analysis of a frame. ``order`` is the LPC order and the number of static features of every kind.

    ``bands`` is the number of mel bands of perceptual linear prediction (kind "plp"). This kind and root cepstra (kind
    "root_mfcc") raise the power of each band to ``compression``. ``delta_scale`` is the weight of the deltas.
    """

    kind: Kind = "plp"
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

    kind: Kind = "mfcc"


class NormalisedAnalysisConfig(AnalysisConfig):
    """Analysis of a frame for normalised GMMs."""

    kind: Kind = "root_mfcc"
    compression: Annotated[float, Field(gt=0, le=1)] = 0.0667


class FeatureSettings(AnalysisConfig):
    """Front end: the analysis of frames for machines over frames, and those for machines over whole utterances.

    With ``narrow_band``, a new store of recordings that end at 4 kHz has features at 8 kHz, whatever ``rate`` is.
    ``pitch`` adds the fundamental frequency (``pipeline.features.pitch``), ``log_mel`` the log mel bands that machines
    over embeddings read (``pipeline.features.filterbank``).
    """

    kind: Kind = "lpcc"
    order: Annotated[int, Field(ge=1, le=39)] = 12
    rate: Annotated[int, Field(ge=4000, le=96000)] = 16000
    narrow_band: bool = True
    frame_ms: Annotated[float, Field(ge=5, le=200)] = 30.0
    step_ms: Annotated[float, Field(ge=1, le=100)] = 10.0
    window: Literal["hamming", "hann", "rectangular"] = "hamming"
    pre_emphasis: Annotated[float, Field(ge=0, lt=1)] = 0.97
    deltas: bool = True
    delta_width: Annotated[int, Field(ge=1, le=20)] = 2
    pitch: bool = True
    log_mel: bool = False
    vad: VadConfig = VadConfig()
    supervector: AnalysisConfig = AnalysisConfig()
    gmm: GmmAnalysisConfig = GmmAnalysisConfig()
    normalised: NormalisedAnalysisConfig = NormalisedAnalysisConfig()

    @model_validator(mode="after")
    def _frame_fits(self) -> Self:
        if self.step_ms > self.frame_ms:
            raise ValueError(f"step_ms ({self.step_ms:g}) must not exceed frame_ms ({self.frame_ms:g})")
        order = max(analysis.order for analysis in self.analyses.values())
        shortest = self.narrowed
        if shortest.frame_step < 1 or shortest.frame_length <= order + 1:
            raise ValueError(
                f"a frame of {shortest.frame_length} samples at {shortest.rate} Hz is too short for order {order}"
                f"{' (8 kHz by narrow_band)' if shortest != self else ''}"
            )
        rate, step_ms, frame_ms = LOG_MEL_RATE, LOG_MEL_STEP_MS, LOG_MEL_FRAME_MS
        if self.log_mel and (self.rate != rate or self.step_ms != step_ms or self.frame_ms < frame_ms):
            raise ValueError(
                f"log_mel: encoders are trained on frames every {step_ms:g} ms at {rate / 1000:g} kHz, so rate must be"
                f" {rate}, step_ms {step_ms:g} and frame_ms {frame_ms:g} or more, got {self.rate}, {self.step_ms:g} and"
                f" {self.frame_ms:g}"
            )
        return self

    @property
    def analyses(self) -> dict[Analysis, AnalysisConfig]:
        """Return the analyses of a frame: for machines over frames first, then for machines over utterances."""
        named: dict[Analysis, AnalysisConfig] = {
            "frames": self,
            "supervector": self.supervector,
            "gmm": self.gmm,
            "normalised": self.normalised,
        }
        fields = AnalysisConfig.model_fields
        return {name: AnalysisConfig(**{key: getattr(one, key) for key in fields}) for name, one in named.items()}

    @property
    def for_utterances(self) -> Self:
        """Return the same front end without the analysis for machines over frames."""
        return self.model_copy(update=self.supervector.model_dump())

    @property
    def dimensions(self) -> dict[Analysis, int]:
        """Return the length of the feature vectors of each analysis, deltas included."""
        return {name: analysis.order * (2 if self.deltas else 1) for name, analysis in self.analyses.items()}

    @property
    def narrowed(self) -> Self:
        """Return the same front end at 8 kHz if ``narrow_band`` allows it and no encoder needs the higher rate."""
        is_wide = self.narrow_band and self.rate > NARROW_RATE and not self.log_mel
        # Not validated, since validation of a front end calls this.
        return BaseModel.model_copy(self, update={"rate": NARROW_RATE}) if is_wide else self

    @property
    def frame_length(self) -> int:
        """Return the number of samples in a frame."""
        return round(self.rate * self.frame_ms / 1000)

    @property
    def frame_step(self) -> int:
        """Return the number of samples from the start of one frame to the next."""
        return round(self.rate * self.step_ms / 1000)

    @property
    def step_seconds(self) -> float:
        """Return the seconds from one frame to the next."""
        return self.frame_step / self.rate


class AugmentationConfig(Section):
    """Data augmentation: versions of the enrollment audio on which the normalised machines are trained, too.

    ``kinds``: a telephone line, babble of ``voices`` other voices, white noise, a reverberant room, a random codec, a
    random band with noise, noise of a random colour; line, codec and band are behind a microphone that may
    clip. Signal-to-noise ratios, except for bands, are drawn between ``min_snr_db`` and ``max_snr_db``. Each kind is
    made from a ``share`` of a speaker's utterances, at least two.
    """

    kinds: Annotated[tuple[Augmentation, ...], AfterValidator(distinct)] = get_args(Augmentation)
    voices: Annotated[int, Field(ge=1, le=100)] = 6
    min_snr_db: Annotated[float, Field(ge=-20, le=60)] = 0.0
    max_snr_db: Annotated[float, Field(ge=-20, le=60)] = 20.0
    share: Annotated[float, Field(gt=0, le=1)] = 0.4

    @model_validator(mode="after")
    def _ratios_in_order(self) -> Self:
        if self.min_snr_db > self.max_snr_db:
            raise ValueError(f"min_snr_db ({self.min_snr_db:g}) must not exceed max_snr_db ({self.max_snr_db:g})")
        return self
