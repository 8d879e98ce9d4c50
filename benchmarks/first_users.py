#!/usr/bin/env python3
"""Error rates of the first users of a fresh store, by the background speakers who were enrolled before them.

    python -m benchmarks.first_users CORPORA [--list NAME] [--backgrounds NAME ...] [--words N] [--phrases N]

CORPORA holds commands30 (docs/results.md says what it is). Five of its speakers 21 to 30 are enrolled one by one, as
the service does, beside each background: people (speakers 01 to 20, or the first of them), the package's synthetic
voices, or nobody. Each of the ten speakers is the first user of one draw, the second of another, and so on. After the
first, second and fifth user every phrase of the list is claimed for every user, and decided as `verify` decides.
Impostors are other users, the background, and people who are not enrolled: users still to come and, where they are not
the background, speakers 01 to 20. A claim for which there is no threshold is counted as rejected.

A user is enrolled with --words drawn words (0.6 s of speech each), four to an utterance, as a person reads them from
the page, and claims with --phrases phrases (1.6 s of speech each), joined; everything else is as recorded.

The list is trials_dev; trials_test is for reports.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

import pipeline
from benchmarks.tables import decimals, markdown_table
from pipeline.audio.corpus import Utterance
from pipeline.errors import MetricError
from pipeline.evaluation import Trial

PEOPLE, USERS, SEED = 20, 5, 0
UTTERANCE_WORDS = 4
STAGES = (1, 2, 5)
KINDS = ("own", "user", "background", "outside")
Speakers = Mapping[str, Sequence[Utterance]]


def backgrounds(people: Speakers) -> dict[str, Speakers]:
    """Return the speakers of each background by its name."""
    some = {f"{count} people": dict(list(people.items())[:count]) for count in (PEOPLE, 10, 5)}
    return {**some, "36 synthetic voices": pipeline.background_voices().speakers, "nobody": {}}


def draws(names: Sequence[str], count: int) -> list[list[str]]:
    """Return the users of each draw in the order of their enrollment: everybody has every place in turn."""
    order = np.random.default_rng(SEED).permutation(np.array(names))
    return [np.roll(order, -first)[:USERS].tolist() for first in range(count)]


def joined(paths: Sequence[Path], into: Path) -> Path:
    """Write the recordings at ``paths``, one after the other, to one file."""
    read = [soundfile.read(path) for path in paths]
    into.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(into, np.concatenate([samples for samples, _ in read]), read[0][1])
    return into


def short_enrollments(users: Speakers, words: int, folder: Path) -> Speakers:
    """Return ``users`` with as many drawn ``words`` each, ``UTTERANCE_WORDS`` to a file."""
    short = {}
    for name, utterances in users.items():
        drawn = np.random.default_rng(SEED).permutation(len(utterances))[:words]
        paths = [utterances[index].path for index in drawn]
        parts = range(0, len(paths), UTTERANCE_WORDS)
        short[name] = [
            Utterance(name, joined(paths[at : at + UTTERANCE_WORDS], folder / name / f"{at:03}.wav")) for at in parts
        ]
    return short


def long_claims(root: Path, paths: Sequence[str], phrases: int, folder: Path) -> list[str]:
    """Write each phrase and the ``phrases`` - 1 of its speaker that follow; return paths in ``folder``."""
    by_speaker: dict[str, list[str]] = {}
    for path in paths:
        by_speaker.setdefault(str(Path(path).parent), []).append(path)
    for its in by_speaker.values():
        for at, path in enumerate(its):
            joined([root / its[(at + step) % len(its)] for step in range(phrases)], folder / path)
    return list(paths)


def errors_of(model: pipeline.SpeakerModel, root: Path, paths: Sequence[str], jobs: int) -> Counter[str]:
    """Count trials and errors of each kind: every phrase is claimed for everybody who can be claimed."""
    speakers = {path: Path(path).parent.name for path in paths}
    trials = [Trial(claim, path, claim == speakers[path]) for claim in model.names for path in paths]
    roles = {speaker.name: speaker.role for speaker in model.speakers}
    system, counts = model.config.scoring.system, Counter[str]()
    try:
        threshold = model.threshold(system)
        scores = pipeline.assess(model, trials, root, systems=(system,), jobs=jobs).scores[system]
        accepted = dict(zip(zip(scores.speakers, scores.paths, strict=True), scores.scores >= threshold, strict=True))
    except MetricError:
        accepted = {}
    for trial in trials:
        role = roles.get(speakers[trial.path], "outside")
        kind = "own" if trial.target else role.replace("speaker", "user")
        counts[kind] += 1
        counts[f"{kind} wrong"] += bool(accepted.get((trial.speaker, trial.path), False)) != trial.target
    return counts


def measured(
    root: Path, paths: Sequence[str], background: Speakers, users: Speakers, *, count: int, jobs: int
) -> dict[int, Counter[str]]:
    """Enroll ``count`` draws of ``users`` beside ``background``; return the counts by how many users there are."""
    found = {stage: Counter[str]() for stage in STAGES}
    with tempfile.TemporaryDirectory() as work:
        before = Path(work) / "background.store"
        if background:
            pipeline.enroll(before, background, role="background", jobs=jobs)
        for draw in draws(list(users), count):
            store = Path(work) / f"{draw[0]}.store"
            if background:
                shutil.copy(before, store)
            for stage, name in enumerate(draw, start=1):
                model = pipeline.enroll(store, {name: users[name]}, jobs=jobs).model
                if stage in STAGES:
                    found[stage] += errors_of(model, root, paths, jobs)
    return found


def row_of(background: str, stage: int, counts: Counter[str]) -> dict[str, Any]:
    """Return trials and errors of each kind, and both rates in percent."""
    row: dict[str, Any] = {"beside": background, "users": stage}
    row |= {name: {"trials": counts[name], "errors": counts[f"{name} wrong"]} for name in KINDS if counts[name]}
    impostors = [row[name] for name in KINDS[1:] if name in row]
    false = sum(one["errors"] for one in impostors) / sum(one["trials"] for one in impostors)
    return {
        **row,
        "false_reject_percent": 100 * row["own"]["errors"] / row["own"]["trials"],
        "false_accept_percent": 100 * false,
    }


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a line for each background and number of users."""
    lines = []
    for row in rows:
        own, *others = (f"{row[one]['errors']} of {row[one]['trials']}" if one in row else "" for one in KINDS)
        reject, accept = decimals(row["false_reject_percent"], row["false_accept_percent"])
        lines.append([row["beside"], row["users"], own, reject, *others, accept])
    head = ("users", "true claims rejected", "FR %", "users accepted", "background", "outsiders", "FA %")
    return markdown_table(("enrolled before", *head), lines)


