"""Hostile input: files that promise terabytes, that never end, that are no files, whose headers lie.

Each gives an error of this project that names file and cause, soon and in little memory, and never a score.
"""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import time
from pathlib import Path

import hostile
import numpy as np
import pytest
import soundfile
from hostile import soon
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.audio.corpus import Utterance, read_corpus
from pipeline.audio.files import open_audio, read_samples
from pipeline.audio.lists import read_rttm
from pipeline.audio.streams import stream_pipe
from pipeline.cli.terminal import print_error, print_json, print_line, print_table
from pipeline.enrollment.enroll import enroll
from pipeline.errors import (
    AudioError,
    AuditError,
    InputError,
    StoreError,
)
from pipeline.evaluation import read_scores, read_trials
from pipeline.evaluation.report import read_metrics
from pipeline.scoring.decisions import Decision
from pipeline.store.store import Store
from pipeline.verification.audit import check_log, read_key
from pipeline.verification.verifier import Verifier

pytestmark = pytest.mark.skipif(os.name == "nt", reason="pipes, sockets and limits of POSIX")

SETTINGS = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
SOON = 2.0  # seconds of work


def decode(source, **options) -> np.ndarray:
    with open_audio(source, **options) as audio:
        return np.concatenate([np.empty(0), *audio.blocks()])


def content_of(path: Path) -> dict[str, bytes]:
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return {str(file): file.read_bytes() for file in files}


# Paths that are no files


def link_to(path: Path, folder: str, name: str) -> Path:
    """Make ``folder`` with a link of that ``name`` to ``path``, and return it."""
    made = path.parent.parent / folder
    made.mkdir(exist_ok=True)
    (made / name).unlink(missing_ok=True)
    (made / name).symlink_to(path)
    return made


def kaldi_at(path: Path) -> object:
    folder = link_to(path, "kaldi", "wav.scp")
    (folder / "utt2spk").write_text("u anna\n")
    return read_corpus(folder)


DOORS = {
    "audio": (open_audio, AudioError),
    "audio whole": (lambda path: read_samples(Utterance("anna", path)), AudioError),
    "trials": (read_trials, InputError),
    "scores": (read_scores, InputError),
    "audit log": (check_log, AuditError),
    "key": (read_key, AuditError),
    "store": (lambda path: Store(path).load(), StoreError),
    "metrics": (lambda path: read_metrics(link_to(path, "results", "metrics.json")), InputError),
    "Kaldi list": (kaldi_at, InputError),
    "corpus": (read_corpus, InputError),
    "RTTM": (read_rttm, InputError),
}
BY_NAME = {"metrics", "Kaldi list"}  # these cannot be given a path that no file can have


@pytest.mark.parametrize("door", DOORS)
def test_what_is_no_file_is_refused_at_once_by_every_door(tmp_path, door):
    call, error = DOORS[door]
    (tmp_path / "in").mkdir()
    for kind, path in hostile.things(tmp_path / "in").items():
        if door in BY_NAME and kind in {"endless name", "NUL", "no text", "device"}:
            continue
        if (door, kind) in {("corpus", "folder"), ("store", "endless name"), ("store", "no text")}:
            continue  # a corpus is a folder; the other names cannot be printed whole
        with soon(), pytest.raises(error) as caught:
            call(path)
        named = tmp_path if door in BY_NAME else path
        assert str(named) in str(caught.value), kind


def test_a_pipe_that_takes_the_place_of_a_file_is_not_waited_for(tmp_path, monkeypatch):
    """Between the look at a path and its opening, somebody may put something else there."""
    path = tmp_path / "a.wav"
    path.write_bytes(hostile.wav())
    looked = Path.stat

    def exchanged(self, **options):
        status = looked(self, **options)
        if self == path:
            path.unlink()
            os.mkfifo(path)
        return status

    monkeypatch.setattr(Path, "stat", exchanged)
    with soon(), pytest.raises(AudioError, match=r"a\.wav: a regular file was expected, got a named pipe"):
        open_audio(path)


# Sizes that headers promise, measured in a process with limits

WORKER = """
import json, resource, sys, time
from pathlib import Path
from pipeline.audio.files import open_audio
from pipeline.verification.audit import check_log
from pipeline.audio.corpus import read_corpus
from pipeline.errors import VoiceclaimError
from pipeline.evaluation import read_scores, read_trials
from pipeline.store.store import Store

def decode(path):
    with open_audio(path) as audio:
        return sum(len(block) for block in audio.blocks())

doors = {"audio": decode, "store": lambda path: Store(path).load(), "log": check_log, "trials": read_trials,
         "scores": read_scores, "kaldi": read_corpus}
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 2**29, used + 2**29))
def memory(field):
    return int(Path("/proc/self/status").read_text().split(field)[1].split()[0])

before = memory("VmRSS:")
for path in sorted(Path(sys.argv[1]).glob("*/*")):
    started = time.process_time()
    try:
        outcome = [str(doors[path.parent.name](path)), ""]
    except VoiceclaimError as error:
        outcome = [type(error).__name__, str(error)]
    print(json.dumps([str(path), *outcome, time.process_time() - started]))
print(json.dumps((memory("VmHWM:") - before) / 1024))
"""


