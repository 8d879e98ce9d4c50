"""Of a store that keeps pair machines against the hardest rivals alone: who they are, and their machines, as asked for.

A claim opens the table of rivals and the files of the claim's own panel, no other speaker's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.arrays import AnyArray, ArrayFile
from pipeline.errors import StoreFormatError
from pipeline.machines.panels import Panels
from pipeline.machines.rivals import PairMachine, RivalTable
from pipeline.manifest import Speaker
from pipeline.store_files import StoreFiles

Numbers = NDArray[np.int64]


def read_table(file: ArrayFile) -> RivalTable:
    """Everybody's hardest rivals; raises StoreFormatError."""
    nearest = file.read("nearest").astype(np.int64)
    _check_rivals(file, np.arange(len(nearest)), nearest, len(nearest))
    return RivalTable(nearest, file.read("hardness"))


def read_panels(file: ArrayFile, claims: Iterable[int], speakers: int) -> Panels:
    """The panels of ``claims`` among so many ``speakers``, from their rows of the table; raises StoreFormatError."""
    asked = np.fromiter(claims, dtype=np.int64)
    rows = [file.read("nearest", slice(claim, claim + 1)) for claim in asked.tolist()]
    nearest = np.concatenate(rows).astype(np.int64)
    _check_rivals(file, asked, nearest, speakers)
    return Panels.of(asked, nearest)


def _check_rivals(file: ArrayFile, claims: Numbers, nearest: Numbers, speakers: int) -> None:
    """Raise StoreFormatError for rivals (C, W) that are nobody, oneself, or the same person twice."""
    ordered = np.sort(nearest, axis=1)
    known = bool(np.all(nearest < speakers)) and not bool(np.any(nearest == claims[:, None]))
    if not known or bool(np.any(ordered[:, 1:] == ordered[:, :-1])):
        raise StoreFormatError(
            f"{file.path}: array 'nearest' must name other speakers of the {speakers}, each once a row; damaged?"
        )


@dataclass(frozen=True)
class _Against:
    """The earlier speakers (n,) that a file has machines against, and where each one's rows of ``rival`` begin."""

    earlier: Numbers
    starts: Numbers


class StoredMachines:
    """The pair machines of the speakers ``numbers`` of a store, by their places there (``MachineSource``).

    Every method raises StoreFormatError for files that do not belong together.
    """

    def __init__(self, speakers: tuple[Speaker, ...], files: StoreFiles, numbers: Sequence[int]) -> None:
        self._speakers = speakers
        self._files = files
        self._numbers = list(numbers)
        self._place = {number: place for place, number in enumerate(self._numbers)}
        self._number_of = {speaker.id: number for number, speaker in enumerate(speakers)}
        self._read: dict[int, _Against] = {}

    def machine(self, later: int, earlier: int) -> PairMachine:
        """See MachineSource."""
        number, rival = self._numbers[later], self._numbers[earlier]
        file, against = self._files.speaker(number), self._against(number)
        at = int(np.searchsorted(against.earlier, rival))
        if at == len(against.earlier) or against.earlier[at] != rival:
            raise StoreFormatError(
                f"{file.path}: there is no pair machine of speaker {self._speakers[number].name!r} against"
                f" {self._speakers[rival].name!r}, one of the hardest rivals of the other; files of two stores mixed?"
            )
        return PairMachine(
            own=file.read("own", at),
            rival=file.read("rival", slice(int(against.starts[at]), int(against.starts[at + 1]))),
            bias=file.read("bias", slice(at, at + 1))[0],
        )

    def earlier(self, speaker: int) -> Numbers:
        """See MachineSource."""
        found = self._against(self._numbers[speaker]).earlier.tolist()
        return np.array([self._place[number] for number in found if number in self._place], dtype=np.int64)

    def _against(self, number: int) -> _Against:
        if number not in self._read:
            self._read[number] = self._checked(number)
        return self._read[number]

    def _checked(self, number: int) -> _Against:
        file, speakers = self._files.speaker(number), self._speakers
        ids = file.read("earlier").tolist()
        earlier = np.array([self._number_of.get(found, len(speakers)) for found in ids], dtype=np.int64)
        if not bool(np.all(np.diff(earlier) > 0)) or bool(np.any(earlier >= number)):
            raise StoreFormatError(
                f"{file.path}: the pair machines of speaker {speakers[number].name!r} are not those of some of the"
                " earlier speakers in the manifest, in order; files of two stores mixed?"
            )
        starts = np.cumsum([0, *(speakers[rival].centroids for rival in earlier)])
        if len(file.read("rival")) != starts[-1]:
            raise StoreFormatError(
                f"{file.path}: array 'rival' must have the length {starts[-1]}, the centroids of the earlier speakers"
                " that there are machines against; files of two stores mixed?"
            )
        return _Against(earlier, starts)


def pair_arrays(machines: Sequence[tuple[int, PairMachine]], centroids: int) -> dict[str, AnyArray]:
    """The arrays that hold ``machines`` of a speaker of so many ``centroids``, each with the earlier speaker's id."""
    found = {
        "earlier": np.array([rival for rival, _ in machines], dtype=np.uint64),
        "own": np.empty((0, centroids)),
        "rival": np.empty(0),
        "bias": np.empty(0),
    }
    if machines:
        found["own"] = np.stack([machine.own for _, machine in machines])
        found["rival"] = np.concatenate([machine.rival for _, machine in machines])
        found["bias"] = np.stack([machine.bias for _, machine in machines])
    return found


def with_machines(
    arrays: Mapping[str, AnyArray], added: Mapping[int, PairMachine], speakers: Sequence[Speaker]
) -> dict[str, AnyArray]:
    """The ``arrays`` of a speaker's file with the machines ``added`` against ``speakers`` of these numbers."""
    number_of = {speaker.id: number for number, speaker in enumerate(speakers)}
    machines, start = dict(added), 0
    for at, rival in enumerate(arrays["earlier"].tolist()):
        rows = slice(start, start + speakers[number_of[rival]].centroids)
        machines[number_of[rival]] = PairMachine(arrays["own"][at], arrays["rival"][rows], arrays["bias"][at])
        start = rows.stop
    ordered = [(speakers[number].id, machine) for number, machine in sorted(machines.items(), key=lambda item: item[0])]
    return {**arrays, **pair_arrays(ordered, len(arrays["centroids"]))}
