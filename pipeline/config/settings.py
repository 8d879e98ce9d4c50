"""All settings of a store."""

from __future__ import annotations

import math
from typing import Self

from pydantic import model_validator

from pipeline.config.audio import AugmentationConfig, FeatureSettings
from pipeline.config.decisions import (
    ChecksConfig,
    DuplicateAudioConfig,
    PosteriorConfig,
    ScoringConfig,
    ThresholdConfig,
)
from pipeline.config.machines import (
    CodebookConfig,
    EmbeddingConfig,
    GmmConfig,
    MachineConfig,
    NormalisedConfig,
    PitchConfig,
    SupervectorConfig,
    UbmConfig,
)
from pipeline.config.values import Section, Seed


class Config(Section):
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
    pitch: PitchConfig = PitchConfig()
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

    @model_validator(mode="after")
    def _pitch_is_analysed(self) -> Self:
        if "pitch" in self.machines.kinds and not self.features.pitch:
            raise ValueError("machines.kinds has pitch, which needs features.pitch = true")
        return self

    @property
    def narrowed(self) -> Self:
        """Return the settings for a store of narrow-band speech (``features.narrow_band``)."""
        return self.model_copy(update={"features": self.features.narrowed})

    @property
    def min_frames(self) -> int:
        """Return the least number of speech frames that are scored, at least one."""
        # Tolerates rounding of the quotient just above a whole number.
        return max(1, math.ceil(self.scoring.min_seconds / self.features.step_seconds - 1e-9))