def promises(folder: Path) -> None:
    """Files that claim, or look like, far more than a machine holds."""
    for kind in ("audio", "store", "log", "trials", "scores", "kaldi/list"):
        (folder / kind).mkdir(parents=True)
    for name, data in hostile.lying_headers().items():
        (folder / "audio" / name).write_bytes(data)
    (folder / "audio" / "bomb.flac").write_bytes(hostile.flac_bomb(1000))
    many = np.zeros((hostile.SHORT, 64))
    soundfile.write(folder / "audio" / "channels.wav", many, hostile.RATE, subtype="DOUBLE")
    hostile.sparse(folder / "audio" / "terabyte.wav", hostile.rf64(2**39), 2**40)
    for kind in ("log", "trials", "scores"):
        hostile.sparse(folder / kind / "terabyte.txt", b"anna a.wav target\n", 2**40)
    hostile.sparse(folder / "kaldi" / "list" / "wav.scp", b"u a.wav\n", 2**40)
    hostile.sparse(folder / "store" / "terabyte.store", b"SQLite format 3\0", 2**40)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_what_headers_promise_costs_neither_time_nor_memory(tmp_path):
    promises(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", WORKER, str(tmp_path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    *outcomes, grown = [json.loads(line) for line in done.stdout.splitlines()]
    assert grown < 100  # MiB
    assert {Path(path).name for path, *_ in outcomes} >= {"bomb.flac", "terabyte.wav", "terabyte.store", "list"}
    for path, outcome, message, seconds in outcomes:
        assert seconds < SOON, path
        # A header that says too much of a healthy file is believed as far as the file goes.
        if outcome != str(hostile.SHORT):
            assert outcome.endswith("Error"), path
            assert path in message
    messages = {Path(path).name: message for path, _, message, _ in outcomes}
    assert "decompression bomb" in messages["bomb.flac"]
    assert "43200 s" in messages["terabyte.wav"]


def test_a_bomb_is_cut_off_in_proportion_to_its_size():
    """Whatever comes out of a file is bounded by what went in; a long recording of nothing much still passes."""
    bomb = hostile.flac_bomb(400)
    decoded = 0
    with open_audio(io.BytesIO(bomb)) as audio, pytest.raises(AudioError, match="decompression bomb"):
        for block in audio.blocks():
            decoded += len(block)
    assert decoded <= 2**22 + 512 * len(bomb)
    assert len(decode(io.BytesIO(hostile.flac_bomb(60)))) == 60 * 65_535  # four minutes of silence
    buffer = io.BytesIO()
    silence = np.zeros(6 * 60 * hostile.RATE, dtype=np.int16)
    speech = (hostile.tone(10.0) * 2**14).astype(np.int16)
    soundfile.write(buffer, np.concatenate([silence, speech]), hostile.RATE, format="FLAC")
    assert len(decode(buffer)) == len(silence) + len(speech)


def test_a_segment_of_a_recording_that_is_too_long_can_be_read(tmp_path):
    path = hostile.sparse(tmp_path / "day.wav", hostile.rf64(2**33), 2**34)
    with pytest.raises(AudioError, match="at most 43200 s"):
        open_audio(path)
    assert len(decode(path, start=3600.0 * 100, end=3600.0 * 100 + 0.5)) == 8000


@pytest.mark.parametrize("head", [b"", b"LIST\xff\xff\xff\xff"], ids=["zeros", "a huge chunk"])
def test_a_header_that_never_ends_is_given_up(head):
    """A pipe that begins like a WAV file and goes on in zeros."""
    reading, writing = os.pipe()
    os.write(writing, b"RIFF\xff\xff\xff\xffWAVE" + head)  # first: later it might wait for room in the pipe
    zeros = subprocess.Popen(["head", "-c", str(2**30), "/dev/zero"], stdout=writing, stderr=subprocess.DEVNULL)
    os.close(writing)
    try:
        with os.fdopen(reading, "rb") as pipe, soon(60), pytest.raises(AudioError, match="pipe: "):
            stream_pipe(pipe)
    finally:
        zeros.kill()
        zeros.wait()


# Damage


def test_a_flac_cut_short_is_never_scored(store, heard, tmp_path):
    whole = heard("anna").read_bytes()
    verifier = Verifier(Store(store).load(), "anna")
    for share in (0.02, 0.4, 0.7, 0.85):
        (tmp_path / "a.bin").write_bytes(whole[: round(len(whole) * share)])
        with pytest.raises(AudioError, match=r"a\.bin: .*(cut short|damaged)"):
            verifier.verify_file(tmp_path / "a.bin")


def test_a_flac_cut_between_two_frames_is_cut_short():
    whole = hostile.flac_bomb(8)
    frame = (len(whole) - 42) // 8
    assert len(decode(io.BytesIO(whole))) == 8 * 65_535
    with pytest.raises(AudioError, match=r"ends at 12\.288 s, and its header says 32\.767 s"):
        decode(io.BytesIO(whole[: 42 + 3 * frame]))


@pytest.mark.parametrize("rate", [8000, 400_000])
@pytest.mark.parametrize("count", [0, 1, 2])
def test_next_to_no_samples_are_not_enough_speech(store, tmp_path, count, rate):
    soundfile.write(tmp_path / "a.wav", np.full(count, 0.5), rate)
    update = Verifier(Store(store).load(), "anna").verify_file(tmp_path / "a.wav")
    assert update.decision is Decision.NOT_ENOUGH_SPEECH
    assert update.score is update.llr is update.probability is None


def test_tables_of_numbers_and_sample_dumps_are_no_recordings(tmp_path):
    for kind, subtype in (("MAT5", "DOUBLE"), ("MAT4", "DOUBLE"), ("HTK", "PCM_16"), ("SDS", "PCM_16")):
        path = tmp_path / f"{kind}.wav"
        soundfile.write(path, hostile.tone(0.2), hostile.RATE, format=kind, subtype=subtype)
        data = path.read_bytes()
        for tag in (b"", b"ID3\x03\0\0\0\0\0\x0a" + bytes(10)):
            path.write_bytes(tag + data)
            with pytest.raises(AudioError, match=rf"{kind}\.wav: "):
                decode(path)


def test_a_resource_fork_that_lies_about_makes_no_audio_of_text(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    soundfile.write("a.sd2", hostile.tone(0.2), hostile.RATE, format="SD2", subtype="PCM_16")
    fork = next(path for path in tmp_path.rglob("*") if path.is_file() and path.name.startswith("._"))
    fork.rename(tmp_path / "._")
    (tmp_path / "claim.wav").write_text("hello, this is no audio at all\n" * 100)
    with pytest.raises(AudioError, match=r"claim\.wav: "):
        decode(tmp_path / "claim.wav")


# Mutations: audio


def damaged(chance: random.Random, sound: bytes) -> bytes:
    """``sound`` as the harness that breaks stores damages it."""
    from torture import damage

    return damage.damaged(chance, sound)


CHANCE = st.randoms(use_true_random=False)


@settings(SETTINGS, max_examples=150)
@given(st.sampled_from(hostile.codings()), CHANCE)
def test_a_mutated_file_of_any_format_is_audio_or_an_audio_error(tmp_path, coding, chance):
    path = tmp_path / "mutated"
    path.write_bytes(damaged(chance, hostile.encoded(*coding)))
    started = time.process_time()
    try:
        samples = decode(path)
    except AudioError as error:
        assert str(path) in str(error)
    else:
        assert np.isfinite(samples).all()
    assert time.process_time() - started < SOON


# Mutations: lists

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


# Corpora


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


@pytest.mark.parametrize("target", ["/dev/zero", "pipe", "n" * 5000, "a\0b", "missing.wav", "cat /etc/passwd |", "."])
def test_a_kaldi_list_that_names_no_file_is_refused_with_its_line(tmp_path, target):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "wav.scp").write_text(f"u {target}\n")
    (tmp_path / "utt2spk").write_text("u anna\n")
    with soon(), pytest.raises(InputError, match=r"wav\.scp, line 1: "):
        read_corpus(tmp_path)


def hostile_folder(folder: Path) -> list[Path]:
    """A speaker's folder in which nothing can be used."""
    folder.mkdir(parents=True)
    files = {
        "bomb.flac": hostile.flac_bomb(120, 400_000),
        "text.wav": b"hello, this is no audio at all\n" * 50,
        "nan.wav": hostile.wav(bits=32, tag=3, data=struct.pack("<100f", *[np.nan] * 100)),
        "empty.wav": b"",
        "cut.flac": hostile.encoded("FLAC", "PCM_16", 1.0)[:3000],
        "one.wav": hostile.wav(data=b"\1\2"),
        "header.wav": hostile.wav(data=b""),
        "rate.wav": hostile.encoded("WAV", "PCM_16").replace(struct.pack("<I", hostile.RATE), b"\1\0\0\0", 1),
    }
    for name, data in files.items():
        (folder / name).write_bytes(data)
    os.mkfifo(folder / "pipe.wav")
    (folder / "loop.wav").symlink_to(folder / "loop.wav")
    (folder / "round").symlink_to(folder.parent)
    (folder / "folder.wav").mkdir()
    return [folder / name for name in files]


def test_the_good_files_of_a_bad_folder_are_enrolled_and_the_others_reported(copied, recordings, tmp_path):
    files = hostile_folder(tmp_path / "corpus" / "hugo")
    for utterance in recordings["hugo"]:
        shutil.copy(utterance.path, tmp_path / "corpus" / "hugo")
    corpus = read_corpus(tmp_path / "corpus")
    report = enroll(copied, corpus.speakers)
    assert report.model.names[-1] == "hugo"
    skipped = {path.name for path, _ in report.skipped} | {path.name for path, _ in corpus.skipped}
    quiet = {"one.wav", "header.wav"}  # sound, but nothing in it
    assert skipped == {path.name for path in files} - quiet | {"pipe.wav", "loop.wav", "round"}
    assert report.enrolled[0].utterances == len(recordings["hugo"])


# The command


def test_the_command_refuses_every_hostile_file_by_name_and_scores_none(run, copied, tmp_path):
    files = hostile_folder(tmp_path / "mallory")
    before = content_of(copied)
    paths = [*files, tmp_path / "mallory" / "pipe.wav", tmp_path / "mallory" / "loop.wav", "/dev/zero", tmp_path]
    result = run("verify", copied, "--claim", "anna", "--json", *paths)
    assert result.code == 2
    lines = [json.loads(line) for line in result.out.splitlines()]
    assert [line["file"] for line in lines] == [str(path) for path in paths]
    assert all(line.get("score") is None and line["decision"] in (None, "not_enough_speech") for line in lines)
    for line in lines:
        assert line["decision"] or line["file"] in line["error"]
        assert line["decision"] or f"voiceclaim: {line['error']}" in result.err.splitlines()
    assert content_of(copied) == before


def test_what_a_decoder_prints_does_not_get_into_the_commands_output(run, store, tmp_path):
    whole = bytearray(hostile.encoded("CAF", "ALAC_16", 0.5))
    at = whole.index(b"pakt")
    last = at + 12 + struct.unpack(">Q", whole[at + 4 : at + 12])[0] - 1
    whole[last] = 0xFF  # the size of the last packet goes on behind the table
    (tmp_path / "a.caf").write_bytes(whole)
    result = run("verify", store, "--claim", "anna", "--json", tmp_path / "a.caf")
    assert "alac" in result.err, "this libsndfile is silent about it: find another file that makes it talk"
    assert len(result.out.splitlines()) == 1
    assert json.loads(result.out)["decision"] in (None, "not_enough_speech")


def test_names_cannot_move_the_cursor_or_add_lines(capsys):
    plain = ("🧑‍🚀", "Zoë", "山田\u3000太郎")
    names = ("anna\nbert  9", "\x1b[2J\x1b[H", "\u202eanna", "a\x9bb", "a\u2028b", "\udcff", *plain)
    print_table(("speaker", "seconds"), [(name, 1.5) for name in names])
    shown = capsys.readouterr().out
    assert len(shown.splitlines()) == 1 + len(names)
    assert not set(shown) & set("\x1b\u202e\x9b\u2028\udcff")
    assert all(name in shown for name in plain)
    print_error(f"{names[1]}: no such file\nand more")
    assert capsys.readouterr().err == "voiceclaim: \\x1b[2J\\x1b[H: no such file\nand more\n"


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "ascii"])
def test_output_is_json_whatever_it_can_hold(monkeypatch, encoding):
    buffer = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(buffer, encoding=encoding))
    value = {"name": "🧑‍🚀 Zoë", "file": os.fsdecode(b"M\xfcller.wav")}
    print_json(value)
    print_line(value["file"])
    line, words = buffer.getvalue().decode(encoding).splitlines()
    assert json.loads(line) == value
    assert words == "M\\udcfcller.wav"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no full device")
def test_output_that_cannot_be_written_is_said_so_once(monkeypatch, capsys):
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        with pytest.raises(SystemExit) as ended:
            print_line("accepted")
    assert ended.value.code == 2
    assert capsys.readouterr().err == "voiceclaim: the output cannot be written: No space left on device\n"


def test_a_closed_input_is_no_traceback(command, store):
    words = " ".join(f"'{word}'" for word in (*command, "verify", str(store), "--claim", "anna", "-"))
    done = subprocess.run(["sh", "-c", f"{words} <&-"], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "voiceclaim: -: the standard input is closed; pipe audio into the command\n"
