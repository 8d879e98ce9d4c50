"""Frames and claims to running utterance scores, one pass for any number of systems and claims."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.machines.population import Margins, MarginScorer, Population
from pipeline.posteriors.coupling import RULES, Posterior, Rule, alone

Array = NDArray[np.float64]

# Largest array of pair margins held at a time, in numbers (32 MiB of float64).
BLOCK_NUMBERS = 4 * 2**20


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
        posterior: Posterior,
        *,
        dtype: str = "float64",
        without_rivals: bool = False,
    ) -> None:
        self.systems = tuple(systems)
        self.claims = np.fromiter(claims, dtype=np.int64)
        self._posterior = posterior
        self._alone = without_rivals or len(population) == 1
        rules = [RULES[name] for name in self.systems]
        needs = frozenset[str]().union(*(rule.needs for rule in rules))
        every = any(rule.every_claim for rule in rules) and not self._alone
        asked = np.arange(len(population)) if every else self.claims
        kinds = frozenset({"one_class"}) if self._alone else needs
        self._margins = MarginScorer(population, asked, kinds, dtype=dtype)
        self.block = max(1, min(256, BLOCK_NUMBERS // max(1, len(asked) * len(population))))

    def start(self) -> RunningScores:
        """A new utterance."""
        return RunningScores(self)

    def sums(self, features: Array) -> dict[str, Array]:
        """Per-frame values of each system summed over the frames ``features`` (T, d): (C,) or (C, N)."""
        margins = self._margins(features)
        return {name: self._values(RULES[name], margins).sum(axis=0, dtype=float) for name in self.systems}

    def finish(self, means: dict[str, Array]) -> dict[str, Array]:
        """Utterance scores (C,) from per-frame values averaged over the utterance."""
        if self._alone:
            return means
        return {name: RULES[name].finish(mean, self.claims) for name, mean in means.items()}

    def _values(self, rule: Rule, margins: Margins) -> NDArray[Any]:
        claimed = margins.select(self.claims)
        if self._alone:
            return alone(rule.alone, claimed, self._posterior)
        if rule.every_claim:
            return rule.frame(margins, self._posterior)[:, self.claims]
        return rule.frame(claimed, self._posterior)


class RunningScores:
    """The scores of one utterance, exact after every push: means over all its frames so far.

    Only sums are kept, so neither the cost of a push nor the memory grows with the utterance.
    """

    def __init__(self, scorer: ClaimScorer) -> None:
        self.frames = 0
        self._scorer = scorer
        self._sums: dict[str, Array] = {}

    def push(self, features: Array) -> None:
        """Take in the frames ``features`` (T, d)."""
        for start in range(0, len(features), self._scorer.block):
            block = features[start : start + self._scorer.block]
            for name, values in self._scorer.sums(block).items():
                self._sums[name] = self._sums[name] + values if self.frames else values
            self.frames += len(block)

    def scores(self) -> dict[str, Array]:
        """Scores (C,) a system; there must have been a frame."""
        if self.frames == 0:
            raise ValueError("no frame has been scored")
        return self._scorer.finish({name: total / self.frames for name, total in self._sums.items()})