def main() -> None:
    """Run and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpora", type=Path)
    parser.add_argument("--list", default="trials_dev")
    parser.add_argument("--backgrounds", nargs="+", metavar="NAME")
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument(
        "--words", type=int, metavar="N", help="words a user enrolls with, by default all 160, a file each"
    )
    parser.add_argument("--phrases", type=int, default=1, metavar="N", help="phrases a claim is made with")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    root = options.corpora / "commands30"
    paths = list(dict.fromkeys(trial.path for trial in pipeline.read_trials(root / f"{options.list}.txt")))
    speakers = list(pipeline.read_corpus(root / "enroll").speakers.items())
    everybody, rows = backgrounds(dict(speakers[:PEOPLE])), []
    with tempfile.TemporaryDirectory() as folder:
        users: Speakers = dict(speakers[PEOPLE:])
        if options.words:
            users = short_enrollments(users, options.words, Path(folder) / "enroll")
        if options.phrases > 1:
            paths = long_claims(root, paths, options.phrases, Path(folder) / "claims")
            root = Path(folder) / "claims"
        for name in options.backgrounds or everybody:
            found = measured(root, paths, everybody[name], users, count=options.draws, jobs=options.jobs)
            rows += [row_of(name, stage, counts) for stage, counts in found.items()]
            print(markdown(rows[-len(found) :]), flush=True)
    if options.json:
        table = {name: getattr(options, name) for name in ("list", "draws", "words", "phrases")} | {"rows": rows}
        options.json.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main()
