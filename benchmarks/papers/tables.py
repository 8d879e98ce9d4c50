"""Readers of the papers' data: Adult and Web (LIBSVM text), German credit, sonar, shuttle, Reuters."""

from __future__ import annotations

import io
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from benchmarks.papers.reuters import Documents, read_reuters
from benchmarks.papers.source import FILES, TableFile, TableSource
from pipeline.errors import InputError

__all__ = [
    "AdultFile",
    "Documents",
    "Table",
    "TableSource",
    "WebFile",
    "read_adult",
    "read_german",
    "read_reuters",
    "read_shuttle",
    "read_sonar",
    "read_web",
]

AdultFile = Literal["a9a", "a9a.t", "a1a", "a1a.t"]
WebFile = Literal["w8a", "w8a.t", "w7a", "w7a.t", "w1a", "w1a.t"]

ADULT_FEATURES = 123
WEB_FEATURES = 300


@dataclass(frozen=True, eq=False)
class Table:
    """A binary problem: ``X`` (n, d) float64, a CSR matrix or an array, and its classes ``y`` (n,), 1 or -1, in order.

    ``positive`` names class 1.
    """

    name: str
    X: Any
    y: NDArray[np.int64]
    positive: str


def read_adult(source: TableSource, name: AdultFile = "a9a") -> Table:
    """Return UCI Adult as Platt (1999) made it binary: X (n, 123) sparse; 1 is an income above 50 000 dollars.

    a9a has 32561 rows and a9a.t 16281; a1a has 1605 rows of a9a, a1a.t the others. Raises InputError.
    """
    return _read_libsvm(source, FILES[name], ADULT_FEATURES, "income above 50 000 dollars")


def read_web(source: TableSource, name: WebFile = "w7a") -> Table:
    """Return Platt's web pages: X (n, 300) sparse, with empty rows; 1 is the category (3 % of the pages).

    w8a has 49749 rows, divided between w7a and w7a.t (24692, 25057), and between w1a and w1a.t (2477, 47272); every row
    of w8a.t (14951) is in w7a.t too, so that w8a must not be trained on where w8a.t is the test. A w1a.t that is not in
    the folder is made from w8a and w1a. Raises InputError.
    """
    file = FILES[name]
    if name != "w1a.t" or source.has(file):
        return _read_libsvm(source, file, WEB_FEATURES, "page of the category")
    lines = _without(source.read(FILES["w8a"]), source.read(FILES["w1a"]))
    source.check(source.path(FILES["w8a"]), lines, str(file.sha256))
    return _libsvm(lines, name, WEB_FEATURES, "page of the category")


def read_german(source: TableSource) -> Table:
    """Return German credit, the numeric version: X (1000, 24); 1 is a good risk (700 rows), as the file's class 1 is.

    Raises InputError.
    """
    numbers = _numbers(source.read(FILES["german.data-numeric"]), "german.data-numeric", 25)
    return _binary("german", numbers[:, :-1], numbers[:, -1], (1, 2), "good credit risk")


def read_sonar(source: TableSource) -> Table:
    """Return sonar: X (208, 60) in [0, 1]; 1 is a mine (M, 111 rows), -1 a rock (R), first. Raises InputError."""
    content = source.read(FILES["sonar.all-data"]).strip()
    coded = content.replace(b",R", b",0").replace(b",M", b",1").replace(b",", b" ")
    numbers = _numbers(coded, "sonar.all-data", 61)
    return _binary("sonar", numbers[:, :-1], numbers[:, -1], (1, 0), "mine")


def read_shuttle(
    source: TableSource, classes: tuple[int, int] = (2, 4), *, part: Literal["train", "test", "both"] = "train"
) -> Table:
    """Return Two classes of shuttle: X (n, 9) as in the file; 1 is the first of ``classes``, -1 the second.

    Classes 2 and 4 have 37 and 6748 rows in the training part, 13 and 2155 in the test part; "both" has the training
    rows first. Raises InputError, also for a class that the file does not hold.
    """
    names = {"train": ("shuttle.trn",), "test": ("shuttle.tst",), "both": ("shuttle.trn", "shuttle.tst")}[part]
    numbers = np.concatenate([_numbers(source.read(FILES[name]), name, 10) for name in names])
    numbers = numbers[np.isin(numbers[:, -1], classes)]
    table = _binary("shuttle", numbers[:, :-1], numbers[:, -1], classes, f"class {classes[0]}")
    return replace(table, name=f"shuttle {classes[0]} and {classes[1]}, {part}")


def _read_libsvm(source: TableSource, file: TableFile, features: int, positive: str) -> Table:
    return _libsvm(source.read(file), file.name, features, positive)


def _libsvm(content: bytes, name: str, features: int, positive: str) -> Table:
    from sklearn.datasets import load_svmlight_file

    try:
        X, labels = load_svmlight_file(io.BytesIO(content), n_features=features, zero_based=False)
    except ValueError as error:
        raise InputError(f"{name}: not LIBSVM text of {features} features: {error}") from None
    return _binary(name, X, labels, (1, -1), positive)


def _without(all_rows: bytes, removed: bytes) -> bytes:
    """Return the lines of ``all_rows`` without those of ``removed``, each removed once, at its first place."""
    left = Counter(removed.splitlines())
    kept = []
    for line in all_rows.splitlines():
        if left[line]:
            left[line] -= 1
        else:
            kept.append(line + b"\n")
    return b"".join(kept)


def _numbers(content: bytes, name: str, columns: int) -> NDArray[np.float64]:
    if not content.strip():
        raise InputError(f"{name}: rows of {columns} numbers expected, got none")
    try:
        rows = np.loadtxt(io.BytesIO(content), ndmin=2, dtype=np.float64)
    except ValueError as error:
        raise InputError(f"{name}: rows of {columns} numbers expected: {error}") from None
    if rows.shape[1] != columns or not np.isfinite(rows).all():
        raise InputError(f"{name}: rows of {columns} finite numbers expected, got {rows.shape[1]} columns")
    return rows


def _binary(name: str, X: Any, labels: NDArray[np.float64], classes: tuple[int, int], positive: str) -> Table:
    strange = labels[~np.isin(labels, classes)]
    if strange.size or not all((labels == label).any() for label in classes):
        raise InputError(
            f"{name}: rows of the classes {classes[0]} and {classes[1]} expected, got"
            f" {', '.join(f'{label:g}' for label in np.unique(labels)[:5]) or 'none'}"
        )
    return Table(name, X, np.where(labels == classes[0], 1, -1).astype(np.int64), positive)
