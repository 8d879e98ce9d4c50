from .columns import NameColumn, TrialTable
from .comparison import PairedDifference, paired_bootstrap
from .folders import FolderTrials, trials_of_folder
from .joining import ScoredList, read_scored
from .list_writing import write_list
from .lists import Trial, read_list, read_trials
from .scores import SpeakerSpread, SystemScores, identification_error, read_scores, speaker_error_rates, speaker_spread

FORMATS: tuple[str, ...]
WRITTEN: tuple[str, ...]

__all__ = [
    "FORMATS",
    "WRITTEN",
    "FolderTrials",
    "NameColumn",
    "PairedDifference",
    "ScoredList",
    "SpeakerSpread",
    "SystemScores",
    "Trial",
    "TrialTable",
    "identification_error",
    "paired_bootstrap",
    "read_list",
    "read_scored",
    "read_scores",
    "read_trials",
    "speaker_error_rates",
    "speaker_spread",
    "trials_of_folder",
    "write_list",
]
