#!/usr/bin/env python3
"""Early decisions against the fixed-length score: error rates, and seconds of speech until they are taken.

    python benchmarks/early_decision.py CORPORA [--stores DIR] [--lists dev|test|all] [--json OUT]

CORPORA holds commands30. Stores are enrolled in DIR (a folder of its own, kept for the next time) unless they are
there: everybody; speakers 11-30, whom the development phrases of 01-10 attack; and 01-20, whom trials_open attacks. The
error rates of the rule were chosen on the development lists; the test lists were then run once.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from pipeline.config import load_config
from pipeline.corpus import Utterance, read_corpus
from pipeline.early import EarlyRule, look_frames
from pipeline.enrollment import enroll
from pipeline.evaluation import Trial, equal_error_rate, read_trials
from pipeline.frontend import read_features
from pipeline.posteriors.coupling import RULES
from pipeline.scoring import ClaimScorer
from pipeline.store import SpeakerStore

Array = NDArray[np.float64]
SYSTEM = "fused"
RATES = (0.05, 0.02, 0.01, 0.005, 0.002, 0.001)
SETTINGS = ('machines.kinds=["one_vs_one","one_class","segment","mixture"]',)
NAMES = tuple(f"{n:02d}" for n in range(1, 31))
STORES = {"everybody": NAMES, "late": NAMES[10:], "early": NAMES[:20]}
LISTS = {
    "dev": ("everybody", "trials_dev"),
    "dev_open": ("late", "trials_dev"),
    "test": ("everybody", "trials_test"),
    "open": ("early", "trials_open"),
}


@dataclass(frozen=True)
class Heard:
    """One file at every look: ``scores`` (looks, claims) by system, ``frames`` (looks,); the last is the whole file."""

    frames: NDArray[np.int64]
    scores: dict[str, Array]
    target: NDArray[np.bool_]


def hear(store: SpeakerStore, trials: Sequence[Trial], root: Path) -> list[Heard]:
    """Score every file of ``trials`` at every look, for all the claims made on it."""
    claims: dict[str, dict[str, bool]] = {}
    for trial in trials:
        if trial.speaker in store.names:
            claims.setdefault(trial.path, {})[trial.speaker] = trial.target
    systems = (*RULES[SYSTEM].parts, SYSTEM)
    population, settings = store.population(systems), store.scoring_settings(systems)
    everybody = sorted({name for made in claims.values() for name in made}, key=store.position)
    scorer = ClaimScorer(population, [store.position(name) for name in everybody], systems, settings)
    first, every = look_frames(store.config.least_frames, store.config.features.step_seconds)
    found = []
    for path, made in claims.items():
        speech = read_features(Utterance("", root / path), store.config.features, store.scaling).speech
        running, scores, ends, at = scorer.start(), [], [*range(first, len(speech.vectors), every)], 0
        for end in [*ends, len(speech.vectors)]:
            running.push(speech.part(slice(at, end)))
            scores.append(running.scores())
            at = end
        columns = [everybody.index(name) for name in made]
        found.append(
            Heard(
                np.array([*ends, len(speech.vectors)]),
                {name: np.stack([one[name][columns] for one in scores]) for name in systems},
                np.array(list(made.values())),
            )
        )
    return found


def errors(accepted: NDArray[np.bool_], target: NDArray[np.bool_]) -> dict[str, float]:
    """Percent of true claims rejected and of false ones accepted, and the mean of the two."""
    miss, false_accept = 100.0 * float((~accepted[target]).mean()), 100.0 * float(accepted[~target].mean())
    return {"miss_percent": miss, "false_accept_percent": false_accept, "mean_percent": (miss + false_accept) / 2}


def sequential(store: SpeakerStore, heard: list[Heard], rule: EarlyRule, *, corrected: bool) -> dict[str, Any]:
    """The rule on a list; what is undecided at the end of a file falls back on the fixed-length decision.

    Without ``corrected`` the test goes by the calibration of whole utterances at every length.
    """
    calibration = store.early_calibration(SYSTEM) if corrected else store.calibration(SYSTEM)
    threshold = store.threshold(SYSTEM)
    accepted, undecided, seconds, target = [], [], [], []
    for file in heard:
        llr = calibration.llr(file.scores, file.frames[:, None].astype(float))
        # Only looks settle a claim: the end of a file is one where it falls on the grid.
        first, every = look_frames(store.config.least_frames, store.config.features.step_seconds)
        looks = (file.frames >= first) & (file.frames % every == 0)
        reached = ((llr >= rule.accept_at) | (llr <= rule.reject_at)) & looks[:, None]
        settled = reached.any(axis=0)
        at = np.where(settled, reached.argmax(axis=0), len(file.frames) - 1)
        claim = np.arange(llr.shape[1])
        accepted.append(np.where(settled, llr[at, claim] >= rule.accept_at, file.scores[SYSTEM][-1] >= threshold))
        undecided.append(~settled)
        seconds.append(file.frames[at] * store.config.features.step_seconds)
        target.append(file.target)
    truth = np.concatenate(target)
    spent, open_, yes = np.concatenate(seconds), np.concatenate(undecided), np.concatenate(accepted)
    return {
        **errors(yes, truth),
        "miss_by_rule_percent": 100.0 * float((~yes & ~open_)[truth].mean()),
        "false_accept_by_rule_percent": 100.0 * float((yes & ~open_)[~truth].mean()),
        "undecided_target_percent": 100.0 * float(open_[truth].mean()),
        "undecided_nontarget_percent": 100.0 * float(open_[~truth].mean()),
        "seconds_target": float(spent[truth].mean()),
        "seconds_nontarget": float(spent[~truth].mean()),
        "seconds": float(spent[truth].mean() + spent[~truth].mean()) / 2,
    }


def fixed(store: SpeakerStore, heard: list[Heard]) -> dict[str, Any]:
    """Whole files by the store's threshold; and files cut to a length, by the threshold that suits the list best."""
    step = store.config.features.step_seconds
    target = np.concatenate([file.target for file in heard])
    whole = np.concatenate([file.scores[SYSTEM][-1] for file in heard])
    table: dict[str, Any] = {
        "seconds": float(np.mean([file.frames[-1] for file in heard])) * step,
        "eer_percent": 100.0 * equal_error_rate(whole[target], whole[~target]).rate,
        "at_threshold": errors(whole >= store.threshold(SYSTEM), target),
        "cut": [],
    }
    early = store.early_calibration(SYSTEM)
    for frames in sorted({int(n) for file in heard for n in file.frames[:-1]}):
        at = [int(np.searchsorted(file.frames, frames).clip(max=len(file.frames) - 1)) for file in heard]
        scores = np.concatenate([file.scores[SYSTEM][n] for file, n in zip(heard, at, strict=True)])
        lengths = np.array([file.frames[n] for file, n in zip(heard, at, strict=True)])
        llr = np.concatenate(
            [
                early.llr({name: values[n] for name, values in file.scores.items()}, float(file.frames[n]))
                for file, n in zip(heard, at, strict=True)
            ]
        )
        rate = equal_error_rate(scores[target], scores[~target]).rate
        table["cut"].append(
            {
                "seconds": float(lengths.mean()) * step,
                "eer_percent": 100.0 * rate,
                "mean_llr_target": float(llr[target].mean()),
                "mean_llr_nontarget": float(llr[~target].mean()),
            }
        )
    return table


