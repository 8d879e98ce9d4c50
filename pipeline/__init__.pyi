from .audio.corpus import Corpus, Utterance, background_voices, read_corpus
from .config import Config, load_config
from .enrollment.enroll import enroll
from .enrollment.removal import remove_speaker
from .enrollment.report import EnrollmentReport
from .errors import NotEnoughSpeechError, VoiceclaimError
from .evaluation import read_trials, trials_of_folder
from .evaluation.assess import Assessment, assess
from .evaluation.calibrate import CalibrationReport, calibrate, reset_calibration
from .evaluation.measure import measure
from .evaluation.pairs import assess_pairs
from .metrics import OperatingPoint, equal_error_rate, error_curve
from .posteriors.classifiers import OneVsRestPosteriorClassifier, PairwisePosteriorClassifier
from .posteriors.estimators import make_posterior
from .posteriors.implied import ImpliedPosterior
from .scoring.decisions import Decision, State, Update
from .scoring.sequential import SequentialTest
from .store.model import SpeakerModel
from .store.sealing import check_store, seal_store
from .store.store import Store
from .verification.identification import Candidate, Identification, IdentificationDecision
from .verification.identifier import Identifier
from .verification.policies import BayesCost, DefaultThreshold, FalseAcceptRate, Sequential, Threshold
from .verification.stream import VerificationStream
from .verification.verifier import Verifier
from .verification.voice_comparison import VoiceComparison, compare_voices

__version__: str
__all__ = [
    "Assessment",
    "BayesCost",
    "CalibrationReport",
    "Candidate",
    "Config",
    "Corpus",
    "Decision",
    "DefaultThreshold",
    "EnrollmentReport",
    "FalseAcceptRate",
    "Identification",
    "IdentificationDecision",
    "Identifier",
    "ImpliedPosterior",
    "NotEnoughSpeechError",
    "OneVsRestPosteriorClassifier",
    "OperatingPoint",
    "PairwisePosteriorClassifier",
    "Sequential",
    "SequentialTest",
    "SpeakerModel",
    "State",
    "Store",
    "Threshold",
    "Update",
    "Utterance",
    "VerificationStream",
    "Verifier",
    "VoiceComparison",
    "VoiceclaimError",
    "__version__",
    "assess",
    "assess_pairs",
    "background_voices",
    "calibrate",
    "check_store",
    "compare_voices",
    "enroll",
    "equal_error_rate",
    "error_curve",
    "load_config",
    "make_posterior",
    "measure",
    "read_corpus",
    "read_trials",
    "remove_speaker",
    "reset_calibration",
    "seal_store",
    "trials_of_folder",
]
