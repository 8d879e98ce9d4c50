#!/usr/bin/env python3
"""Class probabilities of support vector machines: this package's classifiers against CalibratedClassifierCV.

    python benchmarks/posterior_classifiers.py [--splits 20] [--sets digits wine ...] [--json OUT]
    python benchmarks/posterior_classifiers.py --read benchmarks/results/posterior_classifiers.json

Every method gets the same RBF machines (C = 1, gamma = 1 / columns) on standardised columns and three folds of held-out
margins. Each split halves a set at random by class: one half trains, the other is judged. Log loss is in nats, with
scikit-learn's bound of 2.2e-16 under every probability; the Brier score is the sum over classes of squared errors.
Times are processor seconds of fit and of predict_proba, one thread. Standard errors are over splits, which share rows:
they show how far the numbers depend on the split, and understate how far they would change on a new set.

"gaussians" is drawn anew for every split from five overlapping normal classes, whose true posteriors make the first
row: no method can do better on average.
"""

from __future__ import annotations

import argparse
import json
import math
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import softmax
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.multiclass import OneVsRestClassifier
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from threadpoolctl import threadpool_limits
from tqdm import tqdm

from benchmarks.tables import markdown_table
from pipeline.posteriors.classifiers import OneVsRestPosteriorClassifier, PairwisePosteriorClassifier
from pipeline.posteriors.estimators import POSTERIORS
from pipeline.posteriors.local_cosine import LocalCosineSVC
from pipeline.posteriors.moderated import ModeratedSVC

Array = np.ndarray
Split = tuple[Array, Array, Array, Array]
KINDS = ("fixed", *POSTERIORS)
LOADERS = {"iris": load_iris, "wine": load_wine, "breast_cancer": load_breast_cancer, "digits": load_digits}
MEASURES = ("log_loss", "brier", "accuracy", "fit_seconds", "predict_seconds")


class TruePosterior:
    """Five normal classes in four dimensions, equally likely, unit variances, means on a cross."""

    means = 1.2 * np.concatenate([np.zeros((1, 4)), np.eye(4)])

    def draw(self, rows: int, seed: int) -> tuple[Array, Array]:
        """Return X (rows, 4) and classes (rows,)."""
        rng = np.random.default_rng(seed)
        y = rng.permutation(np.arange(rows) % len(self.means))
        return self.means[y] + rng.standard_normal((rows, 4)), y

    def predict_proba(self, X: Array) -> Array:
        """Return the posteriors (n, 5)."""
        return np.asarray(softmax(-0.5 * ((X[:, None] - self.means) ** 2).sum(axis=-1), axis=1))


def machine() -> SVC:
    """Return the binary machine of every method."""
    return SVC(C=1.0, gamma="auto")


def methods() -> dict[str, Callable[[], Any]]:
    """Return the methods compared, by their names in the tables."""
    made: dict[str, Callable[[], Any]] = {}
    for kind in KINDS:
        made[f"one-vs-rest, {kind}"] = partial(OneVsRestPosteriorClassifier, machine(), posterior=kind)
    for kind in KINDS:
        made[f"pairs, {kind}, wu_lin_weng"] = partial(PairwisePosteriorClassifier, machine(), posterior=kind)
    for rule in ("poao", "rpoao", "hastie_tibshirani", "pkpd"):
        made[f"pairs, newton, {rule}"] = partial(PairwisePosteriorClassifier, machine(), coupling=rule)
    for margins in ("training", "holdout"):
        made[f"one-vs-rest, newton, {margins}"] = partial(OneVsRestPosteriorClassifier, machine(), margins=margins)
        made[f"pairs, newton, wu_lin_weng, {margins}"] = partial(
            PairwisePosteriorClassifier, machine(), margins=margins
        )
    made["one-vs-rest, moderated"] = lambda: OneVsRestClassifier(ModeratedSVC())
    made["one-vs-rest, cosine at its place"] = lambda: OneVsRestClassifier(LocalCosineSVC(machine()))
    for how in ("sigmoid", "isotonic"):
        calibrated = partial(CalibratedClassifierCV, method=how, cv=3)
        for ensemble in (True, False):
            words = f"scikit-learn {how}{'' if ensemble else ', one machine'}"
            made[f"{words}, SVC"] = partial(calibrated, machine(), ensemble=ensemble)
            made[f"{words}, OneVsRest(SVC)"] = partial(calibrated, OneVsRestClassifier(machine()), ensemble=ensemble)
    return made


