"""Speaker folders, the YOHO tree, Kaldi data directories and folders with RTTM files."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from permissions import as_another_user, open_folder

from pipeline.audio.corpus import Utterance, as_corpus, background_voices, read_corpus
from pipeline.audio.files import read_samples
from pipeline.audio.folders import audio_suffixes
from pipeline.audio.rttm import read_rttm
from pipeline.errors import AudioError, InputError
from pipeline.resources import demo_folder

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


@pytest.mark.parametrize(
    ("files", "speaker", "pattern"),
    [
        pytest.param("wav48/p{0}/p{0}_001.wav", "wav48", None, id="VCTK"),
        pytest.param("{1}/wav/SSB{0}/a.wav", "test", "[^/]+/[^/]+/([^/]+)/", id="AISHELL-3"),
        pytest.param("DR{1}/FCJF{0}/SA1.WAV", "DRtest", "[^/]+/([^/]+)/", id="TIMIT"),
    ],
)
def test_folders_that_may_be_the_speakers_are_warned_of(tmp_path, files, speaker, pattern):
    touch(*(tmp_path / files.format(number, part) for number in (1, 2, 3) for part in ("test", "train")))
    remedy = str(tmp_path / "wav48") if pattern is None else f"--speaker-pattern '{pattern}'"
    with pytest.warns(UserWarning, match=rf"^3 folders \(.*1, .*\) count as .* '{speaker}';.*{re.escape(remedy)}"):
        read_corpus(tmp_path)
    found = read_corpus(tmp_path / "wav48") if pattern is None else read_corpus(tmp_path, speaker_pattern=pattern)
    assert len(found.speakers) == 3


@pytest.mark.parametrize("files", ["id{0}/{1}/00001.wav", "{0}/128104/{0}-128104-0000.flac"])
def test_folders_of_one_speakers_recordings_are_not_warned_of(tmp_path, files):
    """As in VoxCeleb and LibriSpeech; a warning would be an error here."""
    touch(*(tmp_path / files.format(number, part) for number in (1, 2, 3) for part in ("x", "y")))
    assert len(read_corpus(tmp_path).speakers) == 3


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux allows such names")
def test_a_name_that_is_no_text_is_refused(tmp_path):
    touch(tmp_path / os.fsdecode(b"M\xfcller") / "a.wav")
    with pytest.raises(InputError, match="valid text"):
        read_corpus(tmp_path)


def test_what_is_not_audio_is_skipped_and_counted(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")  # no ffmpeg
    touch(tmp_path / "a" / "1.wav")
    hidden = ["a/.DS_Store", "a/._1.wav", "a/.git", ".cache"]
    touch(*(tmp_path / name for name in hidden[:2]), tmp_path / "a/.git/x.wav", tmp_path / ".cache/x.wav")
    others = ["a/notes.txt", "a/meta.JSON", "README.md", "b/x.txt"]
    touch(*(tmp_path / name for name in others), tmp_path / "a/2.m4a", tmp_path / "loose.wav")
    (tmp_path / "empty").mkdir()
    corpus = read_corpus(tmp_path)
    assert names(corpus) == {"a": ["a/1.wav"]}
    reasons = {path.relative_to(tmp_path).as_posix(): reason for path, reason in corpus.skipped}
    assert set(reasons) == {*hidden, *others, "a/2.m4a", "loose.wav", "b", "empty"}
    assert {reasons[name] for name in hidden} == {"hidden"}
    assert "convert" in reasons["a/2.m4a"]
    assert {path.name for path, _ in corpus.left_out} == {Path(name).name for name in reasons} - {
        Path(name).name for name in hidden
    }
    assert "outside" in reasons["loose.wav"]
    assert [path for path, _ in corpus.skipped] == sorted(path for path, _ in corpus.skipped)


def test_every_format_of_libsndfile_counts():
    expected = [".wav", ".flac", ".aiff", ".aif", ".aifc", ".au", ".caf", ".w64", ".rf64", ".sph", ".nist", ".oga"]
    assert {*expected, ".ogg", ".mp3"} <= audio_suffixes()
    assert not {".raw", ".txt", ".mat", ".htk", ".json", ".npy"} & audio_suffixes()


def test_a_recording_in_a_format_that_cannot_be_read_is_reported_and_not_taken_for_a_note(tmp_path):
    (tmp_path / "a").mkdir()
    soundfile.write(tmp_path / "a" / "1.sd2", np.ones(800) / 2, 8000, format="SD2", subtype="PCM_16")
    corpus = read_corpus(tmp_path)
    assert names(corpus) == {"a": ["a/1.sd2"]}
    with pytest.raises(AudioError, match=r"1\.sd2: cannot be decoded as audio"):
        read_samples(corpus.speakers["a"][0])


def test_roots_without_speakers(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")  # no ffmpeg
    with pytest.raises(InputError, match=r"nope: a corpus must be a folder, got nothing"):
        read_corpus(tmp_path / "nope")
    with pytest.raises(InputError, match=r"one folder per speaker .*got none"):
        read_corpus(tmp_path)
    touch(tmp_path / "alice" / "a.m4a")
    with pytest.raises(InputError, match=r"skipped 2 entries: .*a\.m4a: .*convert"):
        read_corpus(tmp_path)
    touch(tmp_path / "a.wav", tmp_path / "b.wav")
    with pytest.raises(InputError, match=r"one folder per speaker .*got 2 audio files and no such folder"):
        read_corpus(tmp_path)
    with pytest.raises(InputError, match="got a file"):
        read_corpus(tmp_path / "a.wav")


def test_recordings_may_be_paths_by_name(tmp_path):
    corpus = as_corpus({"anna": ["a.wav", tmp_path / "b.wav"], "ivan": "c.wav", "lars": [Utterance("lars", Path("d"))]})
    assert corpus.speakers == {
        "anna": (Utterance("anna", Path("a.wav")), Utterance("anna", tmp_path / "b.wav")),
        "ivan": (Utterance("ivan", Path("c.wav")),),
        "lars": (Utterance("lars", Path("d")),),
    }
    assert as_corpus(corpus) is corpus
    touch(tmp_path / "anna" / "a.wav")
    assert as_corpus(str(tmp_path)) == as_corpus(tmp_path) == read_corpus(tmp_path)
    for wrong in (3, ["a.wav"], {"anna": [3]}, {3: ["a.wav"]}, {"anna": np.zeros(3)}):
        with pytest.raises(InputError, match="recordings"):
            as_corpus(wrong)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs users whom permissions stop")
@pytest.mark.parametrize("inner", ["a", "b", "a/inner"])
def test_a_folder_that_may_not_be_read_is_skipped_and_named(inner):
    with open_folder() as root:
        for path in ("a/1.wav", f"{inner}/2.wav"):
            touch(root / path)
        read_corpus(root)  # and imports what that takes
        (root / inner).chmod(0)

        def check() -> None:
            if inner == "a":
                with pytest.raises(InputError, match="a folder that cannot be read"):
                    read_corpus(root)
                return
            corpus = read_corpus(root)
            assert list(corpus.speakers) == ["a"]
            assert corpus.skipped == ((root / inner, "a folder that cannot be read (Permission denied)"),)

        try:
            as_another_user(check)
        finally:
            (root / inner).chmod(0o700)


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
    assert {path.name for path, _ in corpus.skipped} >= {"self", "up", "higher", "friend", "gone.wav", "everybody"}


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


@pytest.fixture
def audio(tmp_path):
    """Two recordings of a second at 8 kHz, outside the data directory, in a folder with a space."""
    folder = tmp_path / "some audio"
    folder.mkdir()
    for name in ("a.wav", "b.wav"):
        soundfile.write(folder / name, np.arange(8000) / 8000, 8000)
    return folder


@pytest.fixture
def kaldi(tmp_path, audio):
    """kaldi(utt2spk=..., scp=...): a data directory of these lists, in which A and B stand for the recordings."""

    def build(**lists: str | bytes | None) -> Path:
        root = tmp_path / "data"
        root.mkdir(exist_ok=True)
        for name, text in lists.items():
            if text is not None:
                content = text if isinstance(text, bytes) else text.encode()
                for file in ("a.wav", "b.wav"):
                    content = content.replace(f" {file[0].upper()}\n".encode(), f" {audio / file}\n".encode())
                (root / name.replace("scp", "wav.scp")).write_bytes(content)
        return root

    return build


def test_a_kaldi_directory(kaldi, audio):
    scp = f"u2 {audio / 'b.wav'}\r\nu1\t{audio / 'a.wav'} \n\nu3  {audio / 'a.wav'}\n"
    root = kaldi(scp=scp, utt2spk="u1 zoë\nu2\tbob \nu3 bob")
    corpus = read_corpus(root)
    assert (corpus.kind, corpus.root, corpus.skipped) == ("kaldi", root, ())
    assert list(corpus.speakers) == ["bob", "zoë"]
    assert corpus.speakers["bob"] == (Utterance("bob", audio / "a.wav"), Utterance("bob", audio / "b.wav"))
    assert corpus.speakers["zoë"] == (Utterance("zoë", audio / "a.wav"),)


def test_kaldi_segments_select_samples(kaldi):
    segments = "u2 rec 0.5 -1\nu1 rec 0.125 0.25\n"
    root = kaldi(scp="rec A\nunused B\n", utt2spk="u1 bob\nu2 bob\n", segments=segments)
    first, second = read_corpus(root).speakers["bob"]
    assert (first.start, first.end, second.start, second.end) == (0.125, 0.25, 0.5, None)
    np.testing.assert_allclose(read_samples(first)[0], np.arange(1000, 2000) / 8000, atol=1e-4)
    np.testing.assert_allclose(read_samples(second)[0], np.arange(4000, 8000) / 8000, atol=1e-4)


def test_kaldi_paths_are_found_from_here_then_from_the_directory(tmp_path, kaldi, monkeypatch):
    root = kaldi(scp="u1 here.wav\nu2 there.wav\n", utt2spk="u1 bob\nu2 bob\n")
    touch(tmp_path / "here.wav", root / "here.wav", root / "there.wav")
    monkeypatch.chdir(tmp_path)
    assert [u.path for u in read_corpus(root).speakers["bob"]] == sorted([root / "there.wav", Path("here.wav")])


def test_a_kaldi_directory_may_have_spk2utt_alone(kaldi, audio):
    corpus = read_corpus(kaldi(scp="c A\nt B\n", spk2utt="bob  t\nanna\tc\n"))
    assert corpus.kind == "kaldi"
    assert corpus.speakers == {name: (Utterance(name, audio / f"{name[0]}.wav"),) for name in ("anna", "bob")}
    with pytest.raises(InputError, match="spk2utt, line 2: 'c' may be given once, it is on line 1 too"):
        read_corpus(kaldi(spk2utt="bob t c\nanna c\n"))
    with pytest.raises(InputError, match=r"every utterance must be in spk2utt, 'c' is not"):
        read_corpus(kaldi(spk2utt="bob t\n"))


@pytest.mark.parametrize(
    ("scp", "utt2spk", "segments", "message"),
    [
        ("u1 A\n", b"\nu1 M\xfcller\n", None, r"utt2spk, line 2: UTF-8"),
        ("u1 nowhere.wav\n", "u1 bob\n", None, r"wav\.scp, line 1: no such file: 'nowhere\.wav'"),
        ("u1\n", "u1 bob\n", None, r"wav\.scp, line 1: a key and a value"),
        ("u1 A\nu2 A\n\nu1 B\n", "u1 bob\n", None, r"wav\.scp, line 4: 'u1' may be given once, .*line 1"),
        ("u1 A\nu2 B\n", "u1 bob\n", None, r"wav\.scp, line 2: .*in utt2spk, 'u2' is not"),
        ("u1 A\n", "u1 bob\nu2 bob\n", None, r"utt2spk, line 2: .*in wav\.scp, 'u2' is not"),
        ("u1 A\n", "u1 bob\nu1 bob\n", None, r"utt2spk, line 2: 'u1' may be given once"),
        ("u1 A\n", "u1 bob jones\n", None, r"utt2spk, line 1: .*'bob jones'"),
        ("u1 A\n", None, None, r"hold wav\.scp and utt2spk, got no utt2spk"),
        ("", "", None, r"wav\.scp: it must list at least one utterance, got none"),
        ("r A\n", "u bob\n", "u r 0.5 x\n", r"segments, line 1: 'utterance recording start end'"),
        ("r A\n", "u bob\n", "u r 0 1 x\n", r"segments, line 1: .*and maybe a channel \(0, 1 \.\.\.\), got 'r 0 1 x'"),
        ("r A\n", "u bob\n", "u r 0 1 -1\n", r"segments, line 1: .*and maybe a channel"),
        ("r A\n", "u bob\n", "u r 0.5 0.5\n", r"segments, line 1: 0 <= start < end .*got 0\.5 to 0\.5"),
        ("r A\n", "u bob\n", "u r nan 0.5\n", r"segments, line 1: 0 <= start < end"),
        ("r A\n", "u bob\n", "u r -2 -1\n", r"segments, line 1: 0 <= start < end"),
        ("r A\n", "u bob\n", "u q 0 1\n", r"segments, line 1: .*in wav\.scp, 'q' is not"),
        ("r A\n", "r bob\n", "u r 0 1\n", r"segments, line 1: .*in utt2spk, 'u' is not"),
        ("r A\n", "u bob\nv bob\n", "u r 0 1\n", r"utt2spk, line 2: .*in segments, 'v' is not"),
    ],
)
def test_kaldi_files_that_break_the_rules(kaldi, scp, utt2spk, segments, message):
    with pytest.raises(InputError, match=message):
        read_corpus(kaldi(scp=scp, utt2spk=utt2spk, segments=segments))


def test_no_command_is_ever_run(tmp_path, kaldi):
    with pytest.raises(InputError, match="commands are not executed"):
        read_corpus(kaldi(scp=f"u1 touch {tmp_path / 'mark'} |\n", utt2spk="u1 bob\n"))
    assert not (tmp_path / "mark").exists()


# RTTM files


@pytest.fixture
def recordings(tmp_path: Path) -> Path:
    """Two recordings in which the n-th sample is n / 8000."""
    (tmp_path / "more").mkdir()
    for name in ("call.wav", "more/talk.flac"):
        soundfile.write(tmp_path / name, np.arange(8000) / 8000, 8000, subtype="PCM_16")
    return tmp_path


def turn(file="call", speaker="anna", start=0.5, duration=1.0, channel="1") -> str:
    return f"SPEAKER {file} {channel} {start} {duration} <NA> <NA> {speaker} <NA> <NA>\n"


NAMES = st.one_of(st.text("abc-_.é#", min_size=1, max_size=5), st.sampled_from(["\u00a0", "SPEAKER", "<NA>"]))
SECONDS = st.floats(0, 1e6, allow_nan=False)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(NAMES, NAMES, SECONDS, SECONDS.filter(bool), st.sampled_from("12")), min_size=1))
def test_turns_read_back(tmp_path, turns):
    path = tmp_path / "x.rttm"
    path.write_text("".join(turn(*one) for one in turns), encoding="utf-8")
    assert read_rttm(path) == [
        (file, channel, speaker, start, start + duration) for file, speaker, start, duration, channel in turns
    ]


def test_other_lines_are_ignored(tmp_path):
    path = tmp_path / "x.rttm"
    path.write_text(f"\ufeff;; comment\nSPKR-INFO call 1 <NA> <NA> <NA> unknown anna <NA> <NA>\n\n{turn()}")
    assert read_rttm(path) == [("call", "1", "anna", 0.5, 1.5)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "needs at least one SPEAKER line, got none"),
        ("anna call target\n", "needs at least one SPEAKER line, got none"),
        (turn() + "SPEAKER call 1 0.5 1.0 <NA>\n", r"line 2: 'SPEAKER file channel .* was expected, got 'SPEAKER c"),
        (turn(start="x"), "line 1: a start of 0 or more and a duration above 0"),
        (turn(start=-1), "line 1: a start of 0 or more"),
        (turn(duration=0), "line 1: .* a duration above 0"),
        (turn(duration="nan"), "line 1: .* a duration above 0"),
        (turn(duration="inf"), "line 1: .* a duration above 0"),
        (b"SPEAKER \xff 1 0 1 <NA> <NA> anna\n", "line 1: UTF-8 text was expected"),
    ],
)
def test_files_that_break_the_format(tmp_path, text, message):
    path = tmp_path / "x.rttm"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError, match=message):
        read_rttm(path)


def test_turns_are_utterances_of_their_speakers(recordings):
    (recordings / "one.rttm").write_text(turn(start=0.25, duration=0.5) + turn(speaker="bob", start=0, duration=0.25))
    (recordings / "two.RTTM").write_text(turn(file="talk.flac", start=0.5, duration=0.125, channel="<NA>"))
    soundfile.write(recordings / "unused.wav", np.zeros(80), 8000)
    (recordings / "._one.rttm").write_bytes(b"\0\5\x16\7")  # as macOS writes on other file systems
    corpus = read_corpus(recordings)
    assert corpus.kind == "rttm"
    assert corpus.speakers == {
        "anna": (
            Utterance("anna", recordings / "call.wav", 0.25, 0.75),
            Utterance("anna", recordings / "more" / "talk.flac", 0.5, 0.625),
        ),
        "bob": (Utterance("bob", recordings / "call.wav", 0.0, 0.25),),
    }
    assert corpus.left_out == ((recordings / "unused.wav", "not in an RTTM file"),)
    np.testing.assert_allclose(read_samples(corpus.speakers["anna"][0])[0], np.arange(2000, 6000) / 8000, atol=1e-4)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (turn(file="cal"), r"one audio file must be called 'cal', got 0 under"),
        (turn(file="../call"), r"one audio file must be called '../call', got 0 under"),
        (turn() + turn(channel="<NA>"), "'call' has turns in several channels, .* numbers from 1, got '<NA>'"),
        (turn(file="twice"), "one audio file must be called 'twice', got 2 under"),
    ],
)
def test_turns_that_fit_no_recording(recordings, text, message):
    touch(recordings / "twice.wav", recordings / "more" / "twice.wav")
    (recordings / "x.rttm").write_text(text)
    with pytest.raises(InputError, match=message):
        read_corpus(recordings)


# Voices that come with the package


def test_background_voices_are_no_voices_of_the_demo_corpus_and_have_enough_speech():
    voices = background_voices().speakers
    assert len(voices) == 36
    assert not set(voices) & set(read_corpus(demo_folder() / "enroll").speakers)
    for (utterance,) in voices.values():
        with soundfile.SoundFile(utterance.path) as file:
            assert (file.samplerate, file.channels, file.subtype) == (16000, 1, "OPUS")
            assert 10 < file.frames / file.samplerate < 40


def test_a_recording_that_is_given_twice_is_refused(tmp_path, demo, monkeypatch):
    """It would be held out and trained on at once; parts and channels of one file are recordings of their own."""
    one, other = sorted((demo / "enroll" / "anna").glob("*.flac"))[:2]
    table = tmp_path / "all.csv"
    table.write_text(f"path,speaker\n{one},anna\n{other},anna\n{one},anna\n")
    for recordings in ({"anna": [one, other, one]}, table):
        with pytest.raises(
            InputError, match=rf"^recordings of 'anna': {re.escape(str(one))} is given twice; give it once"
        ):
            as_corpus(recordings)
    monkeypatch.chdir(one.parent)
    with pytest.raises(InputError, match="is given twice"):
        as_corpus({"anna": [one, one.name]})
    parts = [Utterance("anna", one, 0.0, 1.0), Utterance("anna", one, 1.0, 2.0), Utterance("anna", one, channel=1)]
    assert as_corpus({"anna": parts}).speakers["anna"] == tuple(parts)


@given(st.floats(0.0, 50.0), st.floats(1.1, 20.0), st.floats(0.0, 1.0), st.booleans())
def test_parts_that_overlap_are_given_twice_and_parts_that_touch_are_not(start, seconds, place, is_whole):
    """Half a second may be shared: the edges of turns are rounded."""
    first = Utterance("anna", Path("call.wav"), start, start + seconds)
    inside = Utterance("anna", Path("call.wav"), start + place * (seconds - 1.0), None if is_whole else start + seconds)
    with pytest.raises(InputError, match=r"call\.wav.* is given twice"):
        as_corpus({"anna": [inside, first]})
    later = Utterance("anna", Path("call.wav"), start + seconds - 0.45 * place)
    of_others = [replace(first, path=Path("other.wav")), replace(first, channel=2)]
    assert len(as_corpus({"anna": [later, first, *of_others]}).speakers["anna"]) == 4


@pytest.mark.parametrize("bad", ["1", [1], True, 1j])
@pytest.mark.parametrize("field", ["start", "end", "channel"])
def test_a_bound_that_is_no_number_is_named(field, bad):
    with pytest.raises(
        InputError, match=rf"{field} of a part of call\.wav: a number was expected, got {type(bad).__name__}"
    ):
        as_corpus({"anna": [Utterance("anna", Path("call.wav"), **{field: bad})]})
