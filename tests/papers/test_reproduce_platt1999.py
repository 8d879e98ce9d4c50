"""Platt 1999 again: small tables of the same form, each method against scikit-learn; the real ones where they are."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from scipy.special import expit
from sklearn.datasets import dump_svmlight_file
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.svm import SVC

from benchmarks.papers.outcome import Outcome, Row
from benchmarks.papers.platt1999 import reproduce
from benchmarks.papers.platt1999_machines import SHARES, judge
from benchmarks.papers.platt1999_plots import BIN, plot_margins
from benchmarks.papers.platt1999_tasks import (
    TASKS,
    Problem,
    errors_in,
    losses_in,
    telling_words,
)
from benchmarks.papers.tables import TableSource, read_adult
from benchmarks.reuters_readings import READINGS, errors_of
from pipeline.posteriors.newton import NewtonSigmoid

WORDS = ("ore", "tin", "copper", "wheat", "maize", "barley", "bank", "rates", "shares", "bid")


def census(rows: int, seed: int):
    """Rows of 14 of 123 flags, as Adult's, whose odds depend on a few of them and on a pair."""
    rng = np.random.default_rng(seed)
    X = np.zeros((rows, 123))
    # A flag from each of 14 groups, like the quantised columns of a census.
    for group in range(14):
        X[np.arange(rows), 8 * group + rng.integers(0, 8, rows)] = 1.0
    odds = X[:, :8] @ np.linspace(-3, 2, 8) + 2 * X[:, 9] * X[:, 17] + X[:, 30] - 0.8
    return X, np.where(rng.random(rows) < expit(odds), 1, -1)


def libsvm(X, y) -> bytes:
    written = io.BytesIO()
    dump_svmlight_file(X, y, written, zero_based=False)
    return written.getvalue()


def story(number: int, part: str, topics: list[str], text: str) -> str:
    listed = "".join(f"<D>{topic}</D>" for topic in topics)
    return (
        f'<REUTERS TOPICS="YES" LEWISSPLIT="{part}" NEWID="{number}"><TOPICS>{listed}</TOPICS>'
        f"<TEXT><TITLE>STORY</TITLE><BODY>{text}</BODY></TEXT></REUTERS>\n"
    )


