"""Lists of pairs of recordings, as VoxCeleb's: scored as the comparison of two recordings scores them."""

from __future__ import annotations

import json
import re
from collections import Counter
from itertools import combinations_with_replacement

import numpy as np
import pytest
import soundfile

from pipeline.errors import InputError, MetricError
from pipeline.evaluation import Trial, read_scores
from pipeline.evaluation.pairs import SYSTEM, assess_pairs
from pipeline.store.rows import Rows
from pipeline.verification.voice_comparison import compare_voices


@pytest.fixture(scope="module")
def wav(tmp_path_factory, demo):
    """A folder with two recordings each of three people who are not in the session's store."""
    root = tmp_path_factory.mktemp("wav")
    for voice in ("clara", "hugo", "marta"):
        (root / voice).mkdir()
        files = sorted((demo / "verify" / voice).glob("*.flac"))
        for part in range(2):
            samples = np.concatenate([soundfile.read(file)[0] for file in files[part::2]])
            soundfile.write(root / voice / f"{part}.wav", samples, 8000)
    return root


@pytest.fixture(scope="module")
def pairs(wav) -> list[tuple[bool, str, str]]:
    """Every pair of the first recording of one voice and the second of one, voices in order."""
    voices = combinations_with_replacement(("clara", "hugo", "marta"), 2)
    return [(a == b, f"{a}/0.wav", f"{b}/1.wav") for a, b in voices]


def test_a_list_of_pairs_gives_the_ratios_of_comparing_two_recordings_and_a_normal_evaluation(
    inside, store, opened, wav, pairs, tmp_path
):
    before = store.read_bytes()
    (tmp_path / "veri_test.txt").write_text("".join(f"{int(same)} {a} {b}\n" for same, a, b in pairs))
    result = inside("evaluate", store, "veri_test.txt", "--pairs", "--root", wav, "--out", "out", "--json")
    assert result.code == 0
    (scores,) = read_scores(tmp_path / "out" / "scores.txt").values()
    assert [*zip(scores.is_target.tolist(), scores.speakers, scores.paths, strict=True)] == pairs
    np.testing.assert_array_equal(scores.llrs, scores.scores)
    for at in (0, 1):
        _, first, second = pairs[at]
        assert scores.llrs[at] == pytest.approx(compare_voices(opened, wav / first, wav / second).llr, abs=1e-6)
    entry = json.loads(result.out)["systems"][SYSTEM]
    assert (entry["n_target"], entry["n_nontarget"], entry["eer_percent"]) == (3, 3, 0.0)
    assert entry["store_threshold"] == opened.operating_point.threshold
    assert entry["false_reject_percent"] == 100 * np.mean(scores.target < entry["store_threshold"])
    assert {path.name for path in (tmp_path / "out").iterdir()} >= {"det.png", "reliability.png", "report.html"}
    assert store.read_bytes() == before


def test_more_pairs_read_no_more_of_the_background(store, wav, monkeypatch):
    read, pairs = Rows.read_array, [Trial(f"{name}/0.wav", f"{name}/1.wav", True) for name in ("clara", "hugo")]
    names: list[tuple[int | None, str]] = []

    def noted(rows, owner, name, *entry):
        names.append((owner, name))
        return read(rows, owner, name, *entry)

    monkeypatch.setattr(Rows, "read_array", noted)
    assert assess_pairs(store, pairs[:1], wav).failed_trials == 0
    of_one = Counter(names)
    names.clear()
    assert assess_pairs(store, pairs, wav).failed_trials == 0
    assert of_one and Counter(names) == of_one


def test_pairs_of_recordings_that_cannot_be_read_have_no_score_and_are_named(opened, wav, silence, garbage):
    pairs = [
        Trial("clara/0.wav", "clara/1.wav", True), Trial("clara/0.wav", str(silence), False),
        Trial(str(garbage), "clara/1.wav", False), Trial(str(garbage), str(silence), True),
    ]  # fmt: skip
    found = assess_pairs(opened, pairs, wav)
    assert [*found.scores[SYSTEM].paths] == ["clara/1.wav"]
    assert found.scores[SYSTEM].scores[0] > 0
    assert {one.path: one.trials for one in found.failed} == {str(silence): 1, str(garbage): 2}
    assert (found.unscored.target, found.unscored.nontarget) == (1, 2)
    none = assess_pairs(opened, pairs[1:], wav)
    assert (none.scores[SYSTEM].scores.size, none.failed_trials) == (0, 3)
    with pytest.raises(MetricError, match="too few speakers"):
        assess_pairs(opened.view_without("anna", "dexter", "ivan", "lars"), pairs, wav)


def test_pairs_of_utterances_of_a_kaldi_data_directory(opened, wav, tmp_path):
    speech = [soundfile.read(wav / name)[0] for name in ("clara/0.wav", "clara/1.wav")]
    soundfile.write(tmp_path / "call.wav", np.concatenate(speech), 8000)
    at = len(speech[0]) / 8000
    (tmp_path / "wav.scp").write_text("call call.wav\n")
    (tmp_path / "segments").write_text(f"u1 call 0 {at:.6f}\nu2 call {at:.6f} -1\n")
    cut = assess_pairs(opened, [Trial("u1", "u2", True)], tmp_path).scores[SYSTEM].scores
    whole = assess_pairs(opened, [Trial("clara/0.wav", "clara/1.wav", True)], wav).scores[SYSTEM].scores
    np.testing.assert_allclose(cut, whole, atol=1e-6)


def test_a_recording_is_not_compared_with_itself_by_whatever_name(opened, wav, tmp_path):
    (tmp_path / "a.wav").hardlink_to(wav / "clara" / "0.wav")
    (tmp_path / "b.wav").symlink_to("a.wav")
    for first, second in combinations_with_replacement(("a.wav", "b.wav", str(wav / "clara" / "0.wav")), 2):
        compared = tmp_path / first, tmp_path / second
        twice = "{} and {}: two recordings were expected, got the same file twice".format(*compared)
        with pytest.raises(InputError, match=f"^{re.escape(twice)}$"):
            assess_pairs(opened, [Trial(first, second, True)], tmp_path)
        with pytest.raises(InputError, match=f"^{re.escape(twice)}$"):
            compare_voices(opened, *compared)


def test_what_pairs_cannot_be_combined_with_is_said_and_so_is_the_option(inside, store, wav, tmp_path, pairs):
    (tmp_path / "t.txt").write_text("".join(f"{int(same)} {a} {b}\n" for same, a, b in pairs))
    for words in (("--systems", "poao"), ("--not-enrolled", "x"), ("--scheduler", "tcp://x:1")):
        refused = inside("evaluate", store, "t.txt", "--pairs", "--out", "out", *words)
        assert (refused.code, f"{words[0]} cannot be combined with --pairs" in refused.err) == (2, True)
    folder = inside("evaluate", store, wav, "--pairs", "--out", "out")
    assert (folder.code, "--pairs is for a list of pairs" in folder.err) == (2, True)
    assert "scored with --pairs" in inside("evaluate", store, "t.txt", "--root", wav, "--out", "out").err
