"""Platt 1999, Table 2 again: errors and log likelihoods of machines with a sigmoid and of regularised likelihood.

Sigmoids are fitted to margins of three-fold cross-validation, by Newton's method: the objective is the paper's, and so
is its minimum. Beside them are the other posteriors that section 1.1 of the paper speaks of, on the same margins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from joblib import Parallel, delayed

from benchmarks.papers.outcome import Outcome, Row
from benchmarks.papers.platt1999_machines import FOLDS, HELD_OUT, SHARES, SIGMOID, Array, Judged, judge
from benchmarks.papers.platt1999_tasks import TASKS, Flags, Problem, Task, errors_in, losses_in
from benchmarks.papers.significance import mcnemar, wilcoxon
from benchmarks.papers.tables import TableSource
from pipeline.errors import InputError
from pipeline.posteriors.estimators import POSTERIORS, make_posterior

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Progress = Callable[[str, int, int], None]

DRAWN = "adult_linear"
SIGNIFICANT = "below 0.05"
# The paper's statements in words; the underlines of its table are missing from our copy.
TESTED = {
    ("reuters_linear", "raw and sigmoid"): SIGNIFICANT,
    ("adult_quadratic", "raw and sigmoid"): SIGNIFICANT,
    ("web_quadratic", "-log p, sigmoid and likelihood"): f"{SIGNIFICANT}, for likelihood",
}
# Margin at which the sigmoid is at even odds, where the paper gives it.
THRESHOLDS = {"adult_quadratic": -0.1722}


def reproduce(
    tables: TableSource,
    *,
    tasks: Sequence[str] | None = None,
    jobs: int = 1,
    progress: Progress | None = None,
) -> Outcome:
    """Return Table 2 for ``tasks``, names of ``TASKS``, all by default.

    ``jobs`` threads take one problem each; ``progress`` is called as progress(stage, problems just done, problems in
    all). Raises InputError for an unknown task, and for data that cannot be had.
    """
    tell = progress or (lambda _stage, _done, _total: None)
    chosen = tuple(TASKS) if tasks is None else tuple(tasks)
    unknown = sorted(set(chosen) - set(TASKS))
    if unknown:
        raise InputError(f"tasks: names among {', '.join(TASKS)} expected, got {', '.join(unknown)}")
    judged = _judged(tables, chosen, jobs, tell)
    rows = [row for name in chosen for row in _rows(name, judged[name])]
    figures = {}
    if DRAWN in judged:
        figures = {"margins": partial(_figure, judged[DRAWN][0])}
    return Outcome(
        "platt1999",
        "Platt 1999, Table 2: support vector machine, with a sigmoid, and regularised likelihood",
        tuple(rows),
        _notes(chosen),
        figures,
        {"C": {name: TASKS[name].C for name in chosen}, "folds": FOLDS},
    )


def _judged(tables: TableSource, chosen: Sequence[str], jobs: int, tell: Progress) -> dict[str, list[Judged]]:
    """Return results of every problem of every task, tasks in parallel; problems are read lazily."""
    judged_by: dict[str, dict[int, Judged]] = {name: {} for name in chosen}
    total = sum(TASKS[name].published.machines for name in chosen)
    work = ((name, k, problem) for name in chosen for k, problem in enumerate(TASKS[name].problems(tables)))
    for name, k, judged in Parallel(n_jobs=jobs, prefer="threads", return_as="generator_unordered")(
        delayed(_numbered)(*item) for item in work
    ):
        judged_by[name][k] = judged
        tell("machines", 1, total)
    return {name: [judged for _, judged in sorted(by_number.items())] for name, by_number in judged_by.items()}


def _numbered(name: str, number: int, problem: Problem) -> tuple[str, int, Judged]:
    return name, number, judge(TASKS[name], problem)


@dataclass(frozen=True, eq=False)
class Results:
    """Errors and -log p of each method on all test examples of a task (n,), the problems of a task in a row."""

    wrong: Mapping[str, Flags]
    losses: Mapping[str, Array]

    @classmethod
    def of(cls, judged: Sequence[Judged], test: int) -> Results:
        """Return results on test set number ``test``; methods that failed on a problem are left out."""
        methods = [name for name in judged[0].log_odds[test] if all(name in one.log_odds[test] for one in judged)]
        log_odds = {name: np.concatenate([one.log_odds[test][name] for one in judged]) for name in methods}
        truth = np.concatenate([one.truth[test] for one in judged])
        return cls(
            {name: errors_in(values, truth) for name, values in log_odds.items()},
            {name: losses_in(values, truth) for name, values in log_odds.items() if name != "raw"},
        )

    @property
    def size(self) -> int:
        """Return the number of test examples of all problems."""
        return len(self.wrong["raw"])

    def errors(self, method: str) -> int:
        """Return the number of test examples that the method misclassifies."""
        return int(self.wrong[method].sum())

    def loss(self, method: str) -> float:
        """Return -log p of all test examples, in nats."""
        return round(float(self.losses[method].sum()), 1)


def _rows(name: str, judged: Sequence[Judged]) -> list[Row]:
    """Return all rows of one task, a test set at a time."""
    task = TASKS[name]
    chosen = _share_held_out(judged)
    likelihoods = {"1.0": f"C {task.C:g}, the machine's", str(chosen): f"C {chosen * task.C:g}, by hold-out"}
    if chosen == 1.0:
        likelihoods = {"1.0": f"C {task.C:g}, the machine's and by hold-out"}
    rows = []
    for index, test in enumerate(task.tests):
        title = task.title if len(task.tests) == 1 else f"{task.title}, {test}"
        results = Results.of(judged, index)
        rows += _table_rows(title, task, results, likelihoods)
        rows += _test_rows(title, name, results, likelihoods)
        rows += _other_rows(title, results)
    return rows + ([_threshold_row(name, judged[0])] if len(judged) == 1 else [])


def _share_held_out(judged: Sequence[Judged]) -> float:
    """Return the share of Table 1's C with the least -log p on held-out training rows, summed over problems."""
    return min(SHARES, key=lambda share: sum(one.held_out[share] for one in judged))


