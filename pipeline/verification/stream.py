"""A claim verified while the audio comes in: samples to features to running scores to a decision."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from numpy.typing import ArrayLike

from pipeline.audio.downmix import Mixed
from pipeline.errors import InputError, StreamClosedError, check_options
from pipeline.features.frontend import FrontEnd
from pipeline.features.stream import FeatureBlock
from pipeline.scoring.decisions import Decision, State, Update
from pipeline.scoring.sequential import check_frames
from pipeline.store.model import SpeakerModel
from pipeline.store.store import Store
from pipeline.verification.streamed_audio import AudioStream, StreamedAudio, alone
from pipeline.verification.verifier import Verifier

WARN_SECONDS = 1.0  # of audio between two looks for warnings


class VerificationStream(AudioStream):
    """One stream of audio for one claim: ``push`` any number of times, then ``close``.

    Any chunking of the same samples gives the same score within 1e-9, or 1e-6 where supervector machines and GMMs are
    summed, in single precision.

    Parameters
    ----------
    verifier : Verifier, SpeakerModel, Store or path
        A model or a store makes a verifier of ``claim`` with the other ``options`` (see ``Verifier``).
    claim : str, optional
        Name of the speaker. A verifier has its own, and takes neither another one nor ``options``.
    rate : int, optional
        Sampling rate of the audio in Hz; the model's own by default.
    channel : int, optional
        Channel to score, from 1; by default the mean of all.
    mix : Mixed, optional
        The downmix applied to samples before they are pushed, to warn of channels that differ.

    Raises
    ------
    InputError
        For a claim or options given together with a verifier.
    AudioError
        For a rate out of range, and a channel that is not a whole number from 1.
    VoiceclaimError
        What ``Verifier`` and ``Store.load`` raise.

    Examples
    --------
    >>> import soundfile, pipeline
    >>> samples, rate = soundfile.read("call.wav")
    >>> stream = pipeline.VerificationStream("speakers.store", "anna", rate=rate)
    >>> str(stream.push(samples[:100]).decision), str(stream.push(samples[100:]).decision)
    ('not_enough_speech', 'accepted')
    >>> stream.close().settled
    True
    """

    def __init__(
        self,
        verifier: Verifier | SpeakerModel | Store | Path | str,
        claim: str | None = None,
        *,
        rate: int | None = None,
        channel: int | None = None,
        mix: Mixed | None = None,
        **options: Any,
    ) -> None:
        if isinstance(verifier, Verifier):
            if options or claim not in {None, verifier.claim}:
                given = ", ".join(options if claim is None else ["claim", *options])
                raise InputError(
                    f"claim: a verifier of {verifier.claim!r} takes no other claim and no options, got {given}; give"
                    " its model (verifier.model) instead"
                )
        else:
            check_options(Verifier, options)
            verifier = Verifier(verifier, cast("str", claim), **options)  # which is checked there
        config = verifier.model.config
        self.verifier = verifier
        self._audio = StreamedAudio(
            verifier.model,
            rate,
            f"claim {verifier.claim!r}",
            update_ms=verifier.update_ms,
            steady=verifier.decider.test is not None,
            channel=channel,
            mix=mix,
        )
        self._warned: tuple[str, ...] = ()
        self._next_warnings = 0.0
        self._scores = verifier.scores()
        self._accepted: bool | None = None  # by a sequential test
        self._sequential_llr: float | None = None
        self._next_check, self._check_every = check_frames(config.min_frames, config.features.step_seconds)
        self._duplicates = verifier.duplicate_detector(self.front_end.rate)
        self._last = self._decide()

    @property
    def front_end(self) -> FrontEnd:
        """Return the front end, which turns the samples into feature vectors of speech."""
        return self._audio.front_end

    @property
    def delay_ms(self) -> float:
        """Return the longest time from a sound to a score that includes it, in ms, for pushes within ``update_ms``.

        This holds for the first five seconds of speech. Later, audio as long as 4 % of the speech so far, but at most
        two seconds, may wait.
        """
        return self.front_end.delay_ms + self.verifier.update_ms

    @alone
    def push(self, samples: ArrayLike) -> Update:
        """Score more audio, and return the decision as it stands.

        Parameters
        ----------
        samples : array, shape (n,) or (n, channels)
            Floats of full scale 1, or integers of 8, 16 or 32 bits as they were recorded. Integers converted to
            floats must be divided by their full scale: undivided ones score differently, with the warning ``scale``. Of
            several channels, the mean or the chosen one is scored, once there are ``Verifier.update_ms`` of audio, or,
            after five seconds of speech, 4 % of the speech so far: less would hardly change the score.

        Returns
        -------
        Update

        Raises
        ------
        AudioError
            For samples that are not finite or beyond 2**32, arrays of another shape or type, a number of channels that
            differs from before, and a ``channel`` that the samples lack.
        InputError
            While another thread is pushing.
        StreamClosedError
            After ``close``.
        """
        self.feed(samples)
        if self._audio.is_enough:
            self._score(self._audio.features())
            self._last = self._decide()
        return replace(self._last, audio_seconds=self._audio.seconds)

    @alone
    def feed(self, samples: ArrayLike) -> None:
        """Take more audio without a decision: it is scored later, with more audio or at the end.

        It is cheaper than ``push``, and has the same ``samples`` and errors.
        """
        if self._last.state is State.CLOSED:
            raise StreamClosedError(f"claim {self.verifier.claim!r}: the stream is closed and takes no more audio")
        if self._audio.is_enough:
            self._score(self._audio.features())
        taken = self._audio.take(samples)
        if self._duplicates is not None:
            self._duplicates.push(taken)

    def close(self) -> Update:
        """End the audio: the last frames are scored and the decision is final. A second call repeats it.

        Accepted audio goes into the verifier's memory, where it has one.

        Returns
        -------
        Update
            The final one: its ``state`` is closed and its decision ``settled``.

        Raises
        ------
        AudioError
            For channels that cancel each other, so that their mean is silence.
        AuditError
            For a memory that cannot be read or written.
        """
        with self._audio.in_use:
            if self._last.state is State.CLOSED:
                return self._last
            self._score(self._audio.end())
            if self._duplicates is not None:
                self._duplicates.close()
            self._last = self._decide(closed=True)
            self._remember()
            return self._last

    def _score(self, speech: FeatureBlock) -> None:
        """Score frames; under a sequential test, only up to the frame that settles the claim."""
        decider, scores = self.verifier.decider, self._scores
        if decider.test is None or decider.calibration is None:
            scores.push(speech)
            return
        at = 0
        while at < len(speech.vectors) and self._accepted is None:
            end = at + self._next_check - scores.frames
            scores.push(speech.part(slice(at, end)))
            at = end
            if scores.frames == self._next_check:
                self._next_check += self._check_every
                known = scores.scores() | scores.side_information
                self._sequential_llr = float(decider.calibration.llr(known, scores.frames)[0])
                self._accepted = decider.test.verdict(self._sequential_llr)

    def _decide(self, *, closed: bool = False) -> Update:
        frames, verifier = self._scores.frames, self.verifier
        config = verifier.model.config
        score, llr, decision = None, None, Decision.NOT_ENOUGH_SPEECH
        if frames >= config.min_frames:
            scores = self._scores.scores()[verifier.system]
            llrs = verifier.model.llrs(verifier.system, scores, frames)
            score, llr = float(scores[0]), None if llrs is None else float(llrs[0])
            decision = self._decision(score, llr, closed=closed)
        state = State.SCORING if score is not None else State.NOT_ENOUGH_SPEECH
        return Update(
            state=State.CLOSED if closed else state,
            decision=decision,
            score=score,
            llr=llr,
            probability=verifier.probability(llr),
            frames=frames,
            speech_seconds=frames * config.features.step_seconds,
            audio_seconds=self._audio.seconds,
            settled=closed or self._accepted is not None,
            sequential_llr=self._sequential_llr,
            duplicate_suspected=None if self._duplicates is None else self._duplicates.suspected,
            warnings=self._warnings(closed=closed) if closed or score is not None else (),
        )

    def _warnings(self, *, closed: bool) -> tuple[str, ...]:
        """Return the warnings about the audio, once a second, and at the end or where a sequential test settles."""
        ends = closed or self._accepted is not None
        if not (ends and self._last.settled) and (ends or self._audio.seconds >= self._next_warnings):
            self._next_warnings = self._audio.seconds + WARN_SECONDS
            self._warned = self._audio.meter.warnings(
                self._scores, self.verifier.claim, sequential=self.verifier.decider.test is not None
            )
        return self._warned

    def _decision(self, score: float, llr: float | None, *, closed: bool) -> Decision:
        """Decide by the sequential test where it has settled the claim, else by the policy's threshold."""
        decider, accepted = self.verifier.decider, self._accepted
        if accepted is None and decider.test is not None and not (decider.test.at_end == "fixed" and closed):
            return Decision.UNDECIDED
        if accepted is None:
            accepted = decider.accepts(score, llr)
        return Decision.ACCEPTED if accepted else Decision.REJECTED

    def _remember(self) -> None:
        """Keep the fingerprints of accepted audio that is not known yet."""
        memory, duplicates = self.verifier.memory, self._duplicates
        if memory is None or duplicates is None or duplicates.suspected:
            return
        if self._last.decision is Decision.ACCEPTED:
            memory.add(self.verifier.model, self.verifier.claim, duplicates.prints)
