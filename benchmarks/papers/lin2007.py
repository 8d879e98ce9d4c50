"""Lin, Lin and Weng 2007 again: two algorithms for Platt's sigmoid on 110 problems of sonar and 110 of shuttle.

A problem is the decision values of an RBF machine for one C and gamma of a grid (section 4 of the paper). The paper
does not say whether they are LIBSVM's decision values for its own training rows or by cross-validation: both are given
here, the former as the table and the latter below it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.preprocessing import MinMaxScaler
from sklearn.svm import SVC

from benchmarks.papers.outcome import Outcome, Row
from benchmarks.papers.tables import Table, TableSource, read_shuttle, read_sonar
from pipeline.posteriors.heldout import margins_for
from pipeline.posteriors.newton import NewtonSigmoid
from pipeline.posteriors.platt import PlattSigmoid

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Progress = Callable[[str, int, int], None]
Method = Literal["training", "kfold"]

LOG2_C = tuple(range(-5, 16, 2))
LOG2_GAMMA = tuple(range(-15, 4, 2))
FOLDS = 5
TOLERANCE = 1e-5
"""Size of the gradient's components at which both algorithms stop; the paper's."""
NOT_ABOVE = 1e-9
"""By how much, relatively, Newton's objective may exceed the other's: both stop near the optimum, neither on it."""
LOST = "lost"
"""Stands for numbers that are missing from our copy of the paper."""

ALGORITHMS: Mapping[str, Callable[[], PlattSigmoid | NewtonSigmoid]] = {
    "Platt": partial(PlattSigmoid, tolerance=TOLERANCE),
    "ours, fixed": partial(NewtonSigmoid, tolerance=TOLERANCE, scaled=False),
    "ours, dynamic": partial(NewtonSigmoid, tolerance=TOLERANCE, scaled=False, sigma="dynamic"),
    "Platt, as printed": partial(PlattSigmoid, bug=True),
}
"""By the paper's names; the last, with the slip of the published code and its own stopping rules, is not in it."""
_BESIDES = "Platt, as printed"

_METHODS: Mapping[Method, str] = {"training": "", "kfold": " (cross-validated)"}


@dataclass(frozen=True)
class Grid:
    """Results of an algorithm on every problem of a data set: arrays (C, gamma) in the order of the grid.

    ``overflows`` and ``log_zeros`` are counted by trial for Platt's algorithm, ``overflows`` by step for Newton's.
    """

    iterations: NDArray[np.int64]
    objective: NDArray[np.float64]
    converged: NDArray[np.bool_]
    overflows: NDArray[np.int64]
    log_zeros: NDArray[np.int64]
    backtracks: NDArray[np.int64]
    newton: bool

    @classmethod
    def of(cls, fits: Sequence[PlattSigmoid | NewtonSigmoid], shape: tuple[int, int]) -> Grid:
        """Return the learned attributes of ``fits``, zero where an algorithm has none."""

        def column(name: str) -> NDArray[Any]:
            return np.array([getattr(fit, name, 0) for fit in fits]).reshape(shape)

        return cls(
            iterations=column("iterations_"),
            objective=column("objective_"),
            converged=column("converged_"),
            overflows=column("overflows_"),
            log_zeros=column("log_zeros_"),
            backtracks=column("backtracks_"),
            newton=isinstance(fits[0], NewtonSigmoid),
        )


Results = Mapping[tuple[str, Method], Mapping[str, Grid]]
"""By data set and kind of margins, then by algorithm."""


def reproduce(
    tables: TableSource,
    *,
    jobs: int = 1,
    progress: Progress | None = None,
    log2_c: Sequence[int] = LOG2_C,
    log2_gamma: Sequence[int] = LOG2_GAMMA,
) -> Outcome:
    """Overflows, iterations, final objective and backtracking steps of each algorithm, and how the two compare.

    ``tables`` gives sonar and the training part of shuttle. ``jobs`` threads. ``progress`` is called as
    progress(stage, problems just done, problems in all). Raises InputError for data that cannot be had.
    """
    tell = progress or (lambda _stage, _done, _total: None)
    sets = {"sonar": _sonar(tables), "shuttle": _shuttle(tables)}
    results = {
        (name, method): _solved(sets[name], method, (log2_c, log2_gamma), jobs, partial(tell, name + said))
        for method, said in _METHODS.items()
        for name in sets
    }
    rows = [row for (name, method), grids in results.items() for row in _rows(name + _METHODS[method], grids)]
    return Outcome(
        "lin2007",
        "Lin, Lin and Weng 2007: two algorithms for the sigmoid, averages over the problems of a data set",
        (*rows, *_claims(results)),
        _notes(sets),
        {"problems": partial(_figure, results, tuple(log2_c), tuple(log2_gamma))},
        {"log2_C": list(log2_c), "log2_gamma": list(log2_gamma), "tolerance": TOLERANCE},
    )


