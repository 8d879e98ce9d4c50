"""Maps from margins to posteriors, fitted to the frames of held-out utterances, one a machine.

A machine was trained on its speakers' enrollment frames, and their margins say nothing of what it will do on others
(Platt 1999, section 2.1), so only utterances that it has not heard are used: those that set the thresholds. Frames of
one utterance depend on each other. They are thinned evenly, and each counts as its share of ``posterior.dependence``
seconds of speech.

The same utterances, scored as trials, set thresholds and calibrations. Each is then scored by maps that it had no part
in: the held-out trials are cut in two halves, and a trial of one half is scored by maps fitted to the other. What
remains in common is the speaker.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.config import Config
from pipeline.features.stream import FeatureBlock
from pipeline.machines.population import MarginScorer, Population
from pipeline.posteriors.machine_posteriors import (
    KINDS,
    ONE_CLASS,
    ONE_VS_REST,
    PAIR,
    MachinePosterior,
    MapArrays,
    MapSource,
    map_name,
)
from pipeline.posteriors.map_fitting import SAMPLE, MapFitter, Sides, quantiles

AnyFloat = NDArray[Any]

# Frames a speaker that maps are fitted to, and margins held for that in all (256 MiB).
MOST_FRAMES = 500
MOST_NUMBERS = 2**26
_FRAME_KINDS = frozenset({"one_vs_one", "one_class", "one_vs_rest"})


def half_of(speaker: int, trial: int) -> int:
    """Half, 0 or 1, that a speaker's held-out trial falls in: alternating, from speaker to speaker too."""
    return (speaker + trial) % 2


@dataclass(frozen=True)
class Heard:
    """Margins of one speaker's held-out frames, thinned to T: ``margins[kind]`` (T, N) of each kind that was trained.

    Pair margins are the speaker's own against each other; the other kinds' are those of everybody's machines. ``half``
    (T,) is that of each frame's trial, ``weight`` what a frame counts.
    """

    speaker: int
    margins: dict[str, AnyFloat]
    half: NDArray[np.int64]
    weight: float

    def of(self, half: int | None) -> Heard:
        """The frames of one half, or all."""
        if half is None:
            return self
        kept = self.half == half
        margins = {kind: values[kept] for kind, values in self.margins.items()}
        return Heard(self.speaker, margins, self.half[kept], self.weight)

    @property
    def count(self) -> float:
        """What the frames count in all."""
        return self.weight * len(self.half)

    def under(self, kind: str, speaker: int) -> AnyFloat:
        """Margins (T,) of the machine of ``kind`` of one speaker, or of the own pair machine against them."""
        return self.margins[kind][:, speaker] if kind in self.margins else np.empty(0)

    def sample(self, kind: str) -> Sides:
        """Margins of the own machines of ``kind`` and those of the others; for pairs, of the own from both sides."""
        if kind not in self.margins:
            return Sides(np.empty(0), np.empty(0))
        rest = np.delete(self.margins[kind], self.speaker, axis=1).ravel()
        return Sides(rest, -rest) if kind == PAIR else Sides(self.under(kind, self.speaker), rest)


@dataclass(frozen=True)
class FittedMaps:
    """``speakers`` are the arrays that go into the new speakers' files, ``pooled`` (P,) the pooled map of each kind."""

    speakers: list[MapArrays]
    pooled: dict[str, AnyFloat]


