"""Lists of trials as columns: names as numbers with their dictionary, so that ten million trials stay small."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.errors import TrialListError

Codes = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class NameColumn:
    """One name a trial: ``names`` (distinct,) of text, each once, and ``codes`` (trials,), the index of each trial's.

    Names that no trial has are allowed. It is used as the array of texts (trials,) that it stands for, and sliced by
    masks and indices without a look at the texts.
    """

    names: npt.NDArray[np.object_]
    codes: Codes

    @classmethod
    def of(cls, texts: Iterable[str]) -> NameColumn:
        """A column of these texts, names in order of first appearance."""
        numbers: dict[str, int] = {}
        codes = np.array([numbers.setdefault(text, len(numbers)) for text in texts], dtype=np.int32)
        return cls(as_names(numbers), codes)

    @classmethod
    def constant(cls, name: str, trials: int) -> NameColumn:
        """The same name for every one of that many trials."""
        return cls(as_names([name]), np.zeros(trials, dtype=np.int32))

    def __len__(self) -> int:
        return self.codes.size

    def __iter__(self) -> Iterator[str]:
        return iter(self.names[self.codes])

    def __getitem__(self, which: npt.NDArray[np.bool_] | npt.NDArray[np.intp]) -> NameColumn:
        return NameColumn(self.names, self.codes[which])

    def __array__(self, dtype: npt.DTypeLike | None = None, *, copy: bool | None = None) -> npt.NDArray[Any]:
        """The texts themselves, shape (trials,)."""
        return np.asarray(self.names[self.codes], dtype=dtype)

    @property
    def used(self) -> list[str]:
        """The names that some trial has, in the order of ``names``."""
        return list(self.names[np.bincount(self.codes, minlength=self.names.size) > 0])


Names = npt.NDArray[np.object_] | NameColumn
"""One name a trial, shape (trials,)."""


def as_names(texts: Iterable[str]) -> npt.NDArray[np.object_]:
    """Texts as an array of objects, shape (texts,)."""
    return np.array(list(texts), dtype=np.object_)


def coded(names: Names) -> NameColumn:
    """Any names as a column."""
    return names if isinstance(names, NameColumn) else NameColumn.of(names)


def distinct(names: Names) -> int:
    """How many different names there are."""
    return int(np.count_nonzero(np.bincount(names.codes))) if isinstance(names, NameColumn) else len(set(names))


def group_labels(names: Names) -> npt.NDArray[Any]:
    """What is equal where names are, shape (trials,): the codes of a column, else the names."""
    return names.codes if isinstance(names, NameColumn) else names


@dataclass(frozen=True, slots=True, eq=False)
class TrialTable:
    """A list of trials, row by row as it was written; all columns have shape (trials,).

    A trial is a claim that ``segments`` (a file, or part of one) was said by the person enrolled as ``models``.
    ``targets`` says whether it is true, ``scores`` what a system answered, ``llrs`` the same as a natural-log
    likelihood ratio (NaN where there is none), ``systems`` which system; None for what the list does not hold.
    """

    models: NameColumn
    segments: NameColumn
    targets: npt.NDArray[np.bool_] | None = None
    scores: npt.NDArray[np.float64] | None = None
    llrs: npt.NDArray[np.float64] | None = None
    systems: NameColumn | None = None

    def __len__(self) -> int:
        return len(self.models)

    def __getitem__(self, which: npt.NDArray[np.bool_] | npt.NDArray[np.intp]) -> TrialTable:
        return TrialTable(
            self.models[which],
            self.segments[which],
            None if self.targets is None else self.targets[which],
            None if self.scores is None else self.scores[which],
            None if self.llrs is None else self.llrs[which],
            None if self.systems is None else self.systems[which],
        )

    @property
    def needed_targets(self) -> npt.NDArray[np.bool_]:
        """``targets``; raises TrialListError for a list without."""
        if self.targets is None:
            raise TrialListError("a key must say which trials are true, got a list without labels")
        return self.targets

    @property
    def needed_scores(self) -> npt.NDArray[np.float64]:
        """``scores``; raises TrialListError for a list without."""
        if self.scores is None:
            raise TrialListError("scores were asked for, got a list of trials without any")
        return self.scores

    def trial(self, row: int) -> str:
        """One trial in words, for messages."""
        model = self.models.names[self.models.codes[row]]
        segment = self.segments.names[self.segments.codes[row]]
        return f"model {model!r}, segment {segment!r}"
