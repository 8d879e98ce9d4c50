"""Public corpora as trees of small made files: what is enrolled, joined and claimed, and archives by checksum."""

from __future__ import annotations

import hashlib
import tarfile

import numpy as np
import pytest
import soundfile
from file_server import served_folder

import pipeline
from benchmarks.untouched import Archive, lay_out, librispeech, speech_commands
from pipeline.errors import InputError

RATE = 16000


def write(path, seconds: float, value: int) -> None:
    """A file whose samples all have one value, to be found again in what is made of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, np.full(round(seconds * RATE), value, dtype=np.int16), RATE)


@pytest.fixture
def libri(tmp_path):
    """Five speakers of two chapters, and one with a single chapter."""
    home = tmp_path / "LibriSpeech" / "test-clean"
    for speaker in range(100, 106):
        for chapter in (1, 2) if speaker != 103 else (1,):
            for k in range(6):
                write(home / f"{speaker}" / f"{chapter}" / f"{speaker}-{chapter}-{k:04d}.flac", 8, 10 * chapter + k)
    return tmp_path


def values(path) -> list[int]:
    return sorted(set(soundfile.read(path, dtype="int16")[0].tolist()))


def test_librispeech_is_enrolled_from_one_chapter_and_verified_by_others(libri, tmp_path):
    speakers = librispeech(libri, "test")
    assert list(speakers) == ["100", "101", "102", "104", "105"]  # 103 read one chapter only
    corpus = tmp_path / "corpus"
    lay_out(speakers, corpus)
    enrolled = pipeline.read_corpus(corpus / "enroll").speakers
    assert list(enrolled) == ["100", "101", "102", "104"]  # a quarter of five is one
    assert [values(clip.path) for clip in enrolled["100"]] == [[10], [11], [12], [13]]  # 32 s are 30 or more
    trials, unknown = (pipeline.read_trials(corpus / name) for name in ("trials.txt", "open.txt"))
    own = [trial for trial in trials if trial.target]
    assert len(own) == 4 * 6 and own == [trial for trial in unknown if trial.target]
    for trial in (*trials, *unknown):
        speaker = trial.path.split("/")[1]
        assert trial.target == (speaker == trial.speaker)
        assert trial.speaker in enrolled
        assert values(corpus / trial.path)[0] >= 20  # of the second chapter
    assert {trial.path.split("/")[1] for trial in trials} == set(enrolled)
    assert {trial.path.split("/")[1] for trial in unknown if not trial.target} == {"105"}
    assert len(trials) - len(own) == 24 * 3 and len(unknown) - len(own) == 6 * 4


def test_speech_commands_are_joined_to_phrases_of_three_words_that_nobody_enrolled(tmp_path):
    root, lines = tmp_path / "speech_commands", []
    for s, speaker in enumerate(("0a1b", "0c2d", "0e3f", "0a9c")):
        for k in range(45 if speaker != "0a9c" else 12):
            path = f"{('yes', 'no', 'up')[k % 3]}/{speaker}_nohash_{k}.wav"
            write(root / path, 0.2, 100 * s + k + 1)
            lines.append(path)
    (root / "testing_list.txt").write_text("\n".join(lines) + "\n")
    (root / "validation_list.txt").write_text("\n")
    speakers = speech_commands(root, "test")
    assert list(speakers) == ["0a1b", "0c2d", "0e3f"]  # twelve clips are too few
    assert speech_commands(root, "dev") == {}
    corpus = tmp_path / "corpus"
    lay_out(speakers, corpus)
    enrolled = pipeline.read_corpus(corpus / "enroll").speakers
    clips = [values(clip.path)[0] for clip in enrolled["0a1b"]]
    phrases = [values(path) for path in sorted((corpus / "verify" / "0a1b").iterdir())]
    assert (len(clips), len(phrases)) == (30, 5)
    assert sorted([*clips, *(value for phrase in phrases for value in phrase)]) == list(range(1, 46))
    assert all(len(phrase) == 3 for phrase in phrases)
    with pytest.raises(InputError, match="three speakers"):
        lay_out({"0a1b": speakers["0a1b"]}, tmp_path / "few")


def test_an_archive_is_fetched_once_by_its_checksum_and_unpacked(libri, tmp_path):
    (tmp_path / "public").mkdir()
    packed = tmp_path / "public" / "test-clean.tar.gz"
    with tarfile.open(packed, "w:gz") as archive:
        archive.add(libri / "LibriSpeech", "LibriSpeech")
    digest = hashlib.sha256(packed.read_bytes()).hexdigest()
    with served_folder(packed.parent) as address:
        known = Archive(f"{address}/test-clean.tar.gz", digest)
        root = known.unpacked(tmp_path / "cache")
        assert librispeech(root, "test").keys() == librispeech(libri, "test").keys()
        with pytest.raises(InputError, match="not the file that was expected"):
            Archive(f"{address}/test-clean.tar.gz", "0" * 64).unpacked(tmp_path / "other")
        with pytest.raises(InputError, match="cannot be fetched"):
            Archive(f"{address}/missing.tar.gz", digest).unpacked(tmp_path / "other")
    assert known.unpacked(tmp_path / "cache") == root  # without the server
