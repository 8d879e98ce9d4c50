"""A verifier: one claim on one model, with its machines loaded and its policy prepared."""

from __future__ import annotations

import math
from functools import cached_property
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING

from numpy.typing import ArrayLike

from pipeline.audio.downmix import Downmix, Mixed
from pipeline.audio.files import open_audio
from pipeline.audio.streams import check_rate
from pipeline.errors import InputError, check_type
from pipeline.features.copies import DuplicateDetector
from pipeline.posteriors import sigmoid
from pipeline.scoring.claims import RunningScores, with_parts
from pipeline.scoring.conditions import SIDE_INFORMATION
from pipeline.scoring.decisions import Terms, Update
from pipeline.scoring.fitting import FIT_PRIOR
from pipeline.scoring.rules import RULES
from pipeline.scoring.uncertainty import RatioUncertainty
from pipeline.store.model import SpeakerModel
from pipeline.store.store import Store, as_model
from pipeline.verification.claim_scorers import claim_scorers
from pipeline.verification.duplicate_audio import MOST_OF_ONE, DuplicateMemory
from pipeline.verification.policies import DefaultThreshold, Policy

if TYPE_CHECKING:
    from pipeline.verification.stream import VerificationStream

UPDATE_MS = 200.0  # of audio between two scores of a stream: nobody can follow more than five a second
MOST_UPDATE_MS = 3_600_000.0


def checked_update_ms(update_ms: float) -> float:
    """Return ``update_ms``; raises InputError unless it is from 0 to an hour."""
    check_type("update_ms", update_ms, Real, "a number of milliseconds")
    if not 0.0 <= update_ms <= MOST_UPDATE_MS:
        raise InputError(f"update_ms: must be 0 to {MOST_UPDATE_MS:g} milliseconds of audio, got {float(update_ms):g}")
    return update_ms


def _check_llr(llr: float | None) -> None:
    """Raise InputError unless ``llr`` is a number, or None."""
    check_type("llr", llr, Real | None, "a log-likelihood ratio")
    if llr is not None and math.isnan(llr):
        raise InputError("llr: a log-likelihood ratio was expected, got nan; a failed trial?")


