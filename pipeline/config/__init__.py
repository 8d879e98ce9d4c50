"""Settings: frozen, typed, read from TOML; an unknown key, a wrong type or an impossible value is a ConfigError.

Every default is set here. ``configs/default.toml`` names them all; other files name only what they change.
"""

from pipeline.config.audio import (
    AnalysisConfig,
    AugmentationConfig,
    FeatureSettings,
    GmmAnalysisConfig,
    NormalisedAnalysisConfig,
    VadConfig,
)
from pipeline.config.decisions import (
    CHECKS,
    NO_CHECKS,
    ChecksConfig,
    DuplicateAudioConfig,
    PosteriorConfig,
    ScoringConfig,
    ThresholdConfig,
)
from pipeline.config.loading import load_config, parse_config
from pipeline.config.machines import (
    CodebookConfig,
    EmbeddingConfig,
    GmmConfig,
    MachineConfig,
    NormalisedConfig,
    PitchConfig,
    SegmentConfig,
    SupervectorConfig,
    UbmConfig,
    UtteranceMachineConfig,
)
from pipeline.config.settings import Config
from pipeline.config.values import Action, Analysis, Augmentation, MachineKind, System

__all__ = [
    "CHECKS",
    "NO_CHECKS",
    "Action",
    "Analysis",
    "AnalysisConfig",
    "Augmentation",
    "AugmentationConfig",
    "ChecksConfig",
    "CodebookConfig",
    "Config",
    "DuplicateAudioConfig",
    "EmbeddingConfig",
    "FeatureSettings",
    "GmmAnalysisConfig",
    "GmmConfig",
    "MachineConfig",
    "MachineKind",
    "NormalisedAnalysisConfig",
    "NormalisedConfig",
    "PitchConfig",
    "PosteriorConfig",
    "ScoringConfig",
    "SegmentConfig",
    "SupervectorConfig",
    "System",
    "ThresholdConfig",
    "UbmConfig",
    "UtteranceMachineConfig",
    "VadConfig",
    "load_config",
    "parse_config",
]
