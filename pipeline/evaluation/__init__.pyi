from .columns import NameColumn, TrialTable, distinct
from .comparison import PairedDifference, paired_bootstrap
from .joining import ScoredList, read_scored
from .list_writing import write_list
from .lists import Trial, read_list, read_trials
from .scores import (
    ScoreRow,
    SpeakerSpread,
    SystemScores,
    identification_error,
    read_scores,
    speaker_error_rates,
    speaker_spread,
    write_scores,
)

FORMATS: tuple[str, ...]

__all__ = [
    "FORMATS",
    "NameColumn",
    "PairedDifference",
    "ScoreRow",
    "ScoredList",
    "SpeakerSpread",
    "SystemScores",
    "Trial",
    "TrialTable",
    "distinct",
    "identification_error",
    "paired_bootstrap",
    "read_list",
    "read_scored",
    "read_scores",
    "read_trials",
    "speaker_error_rates",
    "speaker_spread",
    "write_list",
    "write_scores",
]
