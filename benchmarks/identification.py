#!/usr/bin/env python3
"""Identification on real speech: rank-1 error, and misses at a false-positive identification rate of one percent.

    python benchmarks/identification.py CORPORA [--peer] [--json OUT]

CORPORA holds commands30 (docs/results.md says what it is). Everybody is enrolled for the files of trials_test, and 20
of 30 for those of trials_open, where the others' files are searches without a mate. --peer measures Resemblyzer and
CAM++ on the same files, too (pip install '.[peers]'), by their cosines and by those less the best rival's.

False-positive identification rate (FPIR): share of searches without a mate that find somebody. False-negative (FNIR):
share of searches with a mate that do not find it at rank 1 (ISO/IEC 19795-1). Both at the decision of `voiceclaim
identify`, and FNIR at the threshold of the best candidate's ratio where FPIR is 1 percent at most.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import pipeline
from benchmarks.tables import decimals, markdown_table

Array = NDArray[np.float64]
FPIR = 0.01
LISTS = (("trials_test", 30), ("trials_open", 20))  # list, and how many are enrolled


def files_of(root: Path, name: str) -> list[tuple[str, str]]:
    """Return the speaker and the path of each file of a list."""
    paths = dict.fromkeys(trial.path for trial in pipeline.read_trials(root / f"{name}.txt"))
    return [(Path(path).parent.name, path) for path in paths]


def enrolled_model(root: Path, count: int, work: Path) -> pipeline.SpeakerModel:
    """Enroll the first ``count`` speakers with the default settings."""
    speakers = dict(list(pipeline.read_corpus(root / "enroll").speakers.items())[:count])
    return pipeline.enroll(work / f"{count}.store", speakers, jobs=os.cpu_count() or 1).model


def ours(model: pipeline.SpeakerModel, root: Path, files: list[tuple[str, str]]) -> tuple[Array, list[str | None]]:
    """Return the ratios (files, speakers), and who was identified in each file."""
    identifier = pipeline.Identifier(model, best=len(model.names))
    found = [identifier.identify_file(root / path) for _, path in files]
    ratios = [{one.name: one.llr for one in result.candidates} for result in found]
    return np.array([[by[name] for name in model.names] for by in ratios]), [result.name for result in found]


def rates(scores: Array, names: tuple[str, ...], files: list[tuple[str, str]]) -> dict[str, Any]:
    """Return rank-1 error, and FNIR at FPIR 1 percent where some searches have no mate; in percent."""
    mates = np.array([names.index(speaker) if speaker in names else -1 for speaker, _ in files])
    best, first, mated = scores.max(axis=1), scores.argmax(axis=1), mates >= 0
    right = first[mated] == mates[mated]
    table: dict[str, Any] = {
        "mated": int(mated.sum()),
        "unmated": int((~mated).sum()),
        "rank1_error_percent": 100 * float(np.mean(~right)),
    }
    if not mated.all():
        others = np.sort(best[~mated])[::-1]
        threshold = others[int(FPIR * len(others))]  # as many scores are above it as FPIR allows
        table["fnir_at_fpir1_percent"] = 100 * float(1 - np.mean(right & (best[mated] > threshold)))
    return table


def decided(found: list[str | None], names: tuple[str, ...], files: list[tuple[str, str]]) -> dict[str, Any]:
    """Return both rates at the default decision, in percent."""
    unmated = [name is not None for name, (speaker, _) in zip(found, files, strict=True) if speaker not in names]
    missed = [name != speaker for name, (speaker, _) in zip(found, files, strict=True) if speaker in names]
    return {
        "fpir_percent": 100 * float(np.mean(unmated)) if unmated else None,
        "fnir_percent": 100 * float(np.mean(missed)),
    }


def peers(root: Path, names: tuple[str, ...], files: list[tuple[str, str]]) -> dict[str, Array]:
    """Return the encoders' scores (files, speakers), raw and less the best rival's."""
    from benchmarks.peers import Embedder, campplus, less_best_rival, resemblyzer

    clips = pipeline.read_corpus(root / "enroll").speakers
    scores: dict[str, Array] = {}
    for peer, encoder in (("Resemblyzer", resemblyzer), ("CAM++", campplus)):
        embed = Embedder(encoder())
        models = np.array([embed(*(clip.path for clip in clips[name])) for name in names])
        cosines = np.array([embed(root / path) for _, path in files], dtype=np.float64) @ models.T
        scores |= {f"{peer}, cosine": cosines, f"{peer}, less the best rival": less_best_rival(cosines)}
    return scores


def run(root: Path, *, peer: bool) -> list[dict[str, Any]]:
    """Return a row for each list and system."""
    rows = []
    for name, count in LISTS:
        files = files_of(root, name)
        with tempfile.TemporaryDirectory() as work:
            model = enrolled_model(root, count, Path(work))
            ratios, found = ours(model, root, files)
        row = {"list": name, "enrolled": count, "system": model.config.scoring.system}
        rows.append({**row, **rates(ratios, model.names, files), **decided(found, model.names, files)})
        for system, scores in peers(root, model.names, files).items() if peer else ():
            rows.append({"list": name, "enrolled": count, "system": system, **rates(scores, model.names, files)})
    return rows


def markdown(rows: list[dict[str, Any]]) -> str:
    """Return the rows as a table."""
    columns = ("list", "system", "enrolled", "mated", "unmated")
    shares = ("rank1_error_percent", "fnir_at_fpir1_percent", "fpir_percent", "fnir_percent")
    titles = ("rank-1 error %", "FNIR % at FPIR 1 %", "FPIR %", "FNIR %")
    lines = [[*(row[column] for column in columns), *decimals(*map(row.get, shares))] for row in rows]
    return markdown_table((*columns, *titles), lines, words=2)


def main() -> None:
    """Run and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpora", type=Path)
    parser.add_argument("--peer", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = run(options.corpora / "commands30", peer=options.peer)
    print(markdown(rows))
    if options.json:
        options.json.write_text(json.dumps({"fpir": FPIR, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
