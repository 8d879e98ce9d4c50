"""Trials and scores as tables, drawn at random or small, and what a kind of list says of them."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from pipeline.evaluation import NameColumn, TrialTable

SETTINGS = settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
ODD = (
    "a b", "é", "日本", '"', 'a"b', "a,b", "#x", "a#", "\ufeffa", "x:b", ":b", "1", "0", "target", "nan", "NA", "null",
    "\u00a0", "\u2028", "\x85", "a\tb", "a\rb", "a\nb", "a\x0bb", "\0", "a\0b", " a", "a ", "-", "'", "\\", "1e5", "",
    "a" * 300,
)  # fmt: skip
PLAIN = st.text("abcdefghijk-_/.", min_size=1, max_size=6).map(lambda text: f"n{text}")
NAMES = st.one_of(PLAIN, st.sampled_from(ODD), st.text(st.characters(exclude_categories=["Cs"]), max_size=4))
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)


@st.composite
def tables(draw, names=NAMES) -> TrialTable:
    """Different trials with labels and scores, which are log-likelihood ratios too."""
    pairs = draw(st.lists(st.tuples(names, names), min_size=1, max_size=12, unique=True))
    labels = draw(st.lists(st.booleans(), min_size=len(pairs), max_size=len(pairs)))
    scores = np.array(draw(st.lists(NUMBERS, min_size=len(pairs), max_size=len(pairs))))
    models, segments = zip(*pairs, strict=True)
    return TrialTable(NameColumn.of(models), NameColumn.of(segments), np.array(labels), scores, scores)


def table_of(*trials: tuple, llr: bool = True) -> TrialTable:
    models, segments, labels, scores = zip(*trials, strict=True)
    values = np.array(scores, dtype=float)
    return TrialTable(
        NameColumn.of(models), NameColumn.of(segments), np.array(labels, bool), values, values if llr else None
    )


SMALL = table_of(("anna", "x/1.wav", True, 1.5), ("bob", "x/1.wav", False, -0.25), ("anna", "y", False, 1e-7))


def content(table: TrialTable, kind: str) -> list[tuple[str, str, object]]:
    """The trials of a list, and what ``kind`` says of each."""
    values = {"key": table.targets, "scores": table.scores, "trials": np.zeros(len(table))}[kind]
    assert values is not None
    return list(zip(table.models, table.segments, values.tolist(), strict=True))