def _sonar(tables: TableSource) -> Table:
    table = read_sonar(tables)
    return Table(table.name, MinMaxScaler((-1, 1)).fit_transform(table.X), table.y, table.positive)


def _shuttle(tables: TableSource) -> Table:
    """Return classes 2 and 4 of the training part, scaled by the ranges of all seven: the paper does not say which."""
    scaler = MinMaxScaler((-1, 1))
    for classes in ((1, 2), (3, 4), (5, 6), (7, 4)):
        scaler.partial_fit(read_shuttle(tables, classes).X)
    table = read_shuttle(tables)
    return Table(table.name, scaler.transform(table.X), table.y, table.positive)


def _solved(
    table: Table,
    method: Method,
    grid: tuple[Sequence[int], Sequence[int]],
    jobs: int,
    tell: Callable[[int, int], None],
) -> dict[str, Grid]:
    """Return results of each algorithm on the problems of ``table``, one for every C and gamma of ``grid``."""
    shape = (len(grid[0]), len(grid[1]))
    solved = []
    for fits in Parallel(n_jobs=jobs, prefer="threads", return_as="generator")(
        delayed(_problem)(table, method, log2_c, log2_gamma) for log2_c, log2_gamma in product(*grid)
    ):
        solved.append(fits)
        tell(1, shape[0] * shape[1])
    return {name: Grid.of(fits, shape) for name, fits in zip(ALGORITHMS, zip(*solved, strict=True), strict=True)}


def _problem(table: Table, method: Method, log2_c: int, log2_gamma: int) -> list[PlattSigmoid | NewtonSigmoid]:
    """Return every algorithm fitted to the decision values of one machine."""
    machine = SVC(C=2.0**log2_c, gamma=2.0**log2_gamma)
    margins, positive = margins_for(machine, table.X, table.y, method=method, folds=FOLDS)
    # Overflows that the algorithms do not count themselves raise.
    with np.errstate(over="raise", divide="raise", invalid="raise"):
        return [make().fit(margins, positive) for make in ALGORITHMS.values()]


def _rows(name: str, grids: Mapping[str, Grid]) -> list[Row]:
    """Return the columns of the paper's tables, and logs of zero; the paper has none for cross-validated margins."""
    rows = []
    for algorithm, grid in grids.items():
        paper = LOST if algorithm != _BESIDES and "(" not in name else None
        rows += [
            Row(f"{name}, {algorithm}: {row.name}", paper and row.paper, row.here, row.note) for row in _columns(grid)
        ]
    return rows


def _columns(grid: Grid) -> list[Row]:
    """Return rows of one algorithm; logs of zero and backtracking steps where there can be any."""
    of = f"of {grid.iterations.size} problems"
    rows = [Row("overflows", LOST, int(grid.overflows.sum()), f"in {_count(grid.overflows)} {of}")]
    if grid.log_zeros.any():
        rows.append(Row("logs of zero", None, int(grid.log_zeros.sum()), f"in {_count(grid.log_zeros)} {of}"))
    rows += [
        Row(
            "iterations",
            LOST,
            round(float(grid.iterations.mean()), 4),
            f"{_count(~grid.converged)} {of} not done by 100",
        ),
        Row("final objective", LOST, round(float(grid.objective.mean()), 6), "nats"),
    ]
    if grid.newton:
        rows.append(Row("backtracking steps an iteration", LOST, _backtracks(grid)))
    return rows


