"""Voiceclaim: enroll speakers from audio, then check, live or from files, whether a voice is who it claims to be.

The names below are the public interface. They are loaded when first used, so that importing the package is quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from pipeline._version import __version__

if TYPE_CHECKING:
    from pipeline.assessment import Assessment, assess, measure
    from pipeline.config import Config, load_config
    from pipeline.corpus import Corpus, Utterance, read_corpus
    from pipeline.early import EarlyRule
    from pipeline.enrollment import EnrollmentReport, enroll, remove_speaker
    from pipeline.errors import NotEnoughSpeechError, VoiceclaimError
    from pipeline.evaluation import OperatingPoint, equal_error_rate, error_curve, read_trials
    from pipeline.sealing import check_store, seal_store
    from pipeline.store import SpeakerStore
    from pipeline.transfer import ImportReport, export_speakers, import_speakers
    from pipeline.updates import Decision, State, Update
    from pipeline.verification import ThresholdSource, VerificationStream, Verifier, load_compiled

_HOMES = {
    "pipeline.assessment": ("Assessment", "assess", "measure"),
    "pipeline.config": ("Config", "load_config"),
    "pipeline.corpus": ("Corpus", "Utterance", "read_corpus"),
    "pipeline.early": ("EarlyRule",),
    "pipeline.enrollment": ("EnrollmentReport", "enroll", "remove_speaker"),
    "pipeline.errors": ("NotEnoughSpeechError", "VoiceclaimError"),
    "pipeline.evaluation": ("OperatingPoint", "equal_error_rate", "error_curve", "read_trials"),
    "pipeline.sealing": ("check_store", "seal_store"),
    "pipeline.store": ("SpeakerStore",),
    "pipeline.transfer": ("ImportReport", "export_speakers", "import_speakers"),
    "pipeline.updates": ("Decision", "State", "Update"),
    "pipeline.verification": ("ThresholdSource", "VerificationStream", "Verifier", "load_compiled"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Assessment",
    "Config",
    "Corpus",
    "Decision",
    "EarlyRule",
    "EnrollmentReport",
    "ImportReport",
    "NotEnoughSpeechError",
    "OperatingPoint",
    "SpeakerStore",
    "State",
    "ThresholdSource",
    "Update",
    "Utterance",
    "VerificationStream",
    "Verifier",
    "VoiceclaimError",
    "__version__",
    "assess",
    "check_store",
    "enroll",
    "equal_error_rate",
    "error_curve",
    "export_speakers",
    "import_speakers",
    "load_compiled",
    "load_config",
    "measure",
    "read_corpus",
    "read_trials",
    "remove_speaker",
    "seal_store",
]


def __getattr__(name: str) -> Any:
    """Load a public name from its home."""
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
