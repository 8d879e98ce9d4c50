"""Verification: a claim and a stream of audio to a running score and a decision."""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import StrEnum
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipeline.audio import open_audio
from pipeline.claim_scorers import ClaimScorers
from pipeline.early import EarlyRule, look_frames
from pipeline.errors import InputError, MetricError, StreamClosedError
from pipeline.evaluation import OperatingPoint
from pipeline.features.stream import FeatureBlock
from pipeline.fingerprint import ReplayDetector
from pipeline.frontend import FrontEnd
from pipeline.pcm import MAX_MAGNITUDE, check_samples
from pipeline.posteriors import sigmoid
from pipeline.replay_memory import MOST_OF_ONE, ReplayMemory
from pipeline.scoring import RunningScores, with_parts
from pipeline.store import SpeakerStore
from pipeline.updates import Decision, State, Update

Array = NDArray[np.float64]

# Of audio between two scores of a stream: five updates a second are as many as anybody can follow.
UPDATE_MS = 200.0


class ThresholdSource(StrEnum):
    """What an utterance is decided by."""

    EER = "eer"
    FAR = "far"
    GIVEN = "given"
    COST = "cost"


class Verifier:
    """One claim on one store, ready to score any number of utterances: the machines are read once.

    Scores are decided by the store's own threshold for ``system``, at the equal error rate; or by the one for a rate
    ``false_accept``; or by a ``threshold`` given. A ``point`` decides by the log-likelihood ratio instead, at the least
    expected cost: ``llr_threshold`` then stands in for ``threshold``, and the other of the two is always None.
    ``threshold_source`` tells which it was. With an ``early`` rule a stream is decided as soon as the evidence
    suffices, and by these only where it ends before that and the rule says so.

    Audio is compared with the fingerprints of the claim's enrollment recordings, where the store keeps them, and with
    those of earlier accepted audio in ``memory``, which every accepted stream is added to; not with ``replays`` False.

    Pushes are taken together until they make ``update_ms`` of audio (0: each is scored at once): a score over ten more
    frames costs hardly more than one over one more frame.

    ``compiled`` code scores a stream in half of the time or so. It takes a second to load (``load_compiled``), as
    much as it saves on some minutes of audio: it is for what verifies for long or much. Scores are the same to 1e-5.

    Raises UnknownSpeakerError, SystemUnavailableError, MetricError (no such threshold, no calibration for a ``point``,
    none over short speech for an ``early`` rule), InputError (two ways to decide at once) or AuditError (``memory``).
    """

    def __init__(
        self,
        store: SpeakerStore,
        claim: str,
        *,
        system: str | None = None,
        threshold: float | None = None,
        false_accept: float | None = None,
        point: OperatingPoint | None = None,
        early: EarlyRule | None = None,
        memory: ReplayMemory | None = None,
        replays: bool = True,
        update_ms: float = UPDATE_MS,
        compiled: bool = False,
    ) -> None:
        if not update_ms >= 0:
            raise InputError(f"update_ms: must be 0 or more milliseconds of audio, got {update_ms:g}")
        self.update_ms = update_ms
        self.compiled = compiled
        if compiled:
            load_compiled()
        self.store = store
        self.claim = claim
        self.system = store.check_system(system)
        self.rivals = store.rivals(self.system)
        self.point = point
        self.early = early
        self.memory = memory
        self.threshold_source = _source(threshold, false_accept, point)
        position = store.position(claim)
        if point is not None and store.calibration(self.system) is None:
            why = "nobody else is enrolled" if self.rivals == 0 else "the store's held-out trials are too few"
            raise MetricError(
                f"{store.path}: a prior and costs decide by log-likelihood ratios, and {why}"
                f" to calibrate {self.system!r}; give a threshold instead"
            )
        self.llr_threshold = None if point is None else point.threshold
        self.threshold = threshold
        if self.threshold_source in (ThresholdSource.EER, ThresholdSource.FAR):
            self.threshold = store.threshold(self.system, false_accept=false_accept)
        self.early_calibration = None if early is None else store.early_calibration(self.system)
        self._enrolled = store.fingerprints(claim) if replays else None
        self._compares = replays and (self._enrolled is not None or memory is not None)
        # The parts of a sum have to be seen at every length, not their sum.
        systems = (self.system,) if early is None else with_parts((self.system,))
        self._scorer = ClaimScorers(store, (self.system,), compiled=compiled).of([position], systems)

    @property
    def prior(self) -> float:
        """Probability of a true claim before anything is heard: that of ``point``, else of the settings."""
        return self.store.config.threshold.prior if self.point is None else self.point.prior

    def accepts(self, score: float, llr: float | None) -> bool:
        """The decision on an utterance."""
        value, least = (score, self.threshold) if self.llr_threshold is None else (llr, self.llr_threshold)
        if value is None or least is None:
            raise AssertionError("a claim is decided by a score or by a log-likelihood ratio, and there is neither")
        return value >= least

    def probability(self, llr: float) -> float:
        """Probability of a true claim at ``prior``, once an utterance with this ``llr`` has been heard."""
        return float(sigmoid.probability(np.asarray(llr + math.log(self.prior) - math.log1p(-self.prior))))

    def stream(self, rate: int | None = None) -> VerificationStream:
        """A new stream for audio at ``rate`` Hz (None: the store's own rate)."""
        return VerificationStream.of(self, rate)

    def scores(self) -> RunningScores:
        """A fresh running score for this claim."""
        return self._scorer.start()

    def replay_detector(self, rate: int) -> ReplayDetector | None:
        """What compares audio at ``rate`` Hz with known recordings of the claim; None where there are none to keep."""
        if not self._compares:
            return None
        known = [] if self._enrolled is None else [self._enrolled]
        if self.memory is None:
            return ReplayDetector(known, rate, keep=0, compiled=self.compiled)
        known += self.memory.known(self.claim)
        return ReplayDetector(known, rate, keep=MOST_OF_ONE, compiled=self.compiled)

    def verify_file(self, path: Path | str) -> Update:
        """Decode a file and score it: a stream fed to its end, or until it is settled. Raises AudioError."""
        with open_audio(path) as audio:
            stream = self.stream(audio.rate)
            for block in audio.blocks():
                if stream.push(block).settled:
                    break
        return stream.close()


