"""Fitting of posterior maps (``posterior_maps``) to the frames of held-out utterances, one map a machine.

Margins of a machine's own training frames are biased (Platt 1999, section 2.1), so only held-out utterances are used:
those that set the thresholds. Frames of one utterance are dependent: they are thinned evenly, and each counts as its
share of ``posterior.dependence`` seconds of speech. The classes of a fit have equal weight. A machine's own frames come
from few speakers, so each class is joined by a pooled sample of the margins of all machines of the kind, which counts
as ``posterior.pooling`` trials: with little speech a machine's map is the pooled one, with much of it nearly its own.

The same utterances, scored as trials, set thresholds and calibrations. The trials are therefore split in two halves,
and a trial of one half is scored by maps fitted to the other; what remains in common is the speaker.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.config import Config, PosteriorConfig
from pipeline.errors import FitError
from pipeline.features.stream import FeatureBlock
from pipeline.machines.margins import MarginScorer, Population
from pipeline.posteriors.base import LinearLogOdds, MarginPosterior
from pipeline.posteriors.estimators import make_posterior
from pipeline.posteriors.gaussian import TiedGaussian, TwoGaussian
from pipeline.posteriors.posterior_maps import (
    KINDS,
    KNOTS,
    ONE_CLASS,
    ONE_VS_REST,
    PAIR,
    QUADRATIC,
    MachinePosterior,
    identity_map,
    map_name,
)

AnyFloat = NDArray[Any]
Array = NDArray[np.float64]
Sides = tuple[AnyFloat, AnyFloat]
"""Margins of trials of a machine's own speaker (n,), and of others (m,)."""

# Margins of each class that represent a speaker in the pooled sample, and of all speakers together.
SAMPLE = 64
MAX_POOLED = 256
# Frames a speaker that maps are fitted to, and margins held for that in all (256 MiB).
MAX_FRAMES = 500
MAX_NUMBERS = 2**26

_FRAME_KINDS = frozenset({"one_vs_one", "one_class", "one_vs_rest"})
_QUADRATICS = frozenset({"platt", "newton", "tied_gaussian", "two_gaussian"})
# As published, a tied Gaussian's sigmoid crosses one half at a margin of 0, where frame margins are not centred.
_SETTINGS: dict[str, dict[str, str]] = {"tied_gaussian": {"crossing": "bayes"}}
_NONE = np.empty(0)


def quantiles(margins: AnyFloat, most: int) -> AnyFloat:
    """Return ``margins`` (n,) sorted, or ``most`` evenly spaced quantiles of them if there are more."""
    if len(margins) <= most:
        return np.sort(margins)
    return np.asarray(np.quantile(margins, (np.arange(most) + 0.5) / most))


def pooled_map(settings: PosteriorConfig, sample: Sides) -> AnyFloat:
    """Return the map (P,) of the kind in ``settings`` for a pooled ``sample``; the fixed sigmoid where there is no fit.

    P is 3 for quadratics, else the knots of a table and its two ends.
    """
    fitted = _fitted(settings, [(sample, float(len(sample[0])))])
    return identity_map(settings.slope, fitted.size).astype(fitted.dtype) if np.isnan(fitted).all() else fitted


def own_map(settings: PosteriorConfig, trials: Sides, count: float, sample: Sides) -> AnyFloat:
    """Return the map (P,) of one machine from its own ``trials``, counted as ``count`` a class, and ``sample``.

    NaN, which marks a missing map, without trials of both classes or without a finite fit.
    """
    shared = [(sample, settings.pooling)] if _both(sample) and settings.pooling > 0.0 else []
    return _fitted(settings, [(trials, count), *shared])


def _both(sides: Sides) -> bool:
    return all(side.size > 0 for side in sides)


def _fitted(settings: PosteriorConfig, parts: Sequence[tuple[Sides, float]]) -> AnyFloat:
    """Return the map (P,) of parts, each with its weight a class; NaN if the first lacks a class or nothing fits."""
    quadratic = settings.kind in _QUADRATICS
    # Tables are long, and interpolation is less exact than seven digits.
    none = np.full(QUADRATIC if quadratic else KNOTS + 2, np.nan, dtype=np.float64 if quadratic else np.float32)
    if not _both(parts[0][0]):
        return none
    margins = np.concatenate([side for sides, _ in parts for side in sides])
    sizes = [len(side) for sides, _ in parts for side in sides]
    weights = np.repeat([count for _, count in parts for _ in range(2)] / np.array(sizes, dtype=float), sizes)
    positive = np.repeat([True, False] * len(parts), sizes)
    estimator = make_posterior(settings.kind, **_SETTINGS.get(settings.kind, {}))
    try:
        estimator.fit(margins, positive, weights)
    except FitError:
        return none
    numbers = _map_of(estimator, float(margins.min()), float(margins.max()))
    return numbers.astype(none.dtype) if np.isfinite(numbers).all() else none


