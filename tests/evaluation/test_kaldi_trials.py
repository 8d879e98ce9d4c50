"""Trials that name the utterances of a Kaldi data directory, and enrollment from one."""

from __future__ import annotations

import numpy as np
import pytest
import soundfile

from pipeline.audio.corpus import read_corpus
from pipeline.enrollment.enroll import enroll
from pipeline.evaluation import read_scores, read_trials
from pipeline.evaluation.assess import assess
from pipeline.evaluation.calibrate import calibrate
from pipeline.verification.verifier import Verifier

SYSTEMS = ("--systems", "poao")


@pytest.fixture
def data(tmp_path, heard, voices):
    """A data directory: one recording of three voices in a row, cut by segments, with a list of trials in it."""
    root = tmp_path / "data" / "test"
    root.mkdir(parents=True)
    parts = {f"{voice}-u{n}": soundfile.read(heard(voice, n)) for voice in (*voices, "marta") for n in range(3)}
    ends = np.cumsum([len(samples) for samples, _ in parts.values()]) / 8000
    soundfile.write(root / "all.flac", np.concatenate([samples for samples, _ in parts.values()]), 8000)
    starts = [0.0, *ends[:-1]]
    (root / "wav.scp").write_text(f"all flac -c -d -s {root / 'all.flac'} |\n")
    lines = (f"{name} all {start:.6f} {end:.6f}\n" for name, start, end in zip(parts, starts, ends, strict=True))
    (root / "segments").write_text("".join(lines))
    own = {name: name.partition("-")[0] for name in parts}
    (root / "utt2spk").write_text("".join(f"{name} {speaker}\n" for name, speaker in own.items()))
    claims = [(claim, name, "target" if claim == own[name] else "nontarget") for name in parts for claim in voices]
    (root / "trials").write_text("".join(f"{claim} {name} {label}\n" for claim, name, label in claims))
    return root


def test_utterances_of_a_data_directory_score_as_files_of_the_same_samples(inside, store, opened, data, heard):
    assert inside("evaluate", store, data / "trials", "--out", "out", *SYSTEMS).code == 0
    scores = read_scores(data.parent.parent / "out" / "scores.txt")["poao"]
    assert len(scores.paths.used) == 15
    for row in (0, 5, 37):
        claim, name = list(scores.speakers)[row], list(scores.paths)[row]
        voice, _, number = name.partition("-u")
        alone = Verifier(opened, claim, system="poao").verify_file(heard(voice, int(number)))
        assert scores.scores[row] == pytest.approx(alone.score, abs=1e-9)


def test_the_data_directory_may_be_elsewhere_and_lists_of_either_format(inside, store, data, tmp_path):
    lines = [line.split() for line in (data / "trials").read_text().splitlines()]
    (tmp_path / "list.txt").write_text(
        "".join(f"{int(own == 'target')} {claim} {name}\n" for claim, name, own in lines)
    )
    assert inside("evaluate", store, "list.txt", "--root", data, "--out", "here", *SYSTEMS).code == 0
    assert inside("evaluate", store, data / "trials", "--out", "there", *SYSTEMS).code == 0
    assert (tmp_path / "here" / "scores.txt").read_bytes() == (tmp_path / "there" / "scores.txt").read_bytes()
    (data / "trials").write_text("anna nobody-u1 target\nivan nobody-u1 nontarget\n")
    missing = inside("evaluate", store, data / "trials", "--out", "none")
    assert (missing.code, (tmp_path / "none").exists()) == (2, False)
    assert "or the Kaldi data directory of these utterances" in missing.err


def test_calibration_reads_the_utterances_of_a_data_directory(copied, data):
    report = calibrate(copied, read_trials(data / "trials"), data)
    assert (report.target_trials, report.nontarget_trials, report.unknown_trials) == (12, 48, 12)
    assert report.failed == ()


def test_a_data_directory_is_enrolled_and_its_paths_may_begin_at_the_current_folder(
    data, heard, tmp_path, monkeypatch, tiny, voices
):
    monkeypatch.chdir(tmp_path)
    (data / "wav.scp").write_text("all data/test/all.flac\n")
    files = {voice: [heard(voice, n) for n in range(3)] for voice in (*voices, "marta")}
    enroll("cut.store", read_corpus(data), tiny)
    enroll("files.store", files, tiny)
    trials = read_trials(data / "trials")
    cut, whole = (assess(name, trials, data, systems=["poao"]) for name in ("cut.store", "files.store"))
    assert cut.failed == ()
    np.testing.assert_allclose(cut.scores["poao"].scores, whole.scores["poao"].scores, atol=1e-9)


def test_a_folder_of_speakers_is_evaluated_whatever_list_lies_in_the_current_folder(inside, store, demo, tmp_path):
    (tmp_path / "wav.scp").write_text("u sox x.wav -t wav - |\n")
    assert inside("evaluate", store, demo / "verify", "--out", "out", *SYSTEMS).code == 0