def shortest(table: dict[str, Any], percent: float) -> float | None:
    """Seconds of the shortest fixed length whose EER, and that of all longer ones, is at most ``percent``."""
    best = table["seconds"] if table["eer_percent"] <= percent else None
    for cut in reversed(table["cut"]):
        if cut["eer_percent"] > percent:
            return best
        best = cut["seconds"]
    return best


def measure(store: SpeakerStore, trials: Sequence[Trial], root: Path, *, tuning: bool) -> dict[str, Any]:
    """One list: fixed, early by the default rule, and, where settings are chosen, by others and without correction."""
    heard = hear(store, trials, root)
    table: dict[str, Any] = {"fixed": fixed(store, heard), "rules": []}
    default = EarlyRule()
    rules = [EarlyRule(rate, rate) for rate in RATES] if tuning else [default]
    for rule in rules:
        for corrected in (True, False):
            if not corrected and rule != default:
                continue
            found = sequential(store, heard, rule, corrected=corrected)
            found |= {"miss": rule.miss, "false_accept": rule.false_accept, "corrected": corrected}
            found["share_of_fixed_percent"] = 100.0 * found["seconds"] / table["fixed"]["seconds"]
            found["fixed_length_as_good_seconds"] = shortest(table["fixed"], found["mean_percent"])
            table["rules"].append(found)
    return table


