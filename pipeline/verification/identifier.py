"""An identifier: all enrolled speakers of one model, ready to be found in a file or a stream (``identification``)."""

from __future__ import annotations

import math
from dataclasses import replace
from numbers import Integral, Real
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pipeline.audio.downmix import Downmix, Mixed
from pipeline.audio.files import open_audio
from pipeline.audio.streams import check_rate
from pipeline.errors import InputError, MetricError, StreamClosedError, check_type
from pipeline.metrics.curves import as_row
from pipeline.store.model import SpeakerModel
from pipeline.store.store import Store, as_model
from pipeline.verification.claim_scorers import claim_scorers
from pipeline.verification.identification import Candidate, Identification, IdentificationDecision
from pipeline.verification.streamed_audio import AudioStream, StreamedAudio, alone
from pipeline.verification.verifier import UPDATE_MS, checked_update_ms

Array = NDArray[np.float64]


class Identifier:
    """The enrolled speakers of one model, ready to be found in any number of utterances.

    Parameters
    ----------
    model : SpeakerModel, Store or path
        A model from ``Store.load`` or training, or a store to load it from.
    system : str, optional
        Scoring system; the settings' own by default.
    best : int
        Number of candidates to report.
    nobody : float, optional
        Prior probability that nobody enrolled speaks, from 0 to below 1; by default the share of unknown impostors.
    threshold : float, optional
        Lowest log-likelihood ratio at which the first candidate is identified. By default the likeliest outcome is
        taken: a speaker, or nobody.
    update_ms : float
        Milliseconds of audio between two updates of a stream, more after five seconds of speech; 0 updates every push.

    Raises
    ------
    InputError, MetricError
        If a value is out of range, if only background speakers are enrolled, or if the model has no calibrated ratios,
        as with a single speaker.

    Examples
    --------
    >>> import pipeline
    >>> identifier = pipeline.Identifier(pipeline.Store("speakers.store").load(), best=2)
    >>> [candidate.name for candidate in identifier.identify_file("call.wav").candidates][0]
    'anna'
    >>> of_each, of_nobody = identifier.probabilities([2.0, 0.0, -3.0, -5.0])
    >>> round(of_each.sum() + of_nobody, 6).item()
    1.0
    """

    def __init__(
        self,
        model: SpeakerModel | Store | Path | str,
        *,
        system: str | None = None,
        best: int = 5,
        nobody: float | None = None,
        threshold: float | None = None,
        update_ms: float = UPDATE_MS,
    ) -> None:
        self.model = model = as_model(model)
        self.system = model.check_system(system)
        check_type("best", best, Integral, "a number of candidates")
        check_type("nobody", nobody, Real | None, "a probability from 0 to below 1")
        check_type("threshold", threshold, Real | None, "a log-likelihood ratio")
        self.best, self.threshold, self.update_ms = best, threshold, checked_update_ms(update_ms)
        self.nobody = model.unknown if nobody is None else nobody
        if best < 1 or not 0.0 <= self.nobody < 1.0 or (threshold is not None and math.isnan(threshold)):
            raise InputError(
                "identification: at least one candidate, a prior for nobody from 0 to below 1 and a threshold that is a"
                f" number were expected, got {best}, {float(self.nobody):g} and {threshold}"
            )
        if not model.names:
            raise InputError(
                f"{model.where}: nobody can be identified: only background speakers are enrolled; enroll a speaker"
            )
        if model.calibration(self.system) is None:
            raise MetricError(
                f"{model.where}: identification needs calibrated log-likelihood ratios of {self.system!r}, and the"
                " held-out trials are too few for them; enroll more speakers"
            )
        positions = [number for number, one in enumerate(model.speakers) if one.role == "speaker"]
        self._scorer = claim_scorers(model, (self.system,))(positions)

    def __repr__(self) -> str:
        return f"<Identifier of {len(self.model.names)} speakers in {self.model.where} by {self.system!r}>"

    def stream(
        self, rate: int | None = None, *, channel: int | None = None, mix: Mixed | None = None
    ) -> IdentificationStream:
        """Return a new stream, to ``push`` audio to and ``close``.

        ``rate`` in Hz, ``channel``, ``mix`` and what is raised are those of ``VerificationStream``.
        """
        return IdentificationStream(self, rate, channel=channel, mix=mix)

    def identify(self, samples: ArrayLike, rate: int, *, channel: int | None = None) -> Identification:
        """Identify who speaks in a whole utterance.

        Parameters
        ----------
        samples, rate, channel
            As ``Verifier.verify``.

        Returns
        -------
        Identification
            The final one. Too little speech is a decision, not an error.

        Raises
        ------
        AudioError
            As ``Verifier.verify``.
        """
        check_rate(rate, "audio")  # None would stand for the model's own rate
        stream = self.stream(rate, channel=channel)
        stream.feed(samples)
        return stream.close()

    def identify_file(self, path: Path | str, *, channel: int | None = None) -> Identification:
        """Decode a file and identify who speaks in it.

        Parameters
        ----------
        path, channel
            As ``Verifier.verify_file``.

        Returns
        -------
        Identification
            The final one.

        Raises
        ------
        AudioError
            As ``Verifier.verify_file``.
        """
        mix = Downmix(str(path), channel)
        with open_audio(path, mix=mix) as audio:
            stream = self.stream(audio.rate, mix=mix)
            for block in audio.blocks():
                stream.feed(block)
        return stream.close()

    def probabilities(self, llrs: ArrayLike) -> tuple[Array, float]:
        """Turn the log-likelihood ratios of all speakers into probabilities, by Bayes' rule.

        The ratio l of a speaker with the prior p gives the odds exp(l) p / (1 - p) against all else. With estimated
        ratios, the probabilities may sum to more than 1. They are then scaled to a sum of 1, which leaves 0 for
        "nobody"; likewise if the prior for nobody is 0.

        Parameters
        ----------
        llrs : array, shape (S,)
            Ratios in nats, one for each speaker that can be claimed.

        Returns
        -------
        probabilities : array, shape (S,)
            Of each speaker.
        nobody : float
            Probability that nobody enrolled speaks; all S + 1 sum to 1.

        Raises
        ------
        InputError
            If the number of ratios is not S.
        MetricError
            For ratios that are not finite numbers.
        """
        llrs, speakers = as_row(llrs, "log-likelihood ratios"), len(self.model.names)
        if len(llrs) != speakers:
            raise InputError(f"log-likelihood ratios: one for each of {speakers} speakers expected, got {len(llrs)}")
        prior = (1.0 - self.nobody) / len(llrs)
        odds = np.exp(np.clip(llrs, -500.0, 500.0)) * (prior / (1.0 - prior) if prior < 1.0 else math.inf)
        shares: Array = 1.0 / (1.0 + 1.0 / odds)  # above 0, however small the odds
        total = float(shares.sum())
        return (shares / total, 0.0) if total > 1.0 or self.nobody == 0.0 else (shares, 1.0 - total)


