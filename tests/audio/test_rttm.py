"""RTTM files as corpora, and Kaldi directories with spk2utt alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.audio.corpus import Utterance, read_corpus
from pipeline.audio.files import read_samples
from pipeline.audio.rttm import Turn, read_rttm
from pipeline.errors import InputError

LINE = "SPEAKER {file} {channel} {start} {duration} <NA> <NA> {speaker} <NA> <NA>\n"
NAMES = st.one_of(st.text("abc-_.é#", min_size=1, max_size=5), st.sampled_from(["\u00a0", "SPEAKER", "<NA>"]))
SECONDS = st.floats(0, 1e6, allow_nan=False)


def line(file="call", speaker="anna", start=0.5, duration=1.0, channel="1") -> str:
    return LINE.format(file=file, speaker=speaker, start=start, duration=duration, channel=channel)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(turns=st.lists(st.builds(Turn, NAMES, SECONDS, SECONDS.filter(bool), NAMES, st.sampled_from("12")), min_size=1))
def test_turns_read_back(tmp_path, turns):
    path = tmp_path / "x.rttm"
    lines = [line(turn.file, turn.speaker, turn.start, turn.duration, turn.channel) for turn in turns]
    path.write_text("".join(lines), encoding="utf-8")
    assert read_rttm(path) == tuple(turns)


def test_other_lines_are_ignored(tmp_path):
    path = tmp_path / "x.rttm"
    path.write_text(f"\ufeff;; comment\nSPKR-INFO call 1 <NA> <NA> <NA> unknown anna <NA> <NA>\n\n{line()}")
    assert read_rttm(path) == (Turn("call", 0.5, 1.0, "anna"),)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "needs at least one SPEAKER line, got none"),
        ("anna call target\n", "needs at least one SPEAKER line, got none"),
        (
            line() + "SPEAKER call 1 0.5 1.0 <NA> <NA>\n",
            r"line 2: 'SPEAKER file channel .* was expected, got 'SPEAKER call",
        ),
        (line(start="x"), "line 1: a start of 0 or more and a duration above 0"),
        (line(start=-1), "line 1: a start of 0 or more"),
        (line(duration=0), "line 1: .* a duration above 0"),
        (line(duration="nan"), "line 1: .* a duration above 0"),
        (line(duration="inf"), "line 1: .* a duration above 0"),
        (b"SPEAKER \xff 1 0 1 <NA> <NA> anna\n", "line 1: UTF-8 text was expected"),
    ],
)
def test_files_that_break_the_format(tmp_path, text, message):
    path = tmp_path / "x.rttm"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError, match=message):
        read_rttm(path)


def test_what_is_no_file_is_refused(tmp_path):
    with pytest.raises(InputError, match="cannot be read: No such file"):
        read_rttm(tmp_path / "x.rttm")
    with pytest.raises(InputError, match="a folder"):
        read_rttm(tmp_path)


# As a corpus


@pytest.fixture
def recordings(tmp_path: Path) -> Path:
    """Two recordings in which the n-th sample is n / 8000."""
    for name in ("call.wav", "more/talk.flac"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        soundfile.write(tmp_path / name, np.arange(8000) / 8000, 8000, subtype="PCM_16")
    return tmp_path


def test_turns_are_utterances_of_their_speakers(recordings):
    (recordings / "one.rttm").write_text(line(start=0.25, duration=0.5) + line(speaker="bob", start=0, duration=0.25))
    (recordings / "two.rttm").write_text(line(file="talk.flac", start=0.5, duration=0.125, channel="<NA>"))
    soundfile.write(recordings / "unused.wav", np.zeros(80), 8000)
    corpus = read_corpus(recordings)
    assert corpus.kind == "rttm"
    assert corpus.speakers == {
        "anna": (
            Utterance("anna", recordings / "call.wav", 0.25, 0.75),
            Utterance("anna", recordings / "more" / "talk.flac", 0.5, 0.625),
        ),
        "bob": (Utterance("bob", recordings / "call.wav", 0.0, 0.25),),
    }
    assert corpus.skipped == ((recordings / "unused.wav", "not in an RTTM file"),)
    samples, rate = read_samples(corpus.speakers["anna"][0])
    np.testing.assert_allclose(samples, np.arange(2000, 6000) / 8000, atol=1e-4)
    assert rate == 8000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (line(file="cal"), r"one audio file must be called 'cal', got 0 under"),
        (line(file="../call"), r"one audio file must be called '../call', got 0 under"),
        (line() + line(channel="2"), "'call' has speech in two channels"),
        (line(file="twice"), "one audio file must be called 'twice', got 2 under"),
    ],
)
def test_turns_that_fit_no_recording(recordings, text, message):
    for name in ("twice.wav", "more/twice.wav"):
        soundfile.write(recordings / name, np.zeros(80), 8000)
    (recordings / "x.rttm").write_text(text)
    with pytest.raises(InputError, match=message):
        read_corpus(recordings)


def test_a_kaldi_directory_may_have_spk2utt_alone(recordings):
    (recordings / "wav.scp").write_text("c call.wav\nt more/talk.flac\n")
    (recordings / "spk2utt").write_text("bob  t\nanna\tc\n")
    corpus = read_corpus(recordings)
    assert corpus.kind == "kaldi"
    assert {name: [one.path.stem for one in said] for name, said in corpus.speakers.items()} == {
        "anna": ["call"],
        "bob": ["talk"],
    }
    (recordings / "spk2utt").write_text("bob t c\nanna c\n")
    with pytest.raises(InputError, match="spk2utt, line 2: 'c' may be given once, it is on line 1 too"):
        read_corpus(recordings)
    (recordings / "spk2utt").write_text("bob t\n")
    with pytest.raises(InputError, match=r"every utterance must be in spk2utt, 'c' is not"):
        read_corpus(recordings)