class HeldOutMaps:
    """Fits the maps of the new speakers of a population, those from number ``first`` on.

    ``trials`` are the new speakers' held-out utterances, ``known`` the maps and samples of those before them.
    ``posterior.kind`` must be one that is fitted.
    """

    def __init__(
        self,
        settings: Config,
        population: Population,
        trials: Sequence[Sequence[FeatureBlock]],
        known: Sequence[MapSource] = (),
    ) -> None:
        self._fitter = MapFitter(settings.posterior)
        self._known = list(known)
        self._speakers = len(population)
        kinds = _FRAME_KINDS & set(settings.machines.kinds)
        budget = MOST_NUMBERS // max(1, len(trials) * len(population) * len(kinds))
        most = max(1, min(MOST_FRAMES, budget))
        self._heard = [
            _heard(settings, population, number, its_trials, most)
            for number, its_trials in enumerate(trials, start=len(self._known))
        ]

    def posterior(self, half: int | None = None) -> MachinePosterior:
        """Posterior of the whole population by maps fitted to the trials of one ``half``, or to all."""
        found = self.fitted(half)
        return MachinePosterior([*self._known, *found.speakers], found.pooled)

    def fitted(self, half: int | None = None) -> FittedMaps:
        """The maps, from the trials of one ``half`` or all."""
        heard = [frames.of(half) for frames in self._heard]
        samples = [MapArrays(_samples(frames)) for frames in heard]
        pools = {kind: pooled_sample([*self._known, *samples], kind) for kind in KINDS}
        speakers = []
        for place, sample in enumerate(samples):
            arrays = {
                map_name(PAIR): self._pairs(heard, place, pools[PAIR]),
                map_name(ONE_CLASS): self._single(heard, place, ONE_CLASS, pools[ONE_CLASS])[None],
                map_name(ONE_VS_REST): self._single(heard, place, ONE_VS_REST, pools[ONE_VS_REST])[None],
            }
            speakers.append(MapArrays(arrays | sample.arrays))
        return FittedMaps(speakers, {kind: self._fitter.pooled(pools[kind]) for kind in KINDS})

    def _pairs(self, heard: list[Heard], place: int, pool: Sides) -> AnyFloat:
        """Maps (n, P) of the new speaker ``place`` against the n before; those known of old were not heard here."""
        own, maps = heard[place], np.tile(self._fitter.none, (len(self._known) + place, 1))
        for rival in heard[:place]:
            trials = Sides(own.under(PAIR, rival.speaker), -rival.under(PAIR, own.speaker))
            maps[rival.speaker] = self._fitter.own(trials, min(own.count, rival.count), pool)
        return maps

    def _single(self, heard: list[Heard], place: int, kind: str, pool: Sides) -> AnyFloat:
        """Map (P,) of the new speaker's machine of ``kind``, their own frames against those of the other new ones."""
        own = heard[place]
        others = [frames for number, frames in enumerate(heard) if number != place]
        negative = np.concatenate([np.empty(0), *(frames.under(kind, own.speaker) for frames in others)])
        count = min(own.count, sum(frames.count for frames in others))
        return self._fitter.own(Sides(own.under(kind, own.speaker), negative), count, pool)


def pooled_maps(settings: Config, sources: Sequence[MapSource]) -> dict[str, AnyFloat]:
    """The pooled map (P,) of each kind of machine from the samples of all speakers of a store."""
    fitter = MapFitter(settings.posterior)
    return {kind: fitter.pooled(pooled_sample(sources, kind)) for kind in KINDS}


def pooled_sample(sources: Sequence[MapSource], kind: str) -> Sides:
    """The samples of all speakers' margins under machines of ``kind``, every speaker counting alike."""
    own, others = _sample_names(kind)
    return Sides.pooled([Sides(source.read(own), source.read(others)) for source in sources])


def _sample_names(kind: str) -> tuple[str, str]:
    return f"{kind}_own_sample", f"{kind}_others_sample"


def _samples(heard: Heard) -> dict[str, AnyFloat]:
    """One speaker's margins of every kind as a few quantiles each: what the pooled sample is made of."""
    found = {}
    for kind in KINDS:
        sides = heard.sample(kind)
        for name, margins in zip(_sample_names(kind), (sides.positive, sides.negative), strict=True):
            found[name] = quantiles(margins, SAMPLE).astype(np.float32)
    return found


def _heard(settings: Config, population: Population, speaker: int, trials: Sequence[FeatureBlock], most: int) -> Heard:
    """Margins of ``speaker``'s held-out ``trials``, of at most about ``most`` of their frames, evenly spaced."""
    frames = sum(len(trial.vectors) for trial in trials)
    stride = max(1, -(-frames // most))
    vectors = [trial.vectors[::stride] for trial in trials]
    half = np.concatenate(
        [np.empty(0, dtype=np.int64)]
        + [np.full(len(part), half_of(speaker, number)) for number, part in enumerate(vectors)]
    )
    step = settings.features.step_seconds * stride
    return Heard(
        speaker,
        _margins(settings, population, speaker, vectors),
        half,
        min(1.0, step / settings.posterior.dependence),
    )


def _margins(
    settings: Config, population: Population, speaker: int, vectors: Sequence[AnyFloat]
) -> dict[str, AnyFloat]:
    """Margins (T, N) of every kind that the population has machines of."""
    scorer = MarginScorer(population, np.array([speaker]), _FRAME_KINDS & set(settings.machines.kinds))
    found: dict[str, list[AnyFloat]] = {}
    # The first block holds no frame: a speaker may have no held-out ones, and their margins a shape all the same.
    for part in (np.empty((0, settings.features.dimension)), *vectors):
        margins = scorer(part)
        pair = None if margins.pair is None else margins.pair[:, 0]
        for kind, values in zip(KINDS, (pair, margins.one_class, margins.one_vs_rest), strict=True):
            if values is not None:
                found.setdefault(kind, []).append(values.astype(np.float32))
    return {kind: np.concatenate(values) for kind, values in found.items()}
