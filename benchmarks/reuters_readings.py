#!/usr/bin/env python3
"""Effect of each way of reading Reuters' stories on the errors of Platt 1999, Table 2.

    pip install '.[docs]'          # snowballstemmer comes with Sphinx
    python -m benchmarks.reuters_readings --tables TABLES [--jobs N] [--json OUT]

The paper takes 300 words a category and does not say how text became words. One thing at a time is changed in the
reading of ``benchmarks.papers platt1999``, and the errors of all 118 raw machines are added up. These counts are on the
test documents, so they were not used to choose a reading.
"""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from joblib import Parallel, delayed
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

from benchmarks.papers.platt1999_tasks import TASKS, Problem, Reading, errors_in, reuters_problems, words_of
from benchmarks.papers.source import TableSource

TASK = TASKS["reuters_linear"]
Words = Callable[[str], list[str]]


def stems(text: str) -> list[str]:
    """Return Porter's stems of the words."""
    import snowballstemmer

    made: list[str] = snowballstemmer.stemmer("porter").stemWords(words_of(text))
    return made


def with_title_apart(words: Words, text: str) -> list[str]:
    """Return the words of a story; a word of the title counts as different from the same word in the body."""
    title, _, body = text.partition("\n")
    return [f"title {word}" for word in words(title)] + words(body)


READINGS: Mapping[str, Reading] = {
    "as in the table above": Reading(),
    "without 318 stop words": Reading(lambda text: [w for w in words_of(text) if w not in ENGLISH_STOP_WORDS]),
    "Porter's stems": Reading(stems),
    "words of letters alone": Reading(lambda text: re.findall(r"\b[a-z]{2,}\b", text.lower())),
    "words of one letter or digit, too": Reading(lambda text: re.findall(r"\w+", text.lower())),
    "words of one training document, too": Reading(least_documents=1),
    "words of three training documents or more": Reading(least_documents=3),
    "words of the title apart": Reading(lambda text: with_title_apart(words_of, text)),
    "stems, those of the title apart": Reading(lambda text: with_title_apart(stems, text)),
    "150 words a category": Reading(count=150),
    "600 words a category": Reading(count=600),
}


def errors(problem: Problem) -> int:
    """Return the test examples that the raw machine of one category gets wrong."""
    (X, positive), ((rows, truth),) = problem.train, problem.tests
    if not positive.any():
        return int(truth.sum())
    return int(errors_in(TASK.machine().fit(X, positive).decision_function(rows), truth).sum())


def errors_of(source: TableSource, reading: Reading, jobs: int = 1) -> int:
    """Return the errors of all categories."""
    work = (delayed(errors)(problem) for problem in reuters_problems(source, reading))
    return sum(Parallel(n_jobs=jobs, prefer="threads")(work))


def main() -> None:
    """Run and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=Path)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows: dict[str, int] = {}
    for name, reading in READINGS.items():
        rows[name] = errors_of(TableSource(options.tables), reading, options.jobs)
        print(f"| {name} | {rows[name]} | {rows[name] - next(iter(rows.values())):+d} |", flush=True)
    if options.json:
        options.json.write_text(json.dumps({"paper": TASK.published.raw, "errors": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
