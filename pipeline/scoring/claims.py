"""Running utterance scores of claims: one pass over the frames for any number of systems and claims."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.features.stream import FeatureBlock
from pipeline.machines.branches import UtteranceKind
from pipeline.machines.cohorts import Cohorts
from pipeline.machines.margins import Margins, MarginScorer, Population
from pipeline.posteriors.coupling import alone
from pipeline.posteriors.sigmoid import FixedSigmoid
from pipeline.scoring.calibration import SystemCalibration
from pipeline.scoring.conditions import CONDITION, ConditionClassifier, condition_sums
from pipeline.scoring.rules import RULES, Rule

Array = NDArray[np.float64]

# Largest array of pair margins held at a time, in numbers (32 MiB of float64).
BLOCK_NUMBERS = 4 * 2**20


@dataclass(frozen=True)
class ScoringSettings:
    """Settings of scoring; ``fusions`` are the fitted calibrations of systems that sum others.

    A classifier of the ``condition`` adds its log-odds to the scores. Fusions look up claimants by ``ids``, the
    speakers' ids by number. Machines over frames score one frame in ``frame_subsampling``, from the first.
    """

    posterior: FixedSigmoid
    dtype: str = "float64"
    fusions: Mapping[str, SystemCalibration] = field(default_factory=dict)
    condition: ConditionClassifier | None = None
    ids: Sequence[int] | None = None
    frame_subsampling: int = 1


@dataclass(frozen=True)
class UtteranceStatistics:
    """Statistics of an utterance with ``frames`` frames of speech, from which its scores are computed.

    ``means`` are the values of each rule averaged over the frames, (C,) or (C, P), ``statistics`` those under each
    background model, (K, 1 + d), and ``side_information`` the measures of the condition, by the names of the scores.
    """

    frames: int
    means: dict[str, Array]
    statistics: dict[str, Array]
    side_information: dict[str, Array]


class ClaimScorer:
    """C claims under several systems, ready to score any number of utterances.

    Parameters
    ----------
    population : Population
        Must have the machines that the systems need (``SpeakerModel.check_system``).
    claims : iterable of int
        Speaker numbers, in any order.
    systems : iterable of str
        Names of ``RULES``.
    settings : ScoringSettings
        Posteriors, precision and fusions.
    cohorts : Cohorts, optional
        Speakers among whom pair and one-class machines judge each claim; by default the population's cohorts. Other
        machines judge a claim among everybody.
    is_alone : bool
        Score by the one-class machines alone; with one speaker there is no other way.
    """

    def __init__(
        self,
        population: Population,
        claims: Iterable[int],
        systems: Iterable[str],
        settings: ScoringSettings,
        *,
        cohorts: Cohorts | None = None,
        is_alone: bool = False,
    ) -> None:
        self.systems = tuple(systems)
        self.claims = np.fromiter(claims, dtype=np.int64)
        self.settings = settings
        numbers = population.numbers
        self._everybody = self.claims if numbers is None else numbers[self.claims]
        self._ids = None if settings.ids is None else [settings.ids[number] for number in self._everybody]
        self._cohorts = population.cohorts(self.claims) if cohorts is None else cohorts
        self._alone = is_alone or len(population) == 1
        self._scored = self.systems if self._alone else with_parts(self.systems, fusions=settings.fusions)
        rules = [RULES[name] for name in self._scored]
        self._frame_rules = [rule for rule in rules if self._alone or not (rule.kind or rule.parts)]
        self._whole_rules = [] if self._alone else [(rule, rule.kind) for rule in rules if rule.kind]
        self._whole = {kind: population.utterance[kind.name] for _, kind in self._whole_rules}
        self._ubms = {
            background: ubm
            for kind, machines in self._whole.items()
            for background, ubm in zip(kind.backgrounds, machines.ubms, strict=True)
        }
        judged = self._cohorts
        if any(rule.every_claim for rule in self._frame_rules) and not self._alone:
            judged = Cohorts.of_everybody(range(len(population)), len(population))
        needs = frozenset[str]().union(*(rule.needs for rule in self._frame_rules))
        kinds = frozenset({"one_class"}) if self._alone else needs
        self._margins = None
        if self._frame_rules:
            self._margins = MarginScorer(population, judged.claims, kinds, judged, dtype=settings.dtype)
        self.block = settings.frame_subsampling * max(1, min(256, BLOCK_NUMBERS // max(1, judged.members.size)))

    def start(self) -> RunningScores:
        """Return the running scores of a new utterance."""
        return RunningScores(self)

    def running_sums(self, frames: FeatureBlock, before: Mapping[str, Array], count: int) -> dict[str, Array]:
        """Return the sums after ``frames``: values of each rule, (C,) or (C, P), and sums under each background model.

        ``before`` holds the sums over the ``count`` preceding frames, and is empty at the start.
        """
        sums = dict(before)
        step = self.settings.frame_subsampling
        scored = frames.vectors[-count % step :: step]  # frame numbers in the utterance that are multiples of step
        if self._margins is not None and len(scored):
            margins = self._margins(scored)
            for rule in self._frame_rules:
                sums[rule.name] = sums.get(rule.name, 0.0) + self._values(rule, margins).sum(axis=0, dtype=float)
        if self.settings.condition is not None:
            sums[CONDITION] = sums.get(CONDITION, 0.0) + condition_sums(frames.of("supervector"))
        for background, ubm in self._ubms.items():
            vectors, so_far = frames.of(background.analysis), before.get(background.name)
            sums[background.name] = ubm.running_sums(vectors, frames.below_peak, so_far)
        return sums

    def utterance_statistics(self, sums: Mapping[str, Array], frames: int) -> UtteranceStatistics:
        """Return the means and statistics of an utterance, from its running ``sums`` over all its ``frames``."""
        condition = self.settings.condition
        side = {} if condition is None else condition.measure(sums[CONDITION])
        scored = -(-frames // self.settings.frame_subsampling)
        return UtteranceStatistics(
            frames,
            {rule.name: sums[rule.name] / scored for rule in self._frame_rules},
            {
                background.name: ubm.utterance_statistics(sums[background.name])
                for background, ubm in self._ubms.items()
            },
            {name: np.array(value) for name, value in side.items()},
        )

    def finish(
        self, utterance: UtteranceStatistics, *, margins: Mapping[str, Array] | None = None, absent: int | None = None
    ) -> dict[str, Array]:
        """Return the scores (C,) of an ``utterance`` by each system, from its statistics.

        For held-out trials, ``margins`` (N,), by kind of machine, replace those of the population's own machines,
        and the speaker ``absent`` is nobody's rival.
        """
        scores = {name: np.full(len(self.claims), value) for name, value in utterance.side_information.items()}
        if self._alone:
            return utterance.means | scores
        for name, mean in utterance.means.items():
            left_out = absent is not None and mean.ndim == 2
            compared = np.where(self._cohorts.members == absent, np.inf, mean) if left_out else mean
            scores[name] = RULES[name].finish(compared, self._cohorts.slots)
        scores |= self._whole_scores(utterance, margins or {}, absent)
        for name in self.systems:
            if name in self.settings.fusions:
                one = len(self.claims) == 1
                parts = {part: values[0] for part, values in scores.items()} if one else scores
                scores[name] = np.atleast_1d(self.settings.fusions[name].llr(parts, utterance.frames, self._ids))
        return scores

    def _whole_scores(
        self, utterance: UtteranceStatistics, given: Mapping[str, Array], absent: int | None
    ) -> dict[str, Array]:
        """Return the scores (C,) of rules over the whole utterance, from its statistics."""
        scores: dict[str, Array] = {}
        margins: dict[UtteranceKind, Array] = {}
        for kind, machines in self._whole.items():
            statistics = [utterance.statistics[background.name] for background in kind.backgrounds]
            made = given[kind.name] if kind.name in given else machines.margins(statistics)
            margins[kind] = made if absent is None else np.where(np.arange(len(made)) == absent, -np.inf, made)
        for rule, kind in self._whole_rules:
            scores[rule.name] = rule.finish(margins[kind], self._everybody)
        return scores

    def _values(self, rule: Rule, margins: Margins) -> NDArray[Any]:
        """Return the values of frames, (T, C) or (T, C, P), under ``rule``."""
        posterior = self.settings.posterior
        if self._alone:
            return alone(rule.alone, margins.select(self._cohorts.slots), posterior)
        if rule.every_claim:
            return rule.frame(margins, posterior)[:, self.claims]
        if "one_vs_rest" in rule.needs:
            return rule.frame(Margins(self.claims, one_vs_rest=margins.one_vs_rest), posterior)
        return rule.frame(margins.select(self._cohorts.slots), posterior)


def is_judged_in_cohort(system: str) -> bool:
    """Return True for systems of pair and one-class machines, which judge a claim within its cohort."""
    return RULES[system].needs <= {"one_vs_one", "one_class"}


def with_parts(
    systems: Iterable[str], available: Container[str] = (), *, fusions: Mapping[str, SystemCalibration] | None = None
) -> tuple[str, ...]:
    """Return ``systems``, each once, preceded by the systems that they sum.

    Those are the systems that its fusion in ``fusions`` reads or, without one, the parts of its rule among those
    ``available``.
    """
    named, known = list(systems), fusions or {}
    parts = [
        part
        for name in named
        for part in (known[name].systems if name in known else RULES[name].parts_among(available))
    ]
    return tuple(dict.fromkeys(parts + named))


class RunningScores:
    """Scores of one utterance, exact after every push.

    They are computed from sums over the frames so far, so neither the cost of a push nor the memory grows with time.
    """

    def __init__(self, scorer: ClaimScorer) -> None:
        self.frames = 0
        self.sums: dict[str, Array] = {}
        self._scorer = scorer
        self._statistics: UtteranceStatistics | None = None
        self._scores: dict[str, Array] | None = None

    def push(self, speech: FeatureBlock) -> None:
        """Add the frames of ``speech``."""
        for start in range(0, len(speech.vectors), self._scorer.block):
            block = speech.part(slice(start, start + self._scorer.block))
            self.sums = self._scorer.running_sums(block, self.sums, self.frames)
            self.frames += len(block.vectors)
            self._statistics = self._scores = None

    def utterance_statistics(self) -> UtteranceStatistics:
        """Return the statistics behind the scores so far; at least one frame must have been pushed."""
        if self.frames == 0:
            raise ValueError("no frame has been scored")
        if self._statistics is None:
            self._statistics = self._scorer.utterance_statistics(self.sums, self.frames)
        return self._statistics

    def audio_condition(self) -> tuple[float | None, bool]:
        """Return the log-odds of a changed condition, and whether the utterance is too far from all enrollment speech.

        They are None and False before the first frame, and without a calibration by condition.
        """
        side = self.side_information
        fusions = list(self._scorer.settings.fusions.values()) if side else []
        log_odds = (fusion.condition_log_odds(side, self.frames) for fusion in fusions)
        is_outlying = any(fusion.outlying(side, self.frames) > 0.0 for fusion in fusions)
        return next((float(one) for one in log_odds if one is not None), None), is_outlying

    @property
    def side_information(self) -> dict[str, Array]:
        """Return the measures of the condition; empty before the first frame, and without a classifier."""
        return self.utterance_statistics().side_information if self.frames else {}

    def scores(self) -> dict[str, Array]:
        """Return the scores (C,) of each system; at least one frame must have been pushed."""
        if self._scores is None:
            scores = self._scorer.finish(self.utterance_statistics())
            self._scores = {name: scores[name] for name in self._scorer.systems if name in scores}
        return self._scores