def split_of(name: str, number: int) -> Split:
    """Return the training and test halves of a set: X, X, y, y, columns standardised by the training half."""
    if name == "gaussians":
        (X, y), (test, truth) = (TruePosterior().draw(rows, 2 * number + k) for k, rows in enumerate((500, 5000)))
        return X, test, y, truth
    X, y = LOADERS[name](return_X_y=True)
    X, test, y, truth = train_test_split(X, y, test_size=0.5, stratify=y, random_state=number)
    scaler = StandardScaler().fit(X)
    return scaler.transform(X), scaler.transform(test), y, truth


def measured(make: Callable[[], Any], split: Split, number: int) -> dict[str, float]:
    """Return all ``MEASURES`` of one method on one split."""
    X, test, y, truth = split
    classifier = make()
    started = time.process_time()
    if hasattr(classifier, "fit"):
        if "random_state" in classifier.get_params():
            classifier.set_params(random_state=number)
        classifier.fit(X, y)
    fitted = time.process_time()
    p = classifier.predict_proba(test)
    done = time.process_time()
    judged = (
        log_loss(truth, p),
        float(((p - np.eye(p.shape[1])[truth]) ** 2).sum(axis=1).mean()),
        float((p.argmax(axis=1) == truth).mean()),
    )
    return dict(zip(MEASURES, (*judged, fitted - started, done - fitted), strict=True))


def compare(names: list[str], splits: int) -> list[dict[str, Any]]:
    """Return one row per set and method: means, and standard errors in ``*_se``."""
    rows = []
    for name in names:
        compared = methods() if name != "gaussians" else {"true posterior": TruePosterior, **methods()}
        runs: dict[str, list[dict[str, float]]] = {method: [] for method in compared}
        for number in tqdm(range(splits), desc=name, disable=None):
            split = split_of(name, number)
            for method, make in compared.items():
                runs[method].append(measured(make, split, number))
        for method, scores in runs.items():
            row: dict[str, Any] = {"set": name, "method": method, "splits": splits}
            for measure in MEASURES:
                values = np.array([run[measure] for run in scores])
                row[measure] = float(values.mean())
                row[f"{measure}_se"] = float(values.std(ddof=1) / math.sqrt(splits))
            rows.append(row)
    return rows


def markdown(rows: list[dict[str, Any]]) -> str:
    """Return a table for each set: mean and standard error of each measure."""
    tables = []
    for name in dict.fromkeys(row["set"] for row in rows):
        lines = []
        for row in (row for row in rows if row["set"] == name):
            accuracy = f"{100 * row['accuracy']:.2f} ± {100 * row['accuracy_se']:.2f}"
            errors = [f"{row[m]:.4f} ± {row[m + '_se']:.4f}" for m in ("log_loss", "brier")]
            times = [f"{row[m]:.3f}" for m in ("fit_seconds", "predict_seconds")]
            lines.append([row["method"], *errors, accuracy, *times])
        head = ("method", "log loss", "Brier", "accuracy %", "fit s", "predict s")
        tables += [f"\n{name}\n", markdown_table(head, lines)]
    return "\n".join(tables)


def summary(rows: list[dict[str, Any]]) -> str:
    """Return one table of all sets: the log loss of every method."""
    sets = list(dict.fromkeys(row["set"] for row in rows))
    cells = {(row["method"], row["set"]): f"{row['log_loss']:.3f} ± {row['log_loss_se']:.3f}" for row in rows}
    methods = dict.fromkeys(row["method"] for row in rows)
    lines = [[method, *(cells.get((method, name), "") for name in sets)] for method in methods]
    return "\nlog loss\n\n" + markdown_table(("method", *sets), lines)


def main() -> None:
    """Measure, print the tables, and write JSON if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--sets", nargs="+", choices=[*LOADERS, "gaussians"], default=[*LOADERS, "gaussians"])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--read", type=Path, help="print the tables of a results file and measure nothing")
    options = parser.parse_args()
    if options.read:
        rows = json.loads(options.read.read_text())
    else:
        with threadpool_limits(1), warnings.catch_warnings():
            warnings.simplefilter("error")
            rows = compare(options.sets, options.splits)
    print(markdown(rows))
    print(summary(rows))
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
