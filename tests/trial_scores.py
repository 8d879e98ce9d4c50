"""Scores of target and nontarget trials for the tests: strategies, and normal classes."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from score_rows import ScoreRow

# Few distinct values, so that ties are common.
TIED = st.lists(st.integers(-4, 4).map(float), min_size=1, max_size=12)
FREE = st.lists(st.floats(-30, 30), min_size=1, max_size=12)
SCORES = TIED | FREE


def gaussians(distance: float, targets: int, nontargets: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Scores of unit Gaussians at ``distance`` and 0."""
    generator = np.random.default_rng(seed)
    return generator.normal(distance, 1, targets), generator.normal(0, 1, nontargets)


def true_llrs(distance: float, targets: int, nontargets: int, seed: int = 0) -> tuple[np.ndarray, ...]:
    """The same as their own likelihood ratios: log N(x; d, 1) / N(x; 0, 1) = d x - d^2 / 2."""
    return tuple(distance * x - distance**2 / 2 for x in gaussians(distance, targets, nontargets, seed))


def rows_of(system: str, *, seed: int = 0, gap: float = 1.3, llr=None, speakers="abcde") -> list[ScoreRow]:
    """Four files of each speaker, every file claimed for everybody; ``llr`` maps a score to its ratio."""
    generator = np.random.default_rng(seed)
    rows = []
    for own in speakers:
        for file in range(4):
            for claim in speakers:
                score = float(generator.normal(gap * (own == claim), 1))
                ratio = None if llr is None else llr(score)
                rows.append(ScoreRow(system, claim, f"{own}/{file}.wav", score, own == claim, ratio))
    return rows