def _claims(results: Results) -> list[Row]:
    """Return the paper's statements in words, and this project's: no overflow, and never a higher objective."""
    shuttle, sonar = results["shuttle", "training"], results["sonar", "training"]
    platt, fixed, dynamic = (shuttle[name] for name in ("Platt", "ours, fixed", "ours, dynamic"))
    rows = [
        Row("Platt does well on sonar", "yes", _yes((_excess([sonar], "Platt", "ours, fixed") < 1e-6).all())),
        Row("Platt overflows on shuttle", "yes", _yes(platt.overflows.any())),
        Row("Platt needs more iterations on shuttle", "yes", _yes(platt.iterations.sum() > fixed.iterations.sum())),
        Row(
            "Platt ends far from the optimum on shuttle",
            "sometimes",
            f"{_count(_excess([shuttle], 'Platt', 'ours, fixed') > 1e-3)} of {platt.objective.size}",
            "objective higher by a thousandth or more",
        ),
        Row(
            "dynamic backtracks more an iteration than fixed on shuttle",
            "yes",
            _yes(_backtracks(dynamic) > _backtracks(fixed)),
            f"{dynamic.backtracks.sum()} and {fixed.backtracks.sum()} backtracking steps,"
            f" {dynamic.iterations.sum()} and {fixed.iterations.sum()} iterations",
        ),
    ]
    for method, said in _METHODS.items():
        rows += _asked([grids for (_, kind), grids in results.items() if kind == method], said)
    return rows


def _asked(sets: Sequence[Mapping[str, Grid]], said: str) -> list[Row]:
    rows = []
    for ours in ("ours, fixed", "ours, dynamic"):
        excess = _excess(sets, ours, "Platt")
        overflows = sum(int(grids[ours].overflows.sum()) for grids in sets)
        rows += [
            Row(f"{ours}{said}: overflows on both sets", None, overflows, f"{excess.size} problems"),
            Row(
                f"{ours}{said}: objective not above Platt's",
                None,
                f"{_count(excess <= NOT_ABOVE)} of {excess.size}",
                f"relative difference from {excess.min():.1e} to {excess.max():.1e}",
            ),
        ]
    return rows


def _excess(sets: Sequence[Mapping[str, Grid]], one: str, other: str) -> NDArray[np.float64]:
    """Return the relative excess of ``one``'s objective over the ``other``'s, on every problem of ``sets``."""
    return np.concatenate([(grids[one].objective / grids[other].objective - 1.0).ravel() for grids in sets])


def _backtracks(grid: Grid) -> float:
    return round(float(grid.backtracks.sum() / max(grid.iterations.sum(), 1)), 6)


def _count(flags: NDArray[Any]) -> int:
    return int(np.count_nonzero(flags))


def _yes(holds: bool | np.bool_) -> str:
    return "yes" if holds else "no"


def _notes(sets: Mapping[str, Table]) -> tuple[str, ...]:
    rows = "; ".join(f"{table.name}: {len(table.y)} rows, {(table.y == 1).sum()} positive" for table in sets.values())
    return (
        f"{rows}. Columns scaled to [-1, 1], shuttle's by the ranges of all seven classes.",
        "Decision values are those of the machine's own training rows; for rows named cross-validated, of"
        f" {FOLDS} stratified folds. The paper does not say which, nor which part of shuttle.",
        f"Both algorithms stop where the gradient's components are below {TOLERANCE:g}, or after 100 iterations.",
        "Overflows of Platt's algorithm are exponentials too large for a double, one a trial; logs of zero, which its"
        " code takes for -200, may be among the paper's overflow errors. Those of ours are steps whose objective is no"
        " double.",
        "Objectives are computed without overflow at the A and B that each algorithm returns.",
        f"An objective counts as not above another within {NOT_ABOVE:g} of it: both algorithms stop near the optimum.",
        "Ours solves for Newton's direction without subtracting products, so that sigma is hardly needed and fixed and"
        " dynamic sigma hardly differ.",
        "The numbers of the paper's Tables 1 and 2 are missing from our copy.",
        f"{_BESIDES}: with the slip of section 3.1 and Platt's own stopping rules; not in the paper.",
    )


def _figure(results: Results, log2_c: Sequence[int], log2_gamma: Sequence[int]) -> Figure:
    from benchmarks.papers.lin2007_plots import Panel, plot_problems

    panels = []
    for name in ("sonar", "shuttle"):
        grids = results[name, "training"]
        platt, ours = grids["Platt"], grids["ours, fixed"]
        excess = platt.objective / ours.objective - 1.0
        panels.append(Panel(name, platt.iterations, ours.iterations, platt.overflows + platt.log_zeros > 0, excess))
    return plot_problems(panels, log2_c, log2_gamma)
