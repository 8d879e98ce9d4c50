"""Lists that are damaged, names that look like paths, folders of bad files: read as data, or refused by name."""

from __future__ import annotations

import os
import shutil

import hostile
import numpy as np
import pytest
from hostile import CHANCE, SETTINGS, content_of, damaged, hostile_folder, soon
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.audio.corpus import read_corpus
from pipeline.enrollment.enroll import enroll
from pipeline.errors import InputError
from pipeline.evaluation import read_scores, read_trials

pytestmark = hostile.POSIX_ONLY
TRIALS = b"anna a.wav target\nanna b c.wav nontarget\n# so\n\xc3\x84nne a.wav target\n"
SCORES = (
    b"system speaker path score label llr\npoao anna a.wav -1.5 target 2.25\npoao bo b.wav 0 nontarget -1\n".replace(
        b" ", b"\t"
    )
)


@settings(SETTINGS, max_examples=60)
@given(st.sampled_from([(read_trials, TRIALS), (read_scores, SCORES)]), CHANCE)
def test_a_mutated_list_is_read_or_refused_by_name(tmp_path, reader, chance):
    read, sound = reader
    path = tmp_path / "list"
    path.write_bytes(damaged(chance, sound))
    try:
        content = read(path)
    except InputError as error:
        assert str(path) in str(error)
    else:
        assert content
        for scores in content.values() if isinstance(content, dict) else ():
            assert np.isfinite(scores.scores).all()


@pytest.mark.parametrize("text", ["1" * 10**6, "1e999999999", "0x10", "\N{ARABIC-INDIC DIGIT ONE}"])
def test_a_score_that_is_no_finite_number_is_refused(tmp_path, text):
    path = tmp_path / "scores.txt"
    path.write_text(f"system\tspeaker\tpath\tscore\tlabel\nx\tanna\ta.wav\t{text}\ttarget\n", encoding="utf-8")
    with soon(), pytest.raises(InputError, match=r"line 2: ") as caught:
        read_scores(path)
    assert len(str(caught.value)) < 1000


def test_names_in_kaldi_lists_are_data(tmp_path):
    (tmp_path / "a.wav").write_bytes(hostile.wav())
    names = ["../x", "/etc/passwd", "a\0b", "n" * 300, "a\x0bb", "..", "a\x1b[2Jb", "\u202egnp", "Anna", "anna", "🧑‍🚀"]
    (tmp_path / "wav.scp").write_text("".join(f"u{n} a.wav\n" for n in range(len(names))))
    (tmp_path / "utt2spk").write_bytes("".join(f"u{n} {name}\n" for n, name in enumerate(names)).encode())
    before = content_of(tmp_path)
    corpus = read_corpus(tmp_path)
    assert set(corpus.speakers) == set(names)
    assert {utterance.path for utterances in corpus.speakers.values() for utterance in utterances} == {
        tmp_path / "a.wav"
    }
    assert content_of(tmp_path) == before


@pytest.mark.parametrize(
    "target", ["/dev/zero", "pipe", "n" * 5000, "a\0b", "missing.wav", "cat /etc/passwd | sh |", "."]
)
def test_a_kaldi_list_that_names_no_file_is_refused_with_its_line(tmp_path, target):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "wav.scp").write_text(f"u {target}\n")
    (tmp_path / "utt2spk").write_text("u anna\n")
    with soon(), pytest.raises(InputError, match=r"wav\.scp, line 1: "):
        read_corpus(tmp_path)


def test_the_good_files_of_a_bad_folder_are_enrolled_and_the_others_reported(copied, recordings, tmp_path):
    files = hostile_folder(tmp_path / "corpus" / "hugo")
    for utterance in recordings["hugo"]:
        shutil.copy(utterance.path, tmp_path / "corpus" / "hugo")
    corpus = read_corpus(tmp_path / "corpus")
    report = enroll(copied, corpus.speakers)
    assert report.model.names[-1] == "hugo"
    skipped = {path.name for path, _ in report.skipped} | {path.name for path, _ in corpus.skipped}
    assert skipped == {path.name for path in files} | {"pipe.wav", "loop.wav", "round"}
    assert report.enrolled[0].utterances == len(recordings["hugo"])
