#!/usr/bin/env python3
"""Hill climbing: callers change a stranger's recording until a claim is accepted, guided by the service's answers.

    python benchmarks/hill_climb.py CORPORA [--store STORE] [--queries N] [--claims N] [--json OUT]

CORPORA holds commands30 and libri158 (docs/results.md says what they are). The 30 speakers of commands30 are enrolled
with the default settings, or STORE holds them already. At each of them four callers begin with the same recording of
somebody of libri158 who is not enrolled, and change it through an equaliser of 17 bands and by another speed:

- ``anew``: every try is drawn anew;
- ``walk``: every try is a step from the last one;
- ``scores``: told the log-likelihood ratio (the scope ``scores``), the caller steps from the best try (a (1+1) search);
- ``tenths``: told only the probability in tenths, the caller does the same (no service does that: would it help?).

A caller with the scope ``verify`` learns only decisions, and all rejections look alike, so no try can build on earlier
ones: such a caller is one of the first two, or follows some other fixed order of tries.

Counts the claims that are accepted after 5, 34 and N queries. By default a service makes a caller wait from the fifth
failure at a claim on, so that one token gets 34 tries in a day (docs/service.md). No caller waits here.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import soxr
from numpy.typing import NDArray

import pipeline
from benchmarks.wolves import RATE, real_voices, strangers_of

Array = NDArray[np.float64]
Draw = np.random.Generator
BANDS = np.geomspace(80, 8000, 17)
GAIN_DB, SPEED = 8.0, 0.12  # spread of drawn gains, and of the logarithm of the speed
STEP = 0.3  # of a search, in those spreads
A_DAY = 34


def changed(samples: Array, place: Array) -> Array:
    """Return ``samples`` through the equaliser and at the speed of ``place`` (18,), in spreads."""
    spectrum = np.fft.rfft(soxr.resample(samples, RATE * np.exp(SPEED * place[-1]), RATE))
    gains = np.interp(np.linspace(0, RATE / 2, len(spectrum)), BANDS, GAIN_DB * place[:-1])
    result = np.fft.irfft(spectrum * 10 ** (gains / 20))
    return np.asarray(result * (0.3 / np.abs(result).max()))


def anew(draw: Draw, _best: Array) -> Array:
    """Draw the next place independently of earlier results."""
    return draw.standard_normal(len(BANDS) + 1)


def nearby(draw: Draw, best: Array) -> Array:
    """Draw the next place around the best one."""
    return best + STEP * draw.standard_normal(len(best))


def told_by(caller: str, result: pipeline.Update) -> float:
    """Return what a caller is told of a rejected try, as a number; infinitely bad without a score."""
    if caller in ("anew", "walk"):
        return 0.0
    if result.llr is None or result.probability is None:
        return -np.inf
    return result.llr if caller == "scores" else round(result.probability, 1)


def tries(verifier: pipeline.Verifier, samples: Array, caller: str, draw: Draw, queries: int) -> int | None:
    """Return the number of the try at which the claim was accepted; None if none of ``queries`` was."""
    step: Callable[[Draw, Array], Array] = anew if caller == "anew" else nearby
    best, best_told, place = np.zeros(len(BANDS) + 1), -np.inf, np.zeros(len(BANDS) + 1)
    for number in range(1, queries + 1):
        result = verifier.verify(changed(samples, place), RATE)
        if result.decision == "accepted":
            return number
        told = told_by(caller, result)
        if told >= best_told:
            best, best_told = place, told
        place = step(draw, best)
    return None


CALLERS = ("anew", "walk", "scores", "tenths")


def run(
    model: pipeline.SpeakerModel, recordings: list[Path], queries: int, claims: int | None = None
) -> list[dict[str, Any]]:
    """Return the number of the try at which each caller was accepted, for each of the first ``claims``."""
    rows = []
    for number, claim in enumerate(model.names[:claims]):
        verifier = pipeline.Verifier(model, claim, duplicates=False)
        samples, rate = soundfile.read(recordings[number * len(recordings) // len(model.names)])
        samples = soxr.resample(samples, rate, RATE)[: 3 * RATE]
        draws = {caller: np.random.default_rng([number, place]) for place, caller in enumerate(CALLERS)}
        row = {caller: tries(verifier, samples, caller, draw, queries) for caller, draw in draws.items()}
        rows.append({"claim": claim, **row})
        print(rows[-1], flush=True)
    return rows


def summary(rows: list[dict[str, Any]], queries: int) -> dict[str, Any]:
    """Return how many claims of each caller were accepted within given numbers of tries."""
    within = {
        str(most): {caller: sum((row[caller] or queries + 1) <= most for row in rows) for caller in CALLERS}
        for most in sorted({5, A_DAY, queries})
    }
    return {"claims": len(rows), "queries": queries, "accepted_within": within}


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpora", type=Path)
    parser.add_argument("--store", type=Path)
    parser.add_argument("--queries", type=int, default=250)
    parser.add_argument("--claims", type=int, help="only the first so many speakers")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    model = real_voices(options.corpora, options.store)
    rows = run(model, strangers_of(options.corpora), options.queries, options.claims)
    table = summary(rows, options.queries)
    print(json.dumps(table, indent=1))
    if options.json:
        options.json.write_text(json.dumps({**table, "rows": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
