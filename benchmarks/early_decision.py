#!/usr/bin/env python3
"""Sequential test against fixed-length decisions: error rates, and seconds of speech until the decision.

    python benchmarks/early_decision.py CORPORA [--stores DIR] [--lists dev|test|all] [--json OUT]

CORPORA holds commands30. Missing stores are enrolled in DIR (kept for the next run if given): everyone; speakers 11-30,
with the development phrases of 01-10 as unknown impostors; and 01-20, with those of trials_open. Settings are the
default's without one-vs-rest machines, which the default system does not read. The error rates of the test were chosen
on the development lists; the test lists were then run once.
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

from benchmarks.tables import decimals, markdown_table
from pipeline.audio.corpus import Utterance, read_corpus
from pipeline.config import load_config
from pipeline.enrollment.enroll import enroll
from pipeline.evaluation import Trial, read_trials
from pipeline.features.frontend import read_features
from pipeline.metrics import equal_error_rate
from pipeline.scoring.claims import ClaimScorer
from pipeline.scoring.rules import RULES
from pipeline.scoring.sequential import SequentialTest, check_frames
from pipeline.store.model import SpeakerModel
from pipeline.store.store import Store

Array = NDArray[np.float64]
SYSTEM = "fused"
RATES = (0.05, 0.02, 0.01, 0.005, 0.002, 0.001)
NAMES = tuple(f"{n:02d}" for n in range(1, 31))
STORES = {"everybody": NAMES, "late": NAMES[10:], "early": NAMES[:20]}
LISTS = {
    "dev": ("everybody", "trials_dev"),
    "dev_open": ("late", "trials_dev"),
    "test": ("everybody", "trials_test"),
    "open": ("early", "trials_open"),
}


@dataclass(frozen=True)
class ScoredFile:
    """One file at each check: ``scores`` (checks, claims) by system, ``frames`` (checks,); last: the whole file."""

    frames: NDArray[np.int64]
    scores: dict[str, Array]
    target: NDArray[np.bool_]


def score_files(store: SpeakerModel, trials: Sequence[Trial], root: Path) -> list[ScoredFile]:
    """Score every file of ``trials`` at each check, for all its claims."""
    claims: dict[str, dict[str, bool]] = {}
    for trial in trials:
        if trial.speaker in store.names:
            claims.setdefault(trial.path, {})[trial.speaker] = trial.target
    systems = (*RULES[SYSTEM].parts_among(store.systems), SYSTEM)
    population, settings = store.population(systems), store.scoring_settings(systems)
    everybody = sorted({name for made in claims.values() for name in made}, key=store.position)
    scorer = ClaimScorer(population, [store.position(name) for name in everybody], systems, settings)
    first, every = check_frames(store.config.min_frames, store.config.features.step_seconds)
    scored = []
    for path, made in claims.items():
        speech = read_features(Utterance("", root / path), store.config.features)
        running, scores, ends, at = scorer.start(), [], [*range(first, len(speech.vectors), every)], 0
        for end in [*ends, len(speech.vectors)]:
            running.push(speech.part(slice(at, end)))
            scores.append(running.scores() | running.side_information)
            at = end
        columns = [everybody.index(name) for name in made]
        of_claims = [{name: np.broadcast_to(of, len(everybody))[columns] for name, of in one.items()} for one in scores]
        scored.append(
            ScoredFile(
                np.array([*ends, len(speech.vectors)]),
                {name: np.stack([one[name] for one in of_claims]) for name in of_claims[0]},
                np.array(list(made.values())),
            )
        )
    return scored


def errors(accepted: NDArray[np.bool_], target: NDArray[np.bool_]) -> dict[str, float]:
    """Return miss and false-accept rates in percent, and their mean."""
    miss, false_accept = 100.0 * float((~accepted[target]).mean()), 100.0 * float(accepted[~target].mean())
    return {"miss_percent": miss, "false_accept_percent": false_accept, "mean_percent": (miss + false_accept) / 2}


def sequential(
    store: SpeakerModel, files: list[ScoredFile], rule: SequentialTest, *, corrected: bool
) -> dict[str, Any]:
    """Run the test on a list; a claim undecided at the end of a file takes the fixed-length decision.

    Without ``corrected`` the test uses the calibration of whole utterances at every length.
    """
    calibration = store.sequential_calibration(SYSTEM) if corrected else store.calibration(SYSTEM)
    assert calibration is not None  # noqa: S101  (there are held-out trials)
    threshold = store.threshold(SYSTEM)
    accepted, undecided, seconds, target = [], [], [], []
    for file in files:
        llr = calibration.llr(file.scores, file.frames[:, None].astype(float))
        # Claims are decided at checks only: the end of a file is one if it falls on the grid.
        first, every = check_frames(store.config.min_frames, store.config.features.step_seconds)
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


def fixed(store: SpeakerModel, files: list[ScoredFile]) -> dict[str, Any]:
    """Return error rates of whole files at the store's threshold, and EERs of files cut to a length."""
    step = store.config.features.step_seconds
    target = np.concatenate([file.target for file in files])
    whole = np.concatenate([file.scores[SYSTEM][-1] for file in files])
    table: dict[str, Any] = {
        "seconds": float(np.mean([file.frames[-1] for file in files])) * step,
        "eer_percent": 100.0 * equal_error_rate(whole[target], whole[~target]).rate,
        "at_threshold": errors(whole >= store.threshold(SYSTEM), target),
        "cut": [],
    }
    early = store.sequential_calibration(SYSTEM)
    for frames in sorted({int(n) for file in files for n in file.frames[:-1]}):
        at = [int(np.searchsorted(file.frames, frames).clip(max=len(file.frames) - 1)) for file in files]
        scores = np.concatenate([file.scores[SYSTEM][n] for file, n in zip(files, at, strict=True)])
        lengths = np.array([file.frames[n] for file, n in zip(files, at, strict=True)])
        llr = np.concatenate(
            [
                early.llr({name: values[n] for name, values in file.scores.items()}, float(file.frames[n]))
                for file, n in zip(files, at, strict=True)
            ]
        )
        rate = equal_error_rate(scores[target], scores[~target]).rate
        decided = errors(llr >= store.threshold(SYSTEM), target)
        table["cut"].append(
            {
                "seconds": float(lengths.mean()) * step,
                "eer_percent": 100.0 * rate,
                "mean_percent": decided["mean_percent"],
                "mean_llr_target": float(llr[target].mean()),
                "mean_llr_nontarget": float(llr[~target].mean()),
            }
        )
    return table


