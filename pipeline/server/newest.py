"""The newest model of a store that other processes write to, and the verifiers made from it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from threading import Lock

import numpy as np
import scipy.optimize  # noqa: F401  the first claim under another system would otherwise load it to fit a calibration

from pipeline.errors import StoreMissingError, StreamClosedError, UnknownSpeakerError
from pipeline.scoring.sequential import SequentialTest
from pipeline.store.model import SpeakerModel
from pipeline.store.speakers import Speaker
from pipeline.store.store import Stamp, Store
from pipeline.verification.audit_events import duplicate_memory
from pipeline.verification.identifier import Identifier
from pipeline.verification.policies import DefaultThreshold, Policy, Sequential
from pipeline.verification.verifier import Verifier


@dataclass(frozen=True, slots=True)
class VerifierSettings:
    """Settings of verifiers on the ``store``, which need not exist yet; the ``most`` latest verifiers are kept.

    ``unknown_impostors`` is that of ``Store.load``, ``decide_by`` that of ``Verifier``, and fingerprints of accepted
    audio lie beside the audit ``log``.
    """

    store: Path
    most: int
    unknown_impostors: float | None = None
    decide_by: Policy | None = None
    log: Path | None = None


class NewestModel:
    """The newest model in a store, and its latest verifiers; each keeps the model that it was made of. Thread-safe."""

    def __init__(self, settings: VerifierSettings) -> None:
        self._store = Store(settings.store)
        self._unknown = settings.unknown_impostors
        self._decide_by = DefaultThreshold() if settings.decide_by is None else settings.decide_by
        self._memory = duplicate_memory(settings.log)
        self._opening = Lock()
        self._stamp: Stamp | None = None
        self._model: SpeakerModel | None = None
        self._keys = frozenset[str]()
        self._making = Lock()
        self._verifier = lru_cache(settings.most)(self._make)
        self._identifier = lru_cache(1)(Identifier)

    def current(self) -> SpeakerModel | None:
        """Return the newest model, None before the first enrollment, at the cost of a ``stat`` while nothing changes.

        Raises StoreFormatError or StoreSealError, and StoreMissingError for a store that has disappeared.
        """
        stamp = self._store.stamp()
        if stamp == self._stamp:
            return self._model
        with self._opening:
            if stamp != self._stamp:
                self._read()
                self._stamp = stamp
            return self._model

    @property
    def aliases(self) -> list[tuple[Path, str]]:
        """Return paths that the model's settings name, with the names that stand for them."""
        encoder = "" if self._model is None else self._model.config.embedding.path
        return [(Path(encoder), "the encoder")] if encoder else []

    def check_enrolled(self, verifier: Verifier) -> None:
        """Raise StreamClosedError for a speaker who was removed, or given recordings, since ``verifier`` was made."""
        if self.current() is not verifier.model and speaker_key(verifier) not in self._keys:
            raise StreamClosedError(
                f"claim {verifier.claim!r}: the speaker has been removed, or enrolled anew with more recordings; there"
                " is no decision"
            )

    def _read(self) -> None:
        try:
            model = self._store.load(unknown_impostors=self._unknown)
        except StoreMissingError:
            if self._model is not None:
                gone = "the speaker store is gone; put it back, or start the service again"
                raise StoreMissingError(self._store.path, gone) from None
            model = None
        known = self._model
        if known is None or model is None or known.digest != model.digest:
            self._model = model
            self._keys = frozenset() if model is None else frozenset(_key(model, one) for one in model.speakers)
            self._verifier.cache_clear()
            self._identifier.cache_clear()

    def verifier(self, claim: str, system: str | None = None, early: SequentialTest | None = None) -> Verifier:
        """Return a verifier of the newest model; raises what ``Verifier`` raises. The first one reads machines."""
        with self._making:
            model = self.current()
            if model is None:
                raise UnknownSpeakerError(claim, nobody=True)
            return self._verifier(model, claim, system, early)

    def identifier(self) -> Identifier | None:
        """Return an identifier among the speakers of the newest model, None without any; raises MetricError."""
        with self._making:
            model = self.current()
            return None if model is None or not model.names else self._identifier(model)

    def _make(self, model: SpeakerModel, claim: str, system: str | None, early: SequentialTest | None) -> Verifier:
        policy = self._decide_by if early is None else Sequential(early, self._decide_by)
        return Verifier(model, claim, system=system, decide_by=policy, memory=self._memory)


def threshold_probability(verifier: Verifier, frames: int) -> float | None:
    """Return the probability of a target trial at the threshold after ``frames`` of speech; None without one."""
    if frames == 0:
        return None
    llr = verifier.decider.llr_threshold
    if llr is None:
        llrs = verifier.model.llrs(verifier.system, np.array([verifier.decider.threshold]), frames)
        llr = None if llrs is None else float(llrs[0])
    return verifier.probability(llr)


def speaker_key(verifier: Verifier) -> str:
    """Return the random ids of the store and of the claimed speaker, as one text."""
    model = verifier.model
    return _key(model, model.speakers[model.position(verifier.claim)])


def _key(model: SpeakerModel, speaker: Speaker) -> str:
    return f"{model.identity}/{speaker.id}"
