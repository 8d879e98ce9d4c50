"""Frames and claims to running utterance scores, one pass for any number of systems and claims."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pipeline.features.stream import FeatureBlock
from pipeline.machines.population import Margins, MarginScorer, Population
from pipeline.machines.segments import loudness
from pipeline.posteriors.calibrated import Calibration
from pipeline.posteriors.coupling import RULES, Posterior, Rule, alone

Array = NDArray[np.float64]

# Largest array of pair margins held at a time, in numbers (32 MiB of float64).
BLOCK_NUMBERS = 4 * 2**20

# What rules over whole stretches need.
SEGMENT_MACHINES, SPEAKER_MODELS = frozenset({"segment"}), frozenset({"mixture"})

# Statistics of the stretch so far are summed under this name, beside the sums of the frame rules.
STRETCH = "stretch"


@dataclass(frozen=True)
class ScoringSettings:
    """What scoring takes from a store beside its machines.

    ``half_db`` is ``SegmentConfig``'s; ``fusions`` are the calibrations of systems that sum others. ``compiled`` loads
    numba where ``dtype`` makes exponentials in single precision (``machines.pool.Precision``).
    """

    posterior: Posterior
    dtype: str = "float64"
    half_db: float = 30.0
    fusions: Mapping[str, Calibration] | None = None
    compiled: bool = False

    @property
    def in_compiled_code(self) -> bool:
        """Whether exponentials are made by compiled code."""
        return self.compiled and self.dtype != "float64"


class FrameMargins(Protocol):
    """What gives the margins of blocks of frames (``machines.population.MarginScorer``)."""

    machines: int

    def __call__(self, features: Array) -> Margins:
        """Margins of ``features`` (T, d)."""


class ClaimScorer:
    """C claims under several systems, made ready once for any number of utterances.

    ``claims`` are speaker numbers. ``population`` must have the machines that the systems need
    (``SpeakerStore.check_system``). ``without_rivals`` scores by the one-class machines alone; with one speaker there
    is no other way.
    """

    def __init__(
        self,
        population: Population,
        claims: Iterable[int],
        systems: Iterable[str],
        settings: ScoringSettings,
        *,
        without_rivals: bool = False,
    ) -> None:
        self.systems = tuple(systems)
        self.claims = np.fromiter(claims, dtype=np.int64)
        self._whole_claims = self.claims
        self.settings = settings
        self._population = population
        self._alone = without_rivals or len(population) == 1
        self._scored = self.systems if self._alone else with_parts(self.systems, settings.fusions)
        rules = [RULES[name] for name in self._scored]
        self._frame_rules = [rule for rule in rules if self._alone or not (rule.whole or rule.parts)]
        self._whole_rules = [] if self._alone else [rule for rule in rules if rule.whole]
        needs = frozenset[str]().union(*(rule.needs for rule in self._frame_rules))
        every = any(rule.every_claim for rule in self._frame_rules) and not self._alone
        asked = np.arange(len(population)) if every else self.claims
        kinds = frozenset({"one_class"}) if self._alone else needs
        self._margins = self._margin_scorer(asked, kinds) if self._frame_rules else None
        machines = 1 if self._margins is None else self._margins.machines
        self.block = max(1, min(256, BLOCK_NUMBERS // max(1, len(asked) * len(population) * machines)))

    def _margin_scorer(self, asked: NDArray[np.int64], kinds: frozenset[str]) -> FrameMargins:
        """What gives the margins of frames for the claims ``asked``."""
        settings = self.settings
        return MarginScorer(self._population, asked, kinds, dtype=settings.dtype, compiled=settings.compiled)

    def with_posterior(self, posterior: Posterior) -> ClaimScorer:
        """The same claims and machines under another ``posterior``."""
        changed = copy.copy(self)
        changed.settings = replace(self.settings, posterior=posterior)
        return changed

    def start(self) -> RunningScores:
        """A new utterance."""
        return RunningScores(self)

    def sums(self, frames: FeatureBlock) -> dict[str, Array]:
        """Sums over ``frames``: per-frame values of each system, (C,) or (C, N), and the stretch's statistics."""
        found: dict[str, Array] = {}
        if self._margins is not None:
            margins = self._margins(frames.vectors)
            found = {rule.name: self._values(rule, margins).sum(axis=0, dtype=float) for rule in self._frame_rules}
        if self._whole_rules and self._population.segments is not None:
            weights = loudness(frames.below_peak, self.settings.half_db)
            found[STRETCH] = self._population.segments.space.statistics(
                frames.vectors, weights, compiled=self.settings.in_compiled_code
            )
        return found

    def finish(
        self, sums: Mapping[str, Array], frames: int, *, segment_margins: Array | None = None, absent: int | None = None
    ) -> dict[str, Array]:
        """Utterance scores (C,) a system from sums over ``frames`` frames.

        For held-out trials, ``segment_margins`` (N,) stand in for those of the population's own machines, and the
        speaker ``absent`` is no rival of anybody's under rules that look for the best or worst rival.
        """
        means = {rule.name: sums[rule.name] / frames for rule in self._frame_rules}
        if self._alone:
            return means
        scores = {
            name: RULES[name].finish(self._without(mean, absent, np.inf), self.claims) for name, mean in means.items()
        }
        if self._whole_rules:
            of_stretch = self._of_stretch(sums[STRETCH], segment_margins)
            scores |= {
                rule.name: rule.finish(self._without(of_stretch[rule.needs], absent, -np.inf), self._whole_claims)
                for rule in self._whole_rules
            }
        for name in self.systems:
            if RULES[name].parts and self.settings.fusions is not None and name in self.settings.fusions:
                one = len(self.claims) == 1
                parts = {part: values[0] for part, values in scores.items()} if one else scores
                scores[name] = np.atleast_1d(self.settings.fusions[name].llr(parts, frames))
        return scores

    def _of_stretch(self, statistics: Array, segment_margins: Array | None) -> dict[frozenset[str], Array]:
        """What machines over whole stretches say of one by its ``statistics``: (N,) of each kind that is asked for."""
        asked, segments = {rule.needs for rule in self._whole_rules}, self._population.segments
        if segments is None or (SPEAKER_MODELS in asked and segments.models is None):
            raise AssertionError("a rule over whole stretches was asked of a population without machines for it")
        found = {}
        if SEGMENT_MACHINES in asked:
            compiled = self.settings.in_compiled_code
            found[SEGMENT_MACHINES] = (
                segments.margins(statistics, compiled=compiled) if segment_margins is None else segment_margins
            )
        if SPEAKER_MODELS in asked and segments.models is not None:
            found[SPEAKER_MODELS] = segments.models.scores(statistics)
        return found

    def _without(self, values: Array, absent: int | None, stand_in: float) -> Array:
        """``values`` (..., N) with the column of the speaker ``absent`` taken out of any comparison; (C,) as it is."""
        if absent is None or (values.ndim == 1 and stand_in > 0):
            return values
        changed = values.copy()
        changed[..., absent] = stand_in
        return changed

    def _values(self, rule: Rule, margins: Margins) -> NDArray[Any]:
        claimed = margins.select(self.claims)
        if self._alone:
            return alone(rule.alone, claimed, self.settings.posterior)
        if rule.every_claim:
            return rule.frame(margins, self.settings.posterior)[:, self.claims]
        return rule.frame(claimed, self.settings.posterior)