class Verifier:
    """One claim on one model, ready to score any number of utterances.

    Parameters
    ----------
    model : SpeakerModel, Store or path
        A model from ``Store.load`` or training, or a store to load it from.
    claim : str
        Name of an enrolled speaker.
    system : str, optional
        Scoring system; the settings' own by default.
    decide_by : Policy
        ``DefaultThreshold()``, ``FalseAcceptRate(0.01)``, ``Threshold(x)``, ``BayesCost(point)`` or
        ``Sequential(test)``.
    memory : DuplicateMemory, optional
        Fingerprints of accepted audio, to which every accepted stream is added.
    duplicates : bool
        Whether audio is compared with known recordings.
    update_ms : float
        Milliseconds of audio between two scores, more after five seconds of speech; 0 scores every push at once.

    Raises
    ------
    UnknownSpeakerError, InputError, MetricError, AuditError
        For an unknown name or system, a policy for which the model has no trials, ``update_ms`` out of range, or a
        ``memory`` that cannot be read.

    Examples
    --------
    >>> import pipeline
    >>> model = pipeline.Store("speakers.store").load()
    >>> verifier = pipeline.Verifier(model, "anna")
    >>> str(verifier.verify_file("call.wav").decision)
    'accepted'
    >>> import soundfile
    >>> samples, rate = soundfile.read("call.wav", dtype="int16")
    >>> str(verifier.verify(samples, rate).decision)
    'accepted'

    How sure a decision is:

    >>> verifier = pipeline.Verifier(model, "anna", system="fused")
    >>> verifier.terms.threshold < 2.0, round(verifier.probability(2.0), 2)
    (True, 0.83)
    >>> low, high = verifier.probability_interval(2.0)
    >>> low < verifier.probability(2.0) < high
    True
    """

    def __init__(
        self,
        model: SpeakerModel | Store | Path | str,
        claim: str,
        *,
        system: str | None = None,
        decide_by: Policy | None = None,
        memory: DuplicateMemory | None = None,
        duplicates: bool = True,
        update_ms: float = UPDATE_MS,
    ) -> None:
        self.update_ms = checked_update_ms(update_ms)
        self.model = model = as_model(model)
        self.claim = claim
        self.system = model.check_system(system)
        self.competing = model.competing(self.system)
        check_type("duplicates", duplicates, bool, "True or False")
        check_type("memory", memory, DuplicateMemory | None, "a DuplicateMemory")
        self.memory = memory
        check_type("claim", claim, str, "the name of a speaker")
        position = model.position(claim)
        if not isinstance(decide_by, Policy | None):
            raise InputError(
                f"decide_by: a policy was expected, such as pipeline.FalseAcceptRate(0.01), got {decide_by!r}"
            )
        self.decider = (DefaultThreshold() if decide_by is None else decide_by).decider(model, self.system)
        self._enrolled = model.fingerprints(claim) if duplicates else None
        self._compares = duplicates and (self._enrolled is not None or memory is not None)
        # A sequential test needs the parts of a sum at every length, not their sum.
        systems = (self.system,) if self.decider.test is None else with_parts((self.system,), model.systems)
        self._scorer = claim_scorers(model, (self.system,))([position], systems)

    def __repr__(self) -> str:
        return f"<Verifier of {self.claim!r} in {self.model.where} by {self.system!r}>"

    @property
    def terms(self) -> Terms:
        """Return the terms on which the claim is decided."""
        decider = self.decider
        return Terms(
            claim=self.claim,
            system=self.system,
            threshold=decider.threshold,
            llr_threshold=decider.llr_threshold,
            threshold_source=decider.source,
            prior=decider.prior,
            unknown_impostors=self.model.unknown,
            competing=self.competing,
            revision=self.model.revision,
            sequential_bounds=None if decider.test is None else (decider.test.reject_at, decider.test.accept_at),
        )

    def probability(self, llr: float | None) -> float | None:
        """Return the posterior probability of a target trial, from its log-likelihood ratio.

        Parameters
        ----------
        llr : float or None
            Ratio in nats, as ``Update.llr``.

        Returns
        -------
        float or None
            1 / (1 + exp(-llr) (1 - p) / p), with the prior p by which the claim is decided. None without a ratio, or if
            the decision uses no prior: a probability might contradict it.

        Raises
        ------
        InputError
            For a ratio that is neither a number nor None.
        """
        _check_llr(llr)
        prior = self.decider.prior
        return None if llr is None or prior is None else sigmoid.posterior(llr, prior)

    def probability_interval(self, llr: float | None) -> tuple[float, float] | None:
        """Return the 95 % interval of ``probability``, given the number of trials (``scoring.uncertainty``).

        It does not cover a channel unlike that of the enrollment.

        Parameters
        ----------
        llr : float or None
            Ratio in nats, as ``Update.llr``.

        Returns
        -------
        tuple of two floats, or None
            The lower and the upper end. None where ``probability`` is None, and for systems whose scores are not
            log-likelihood ratios: only those of sums, such as ``fused``, are.

        Raises
        ------
        InputError
            For a ratio that is neither a number nor None.
        """
        _check_llr(llr)
        if llr is None or self.uncertainty is None:
            return None
        low, high = map(self.probability, self.uncertainty.interval(llr))
        return None if low is None or high is None else (low, high)

    @cached_property
    def uncertainty(self) -> RatioUncertainty | None:
        """Return the uncertainty of ratios, given the number of trials; None if the system's scores are not ratios."""
        model, system = self.model, self.system
        calibration = model.calibration(system)
        trials = model.trials([*RULES[system].parts, *SIDE_INFORMATION], kind=model.fitted_to)
        if calibration is None or trials is None or not model.scores_are_ratios(system):
            return None
        trials = trials.comparable(len(model))
        if not trials.has_both_classes:
            return None
        own, ratios = trials.is_target, trials.ratios(calibration)
        return RatioUncertainty.of(ratios[own], ratios[~own], prior=FIT_PRIOR)

    def stream(
        self, rate: int | None = None, *, channel: int | None = None, mix: Mixed | None = None
    ) -> VerificationStream:
        """Return a new stream for this claim.

        ``rate`` in Hz, ``channel``, ``mix`` and what is raised are those of ``VerificationStream``.
        """
        from pipeline.verification.stream import VerificationStream

        return VerificationStream(self, rate=rate, channel=channel, mix=mix)

    def scores(self) -> RunningScores:
        """Return a fresh running score for this claim."""
        return self._scorer.start()

    def duplicate_detector(self, rate: int) -> DuplicateDetector | None:
        """Return a detector of copies of the claim's known recordings in audio at ``rate`` Hz; None without any."""
        if not self._compares:
            return None
        known = [] if self._enrolled is None else [self._enrolled]
        if self.memory is None:
            return DuplicateDetector(known, rate)
        return DuplicateDetector(known + self.memory.known(self.model, self.claim), rate, keep=MOST_OF_ONE)

    def verify(self, samples: ArrayLike, rate: int, *, channel: int | None = None) -> Update:
        """Score a whole utterance.

        Parameters
        ----------
        samples : array, shape (n,) or (n, channels)
            As ``VerificationStream.push``.
        rate : int
            Sampling rate in Hz.
        channel : int, optional
            Channel to score, from 1; by default the mean of all.

        Returns
        -------
        Update
            The final one. Too little speech is a decision, not an error.

        Raises
        ------
        AudioError
            For samples that ``VerificationStream.push`` refuses, a rate out of range, and channels that cancel each
            other.
        AuditError
            For a ``memory`` that cannot be read or written.
        """
        check_rate(rate, "audio")  # no rate at all would be the model's own
        stream = self.stream(rate, channel=channel)
        stream.feed(samples)
        return stream.close()

    def verify_file(self, path: Path | str, *, channel: int | None = None) -> Update:
        """Decode a file and score it: a stream fed to its end, or until a sequential test settles the claim.

        Parameters
        ----------
        path : path
            WAV, FLAC, MP3 or another format that libsndfile or ffmpeg decodes, at any rate.
        channel : int, optional
            Channel to score, from 1; by default the mean of all.

        Returns
        -------
        Update
            As ``verify``.

        Raises
        ------
        AudioError, AuditError
            As ``verify``, and for a file that is missing or cannot be decoded, or lacks the channel.
        """
        mix = Downmix(str(path), channel)
        with open_audio(path, mix=mix) as audio:
            stream = self.stream(audio.rate, mix=mix)
            for block in audio.blocks():
                if self.decider.test is None:
                    stream.feed(block)
                elif stream.push(block).settled:
                    break
        return stream.close()