def _map_of(estimator: MarginPosterior, low: float, high: float) -> Array:
    if isinstance(estimator, LinearLogOdds):
        return np.array([0.0, -estimator.A_, -estimator.B_])
    if isinstance(estimator, TiedGaussian | TwoGaussian):
        return np.array(estimator.quadratic_)
    # Margins all equal make a constant map, of any width.
    low, high = (low, high) if high - low > 1e-6 * max(abs(low), abs(high)) else (low - 1.0, high + 1.0)
    return np.concatenate(((low, high), estimator.log_odds(np.linspace(low, high, KNOTS))))


def half_of(speaker: int, trial: int) -> int:
    """Return the half, 0 or 1, of a speaker's held-out trial: alternating, from speaker to speaker too."""
    return (speaker + trial) % 2


@dataclass(frozen=True)
class _SpeakerMargins:
    """Margins of one speaker's held-out frames, thinned to T: ``margins[kind]`` (T, N) of each trained kind.

    Pair margins are the speaker's own against each other; the other kinds' are those of everybody's machines. ``half``
    (T,) is that of each frame's trial, ``weight`` the trials that a frame counts as.
    """

    speaker: int
    margins: dict[str, AnyFloat]
    half: NDArray[np.int64]
    weight: float

    def of(self, half: int | None) -> _SpeakerMargins:
        """Return the frames of one half, or all."""
        kept = np.full(len(self.half), True) if half is None else self.half == half
        margins = {kind: values[kept] for kind, values in self.margins.items()}
        return _SpeakerMargins(self.speaker, margins, self.half[kept], self.weight)

    @property
    def count(self) -> float:
        """Trials that the frames count as."""
        return self.weight * len(self.half)

    def under(self, kind: str, speaker: int) -> AnyFloat:
        """Return margins (T,) of one speaker's machine of ``kind``, or of the own pair machine against that speaker."""
        return self.margins[kind][:, speaker] if kind in self.margins else _NONE

    def sample(self, kind: str) -> dict[str, AnyFloat]:
        """Return quantiles of the own machines' margins and of the others'; for pairs, of the own from both sides."""
        sides = (_NONE, _NONE)
        if kind in self.margins:
            rest = np.delete(self.margins[kind], self.speaker, axis=1).ravel()
            sides = (rest, -rest) if kind == PAIR else (self.under(kind, self.speaker), rest)
        values = (quantiles(side, SAMPLE).astype(np.float32) for side in sides)
        return dict(zip(_sample_names(kind), values, strict=True))


@dataclass(frozen=True)
class FittedMaps:
    """``speakers`` are the arrays kept for each new speaker, ``pooled`` (P,) the pooled map of each kind."""

    speakers: list[dict[str, AnyFloat]]
    pooled: dict[str, AnyFloat]