def shortest(table: dict[str, Any], percent: float, error: str) -> float | None:
    """Return the shortest fixed length in seconds whose ``error``, and that of all longer ones, is at most ``percent``.

    ``error`` names the EER, which is at the best threshold for the list at each length, or the mean error at the
    store's threshold, with the ratio calibrated at each length.
    """
    whole = table["at_threshold"]["mean_percent"] if error == "mean_percent" else table[error]
    best = table["seconds"] if whole <= percent else None
    for cut in reversed(table["cut"]):
        if cut[error] > percent:
            return best
        best = cut["seconds"]
    return best


def measure(store: SpeakerModel, trials: Sequence[Trial], root: Path, *, tuning: bool) -> dict[str, Any]:
    """Measure one list: fixed length, the default test, and for tuning other rates and the uncorrected calibration."""
    files = score_files(store, trials, root)
    table: dict[str, Any] = {"fixed": fixed(store, files), "rules": []}
    default = SequentialTest()
    rules = [SequentialTest(rate, rate) for rate in RATES] if tuning else [default]
    for rule in rules:
        for corrected in (True, False):
            if not corrected and rule != default:
                continue
            row = sequential(store, files, rule, corrected=corrected)
            row |= {"miss": rule.miss, "false_accept": rule.false_accept, "corrected": corrected}
            row["share_of_fixed_percent"] = 100.0 * row["seconds"] / table["fixed"]["seconds"]
            for error in ("eer_percent", "mean_percent"):
                good = shortest(table["fixed"], row["mean_percent"], error)
                row[f"fixed_length_as_good_by_{error.removesuffix('_percent')}"] = good
                row[f"saved_by_{error}"] = None if good is None else 100.0 * (1.0 - row["seconds"] / good)
            table["rules"].append(row)
    return table


def opened(path: Path, corpus: Path, names: Sequence[str]) -> SpeakerModel:
    """Open the store at ``path``, enrolling it if missing."""
    if not path.exists():
        speakers = read_corpus(corpus / "enroll").speakers
        enroll(path, {name: speakers[name] for name in names}, load_config())
    return Store(path).load()


def markdown(results: dict[str, Any]) -> str:
    """Return the tables of EARLY.md."""
    head = ("list", "rule (miss, FA)", "calibrated", "miss % (by rule)", "FA % (by rule)", "mean %")
    needed = ("undecided % (T, F)", "s (T, F)", "mean s", "of whole %")
    good = ("as good by EER, s", "saved %", "as good by ratio, s", "saved %")
    lines = []
    for name, table in results.items():
        lines.append(_whole(name, table["fixed"]))
        lines += [[name, *_by_rule(rule)] for rule in table["rules"]]
    rules = markdown_table((*head, *needed, *good), lines, words=3)
    classes = ("target", "nontarget")
    cuts = [
        (name, *decimals(cut["seconds"], cut["eer_percent"]), *_tenths(*(cut[f"mean_llr_{one}"] for one in classes)))
        for name, table in results.items()
        for cut in table["fixed"]["cut"][::2]
    ]
    return f"{rules}\n\n" + markdown_table(("list", "cut to s", "EER %", "mean LLR of true claims", "of false"), cuts)


def _whole(name: str, whole: dict[str, Any]) -> list[str]:
    """Return the row of whole utterances."""
    rates = decimals(*(whole["at_threshold"][key] for key in ("miss_percent", "false_accept_percent", "mean_percent")))
    eer = f"EER {whole['eer_percent']:.2f} %"
    about = [name, "none: whole utterance, store's threshold", "", *rates]
    return [*about, "", "", *decimals(whole["seconds"]), "100", eer, "", "", ""]


def _by_rule(rule: dict[str, Any]) -> list[str]:
    """Return the row of one rule, without the name of the list."""
    errors = [
        "{} ({})".format(*decimals(rule[f"{error}_percent"], rule[f"{error}_by_rule_percent"]))
        for error in ("miss", "false_accept")
    ]
    undecided = ", ".join(_tenths(rule["undecided_target_percent"], rule["undecided_nontarget_percent"]))
    seconds = ", ".join(decimals(rule["seconds_target"], rule["seconds_nontarget"]))
    cells = [f"{rule['miss']:g}, {rule['false_accept']:g}", "at its length" if rule["corrected"] else "as if whole"]
    cells += [*errors, *decimals(rule["mean_percent"]), undecided, seconds, *decimals(rule["seconds"])]
    cells.append(f"{rule['share_of_fixed_percent']:.0f}")
    for by in ("eer", "mean"):
        as_good = rule[f"fixed_length_as_good_by_{by}"]
        cells += ["none", ""] if as_good is None else [f"{as_good:.2f}", f"{rule[f'saved_by_{by}_percent']:.0f}"]
    return cells


def _tenths(*values: float) -> list[str]:
    return [f"{value:.1f}" for value in values]


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
