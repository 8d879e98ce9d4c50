"""Arrays and pair machines of a speaker model: read from a store when they are asked for, replaced, or renumbered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from pipeline.errors import StoreFormatError
from pipeline.machines.pairs import PairMachine, PairSource
from pipeline.store.blobs import Entry
from pipeline.store.layout import AnyArray, Lengths
from pipeline.store.rows import Rows

Arrays = Mapping[str, AnyArray]


@dataclass(frozen=True, slots=True, eq=False)
class StoredArrays(Mapping[str, AnyArray]):
    """Arrays of one owner, each read from the store when it is asked for; shapes must agree with the lengths."""

    rows: Rows
    _owner: int | None
    entries: Mapping[str, Entry]
    _lengths: Lengths

    def __getitem__(self, name: str) -> AnyArray:
        if name not in self.entries:
            raise StoreFormatError(f"{self.rows.path}: array {name!r} is missing; damaged, or changed by hand")
        return self.rows.read_array(self._owner, name, self.entries[name], self._lengths)

    def __contains__(self, name: object) -> bool:
        return name in self.entries

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)


class StoredPairs:
    """Pair machines, read from the store when a claim needs them, of speakers given in order as (id, centroids).

    If there are cohorts, ``shared`` holds them; if it is None, every two speakers have a pair machine.
    """

    def __init__(self, rows: Rows, speakers: Sequence[tuple[int, int]], shared: Mapping[str, AnyArray] | None) -> None:
        self.rows = rows
        self._speakers = list(speakers)
        self._shared = shared
        self._numbers = {speaker: number for number, (speaker, _) in enumerate(speakers)}

    @cached_property
    def _cohorts(self) -> AnyArray | None:
        return None if self._shared is None else self._shared["cohort.nearest"]

    def against(self, speaker: int) -> Mapping[int, PairMachine]:
        """See PairSource; raises StoreFormatError for a machine that is missing or has a wrong size."""
        if speaker >= len(self._speakers):  # not stored yet
            return {}
        identity, size = self._speakers[speaker]
        stored = self.rows.pairs_of(identity)
        machines = {self._numbers[other]: made for other, made in stored.items() if other in self._numbers}
        wanted = range(len(self._speakers)) if self._cohorts is None else self._cohorts[speaker].tolist()
        fits = all(
            (len(made.own), len(made.rival)) == (size, self._speakers[other][1]) for other, made in machines.items()
        )
        if not fits or set(wanted) - machines.keys() - {speaker}:
            raise StoreFormatError(
                f"{self.rows.path}: a pair machine of speaker number {speaker} is missing or has a wrong size; damaged?"
            )
        return machines


class UpdatedArrays(Mapping[str, AnyArray]):
    """Arrays of a ``base`` with some ``new`` ones in their place and some ``removed``."""

    def __init__(self, new: dict[str, AnyArray], base: Arrays, removed: frozenset[str] = frozenset()) -> None:
        if isinstance(base, UpdatedArrays):  # so that there is never more than one layer over the stored arrays
            new = {name: array for name, array in base.new.items() if name not in removed} | new
            removed |= base.removed
            base = base.base
        self.new: dict[str, AnyArray] = new
        self.base: Arrays = base
        self.removed: frozenset[str] = removed - new.keys()

    def __getitem__(self, name: str) -> AnyArray:
        if name in self.removed:
            raise KeyError(name)
        return self.new[name] if name in self.new else self.base[name]

    def __contains__(self, name: object) -> bool:
        return name in self.new or (name not in self.removed and name in self.base)

    def __iter__(self) -> Iterator[str]:
        yield from self.new
        yield from (name for name in self.base if name not in self.new and name not in self.removed)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class RenumberedPairs:
    """Pair machines of some speakers of a source, numbered by their places in ``numbers``."""

    def __init__(self, source: PairSource, numbers: Sequence[int]) -> None:
        self.source = source
        self.numbers = list(numbers)
        self._place = {number: place for place, number in enumerate(self.numbers)}

    def against(self, speaker: int) -> dict[int, PairMachine]:
        """See PairSource."""
        machines = self.source.against(self.numbers[speaker]) if speaker < len(self.numbers) else {}
        return {self._place[other]: made for other, made in machines.items() if other in self._place}
