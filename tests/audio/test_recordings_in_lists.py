"""Recordings and speakers in tables, in the names of files, and in the pipes of a Kaldi data directory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile

from pipeline.audio.corpus import Utterance, read_corpus
from pipeline.audio.files import read_samples
from pipeline.errors import AudioError, InputError


@pytest.fixture
def calls(tmp_path, heard) -> Path:
    """A folder with anna's and ivan's speech as SPHERE and FLAC, and a call of both, a channel each."""
    folder = tmp_path / "some calls"
    folder.mkdir()
    (anna, rate), (ivan, _) = soundfile.read(heard("anna")), soundfile.read(heard("ivan"))
    both = np.stack([anna[:8000], ivan[:8000]], axis=1)
    for name, samples, form in (("a.sph", anna, "NIST"), ("i.sph", ivan, "NIST"), ("two.sph", both, "NIST")):
        soundfile.write(folder / name, samples, rate, format=form, subtype="PCM_16")
    soundfile.write(folder / "i.flac", ivan, rate)
    return folder


def directory(root: Path, *pipes: str) -> Path:
    """A Kaldi data directory of one speaker with these lines of wav.scp."""
    root.mkdir(exist_ok=True)
    (root / "wav.scp").write_text("".join(f"u{n} {pipe}\n" for n, pipe in enumerate(pipes)))
    (root / "utt2spk").write_text("".join(f"u{n} s\n" for n in range(len(pipes))))
    return root


@pytest.mark.parametrize(
    ("pipe", "file", "voice"),
    [
        ("sph2pipe -f wav -p -c 1 '{folder}/a.sph' |", "a.sph", "anna"),
        ('/opt/sph2pipe_v2.5/sph2pipe -f wav "{folder}/a.sph"|', "a.sph", "anna"),
        ("sph2pipe '{folder}/a.sph' |", "a.sph", "anna"),
        ("flac -c -d -s '{folder}/i.flac' |", "i.flac", "ivan"),
        ("flac -dcs '{folder}/i.flac' |", "i.flac", "ivan"),
        ("flac --decode --stdout --silent '{folder}/i.flac' |", "i.flac", "ivan"),
        ("cat '{folder}/a.sph' |", "a.sph", "anna"),
    ],
)
def test_a_pipe_that_only_decodes_a_file_stands_for_the_file(tmp_path, calls, heard, pipe, file, voice):
    (one,) = read_corpus(directory(tmp_path / "data", pipe.format(folder=calls))).speakers["s"]
    assert one.path == calls / file
    np.testing.assert_allclose(read_samples(one)[0], soundfile.read(heard(voice))[0], atol=2**-15)


@pytest.mark.parametrize(
    "pipe",
    [
        "sox '{a}' -t wav - speed 1.1 |", "ffmpeg -i '{a}' -f wav - |", "sph2pipe -f wav -t 1:2 '{a}' |", "cat |", "|",
        "sph2pipe -f raw '{a}' |", "cat '{a}' '{a}' |", "cat '{a}' | sox - -t wav - |", "flac -c '{a}' |", "cat '{a} |",
        "cat -n '{a}' |", "touch '{mark}' |", "flac -d -c -s '{a}' ; touch '{mark}' |", "| cat '{a}'",
        "flac -F -d '{a}' |",
    ],
)  # fmt: skip
def test_any_other_pipe_is_refused_with_its_line_and_the_cure_and_is_not_run(tmp_path, calls, pipe):
    line = pipe.format(a=calls / "a.sph", mark=tmp_path / "mark")
    data = directory(tmp_path / "data", f"cat '{calls / 'a.sph'}' |", line)
    with pytest.raises(
        InputError, match=r"wav\.scp, line 2: .*commands are not executed.*convert the recordings"
    ) as told:
        read_corpus(data)
    assert f"pipes in this list: {1 + line.endswith('|')};" in str(told.value)
    assert not (tmp_path / "mark").exists()


@pytest.mark.parametrize(
    ("pipe", "reason"),
    [
        ("cat $HOME/a.sph |", "no such file: '\\$HOME/a.sph'"),
        ("cat `touch {mark}` |", "commands are not executed"),
        ("cat $(touch\\ {mark}) |", "no such file"),
    ],
)
def test_no_shell_expands_a_pipe(tmp_path, calls, pipe, reason):
    text = pipe.format(folder=calls, mark=tmp_path / "mark")
    with pytest.raises(InputError, match=reason):
        read_corpus(directory(tmp_path / "data", text))
    assert not (tmp_path / "mark").exists()


def test_a_pipe_chooses_a_channel_that_is_there(tmp_path, calls, heard):
    pipes = [f"sph2pipe -f wav -p -c {channel} '{calls}/two.sph' |" for channel in (1, 2, 3)]
    first, second, third = read_corpus(directory(tmp_path / "data", *pipes)).speakers["s"]
    for one, voice in ((first, "anna"), (second, "ivan")):
        np.testing.assert_allclose(read_samples(one)[0], soundfile.read(heard(voice))[0][:8000], atol=2**-15)
    with pytest.raises(AudioError, match=r"two\.sph: channel 3 was to be read, and the recording has 2 channels"):
        read_samples(third)


def test_segments_may_have_a_channel_counted_from_0(tmp_path, calls, heard):
    data = directory(tmp_path / "data", f"cat '{calls}/two.sph' |", f"sph2pipe -c 2 '{calls}/two.sph' |")
    (data / "segments").write_text("left u0 0.25 0.5 0\nright u0 0.25 0.5 1\nback u1 0.25 0.5 0\nthird u0 0.25 0.5 2\n")
    (data / "utt2spk").write_text("left anna\nright ivan\nback second\nthird nobody\n")
    found = read_corpus(data).speakers
    for name, voice in (("anna", "anna"), ("ivan", "ivan"), ("second", "ivan")):
        samples = soundfile.read(heard(voice))[0][2000:4000]
        np.testing.assert_allclose(read_samples(found[name][0])[0], samples, atol=2**-15)
    with pytest.raises(AudioError, match=r"two\.sph: channel 3 was to be read, and the recording has 2 channels"):
        read_samples(found["nobody"][0])
    (data / "segments").write_text("left u0 0 1 1\nback u1 0 1 1\n")
    with pytest.raises(InputError, match=r"segments, line 2: the pipe of 'u1' in wav\.scp gives one channel, 0, got"):
        read_corpus(data)


def test_what_a_pipe_names_is_decoded_as_any_file_is(tmp_path):
    (tmp_path / "notes.txt").write_text("no sound\n" * 100)
    (one,) = read_corpus(directory(tmp_path / "data", f"cat {tmp_path / 'notes.txt'} |")).speakers["s"]
    with pytest.raises(AudioError, match="it holds text, not audio"):
        read_samples(one)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.csv", "path,speaker\na.sph,anna\ni.flac,ivan\n"),
        ("t.csv", "path,speaker\ra.sph,anna\ri.flac,ivan\r"),
        ("t.CSV", '\ufeffSpeaker_ID,age,"file"\r\nanna,30,"a.sph"\r\n\r\nivan,"4,5",i.flac\r\n'),
        ("t.tsv", 'client_id\tpath\tsentence\nanna\ta.sph\tShe said "no\nivan\ti.flac\tNo, no\n'),
        ("t.tsv", "audio\tlabel\tstart\tend\na.sph\tanna\t\t\ni.flac\tivan\t0\t-1\n"),
    ],
)
def test_a_table_of_paths_and_speakers_is_a_corpus(calls, name, text):
    (calls / name).write_text(text, encoding="utf-8", newline="")
    corpus = read_corpus(calls / name)
    assert (corpus.kind, corpus.root) == ("table", calls)
    whole = {"anna": calls / "a.sph", "ivan": calls / "i.flac"}
    assert {name: [one.path for one in its] for name, its in corpus.speakers.items()} == {
        name: [path] for name, path in whole.items()
    }
    assert all(one.start in {None, 0.0} and one.end is None for (one,) in corpus.speakers.values())


@pytest.mark.parametrize(
    ("header", "cells", "channels"),
    [
        ("channel", ("2", "1"), [1, 2]),
        ("Channel", ("b", "A"), [1, 2]),
        ("channel", ("2", ""), [None, 2]),
        ("channel", ("GSM", "2"), [None, None]),
    ],
)
def test_a_table_may_choose_channels(tmp_path, heard, header, cells, channels):
    voice, rate = soundfile.read(heard("ivan"))
    soundfile.write(tmp_path / "call.wav", np.stack([-voice, voice], axis=1), rate, subtype="PCM_16")
    rows = [("path", "speaker", header), *(("call.wav", *row) for row in zip(("ivan", "anna"), cells, strict=True))]
    text = "".join('"{}","{}","{}"\r\n'.format(*row) for row in rows)
    (tmp_path / "t.csv").write_text(text, encoding="utf-8-sig", newline="")
    speakers = read_corpus(tmp_path / "t.csv").speakers
    assert [speakers[name][0].channel for name in ("anna", "ivan")] == channels
    if channels[1] == 2:
        np.testing.assert_allclose(read_samples(speakers["ivan"][0])[0], voice, atol=2**-15)


def test_a_table_may_cut_recordings_and_common_voice_has_them_in_clips(tmp_path, calls, heard):
    calls.rename(tmp_path / "clips")
    (tmp_path / "t.csv").write_text("wav,spk_id,start,end\ni.flac,b,0.5,1.25\ni.flac,b,1.25,\n")
    first, second = read_corpus(tmp_path / "t.csv").speakers["b"]
    speech, rate = soundfile.read(heard("ivan"))
    assert rate == 8000
    np.testing.assert_allclose(read_samples(first)[0], speech[4000:10_000], atol=2**-15)
    np.testing.assert_allclose(read_samples(second)[0], speech[10_000:], atol=2**-15)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a.sph,anna\n", "line 1: a header with one column path .* got 'a.sph,anna'"),
        ("path,speaker,file\n", "line 1: a header with one column path"),
        ("path,speaker,start,stop\na.sph,anna,0,16000\n", "start and end, in seconds, both or neither"),
        ("", "line 1: a header"),
        ("path,speaker\n", "t.csv: it must list at least one recording below its header, got none"),
        ("path,speaker\na.sph,anna\na.sph\n", "line 3: 2 fields were expected, as in the header, got 1"),
        ("path,speaker\na.sph,\n", "line 2: a path and a speaker were expected, got 'a.sph,'"),
        ("path,speaker\nb.wav,anna\n", "line 2: no such file: 'b.wav', looked for from .*some calls and from .*clips"),
        ('path,speaker\n"a.sph,anna\n', "line 2: a row of CSV was expected .* a quote that is missing"),
        ('"path";"speaker"\n"a.sph";"anna"\n', "line 1: commas or tabs .* were expected, got semicolons"),
        ("path,speaker\nC:\\calls\\a.sph,anna\n", "line 2: no such file: .*not by .* as in Windows"),
        ("path,speaker,start,end\na.sph,anna,x,1\n", "line 2: a start and an end in seconds were expected"),
        ("path,speaker,start,end\na.sph,anna,2,1\n", "line 2: 0 <= start < end must hold .* got 2 to 1"),
    ],
)
def test_tables_that_break_the_rules_are_refused_with_their_line(calls, text, reason):
    (calls / "t.csv").write_text(text)
    with pytest.raises(InputError, match=reason):
        read_corpus(calls / "t.csv")


def test_speakers_in_the_names_of_files(tmp_path, heard):
    names = ("anna_1.flac", "deeper/anna-2.flac", "ivan_1.flac", "_.flac")
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(heard("anna").read_bytes())
    (tmp_path / "notes.txt").touch()
    corpus = read_corpus(tmp_path, speaker_pattern="([^_-]+)")
    assert corpus.kind == "names"
    assert corpus.speakers == {
        "anna": (Utterance("anna", tmp_path / "anna_1.flac"), Utterance("anna", tmp_path / "deeper" / "anna-2.flac")),
        "ivan": (Utterance("ivan", tmp_path / "ivan_1.flac"),),
    }
    assert [path.name for path, _ in corpus.left_out] == ["_.flac", "notes.txt"]
    by_number = read_corpus(tmp_path, speaker_pattern=r"(.*)[_-](?P<speaker>\d)")
    assert {name: len(its) for name, its in by_number.speakers.items()} == {"1": 2, "2": 1}
    (tmp_path.parent / "other.flac").write_bytes(heard("anna").read_bytes())
    by_folder = read_corpus(tmp_path.parent, speaker_pattern=f"{tmp_path.name}/([^/]+)/").speakers
    assert by_folder == {"deeper": (Utterance("deeper", tmp_path / "deeper" / "anna-2.flac"),)}
    for pattern, reason in (
        ("(", "not a regular expression"), ("[a-z]+", "a group in brackets"), ("(x+)", "must match the speaker pattern")
    ):  # fmt: skip
        with pytest.raises(InputError, match=reason):
            read_corpus(tmp_path, speaker_pattern=pattern)
