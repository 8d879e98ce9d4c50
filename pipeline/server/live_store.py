"""The store as it stands now: read again whenever its manifest was replaced, its machines read once a revision.

Whoever holds a ``Verifier`` keeps the revision it was made of, whatever is enrolled or removed meanwhile.
"""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from threading import Lock

from pipeline.early import EarlyRule
from pipeline.errors import StoreFormatError, StoreMissingError, UnknownSpeakerError
from pipeline.machines.population import Population
from pipeline.manifest import Manifest, stamp_of
from pipeline.replay_memory import ReplayMemory
from pipeline.store import SpeakerStore
from pipeline.verification import Verifier

_TRIES = 5  # a removal may delete files between the reading of the manifest and theirs
_Stamp = tuple[int, ...]


class SharedStore(SpeakerStore):
    """One revision whose machines are read once for all claims."""

    def __init__(self, path: Path, manifest: Manifest) -> None:
        super().__init__(path, manifest)
        self._populations: dict[tuple[str, ...] | None, Population] = {}

    def population(self, systems: tuple[str, ...] | None = None) -> Population:
        """See SpeakerStore."""
        if systems not in self._populations:
            self._populations[systems] = super().population(systems)
        return self._populations[systems]


class LiveStore:
    """The newest revision of the store at ``path``, which need not exist yet; keeps the ``most`` latest verifiers.

    ``outsiders`` is that of ``SpeakerStore.open``, ``memory`` that of ``Verifier``. Safe to use from several threads.
    """

    def __init__(
        self, path: Path, *, most: int, outsiders: float | None = None, memory: ReplayMemory | None = None
    ) -> None:
        self.path = path
        self._outsiders = outsiders
        self._memory = memory
        self._most = most
        self._opening = Lock()
        self._stamp: _Stamp | None = None
        self._store: SharedStore | None = None
        self._making = Lock()
        self._made_of: SharedStore | None = None
        self._verifiers: OrderedDict[tuple[str, str | None, EarlyRule | None], Verifier] = OrderedDict()

    def current(self) -> SharedStore | None:
        """The newest revision, None before the first enrollment. Costs one look at the manifest's entry in its folder.

        Raises StoreFormatError or StoreSealError.
        """
        stamp = stamp_of(self.path)
        if stamp == self._stamp:
            return self._store
        with self._opening:
            if stamp != self._stamp:
                self._store = None if stamp is None else _opened(self.path, self._outsiders)
                self._stamp = stamp
            return self._store

    def verifier(self, claim: str, system: str | None = None, early: EarlyRule | None = None) -> Verifier:
        """A verifier of the newest revision; raises what ``Verifier`` raises. Takes long the first time."""
        with self._making:
            for tries_left in reversed(range(_TRIES)):
                store = self.current()
                if store is None:
                    raise UnknownSpeakerError(claim)
                try:
                    return self._verifier(store, claim, system, early)
                except StoreFormatError:
                    if tries_left == 0 or self.current() is store:
                        raise
        raise AssertionError("the last try returns or raises")

    def _verifier(self, store: SharedStore, claim: str, system: str | None, early: EarlyRule | None) -> Verifier:
        if store is not self._made_of:
            self._verifiers.clear()
            self._made_of = store
        key = (claim, system, early)
        if key not in self._verifiers:
            self._verifiers[key] = Verifier(store, claim, system=system, early=early, memory=self._memory)
            while len(self._verifiers) > self._most:
                self._verifiers.popitem(last=False)
        self._verifiers.move_to_end(key)
        return self._verifiers[key]


def _opened(path: Path, outsiders: float | None) -> SharedStore | None:
    try:
        return SharedStore.open(path, outsiders=outsiders)
    except StoreMissingError:
        return None
