"""Supervector machines of everybody, from the segments in a store and those of new speakers.

The store keeps the inner products of the segments that the machines were solved from: adding a speaker computes those
of the new segments only, and removal computes none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.config import Config
from pipeline.errors import ConfigError
from pipeline.machines.branches import UtteranceKind
from pipeline.machines.gram import Known, square, unpacked
from pipeline.machines.supervector_training import SupervectorTraining
from pipeline.store.layout import AnyArray
from pipeline.store.model import SpeakerModel

Named = dict[str, AnyArray]
"""New arrays, by their names in a model."""
Numbers = NDArray[np.intp]


@dataclass(frozen=True)
class SpeakerSegments:
    """Supervectors (S, D) of the ``segments`` of speaker ``id``, and of those of each of the ``pseudo``-speakers.

    ``held_out`` counts the last segments of each that are of held-out utterances; without counts, none is left out.
    """

    id: int
    segments: AnyArray
    pseudo: Sequence[AnyArray] = ()
    held_out: Sequence[int] = ()

    @property
    def parts(self) -> list[AnyArray]:
        """Return the speaker's segments and then each pseudo-speaker's."""
        return [self.segments, *self.pseudo]

    def joined(self, held_out: SpeakerSegments) -> SpeakerSegments:
        """Return these segments and then those ``held_out``, without pseudo-speakers who have none."""
        pairs = zip(self.parts, held_out.parts, strict=True)
        (segments, count), *pseudo = [(np.concatenate(both), len(both[1])) for both in pairs]
        made = [part for part in pseudo if len(part[0])]
        return SpeakerSegments(self.id, segments, [rows for rows, _ in made], [count, *(count for _, count in made)])

    def thinned(self, most: int, of_pseudo: int) -> tuple[SpeakerSegments, Numbers]:
        """Return at most ``most`` of the segments and ``of_pseudo`` of each pseudo-speaker's, with their numbers.

        Segments are numbered through all ``parts``.
        """
        caps = [most, *[of_pseudo] * len(self.pseudo)]
        picked = [evenly(len(part), cap) for part, cap in zip(self.parts, caps, strict=True)]
        kept = [part if len(rows) == len(part) else part[rows] for part, rows in zip(self.parts, picked, strict=True)]
        held_out = [
            int(np.sum(rows >= len(part) - count))
            for part, rows, count in zip(self.parts, picked, self.held_out, strict=False)
        ]
        starts = np.cumsum([0, *map(len, self.parts)])
        numbers = np.concatenate([start + rows for start, rows in zip(starts, picked, strict=False)])
        return SpeakerSegments(self.id, kept[0], kept[1:], held_out), numbers


def stored_segments(model: SpeakerModel, kind: UtteranceKind, *, has_pseudo: bool) -> list[SpeakerSegments]:
    """Return everybody's segments in ``model``, with those of pseudo-speakers if it ``has_pseudo`` ones."""
    if not len(model):
        return []
    pseudo = model.pseudo_segments() if has_pseudo else [[] for _ in model.speakers]
    rows = zip(model.speakers, model.segments(kind), pseudo, strict=True)
    return [SpeakerSegments(speaker.id, segments, made) for speaker, segments, made in rows]


def solve(
    speakers: Sequence[SpeakerSegments],
    config: Config,
    kind: UtteranceKind,
    *,
    known: SpeakerModel | None = None,
    jobs: int = 1,
) -> tuple[SupervectorTraining, Named]:
    """Solve the supervector machines of ``speakers``, from as many segments as ``machines.gram_gib`` has room for.

    Where there are too many, the segments of the speakers with most are thinned out evenly. Inner products that the
    ``known`` model keeps are not computed again; the products to keep are the second result. Raises ConfigError where
    there is no room for one segment each.
    """
    parts = [part for one in speakers for part in one.parts]
    cap = _cap([len(part) for part in parts], config, kind)
    some, numbers = zip(*(one.thinned(cap, cap) for one in speakers), strict=True)
    rows = np.repeat(np.array([one.id for one in speakers], dtype=np.uint64), [len(its) for its in numbers])
    names = rows, np.concatenate(numbers).astype(np.uint32)
    solver = SupervectorTraining(
        [one.segments for one in some],
        ridge=kind.branch.settings(config).ridge,
        pseudo_speakers=[one.pseudo for one in some],
        held_out=[one.held_out for one in some],
        known=_known(known, kind, *names),
        jobs=jobs,
    )
    begin = f"{kind.array}.inner"
    return solver, {begin: solver.triangle, f"{begin}.speakers": names[0], f"{begin}.segments": names[1]}


def most_rows(config: Config) -> int:
    """Return the number of segments whose Gram matrix fits into ``machines.gram_gib``."""
    return int(math.sqrt(config.machines.gram_gib * 2**30 / np.dtype(np.float32).itemsize))


def _cap(sizes: Sequence[int], config: Config, kind: UtteranceKind) -> int:
    """Return the most segments that each speaker and pseudo-speaker may have, by their numbers ``sizes`` (N,)."""
    most = most_rows(config)
    counts = np.array(sizes)
    caps = [cap for cap in range(1, max(sizes) + 1) if np.minimum(counts, cap).sum() <= most]
    if not caps:
        raise ConfigError(
            f"machines.gram_gib: {config.machines.gram_gib:g} GiB hold a Gram matrix of {most} segments of speech,"
            f" and there are {len(sizes)} speakers and pseudo-speakers; raise it, or leave {kind.name} out of"
            " machines.kinds"
        )
    return caps[-1]


def _known(
    model: SpeakerModel | None, kind: UtteranceKind, speakers: NDArray[np.uint64], numbers: NDArray[np.uint32]
) -> Known | None:
    """Return the inner products that ``model`` keeps of rows with these names."""
    names = [f"{kind.array}.inner{ending}" for ending in ("", ".speakers", ".segments")]
    if model is None or not all(name in model.shared for name in names):
        return None
    triangle, *before = (model.shared[name] for name in names)
    places = {key: place for place, key in enumerate(zip(*(column.tolist() for column in before), strict=True))}
    found = np.array([places.get(key, -1) for key in zip(speakers.tolist(), numbers.tolist(), strict=True)])
    rows, kept = np.flatnonzero(found >= 0), found[found >= 0]
    if np.array_equal(rows, kept) and len(kept) == len(places):  # all kept rows, before any new ones
        return Known(rows, unpacked(triangle, len(found)))
    inner = np.empty((len(found), len(found)), dtype=triangle.dtype)
    inner[square(rows)] = unpacked(triangle)[square(kept)]
    return Known(rows, inner)


def evenly(size: int, most: int) -> Numbers:
    """Return ``most`` of the numbers below ``size``, evenly spaced, or all if there are no more.

    A smaller selection is a subset of a larger one: numbers are taken in the order of their reversed binary digits.
    """
    if size <= most:
        return np.arange(size)
    digits = max(1, (size - 1).bit_length())
    order = [n for n in (int(f"{k:0{digits}b}"[::-1], 2) for k in range(1 << digits)) if n < size]
    return np.sort(order[:most])


def machine_arrays(solver: SupervectorTraining, kind: UtteranceKind, *, jobs: int = 1) -> tuple[list[Named], Named]:
    """Return supervector machines as arrays of each speaker, in single precision, and of the population."""
    made = solver.solution
    return [{kind.array: row} for row in made.coefficients(jobs)], {f"{kind.array}.mean": made.mean}