def newswire() -> bytes:
    """An archive of stories: metal and grain have words of their own; gold has one training document, zinc none."""
    rng = np.random.default_rng(5)
    stories = []
    for number in range(1, 151):
        part = "TRAIN" if number <= 100 else "TEST"
        topics = [topic for topic, chance in (("metal", 0.4), ("grain", 0.3)) if rng.random() < chance]
        words = [
            word
            for k, word in enumerate(WORDS[:6])
            if rng.random() < (0.7 if ("metal", "grain")[k // 3] in topics else 0.05)
        ]
        words += list(rng.choice(WORDS[6:], 2))
        topics += {7: ["gold"], 120: ["gold"], 130: ["zinc"]}.get(number, [])
        stories.append(story(number, part, topics, " ".join(words)))
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:xz") as tar:
        for number in range(22):
            content = "".join(stories).encode() if number == 0 else b"<!DOCTYPE lewis>\n"
            member = tarfile.TarInfo(f"reut2-{number:03d}.sgm")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return packed.getvalue()


@pytest.fixture(scope="module")
def tables(tmp_path_factory) -> TableSource:
    folder = tmp_path_factory.mktemp("tables")
    (folder / "a1a").write_bytes(libsvm(*census(150, 1)))
    (folder / "a9a").write_bytes(libsvm(*census(200, 3)))
    (folder / "a9a.t").write_bytes(libsvm(*census(400, 2)))
    (folder / "reuters21578.tar.xz").write_bytes(newswire())
    for name, rows, seed in (("w7a", 200, 6), ("w7a.t", 300, 7), ("w8a.t", 100, 8)):
        X, y = census(rows, seed)
        (folder / name).write_bytes(libsvm(np.hstack([X, np.zeros((rows, 177))]), y))
    return TableSource(folder, any_version=True)


@pytest.fixture(scope="module")
def outcome(tables) -> Outcome:
    return reproduce(tables, tasks=["adult_linear", "adult_quadratic", "reuters_linear", "web_linear"], jobs=2)


def row(outcome: Outcome, name: str, note: str = "") -> Row:
    (result,) = (row for row in outcome.rows if row.name == name and note in row.note)
    return result


# The tasks


@pytest.mark.parametrize(("name", "divisor"), [("adult_quadratic", 14), ("web_quadratic", 12)])
def test_quadratic_kernels_divide_the_product_and_the_one(name, divisor):
    X, y = census(60, 4)
    by_hand = ((X @ X.T + 1) / divisor) ** 2
    machine, likelihood = TASKS[name].machine(), TASKS[name].likelihood(0.5)
    expected = SVC(C=machine.C, kernel="precomputed").fit(by_hand, y).decision_function(by_hand)
    assert machine.fit(X, y).decision_function(X) == pytest.approx(expected, abs=1e-3)
    assert (likelihood.C, likelihood.gamma, likelihood.coef0) == (machine.C / 2, 1 / divisor, 1 / divisor)


def test_words_are_chosen_by_mutual_information():
    rng = np.random.default_rng(2)
    X = (rng.random((80, 30)) < rng.random(30)).astype(float)
    X[:, 4] = X[:, 9]
    positive = rng.random(80) < 0.2 + 0.6 * X[:, 3]

    def information(x):
        # Two flags that are independent have the entropy of both together; the rest is what one says of the other.
        counts = np.array([[(x == a) @ (positive == b) for a in (0, 1)] for b in (False, True)]) / 80
        expected = counts.sum(0) * counts.sum(1)[:, None]
        return sum(p * np.log(p / q) for p, q in zip(counts.ravel(), expected.ravel(), strict=True) if p > 0)

    said = np.array([information(x) for x in X.T])
    for count in (1, 5, 30):
        chosen = telling_words(sparse.csr_matrix(X), positive, count)
        assert (np.diff(chosen) > 0).all()
        assert said[chosen].sum() == pytest.approx(np.sort(said)[::-1][:count].sum())
    assert telling_words(sparse.csr_matrix(X[:, [4, 9]]), positive, 1).tolist() == [0]


def test_readings_of_stories_change_their_words(tables, outcome):
    assert (
        errors_of(tables, READINGS["as in the table above"]) == row(outcome, "Reuters linear: errors, raw machine").here
    )
    stop, stemmed = READINGS["without 318 stop words"].words, READINGS["Porter's stems"].words
    assert list(stop("The BANK of 3 rates")) == ["bank", "rates"]
    pytest.importorskip("snowballstemmer")
    assert list(stemmed("Relational conflated")) == ["relat", "conflat"]  # the examples of Porter 1980
    apart = READINGS["words of the title apart"].words
    assert list(apart("Gold rises\nGold rose")) == ["title gold", "title rises", "gold", "rose"]


# What comes out


def test_raw_errors_and_the_sigmoid_are_those_of_scikit_learn(tables, outcome):
    train, test = (read_adult(tables, name) for name in ("a1a", "a9a.t"))
    X, new = train.X.toarray(), test.X.toarray()
    machine = SVC(C=0.3, kernel="poly", degree=2, gamma=1 / 14, coef0=1 / 14).fit(X, train.y)
    assert row(outcome, "Adult quadratic: errors, raw machine").here == (machine.predict(new) != test.y).sum()
    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    margins = cross_val_predict(SVC(**machine.get_params()), X, train.y, cv=folds, method="decision_function")
    p = NewtonSigmoid().fit(margins, train.y).probability(machine.decision_function(new))
    assert row(outcome, "Adult quadratic: errors, machine and sigmoid").here == ((p > 0.5) != (test.y == 1)).sum()
    result = row(outcome, "Adult quadratic: -log p, machine and sigmoid").here
    assert result == pytest.approx(log_loss(test.y, p, normalize=False), abs=0.06)


def test_the_papers_numbers_stand_beside_ours(outcome):
    for title, paper in {
        "Adult linear": (2441, 2442, 2434, 5323, 5288),
        "Adult quadratic": (2626, 2554, 2610, 5772, 5827),
        "Reuters linear": (1043, 963, 1060, 3249, 3301),
        "Web linear, w7a.t": (260, 265, 248, 1121, 958),
        "Web linear, w8a.t": (260, 265, 248, 1121, 958),
    }.items():
        result = [
            row(outcome, f"{title}: {name}", "the machine's" if "likelihood" in name else "").paper
            for name in (
                "errors, raw machine",
                "errors, machine and sigmoid",
                "errors, regularised likelihood",
                "-log p, machine and sigmoid",
                "-log p, regularised likelihood",
            )
        ]
        assert tuple(result) == paper
    assert "of the examples" in row(outcome, "Web linear, w8a.t: errors, raw machine").note


def test_a_category_of_one_training_document_and_one_of_none_count_too(tables):
    result = [judge(TASKS["reuters_linear"], problem) for problem in TASKS["reuters_linear"].problems(tables)]
    gold, grain, metal, zinc = result
    assert {len(one.truth[0]) for one in result} == {50}
    # No training document: 100 negatives, so 1 / 102, and margin -1.
    assert zinc.log_odds[0]["raw"] == pytest.approx(-1.0)
    assert expit(zinc.log_odds[0]["newton"]) == pytest.approx(1 / 102)
    assert zinc.log_odds[0]["1.0"] == pytest.approx(zinc.log_odds[0]["newton"])
    # One: nothing to cross-validate, so one posterior for all, between the smoothed targets 1 / 101 and 2 / 3.
    assert gold.margins.size == 0
    assert expit(gold.log_odds[0]["newton"]) == pytest.approx((2 / 3 + 99 / 101) / 100)
    for judged in (grain, metal):
        assert errors_in(judged.log_odds[0]["newton"], judged.truth[0]).mean() < 0.25
        assert set(judged.log_odds[0]) == set(zinc.log_odds[0])


def test_the_likelihood_machine_answers_in_log_odds_for_every_share_of_c():
    X, y = census(120, 1)
    rows = (sparse.csr_matrix(X), y == 1)
    task = TASKS["adult_quadratic"]
    judged = judge(task, Problem(rows, (rows, rows)))
    for share in SHARES:
        expected = task.likelihood(share).fit(*rows).decision_function(X)
        assert judged.log_odds[1][str(share)] == pytest.approx(expected)
    assert len(set(judged.held_out.values())) == len(SHARES)
    # On its own training rows, less penalty is always better.
    losses = [losses_in(judged.log_odds[0][str(share)], rows[1]).sum() for share in SHARES]
    assert (np.diff(losses) < 0).all()


def test_progress_is_told_and_threads_change_nothing(tables, outcome):
    stages = []
    again = reproduce(tables, tasks=["adult_quadratic"], progress=lambda *said: stages.append(said))
    assert stages == [("machines", 1, 1)]
    assert again.rows == tuple(row for row in outcome.rows if row.name.startswith("Adult quadratic"))
    assert not again.figures


# The figure


def test_the_figure_shows_densities_and_shares_bin_by_bin():
    rng = np.random.default_rng(3)
    positive = rng.random(4000) < 0.3
    f = np.where(positive, 1.0, -1.0) + rng.normal(size=4000)
    sigmoid = NewtonSigmoid().fit(f, positive)
    densities, posterior = plot_margins(f, positive, sigmoid).axes
    for patch, chosen in zip(densities.patches, (positive, ~positive), strict=True):
        values, edges, _ = patch.get_data()
        assert np.diff(edges) == pytest.approx(BIN)
        inside = (f[chosen] >= edges[0]) & (f[chosen] <= edges[-1])
        assert values.sum() * BIN == pytest.approx(inside.mean())
    crosses, line = posterior.get_lines()
    k = int(np.argmin(np.abs(crosses.get_xdata() - 0.05)))
    near = (f >= 0.0) & (f < 0.1)
    assert crosses.get_ydata()[k] == pytest.approx(positive[near].mean())
    assert line.get_ydata() == pytest.approx(sigmoid.probability(line.get_xdata()))


# The paper's own data, where there are


@pytest.mark.slow
@pytest.mark.skipif("VOICECLAIM_TABLES" not in os.environ, reason="VOICECLAIM_TABLES names no folder of data files")
@pytest.mark.parametrize(("task", "within"), [("adult_linear", 0.01), ("adult_quadratic", 0.03)])
def test_adult_comes_out_as_in_the_paper(task, within):
    outcome = reproduce(TableSource(Path(os.environ["VOICECLAIM_TABLES"])), tasks=[task])
    compared = [row for row in outcome.rows if isinstance(row.paper, int) and "by hold-out" not in row.note]
    assert len(compared) == 5
    for one in compared:
        assert one.here == pytest.approx(one.paper, rel=within), one.name