def load_compiled() -> None:
    """Load now what the first ``compiled`` verifier would: a second, and three more to compile once on a machine.

    What is compiled stays on disk, beside the package or, where that cannot be written, in the user's cache.
    """
    from pipeline import fingerprint_kernels  # noqa: F401
    from pipeline.features import frame_kernels, lpc_kernels  # noqa: F401
    from pipeline.machines import segment_kernels, tile_kernels  # noqa: F401


def _source(threshold: float | None, false_accept: float | None, point: OperatingPoint | None) -> ThresholdSource:
    """The one way to decide that was asked for; raises InputError."""
    given = {ThresholdSource.GIVEN: threshold, ThresholdSource.FAR: false_accept, ThresholdSource.COST: point}
    asked = [source for source, value in given.items() if value is not None]
    if len(asked) > 1:
        raise InputError(
            "decisions follow one rule: a threshold, or a false-accept rate, or a prior and costs;"
            f" got {len(asked)} of them"
        )
    if threshold is not None and math.isnan(threshold):
        raise InputError("threshold: must be a number, got nan")
    return asked[0] if asked else ThresholdSource.EER


class VerificationStream:
    """A claim being checked while the audio comes in: ``push`` any number of times, then ``close``.

    ``rate`` is the audio's in Hz (None: the store's own); the other options are ``Verifier``'s. Any cutting of the
    same samples into pushes gives the same score within 1e-9, or 1e-6 where segment machines and models are summed, in
    single precision.
    """

    def __init__(
        self,
        store: SpeakerStore | Path | str,
        claim: str,
        *,
        rate: int | None = None,
        system: str | None = None,
        threshold: float | None = None,
        false_accept: float | None = None,
        point: OperatingPoint | None = None,
        early: EarlyRule | None = None,
        update_ms: float = UPDATE_MS,
        compiled: bool = False,
    ) -> None:
        store = store if isinstance(store, SpeakerStore) else SpeakerStore.open(store)
        verifier = Verifier(
            store,
            claim,
            system=system,
            threshold=threshold,
            false_accept=false_accept,
            point=point,
            early=early,
            update_ms=update_ms,
            compiled=compiled,
        )
        self._start(verifier, rate)

    @classmethod
    def of(cls, verifier: Verifier, rate: int | None = None) -> VerificationStream:
        """A stream of a ``verifier`` whose machines have been read already."""
        stream = cls.__new__(cls)
        stream._start(verifier, rate)
        return stream

    def _start(self, verifier: Verifier, rate: int | None) -> None:
        store = verifier.store
        settings = store.config.features
        self.verifier = verifier
        self._where = f"claim {verifier.claim!r}"
        self.front_end = FrontEnd(
            settings,
            settings.rate if rate is None else rate,
            scaling=store.scaling,
            where=self._where,
            compiled=verifier.compiled,
        )
        self._scores = verifier.scores()
        self._replays = verifier.replay_detector(self.front_end.rate)
        self._early: bool | None = None
        self._early_llr: float | None = None
        least, step = store.config.least_frames, settings.step_seconds
        self._next_look, self._look_every = look_frames(least, step)
        self._within: Callable[[Array, float], bool] | None = None
        if verifier.compiled:
            from pipeline.features.frame_kernels import within

            self._within = within
        self._held: list[Array] = []
        self._held_samples = 0
        self._heard: FeatureBlock | None = None
        self._steps: list[Callable[[], None]] = []
        self._least_samples = round(self.front_end.rate * verifier.update_ms / 1000)
        self._at_last_score = self._update()
        self._end: Update | None = None

    @property
    def delay_ms(self) -> float:
        """From a sound to a score that has heard it, at most, where pushes are no longer than ``update_ms``.

        Pushes of less than a third of that add two of their own length: each takes one step towards the score.
        """
        return self.front_end.delay_ms + self.verifier.update_ms

    def push(self, samples: Array) -> Update:
        """Take in mono ``samples`` (n,), full scale 1, and tell where the claim stands.

        Until there are ``Verifier.update_ms`` of audio that have not been scored, that is where it stood before.
        Raises AudioError for samples that are not finite, StreamClosedError after ``close``.
        """
        if self._end is not None:
            raise StreamClosedError(f"claim {self.verifier.claim!r}: the stream is closed and takes no more audio")
        samples = np.array(samples, dtype=np.float64, order="C")  # a copy: the caller's may change before it is scored
        if samples.ndim != 1 or self._within is None or not self._within(samples, MAX_MAGNITUDE**2):
            heard = self.front_end.samples + self._held_samples
            check_samples(samples, self._where, rate=self.front_end.rate, first=heard)
        if self._replays is not None:
            self._replays.push(samples)
        self._held.append(samples)
        self._held_samples += len(samples)
        # A short push, as a sound card's, has little time before the next: it takes one step, a long one takes all.
        most = 1 if 3 * len(samples) < self._least_samples else 3
        self._take_steps(most)
        if self._held_samples >= self._least_samples and not self._steps:
            self._steps = [self._hear, self._score_heard, self._tell]
            self._take_steps(most)
        return self._at_last_score(audio_seconds=self._audio_seconds)

    def _take_steps(self, most: int) -> None:
        for _ in self._steps[:most]:
            self._steps.pop(0)()

    def _hear(self) -> None:
        """Make features of what has been held back."""
        samples = np.concatenate(self._held) if self._held else np.empty(0)
        self._held, self._held_samples = [], 0
        self._heard = self.front_end.push(samples)

    def _score_heard(self) -> None:
        if self._heard is not None:
            self._score(self._heard)
        self._heard = None

    def _tell(self) -> None:
        self._at_last_score = self._update()

    def close(self) -> Update:
        """End the audio: the last frames are scored and the final decision stands. A second call repeats it.

        What was accepted goes into the verifier's memory, where it has one; raises AuditError.
        """
        if self._end is not None:
            return self._end
        self._score_heard()
        self._hear()
        self._score_heard()
        self._score(self.front_end.flush())
        if self._replays is not None:
            self._replays.close()
        update = self._end = self._update(closed=True)(audio_seconds=self._audio_seconds)
        memory = self.verifier.memory
        new = self._replays is not None and not self._replays.suspected
        if memory is not None and self._replays is not None and new and update.decision is Decision.ACCEPTED:
            memory.add(self.verifier.claim, self._replays.prints)
        return update

    def _score(self, speech: FeatureBlock) -> None:
        """Take in frames; under an early rule up to the one that settles the claim."""
        if self.verifier.early is None:
            self._scores.push(speech)
            return
        at = 0
        while at < len(speech.vectors) and self._early is None:
            end = at + self._next_look - self._scores.frames
            self._scores.push(speech.part(slice(at, end)))
            at = end
            if self._scores.frames == self._next_look:
                self._next_look += self._look_every
                self._early_llr = self._llr_at_this_length()
                self._early = self.verifier.early.verdict(self._early_llr)

    def _llr_at_this_length(self) -> float:
        calibration = self.verifier.early_calibration
        if calibration is None:
            raise AssertionError("an early rule goes by a calibration, and there is none")
        return float(calibration.llr(self._scores.scores(), self._scores.frames)[0])

    def _update(self, *, closed: bool = False) -> Callable[..., Update]:
        """Makes updates of where the claim stands, given ``audio_seconds``: most pushes change nothing else."""
        frames = self._scores.frames
        step = self.verifier.store.config.features.step_seconds
        score, llr, decision = None, None, Decision.NOT_ENOUGH_SPEECH
        if frames >= self.verifier.store.config.least_frames:
            scores = self._scores.scores()[self.verifier.system]
            llrs = self.verifier.store.llrs(self.verifier.system, scores, frames)
            score, llr = float(scores[0]), None if llrs is None else float(llrs[0])
            decision = self._decided(score, llr, closed=closed)
        state = State.SCORING if score is not None else State.NOT_ENOUGH_SPEECH
        return partial(
            Update,
            state=State.CLOSED if closed else state,
            decision=decision,
            score=score,
            llr=llr,
            probability=None if llr is None else self.verifier.probability(llr),
            frames=frames,
            speech_seconds=frames * step,
            settled=closed or self._early is not None,
            early_llr=self._early_llr,
            replay_suspected=None if self._replays is None else self._replays.suspected,
        )

    @property
    def _audio_seconds(self) -> float:
        return (self.front_end.samples + self._held_samples) / self.front_end.rate

    def _decided(self, score: float, llr: float | None, *, closed: bool) -> Decision:
        """By the early rule where it has settled the claim, else by what stands in its place."""
        rule, accepted = self.verifier.early, self._early
        if accepted is None and rule is not None and not (rule.at_end == "fixed" and closed):
            return Decision.UNDECIDED
        if accepted is None:
            accepted = self.verifier.accepts(score, llr)
        return Decision.ACCEPTED if accepted else Decision.REJECTED
