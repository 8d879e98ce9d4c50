"""Normalisations of a peer's cosines against the same worked out score by score, and lists scored as the files say."""

from __future__ import annotations

import numpy as np
import pytest
from librosa.feature import melspectrogram

from benchmarks.peers import (
    RATE,
    Embedder,
    adaptive_s_norm,
    difference,
    figures,
    less_best_rival,
    lists_of,
    scored,
)


@pytest.fixture
def vectors() -> tuple[np.ndarray, np.ndarray]:
    """Unit vectors of 7 files and 5 models."""
    drawn = np.random.default_rng(0).normal(size=(12, 4))
    drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
    return drawn[:7], drawn[7:]


def test_each_score_less_the_best_of_the_others(vectors):
    files, models = vectors
    cosines = files @ models.T
    found = less_best_rival(cosines)
    for f in range(7):
        for k in range(5):
            assert found[f, k] == pytest.approx(cosines[f, k] - max(cosines[f, j] for j in range(5) if j != k))


@pytest.mark.parametrize("cohort", [2, 3, 20])
def test_adaptive_s_norm_is_that_of_its_definition(vectors, cohort):
    files, models = vectors
    found = adaptive_s_norm(files @ models.T, models, cohort)
    for f in range(7):
        for k in range(5):
            score = files[f] @ models[k]
            of_model = sorted((models[k] @ models[j] for j in range(5) if j != k), reverse=True)[:cohort]
            of_file = sorted((files[f] @ models[j] for j in range(5) if j != k), reverse=True)[:cohort]
            by = [(score - np.mean(of)) / np.std(of) for of in (of_model, of_file)]
            assert found[f, k] == pytest.approx(np.mean(by))


def mean_spectrum(samples: np.ndarray) -> np.ndarray:
    """An embedding that needs no training: mean log mel bands less their mean."""
    bands = np.log(melspectrogram(y=samples, sr=RATE) + 1e-6).mean(axis=1)
    return bands - bands.mean()


def test_lists_of_a_corpora_folder_are_scored_trial_by_trial(demo, tmp_path):
    corpus = tmp_path / "voices"
    speakers = sorted(path.name for path in (demo / "enroll").iterdir())[:4]
    for folder in ("enroll", "verify"):
        for name in speakers:
            (corpus / folder).mkdir(parents=True, exist_ok=True)
            (corpus / folder / name).symlink_to(demo / folder / name)
    heard = {name: sorted((corpus / "verify" / name).iterdir())[:2] for name in speakers}
    lines = [
        f"{claim} verify/{name}/{path.name} {'target' if claim == name else 'nontarget'}"
        for claim in speakers[:3]
        for name, paths in heard.items()
        for path in paths
    ]
    (corpus / "trials.txt").write_text("\n".join(line for line in lines if f"/{speakers[3]}/" not in line) + "\n")
    unseen = [line for line in lines if f"/{speakers[3]}/" in line]
    (corpus / "trials_unseen.txt").write_text("\n".join(unseen) + "\n")

    lists = {name: trials for _, name, trials in lists_of(tmp_path)}
    assert {name: len(trials) for name, trials in lists.items()} == {"trials": 18, "unseen": 6 + 6}
    embed = Embedder(mean_spectrum)
    systems = scored(corpus, lists["unseen"], embed)
    assert [*systems] == ["raw", "less its best rival", "adaptive s-norm", "raw + rival"]
    raw = systems["raw"]
    for k, trial in enumerate(lists["unseen"]):
        model = embed(*sorted((corpus / "enroll" / trial.speaker).rglob("*.*")))
        assert raw.scores[k] == pytest.approx(float(model @ embed(corpus / trial.path)), abs=1e-6)
        assert raw.is_target[k] == trial.target
    row = figures(systems["raw"])
    assert (row["n_target"], row["n_nontarget"], row["rule_of_30"]) == (6, 6, False)
    same = difference(raw, raw)
    assert (same["difference_percent"], same["ci95"], same["significant"]) == (0.0, [0.0, 0.0], False)