def opened(path: Path, corpus: Path, names: Sequence[str]) -> SpeakerStore:
    """The store at ``path``, enrolled if it is not there."""
    if not path.exists():
        speakers = read_corpus(corpus / "enroll").speakers
        enroll(path, {name: speakers[name] for name in names}, load_config(None, SETTINGS))
    return SpeakerStore.open(path)


def markdown(results: dict[str, Any]) -> str:
    """The tables of EARLY.md."""
    head = "| list | rule (miss, FA) | calibrated | miss % (by rule) | FA % (by rule) | mean % | undecided % (T, F)"
    lines = [f"{head} | s (T, F) | mean s | of fixed % | as good, fixed s |", "|---|---|---|" + "---:|" * 8]
    for name, table in results.items():
        whole, at = table["fixed"], table["fixed"]["at_threshold"]
        lines.append(
            f"| {name} | none: whole utterance, store's threshold | | {at['miss_percent']:.2f} |"
            f" {at['false_accept_percent']:.2f} | {at['mean_percent']:.2f} | | | {whole['seconds']:.2f} | 100 |"
            f" EER {whole['eer_percent']:.2f} % |"
        )
        for rule in table["rules"]:
            good = rule["fixed_length_as_good_seconds"]
            lines.append(
                f"| {name} | {rule['miss']:g}, {rule['false_accept']:g} |"
                f" {'at its length' if rule['corrected'] else 'as if whole'} | {rule['miss_percent']:.2f}"
                f" ({rule['miss_by_rule_percent']:.2f}) | {rule['false_accept_percent']:.2f}"
                f" ({rule['false_accept_by_rule_percent']:.2f}) | {rule['mean_percent']:.2f} |"
                f" {rule['undecided_target_percent']:.1f}, {rule['undecided_nontarget_percent']:.1f} |"
                f" {rule['seconds_target']:.2f}, {rule['seconds_nontarget']:.2f} | {rule['seconds']:.2f} |"
                f" {rule['share_of_fixed_percent']:.0f} | {'none' if good is None else f'{good:.2f}'} |"
            )
    lines += [
        "",
        "| list | cut to s | EER % | mean LLR of true claims | of false |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, table in results.items():
        for cut in table["fixed"]["cut"][::2]:
            lines.append(
                f"| {name} | {cut['seconds']:.2f} | {cut['eer_percent']:.2f} | {cut['mean_llr_target']:.1f} |"
                f" {cut['mean_llr_nontarget']:.1f} |"
            )
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpora", type=Path)
    parser.add_argument("--stores", type=Path)
    parser.add_argument("--lists", choices=("dev", "test", "all"), default="all")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    corpus = options.corpora / "commands30"
    with tempfile.TemporaryDirectory() as work, threadpool_limits(1):
        stores, results = options.stores or Path(work), {}
        for name, (which, trials) in LISTS.items():
            tuning = name.startswith("dev")
            if options.lists != "all" and tuning != (options.lists == "dev"):
                continue
            store = opened(stores / which, corpus, STORES[which])
            results[name] = measure(store, read_trials(corpus / f"{trials}.txt"), corpus, tuning=tuning)
    print(markdown(results))
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