class IdentificationStream(AudioStream):
    """One stream of audio in which a speaker is to be found: ``push`` any number of times, then ``close``."""

    def __init__(
        self,
        identifier: Identifier,
        rate: int | None = None,
        *,
        channel: int | None = None,
        mix: Mixed | None = None,
    ) -> None:
        self.identifier = identifier
        model, update_ms = identifier.model, identifier.update_ms
        self._audio = StreamedAudio(model, rate, "identification", update_ms=update_ms, channel=channel, mix=mix)
        self._scores = identifier._scorer.start()
        self._last = self._look()

    @alone
    def push(self, samples: ArrayLike) -> Identification:
        """Score more audio, once there are ``Identifier.update_ms`` of it, and return the identification so far.

        ``samples`` (n,) or (n, channels) and what is raised are those of ``VerificationStream.push``.
        """
        self.feed(samples)
        if self._audio.is_enough:
            self._scores.push(self._audio.features())
            self._last = self._look()
        return replace(self._last, audio_seconds=self._audio.seconds)

    @alone
    def feed(self, samples: ArrayLike) -> None:
        """Take more audio without a decision yet, as ``VerificationStream.feed``."""
        if self._last.closed:
            raise StreamClosedError("identification: the stream is closed and takes no more audio")
        if self._audio.is_enough:
            self._scores.push(self._audio.features())
        self._audio.take(samples)

    def close(self) -> Identification:
        """End the audio and return the outcome; a second call repeats it. Raises AudioError for cancelling channels."""
        with self._audio.in_use:
            if not self._last.closed:
                self._scores.push(self._audio.end())
                self._last = self._look(closed=True)
            return self._last

    def _look(self, *, closed: bool = False) -> Identification:
        model, frames = self.identifier.model, self._scores.frames
        decision, name, nobody = IdentificationDecision.NOT_ENOUGH_SPEECH, None, None
        candidates: tuple[Candidate, ...] = ()
        if frames >= model.config.min_frames:
            candidates, nobody = self._candidates()
            first, threshold = candidates[0], self.identifier.threshold
            is_found = first.probability > nobody if threshold is None else first.llr >= threshold
            name = first.name if is_found else None
            decision = IdentificationDecision.NOBODY if name is None else IdentificationDecision.IDENTIFIED
        nearest = candidates[0].name if candidates else None
        return Identification(
            decision=decision,
            name=name,
            candidates=candidates,
            nobody=nobody,
            frames=frames,
            speech_seconds=frames * model.config.features.step_seconds,
            audio_seconds=self._audio.seconds,
            closed=closed,
            warnings=self._audio.meter.warnings(self._scores, nearest) if closed else (),
        )

    def _candidates(self) -> tuple[tuple[Candidate, ...], float]:
        identifier = self.identifier
        scores = self._scores.scores()[identifier.system]
        llrs = identifier.model.llrs(identifier.system, scores, self._scores.frames)
        if llrs is None:
            raise AssertionError("a model without ratios makes no identifier")
        probabilities, nobody = identifier.probabilities(llrs)
        likeliest = np.argsort(-llrs, kind="stable")[: identifier.best]
        names = identifier.model.names
        return tuple(
            Candidate(names[n], float(scores[n]), float(llrs[n]), float(probabilities[n])) for n in likeliest
        ), nobody
