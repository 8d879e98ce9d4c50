"""One problem of Platt 1999 by every method: the machine, its sigmoid, other posteriors, regularised likelihood."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split

from benchmarks.papers.platt1999_tasks import Flags, Problem, Rows, Task, even_share, losses_in
from pipeline.errors import FitError
from pipeline.posteriors.estimators import POSTERIORS, make_posterior
from pipeline.posteriors.heldout import margins_for

Array = NDArray[np.float64]

FOLDS = 3
HELD_OUT = 0.3
SIGMOID = "newton"
SHARES = (0.1, 0.3, 1.0, 3.0, 10.0)
"""Shares of Table 1's C that the likelihood machine's own C is chosen from."""


@dataclass(frozen=True, eq=False)
class Judged:
    """Results on one problem.

    ``log_odds`` holds one entry a test set: by method, (n,), with the raw margins as "raw" and the likelihood machine
    by its share of C. ``truth`` are the test classes. ``margins`` (m,) and ``positive`` (m,) are the sigmoid's training
    set, empty without a sigmoid; ``threshold`` is the margin at which its P is 0.5. ``held_out`` is the -log p that the
    likelihood machine leaves on held-out training rows, by share of C.
    """

    log_odds: tuple[Mapping[str, Array], ...]
    truth: tuple[Flags, ...]
    margins: Array = field(default_factory=lambda: np.empty(0))
    positive: Flags = field(default_factory=lambda: np.empty(0, dtype=bool))
    threshold: float = float("nan")
    held_out: Mapping[float, float] = field(default_factory=lambda: dict.fromkeys(SHARES, 0.0))


def judge(task: Task, problem: Problem) -> Judged:
    """Train every method on the problem and score the test rows.

    Without a positive training row there is nothing to train: the machine's only solution is a margin of -1. With one
    such row cross-validation is impossible. Posteriors are then the same for every row (``even_share``).
    """
    X, positive = problem.train
    truth = tuple(flags for _, flags in problem.tests)
    if not positive.any():
        return Judged(tuple(_unseen(positive, len(flags)) for flags in truth), truth)
    machine = task.machine().fit(X, positive)
    likelihoods = {str(share): task.likelihood(share).fit(X, positive) for share in SHARES}
    margins, posteriors = _posteriors(task, X, positive)

    def answers(rows: Any) -> dict[str, Array]:
        raw = machine.decision_function(rows)
        if margins.size:
            others = {kind: fit.log_odds(raw) for kind, fit in posteriors.items()}
        else:
            others = {kind: np.full(len(raw), even_share(positive)) for kind in POSTERIORS}
        return {"raw": raw} | others | {share: fit.decision_function(rows) for share, fit in likelihoods.items()}

    return Judged(
        tuple(answers(rows) for rows, _ in problem.tests),
        truth,
        margins,
        positive,
        _even_odds(posteriors.get(SIGMOID)),
        _held_out(task, problem.train),
    )


def _unseen(positive: Flags, tested: int) -> dict[str, Array]:
    methods = (*POSTERIORS, *map(str, SHARES))
    return {"raw": np.full(tested, -1.0)} | {name: np.full(tested, even_share(positive)) for name in methods}


def _posteriors(task: Task, X: Any, positive: Flags) -> tuple[Array, dict[str, Any]]:
    """Return cross-validated margins (n,) and the posteriors fitted to them; none with fewer than two positive rows."""
    folds = min(FOLDS, int(positive.sum()))
    if folds < 2:
        return np.empty(0), {}
    margins = margins_for(task.machine(), X, positive, method="kfold", folds=folds)[0]
    fits = {kind: _fitted(kind, margins, positive) for kind in POSTERIORS}
    return margins, {kind: fit for kind, fit in fits.items() if fit is not None}


def _even_odds(sigmoid: Any) -> float:
    """Return the margin at which P is 0.5; NaN where there is none."""
    return -sigmoid.B_ / sigmoid.A_ if sigmoid is not None and sigmoid.A_ else float("nan")


def _fitted(kind: str, margins: Array, positive: Flags) -> Any:
    try:
        return make_posterior(kind).fit(margins, positive)
    except FitError:
        return None


def _held_out(task: Task, train: Rows) -> dict[float, float]:
    """Return -log p on the 30 % of the training rows that the likelihood machine did not see, by share of C."""
    X, positive = train
    if positive.sum() < 2:
        return dict.fromkeys(SHARES, 0.0)
    seen, unseen = train_test_split(np.arange(len(positive)), test_size=HELD_OUT, stratify=positive, random_state=0)
    machines = {share: task.likelihood(share).fit(X[seen], positive[seen]) for share in SHARES}
    return {
        share: float(losses_in(machine.decision_function(X[unseen]), positive[unseen]).sum())
        for share, machine in machines.items()
    }