def with_parts(systems: Iterable[str], fusions: Mapping[str, Calibration] | None = None) -> tuple[str, ...]:
    """``systems`` and, before them, those that they are sums of by ``fusions``, or can be; each once."""
    named, known = list(systems), fusions or {}
    parts = [part for name in named for part in (known[name].systems if name in known else RULES[name].parts)]
    return tuple(dict.fromkeys(parts + named))


class RunningScores:
    """The scores of one utterance, exact after every push: from sums over all its frames so far.

    Only sums are kept, so neither the cost of a push nor the memory grows with the utterance.
    """

    def __init__(self, scorer: ClaimScorer) -> None:
        self.frames = 0
        self.sums: dict[str, Array] = {}
        self._scorer = scorer
        self._found: dict[str, Array] | None = None

    def push(self, speech: FeatureBlock) -> None:
        """Take in the frames of ``speech``."""
        for start in range(0, len(speech.vectors), self._scorer.block):
            rows = slice(start, start + self._scorer.block)
            block = FeatureBlock(speech.vectors[rows], speech.frames, speech.below_peak[rows])
            for name, values in self._scorer.sums(block).items():
                self.sums[name] = self.sums[name] + values if self.frames else values
            self.frames += len(block.vectors)
            self._found = None

    def scores(self) -> dict[str, Array]:
        """Scores (C,) a system; there must have been a frame."""
        if self.frames == 0:
            raise ValueError("no frame has been scored")
        if self._found is None:
            found = self._scorer.finish(self.sums, self.frames)
            self._found = {name: found[name] for name in self._scorer.systems if name in found}
        return self._found