def _table_rows(title: str, task: Task, results: Results, likelihoods: Mapping[str, str]) -> list[Row]:
    """Return the five numbers of Table 2, the likelihood machine's two once for each of ``likelihoods``."""
    paper = task.published

    def errors(label: str, published: int, method: str, said: str = "") -> Row:
        result = results.errors(method)
        rates = f"{_percent(published, task.asked)} and {_percent(result, results.size)} of the examples"
        return Row(f"{title}: errors, {label}", published, result, f"{rates}; {said}" if said else rates)

    def losses(label: str, published: int, method: str, said: str = "") -> Row:
        result = results.loss(method)
        means = f"{published / task.asked:.4f} and {result / results.size:.4f} nats an example"
        return Row(f"{title}: -log p, {label}", published, result, f"{means}; {said}" if said else means)

    name = "regularised likelihood"
    return [
        errors("raw machine", paper.raw, "raw"),
        errors("machine and sigmoid", paper.sigmoid, SIGMOID),
        *(errors(name, paper.likelihood, method, said) for method, said in likelihoods.items()),
        losses("machine and sigmoid", paper.sigmoid_loss, SIGMOID),
        *(losses(name, paper.likelihood_loss, method, said) for method, said in likelihoods.items()),
    ]


def _percent(count: int, size: int) -> str:
    return f"{100 * count / size:.2f} %"


def _test_rows(title: str, name: str, results: Results, likelihoods: Mapping[str, str]) -> list[Row]:
    """Return P values for each pair of methods. ``likelihoods`` holds a note for each likelihood machine."""

    def claimed(label: str) -> str | None:
        return TESTED.get((name, label))

    rows = [Row(f"{title}: McNemar p, raw and sigmoid", claimed("raw and sigmoid"), *_mcnemar(results, "raw", SIGMOID))]
    for method, said in likelihoods.items():
        for label, other in (("raw and likelihood", "raw"), ("sigmoid and likelihood", SIGMOID)):
            p, counts = _mcnemar(results, other, method)
            rows.append(Row(f"{title}: McNemar p, {label}", claimed(label), p, f"{counts}; {said}"))
        label = "-log p, sigmoid and likelihood"
        result, ranks = _wilcoxon(results, method)
        rows.append(Row(f"{title}: Wilcoxon p, {label}", claimed(label), result, f"{ranks}; {said}"))
    return rows


def _mcnemar(results: Results, one: str, other: str) -> tuple[float, str]:
    a, b = results.wrong[one], results.wrong[other]
    counts = f"{int((a & ~b).sum())} and {int((b & ~a).sum())} examples that one alone gets wrong"
    return mcnemar(a, b), counts


def _wilcoxon(results: Results, likelihood: str) -> tuple[float | str, str]:
    """Return the P value, as text where no double can hold it, and the method that the ranks favour."""
    from scipy.stats import rankdata

    excess = results.losses[SIGMOID] - results.losses[likelihood]
    p = wilcoxon(results.losses[SIGMOID], results.losses[likelihood])
    ranks = float(np.sign(excess) @ rankdata(np.abs(excess)))
    better = f"lower on {100 * float((excess > 0).mean()):.1f} % of the examples with likelihood"
    return p or "below 1e-300", f"ranks are for {'likelihood' if ranks > 0 else 'the sigmoid'}, {better}"


def _other_rows(title: str, results: Results) -> list[Row]:
    """Return -log p of the other posteriors on the machine's margins; none for a method that could not be fitted."""
    return [
        Row(f"{title}: -log p, {kind}", None, results.loss(kind), f"{results.errors(kind)} errors")
        if kind in results.losses
        else Row(f"{title}: -log p, {kind}", None, None, "no fit")
        for kind in POSTERIORS
        if kind != SIGMOID
    ]


def _threshold_row(name: str, judged: Judged) -> Row:
    return Row(f"{TASKS[name].title}: margin at which P is 0.5", THRESHOLDS.get(name), round(judged.threshold, 4))


def _notes(chosen: Sequence[str]) -> tuple[str, ...]:
    return (
        *(f"{TASKS[name].title}: {TASKS[name].splits}" for name in chosen),
        f"C is that of Table 1. Sigmoids: {FOLDS} folds, each class divided in like shares at random; the paper does"
        " not say how it divided. -log p is in nats.",
        f"The paper chose the likelihood machine's C on a hold-out set and does not give it. It is here once the"
        f" machine's, and once the one of {', '.join(f'{share:g}' for share in SHARES)} times it with the least -log p"
        f" on {100 * HELD_OUT:.0f} % of the training rows.",
        "A Reuters category with no training document gets margin -1 and P = 1 / (N + 2) of N training documents by"
        " every method; posteriors of one with a single document are all the mean target of its sigmoid, and sigmoids"
        " of one with two are fitted by two folds.",
        "Rows without a number of the paper's are the other posteriors, on the same margins.",
    )


def _figure(judged: Judged) -> Figure:
    from benchmarks.papers.platt1999_plots import plot_margins

    return plot_margins(judged.margins, judged.positive, make_posterior(SIGMOID).fit(judged.margins, judged.positive))