class HeldOutMaps:
    """Fits the maps of the new speakers of a population, those after the ``known``.

    ``trials`` are the new speakers' held-out utterances, ``known`` the maps and samples of those before them.
    """

    def __init__(
        self,
        settings: Config,
        population: Population,
        trials: Sequence[Sequence[FeatureBlock]],
        known: Sequence[Mapping[str, AnyFloat]] = (),
    ) -> None:
        self._settings = settings.posterior
        self._known = list(known)
        kinds = _FRAME_KINDS & set(settings.machines.kinds)
        budget = MAX_NUMBERS // max(1, len(trials) * len(population) * len(kinds))
        most = max(1, min(MAX_FRAMES, budget))
        self._frames = [
            _margins_of(settings, population, number, blocks, most)
            for number, blocks in enumerate(trials, start=len(self._known))
        ]

    def posterior(self, half: int | None = None) -> MachinePosterior:
        """Return the posterior of the whole population by maps fitted to the trials of one ``half``, or to all."""
        maps = self.fitted(half)
        return MachinePosterior([*self._known, *maps.speakers], maps.pooled)

    def fitted(self, half: int | None = None) -> FittedMaps:
        """Return the maps fitted to the trials of one ``half``, or to all."""
        frames = [speaker.of(half) for speaker in self._frames]
        samples = [{name: v for kind in KINDS for name, v in speaker.sample(kind).items()} for speaker in frames]
        pools = {kind: pooled_sample([*self._known, *samples], kind) for kind in KINDS}
        speakers = [
            (
                {map_name(PAIR): self._pairs(frames, place, pools[PAIR])}
                | {map_name(kind): self._single(frames, place, kind, pools[kind]) for kind in (ONE_CLASS, ONE_VS_REST)}
                | sample
            )
            for place, sample in enumerate(samples)
        ]
        return FittedMaps(speakers, {kind: pooled_map(self._settings, pools[kind]) for kind in KINDS})

    def _pairs(self, frames: list[_SpeakerMargins], place: int, pool: Sides) -> AnyFloat:
        """Return the maps (n, P) of the new speaker ``place`` against the n before; none against the known."""
        own = frames[place]
        maps = np.tile(own_map(self._settings, (_NONE, _NONE), 0.0, pool), (len(self._known) + place, 1))
        for other in frames[:place]:
            trials = own.under(PAIR, other.speaker), -other.under(PAIR, own.speaker)
            maps[other.speaker] = own_map(self._settings, trials, min(own.count, other.count), pool)
        return maps

    def _single(self, frames: list[_SpeakerMargins], place: int, kind: str, pool: Sides) -> AnyFloat:
        """Return the map (1, P) of the new speaker's machine of ``kind``: own frames against the other new ones'."""
        own, others = frames[place], frames[:place] + frames[place + 1 :]
        negative = np.concatenate([_NONE, *(other.under(kind, own.speaker) for other in others)])
        count = min(own.count, sum(other.count for other in others))
        return own_map(self._settings, (own.under(kind, own.speaker), negative), count, pool)[None]


def pooled_maps(settings: Config, sources: Sequence[Mapping[str, AnyFloat]]) -> dict[str, AnyFloat]:
    """Return the pooled map (P,) of each kind of machine from the samples of all speakers of a store."""
    return {kind: pooled_map(settings.posterior, pooled_sample(sources, kind)) for kind in KINDS}


def pooled_sample(sources: Sequence[Mapping[str, AnyFloat]], kind: str) -> Sides:
    """Return at most ``MAX_POOLED`` quantiles a class of all speakers' samples of ``kind``, equally weighted."""
    own, others = (np.concatenate([_NONE, *(source[name] for source in sources)]) for name in _sample_names(kind))
    return quantiles(own, MAX_POOLED), quantiles(others, MAX_POOLED)


def _sample_names(kind: str) -> tuple[str, str]:
    return f"{kind}_own_sample", f"{kind}_others_sample"


def _margins_of(
    settings: Config, population: Population, speaker: int, trials: Sequence[FeatureBlock], most: int
) -> _SpeakerMargins:
    """Return the margins of ``speaker``'s held-out ``trials``, of at most about ``most`` frames, evenly spaced."""
    stride = max(1, -(-sum(len(trial.vectors) for trial in trials) // most))
    # The first block has no frame: without held-out trials, margins have the right shape all the same.
    blocks = [np.empty((0, settings.features.dimension)), *(trial.vectors[::stride] for trial in trials)]
    half = np.repeat(
        [0, *(half_of(speaker, number) for number in range(len(trials)))], [len(block) for block in blocks]
    )
    scorer = MarginScorer(population, np.array([speaker]), _FRAME_KINDS & set(settings.machines.kinds))
    margins: dict[str, list[AnyFloat]] = {}
    for block in blocks:
        scored = scorer(block)
        pair = None if scored.pair is None else scored.pair[:, 0]
        for kind, values in zip(KINDS, (pair, scored.one_class, scored.one_vs_rest), strict=True):
            if values is not None:
                margins.setdefault(kind, []).append(values.astype(np.float32))
    weight = min(1.0, settings.features.step_seconds * stride / settings.posterior.dependence)
    return _SpeakerMargins(speaker, {kind: np.concatenate(v) for kind, v in margins.items()}, half, weight)
