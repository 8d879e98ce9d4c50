"""Speaker folders, Kaldi data directories and the YOHO tree."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile

from pipeline.audio.corpus import Utterance, audio_suffixes, read_corpus
from pipeline.audio.files import open_audio
from pipeline.errors import InputError

needs_links = pytest.mark.skipif(sys.platform == "win32", reason="links need a privilege on Windows")


def touch(*paths: Path) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"RIFF")


def names(corpus) -> dict[str, list[str]]:
    return {
        speaker: [utterance.path.relative_to(corpus.root).as_posix() for utterance in utterances]
        for speaker, utterances in corpus.speakers.items()
    }


# One folder per speaker


def test_one_folder_per_speaker(tmp_path):
    for name in ("bob/2.wav", "bob/10.WAV", "alice/day 2/a.flac", "alice/day 1/deep/er/b.Ogg", "Zoë/x.mp3"):
        touch(tmp_path / name)
    corpus = read_corpus(tmp_path)
    assert corpus.kind == "folders"
    assert corpus.root == tmp_path
    assert corpus.skipped == ()
    assert list(corpus.speakers) == ["Zoë", "alice", "bob"]
    assert names(corpus) == {
        "Zoë": ["Zoë/x.mp3"],
        "alice": ["alice/day 1/deep/er/b.Ogg", "alice/day 2/a.flac"],
        "bob": ["bob/10.WAV", "bob/2.wav"],
    }
    assert corpus.speakers["bob"][0] == Utterance("bob", tmp_path / "bob" / "10.WAV")
    assert read_corpus(str(tmp_path)) == corpus


@pytest.mark.parametrize("name", ["李雷", "a b", "..x", "O'Hara; rm -rf", "-rf", "%s{0}", "CON", "😀", "e\u0301"])
def test_a_speaker_may_have_any_name(tmp_path, name):
    if name.startswith(".") or sys.platform == "win32":
        name = f"x{name}"
    touch(tmp_path / name / "a.wav")
    assert list(read_corpus(tmp_path).speakers) == [name]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux allows such names")
def test_a_name_that_is_no_text_is_refused(tmp_path):
    touch(tmp_path / os.fsdecode(b"M\xfcller") / "a.wav")
    with pytest.raises(InputError, match="valid text"):
        read_corpus(tmp_path)


def test_what_is_not_audio_is_skipped_and_counted(tmp_path):
    touch(tmp_path / "a" / "1.wav", tmp_path / "a" / "notes.txt", tmp_path / "a" / "meta.JSON")
    touch(tmp_path / "a" / ".DS_Store", tmp_path / "a" / "._1.wav", tmp_path / "a" / ".git" / "x.wav")
    touch(tmp_path / "a" / "2.m4a", tmp_path / "README.md", tmp_path / "loose.wav", tmp_path / "b" / "x.txt")
    (tmp_path / "empty").mkdir()
    touch(tmp_path / ".cache" / "x.wav")
    corpus = read_corpus(tmp_path)
    assert names(corpus) == {"a": ["a/1.wav"]}
    reasons = {path.relative_to(tmp_path).as_posix(): reason for path, reason in corpus.skipped}
    assert set(reasons) == {
        "a/notes.txt",
        "a/meta.JSON",
        "a/.DS_Store",
        "a/._1.wav",
        "a/.git",
        "a/2.m4a",
        "README.md",
        "loose.wav",
        "b",
        "b/x.txt",
        "empty",
        ".cache",
    }
    assert reasons["a/.DS_Store"] == "hidden"
    assert "convert" in reasons["a/2.m4a"]
    assert "outside" in reasons["loose.wav"]
    assert [path for path, _ in corpus.skipped] == sorted(path for path, _ in corpus.skipped)


def test_every_format_of_libsndfile_counts():
    expected = {
        ".wav",
        ".flac",
        ".aiff",
        ".aif",
        ".aifc",
        ".au",
        ".caf",
        ".w64",
        ".rf64",
        ".sph",
        ".nist",
        ".oga",
    }
    assert expected <= audio_suffixes()
    assert not {".raw", ".txt", ".mat", ".htk", ".json", ".npy"} & audio_suffixes()
    assert all(f".{name.lower()}" in audio_suffixes() for name in {"OGG", "MP3"} & set(soundfile.available_formats()))


def test_roots_without_speakers(tmp_path):
    with pytest.raises(InputError, match=r"nope: a corpus must be a folder, got nothing"):
        read_corpus(tmp_path / "nope")
    with pytest.raises(InputError, match=r"one folder per speaker .*got none"):
        read_corpus(tmp_path)
    touch(tmp_path / "a.wav", tmp_path / "b.wav")
    with pytest.raises(InputError, match=r"one folder per speaker .*got 2 audio files and no such folder"):
        read_corpus(tmp_path)
    with pytest.raises(InputError, match="got a file"):
        read_corpus(tmp_path / "a.wav")


def test_a_root_without_audio_says_what_it_met(tmp_path):
    touch(tmp_path / "alice" / "a.m4a")
    with pytest.raises(InputError, match=r"skipped 2 entries: .*a\.m4a: .*convert"):
        read_corpus(tmp_path)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="needs a user whom permissions stop")
def test_a_folder_that_may_not_be_read(tmp_path):
    touch(tmp_path / "a" / "1.wav")
    (tmp_path / "a").chmod(0)
    try:
        with pytest.raises(InputError, match="cannot be read"):
            read_corpus(tmp_path)
    finally:
        (tmp_path / "a").chmod(0o700)


@needs_links
def test_links_never_loop_and_never_mix_speakers(tmp_path):
    root, outside = tmp_path / "root", tmp_path / "outside"
    touch(root / "a" / "1.wav", root / "b" / "2.wav", outside / "3.wav", outside / "deep" / "4.wav")
    (root / "a" / "self").symlink_to("self")
    (root / "a" / "up").symlink_to("..")
    (root / "a" / "higher").symlink_to(tmp_path)
    (root / "a" / "here").symlink_to(".")
    (root / "a" / "friend").symlink_to(root / "b")
    (root / "a" / "gone.wav").symlink_to("nowhere.wav")
    (root / "a" / "more").symlink_to(outside)
    (root / "a" / "more2").symlink_to(outside)
    (outside / "back").symlink_to(root)
    (outside / "deep" / "loop").symlink_to(outside)
    (root / "b" / "linked.wav").symlink_to(outside / "3.wav")
    (root / "everybody").symlink_to(".")
    corpus = read_corpus(root)
    assert names(corpus) == {
        "a": ["a/1.wav", "a/more/3.wav", "a/more/deep/4.wav"],
        "b": ["b/2.wav", "b/linked.wav"],
    }
    assert read_corpus(root) == corpus
    assert {path.name for path, _ in corpus.skipped} >= {
        "self",
        "up",
        "higher",
        "friend",
        "gone.wav",
        "everybody",
    }


@needs_links
def test_a_speaker_folder_may_be_a_link(tmp_path):
    touch(tmp_path / "store" / "17" / "1.wav")
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "alice").symlink_to(tmp_path / "store" / "17")
    assert names(read_corpus(tmp_path / "root")) == {"alice": ["alice/1.wav"]}


# YOHO


@pytest.mark.parametrize("enroll", ["ENROLL", "enroll", "Enroll"])
def test_the_yoho_tree(tmp_path, enroll):
    touch(tmp_path / enroll / "101" / "1" / "26_81_57.WAV", tmp_path / enroll / "101" / "2" / "35_72_46.WAV")
    touch(tmp_path / enroll / "102" / "1" / "21_83_75.WAV", tmp_path / "VERIFY" / "101" / "1" / "93_62_31.WAV")
    touch(tmp_path / "readme.doc", tmp_path / "doc" / "speakers.txt")
    corpus = read_corpus(tmp_path)
    assert corpus.kind == "yoho"
    assert corpus.root == tmp_path / enroll
    assert names(corpus) == {
        "101": ["101/1/26_81_57.WAV", "101/2/35_72_46.WAV"],
        "102": ["102/1/21_83_75.WAV"],
    }
    below = read_corpus(tmp_path / enroll)
    assert (below.kind, below.speakers) == ("folders", corpus.speakers)
    assert list(read_corpus(tmp_path / "VERIFY").speakers) == ["101"]


def test_a_speaker_may_be_called_enroll(tmp_path):
    touch(tmp_path / "Enroll" / "monday" / "1.wav", tmp_path / "alice" / "1.wav")
    assert list(read_corpus(tmp_path).speakers) == ["Enroll", "alice"]
    touch(tmp_path / "flat" / "enroll" / "1.wav")
    assert list(read_corpus(tmp_path / "flat").speakers) == ["enroll"]


# Kaldi


def kaldi(root: Path, *, scp: str | None, utt2spk: str | None, segments: str | None = None) -> Path:
    root.mkdir(exist_ok=True)
    for name, text in (("wav.scp", scp), ("utt2spk", utt2spk), ("segments", segments)):
        if text is not None:
            (root / name).write_text(text, encoding="utf-8", newline="")
    return root


@pytest.fixture
def audio(tmp_path):
    """Two recordings of a second at 8 kHz, outside the data directory, in a folder with a space."""
    folder = tmp_path / "some audio"
    folder.mkdir()
    for name in ("a.wav", "b.wav"):
        soundfile.write(folder / name, np.linspace(-0.5, 0.5, 8000), 8000)
    return folder


def test_a_kaldi_directory(tmp_path, audio):
    scp = f"u2 {audio / 'b.wav'}\r\nu1\t{audio / 'a.wav'} \n\nu3  {audio / 'a.wav'}\n"
    root = kaldi(tmp_path / "data", scp=scp, utt2spk="u1 zoë\nu2\tbob \nu3 bob")
    corpus = read_corpus(root)
    assert (corpus.kind, corpus.root, corpus.skipped) == ("kaldi", root, ())
    assert list(corpus.speakers) == ["bob", "zoë"]
    assert corpus.speakers["bob"] == (Utterance("bob", audio / "a.wav"), Utterance("bob", audio / "b.wav"))
    assert corpus.speakers["zoë"] == (Utterance("zoë", audio / "a.wav"),)


def test_kaldi_segments_select_samples(tmp_path, audio):
    root = kaldi(
        tmp_path / "data",
        scp=f"rec {audio / 'a.wav'}\nunused {audio / 'b.wav'}\n",
        utt2spk="u1 bob\nu2 bob\n",
        segments="u2 rec 0.5 -1\nu1 rec 0.125 0.25\n",
    )
    first, second = read_corpus(root).speakers["bob"]
    assert (first.start, first.end) == (0.125, 0.25)
    assert (second.start, second.end) == (0.5, None)
    with open_audio(first.path, start=first.start, end=first.end) as reader:
        assert sum(map(len, reader.blocks())) == 1000
    with open_audio(second.path, start=second.start, end=second.end) as reader:
        assert sum(map(len, reader.blocks())) == 4000


def test_kaldi_paths_are_found_from_here_then_from_the_directory(tmp_path, audio, monkeypatch):
    root = kaldi(tmp_path / "data", scp="u1 here.wav\nu2 there.wav\n", utt2spk="u1 bob\nu2 bob\n")
    touch(tmp_path / "here.wav", root / "here.wav", root / "there.wav")
    monkeypatch.chdir(tmp_path)
    assert [u.path for u in read_corpus(root).speakers["bob"]] == sorted([root / "there.wav", Path("here.wav")])


@pytest.mark.parametrize(
    ("scp", "utt2spk", "segments", "message"),
    [
        ("u1 sph2pipe -f wav a.sph |\n", "u1 bob\n", None, r"wav\.scp, line 1: .*commands are not executed"),
        ("u1 | cat\n", "u1 bob\n", None, r"wav\.scp, line 1: .*commands are not executed"),
        ("u1 nowhere.wav\n", "u1 bob\n", None, r"wav\.scp, line 1: no such file: 'nowhere\.wav'"),
        ("u1\n", "u1 bob\n", None, r"wav\.scp, line 1: a key and a value"),
        ("u1 A\nu2 A\n\nu1 B\n", "u1 bob\n", None, r"wav\.scp, line 4: 'u1' may be given once, .*line 1"),
        ("u1 A\nu2 B\n", "u1 bob\n", None, r"wav\.scp, line 2: .*in utt2spk, 'u2' is not"),
        ("u1 A\n", "u1 bob\nu2 bob\n", None, r"utt2spk, line 2: .*in wav\.scp, 'u2' is not"),
        ("u1 A\n", "u1 bob\nu1 bob\n", None, r"utt2spk, line 2: 'u1' may be given once"),
        ("u1 A\n", "u1 bob jones\n", None, r"utt2spk, line 1: .*'bob jones'"),
        ("u1 A\n", None, None, r"hold wav\.scp and utt2spk, got no utt2spk"),
        ("", "", None, r"wav\.scp: it must list at least one utterance, got none"),
        ("r A\n", "u bob\n", "u r 0.5\n", r"segments, line 1: 'utterance recording start end'"),
        ("r A\n", "u bob\n", "u r 0.5 x\n", r"segments, line 1: 'utterance recording start end'"),
        ("r A\n", "u bob\n", "u r 0.5 0.5\n", r"segments, line 1: 0 <= start < end .*got 0\.5 to 0\.5"),
        ("r A\n", "u bob\n", "u r nan 0.5\n", r"segments, line 1: 0 <= start < end"),
        ("r A\n", "u bob\n", "u r -2 -1\n", r"segments, line 1: 0 <= start < end"),
        ("r A\n", "u bob\n", "u q 0 1\n", r"segments, line 1: .*in wav\.scp, 'q' is not"),
        ("r A\n", "r bob\n", "u r 0 1\n", r"segments, line 1: .*in utt2spk, 'u' is not"),
        ("r A\n", "u bob\nv bob\n", "u r 0 1\n", r"utt2spk, line 2: .*in segments, 'v' is not"),
    ],
)
def test_kaldi_files_that_break_the_rules(tmp_path, audio, scp, utt2spk, segments, message):
    scp = scp.replace(" A\n", f" {audio / 'a.wav'}\n").replace(" B\n", f" {audio / 'b.wav'}\n")
    root = kaldi(tmp_path / "data", scp=scp, utt2spk=utt2spk, segments=segments)
    with pytest.raises(InputError, match=message):
        read_corpus(root)


def test_a_kaldi_file_in_another_encoding(tmp_path, audio):
    root = kaldi(tmp_path / "data", scp=f"u1 {audio / 'a.wav'}\n", utt2spk=None)
    (root / "utt2spk").write_bytes(b"\nu1 M\xfcller\n")
    with pytest.raises(InputError, match=r"utt2spk, line 2: UTF-8"):
        read_corpus(root)


def test_no_command_is_ever_run(tmp_path):
    mark = tmp_path / "mark"
    root = kaldi(tmp_path / "data", scp=f"u1 touch {mark} |\n", utt2spk="u1 bob\n")
    with pytest.raises(InputError):
        read_corpus(root)
    assert not mark.exists()
