"""Live use: the microphone's queue, the line on a terminal, prompts, and people who enroll by reading them aloud."""

from __future__ import annotations

import copy
import io
import json
import math
import os
import pickle
import random
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import soundfile
from populations import TINY

from pipeline.audio.downmix import Downmix
from pipeline.audio.microphone import SampleQueue, open_microphone
from pipeline.cli.app import signals_leave
from pipeline.cli.live import LevelMeter, until_interrupted, verify_live
from pipeline.cli.record import PhraseRecorder, _files, prompts, record
from pipeline.config import Config, FeatureSettings
from pipeline.enrollment.enroll import enroll
from pipeline.errors import (
    AudioError,
    ConfigError,
    EnrollmentRefusedError,
    InputError,
    NotEnoughSpeechError,
    SpeakerExistsError,
)
from pipeline.store.store import Store
from pipeline.verification.identifier import Identifier
from pipeline.verification.verifier import Verifier

pty = pytest.importorskip("pty")  # not on Windows
COLUMNS = 100


@pytest.mark.parametrize("make", [Verifier, Identifier])
def test_a_stream_takes_audio_from_one_thread_at_a_time_and_has_no_copies(store, heard, make):
    model = Store(store).load()
    stream = (Verifier(model, "anna") if make is Verifier else Identifier(model)).stream(8000)
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(InputError, match=r": a stream cannot be copied or pickled"):
            copied(stream)
    chunks = iter(np.array_split(np.tile(soundfile.read(heard("anna"))[0], 5), 2000))
    taking, refused, taken = threading.Lock(), [], []

    def push() -> None:
        while True:
            with taking:
                chunk = next(chunks, None)
            if chunk is None:
                return
            try:
                stream.push(chunk)
                taken.append(len(chunk))
            except InputError as error:
                refused.append(str(error))

    with ThreadPoolExecutor(8) as threads:
        for done in [threads.submit(push) for _ in range(8)]:
            done.result()
    assert all(": one thread at a time pushes audio" in text for text in refused)
    assert refused
    assert stream.close().audio_seconds == pytest.approx(sum(taken) / 8000)


def on_a_terminal(words: list[str], data: bytes, *, cwd: Path, out: bool = True) -> tuple:
    """Run the command with its error output, and its output too unless not ``out``, on a terminal of its own.

    The exit code, what the terminal showed, and the output where that was a pipe. The audio begins when the command
    shows that it listens, unless it speaks JSON, and then comes faster than it is spoken, but not all at once.
    """
    shown, terminal = pty.openpty()
    variables = {**os.environ, "COLUMNS": str(COLUMNS), "TERM": "xterm"}
    output = terminal if out else subprocess.PIPE
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=output, stderr=terminal, cwd=cwd, env=variables
    ) as process:
        os.close(terminal)
        listening = threading.Event()
        if "--json" in words:
            listening.set()
        feeder = threading.Thread(target=_feed, args=(process.stdin, data, listening))
        feeder.start()
        seen = bytearray()
        with suppress(OSError):  # the terminal's last user is gone
            while part := os.read(shown, 65_536):
                seen += part
                listening.set()
        printed = b"" if out else process.stdout.read()
        listening.set()
        feeder.join()
        code = process.wait(timeout=60)
    os.close(shown)
    return code, seen.decode(), printed.decode()


def _feed(pipe: io.BufferedWriter, data: bytes, listening: threading.Event) -> None:
    with suppress(BrokenPipeError):  # the command has enough
        pipe.write(data[:1000])  # with the header, which the command waits for
        pipe.flush()
        listening.wait(60)
        for at in range(1000, len(data), 8000):
            pipe.write(data[at : at + 8000])
            pipe.flush()
            time.sleep(0.1)
        pipe.close()


def wav(samples: np.ndarray, rate: int) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format="WAV", subtype="PCM_16")
    return file.getvalue()


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGINT to send")
@pytest.mark.parametrize("where", ["while a block is scored", "while it listens"])
def test_an_interruption_ends_the_audio_and_the_claim_is_decided_by_what_was_heard(opened, said, where):
    samples, rate = said
    blocks = np.array_split(samples, 40)
    verifier, before = Verifier(opened, "anna"), signal.getsignal(signal.SIGINT)

    def listen():
        for number, block in enumerate(blocks):
            if number == 30 and where == "while it listens":
                os.kill(os.getpid(), signal.SIGINT)
            yield block

    def report(update) -> None:
        if update.audio_seconds * rate >= 0.7 * len(samples) and where == "while a block is scored":
            os.kill(os.getpid(), signal.SIGINT)

    update = verify_live(
        verifier, rate, until_interrupted(listen()), 0.0, report, mix=Downmix("microphone"), live=False
    )
    heard = round(update.audio_seconds * rate)
    assert 0.7 * len(samples) <= heard < len(samples)
    whole = verifier.verify(samples[:heard], rate)
    assert (update.settled, update.decision, update.frames) == (True, whole.decision, whole.frames)
    assert update.score == pytest.approx(whole.score, abs=1e-6)
    assert signal.getsignal(signal.SIGINT) is before


# The queue of a microphone


def test_blocks_come_out_as_they_went_in_though_the_buffer_is_filled_again():
    source, buffer = SampleQueue(8000), np.empty((160, 1), dtype=np.float32)

    def callback() -> None:
        for number in range(50):
            buffer[:] = number / 100
            source.put(buffer)
        source.close()

    thread = threading.Thread(target=callback)
    thread.start()
    blocks = list(source.blocks())
    thread.join()
    assert [len(block) for block in blocks] == [160] * 50
    np.testing.assert_allclose(np.concatenate(blocks), np.repeat(np.arange(50) / 100, 160), atol=1e-7)
    assert source.lost == 0


def test_several_channels_become_their_mean():
    source = SampleQueue(8000)
    source.put(np.array([[0.5, -0.5], [1.0, 0.0]]))
    source.close()
    np.testing.assert_array_equal(next(source.blocks()), [0.0, 0.5])


def test_a_listener_who_is_too_slow_loses_sound_and_hears_how_much():
    source = SampleQueue(1000, waiting=1.0)
    for _ in range(15):
        source.put(np.zeros(100))
    source.close()
    assert sum(map(len, source.blocks())) == 1000
    assert source.lost == pytest.approx(0.5)
    source.put(np.zeros(100))  # there is room again
    assert len(next(source.blocks())) == 100


def test_a_microphone_that_gives_nothing_any_more_is_an_error():
    source = SampleQueue(8000, silent=0.05)
    source.put(np.zeros(80))
    with pytest.raises(AudioError, match="unplugged"):
        list(source.blocks())


def test_without_a_microphone_there_is_an_error_that_says_what_to_do(tmp_path, monkeypatch):
    """This machine has no sound card: sounddevice, PortAudio or the device is missing."""
    try:
        with open_microphone():
            pytest.skip("this machine has a microphone")
    except AudioError as error:
        assert re.search(r"pip install '\.\[mic\]'|libportaudio2|plugged in", str(error))
    monkeypatch.setitem(sys.modules, "sounddevice", None)
    with pytest.raises(AudioError, match=r"microphone: .*pip install '\.\[mic\]'"):
        record("bert", tmp_path / "new.store")
    assert not (tmp_path / "new.store").exists()


# The line


def test_the_meter_shows_level_silence_and_clipping():
    tone = np.sin(2 * np.pi * 440 * np.arange(8000) / 8000)
    meter = LevelMeter(max_clipped=0.001)
    meter.push(np.zeros(100))
    assert (meter.level_db, "silence" in str(meter)) == (-math.inf, True)
    meter.push(np.round(tone * 2) / 2**15)  # a dither of one bit
    assert "CLIPPED" not in str(meter)
    meter.push(tone * 0.1 * 2**0.5)
    assert meter.level_db == pytest.approx(-20)
    assert str(meter) == "[########....]  -20 dB"
    meter.push(np.clip(tone * 1.2, -1, 1))
    assert str(meter).endswith("CLIPPED")
    for _ in range(500):
        meter.push(tone * 0.5)
    assert not meter.clipped


def test_a_pipe_on_a_terminal_is_a_line_drawn_in_place_and_then_the_decision(store, said, command, tmp_path):
    samples, rate = said
    words = [*command, "verify", str(store), "--claim", "anna", "-"]
    code, shown, _ = on_a_terminal(words, wav(samples, rate), cwd=tmp_path)
    assert code == 0
    drawn = shown.split("\r\x1b[2K")
    assert len(drawn) > 4
    assert re.search(r"\x1b\[2K\x1b\[32m\x1b\[1maccepted\x1b\[0m 'anna': score [^\r]*\r\n$", shown)
    assert "{" not in shown
    moving = [text for text in drawn[1:-1] if "s of speech" in text]
    assert all("\n" not in text and len(text) < COLUMNS for text in moving)
    assert all(re.match(r"\[[#.]{12}\] ", text) for text in moving)
    seconds = [float(re.search(r"([\d.]+) s of speech", text)[1]) for text in moving]
    assert seconds == sorted(seconds)
    assert seconds[-1] > 0.5
    assert any("accepted so far" in text for text in moving)


def test_an_output_that_programs_read_gets_lines_and_the_terminal_the_line(store, said, command, tmp_path):
    samples, rate = said
    words = [*command, "verify", str(store), "--claim", "anna", "-"]
    code, shown, printed = on_a_terminal(words, wav(samples, rate), cwd=tmp_path, out=False)
    tables = [json.loads(line) for line in printed.splitlines()]
    assert code == 0
    assert tables[-1]["state"] == "closed"
    assert len(tables) > 3
    assert "\r\x1b[2K[" in shown
    assert "'anna': score" not in shown


@pytest.mark.slow
def test_json_on_a_terminal_is_json_and_nothing_else(store, said, command, tmp_path):
    samples, rate = said
    words = [*command, "verify", str(store), "--claim", "anna", "--json", "-"]
    _, shown, _ = on_a_terminal(words, wav(samples, rate), cwd=tmp_path)
    assert [json.loads(line)["claim"] for line in shown.splitlines()].count("anna") > 3
    assert "\x1b" not in shown


# Prompts


def test_phrases_are_three_numbers_drawn_anew_none_again_before_all_were_used():
    drawn = [phrase.split() for phrase in islice(prompts(random.Random(1)), 24)]  # noqa: S311
    assert all(len(phrase) == 3 for phrase in drawn)
    numbers = [number for phrase in drawn for number in phrase]
    assert sorted(map(int, numbers)) == [10 * tens + ones for tens in range(2, 10) for ones in range(1, 10)]
    assert list(islice(prompts(), 5)) != list(islice(prompts(), 5))


# Recording


def recorded(samples: np.ndarray, rate: int) -> PhraseRecorder:
    recorder = PhraseRecorder(Config(features=FeatureSettings(rate=8000)), rate)
    for at in range(0, len(samples), 800):
        recorder.push(samples[at : at + 800])
        if recorder.over:
            break
    return recorder


def test_a_phrase_is_over_at_the_pause_after_it(said):
    samples, rate = said
    spoken = samples[: np.flatnonzero(np.abs(samples) > 0.02)[-1]]
    recorder = recorded(np.concatenate([np.zeros(rate), spoken, np.zeros(5 * rate)]), rate)
    assert recorder.over
    assert recorder.seconds == pytest.approx(1 + len(spoken) / rate + 0.8, abs=0.3)
    phrase, _, fault = recorder.finish()
    assert fault == ""
    assert len(phrase) == round(recorder.seconds * rate)
    assert 0.6 < recorder.speech_seconds < recorder.seconds


def test_a_phrase_that_never_comes_is_given_up():
    recorder = recorded(np.zeros(8000 * 30), 8000)
    assert recorder.over
    assert recorder.seconds == pytest.approx(20, abs=0.2)
    assert recorder.finish()[2] == "no speech detected"


def test_phrases_that_are_clipped_or_faint_are_no_good(said):
    samples, rate = said
    loud = np.clip(20 * samples / np.abs(samples).max(), -1, 1)
    assert "clipped" in recorded(loud, rate).finish()[2]
    assert recorded(samples * 1e-3 / np.abs(samples).max(), rate).finish()[2] == "too quiet"


def dictated(recordings, voice: str, *, faint: tuple[int, ...] = (), count: int = 12) -> tuple[np.ndarray, int]:
    """Phrases of a demo voice with pauses between; those in ``faint`` nearly inaudible."""
    parts = []
    for number, utterance in enumerate(recordings[voice][:count]):
        samples, rate = soundfile.read(utterance.path)
        parts += [samples * (1e-3 if number in faint else 1.0), np.zeros(round(1.2 * rate))]
    return np.concatenate(parts), rate


@pytest.mark.slow
def test_a_person_is_enrolled_by_reading_aloud_and_then_scores_well(
    copied, recordings, heard, command, tmp_path, monkeypatch
):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    samples, rate = dictated(recordings, "greta", faint=(1,))
    words = [*command, "record", "greta", "-", "--store", str(copied), "--seconds", "8"]
    code, shown, _ = on_a_terminal(words, wav(samples, rate), cwd=tmp_path)
    assert code == 0, shown
    assert re.search(r"say:  \d\d \d\d \d\d\r\n", shown)
    assert "too quiet; please repeat" in shown
    to_go = [float(outcome) for outcome in re.findall(r"good: .* ([\d.]+) s to go", shown)]
    assert to_go == sorted(to_go, reverse=True)
    assert to_go[-1] == 0.0
    assert re.search(r"\[[#.]{12}\].* s of speech, [\d.]+ s to go", shown)
    assert "greta: enrolled with" in shown and "the audio ended" not in shown
    assert not list(tmp_path.glob("voiceclaim-*"))  # the recordings are gone
    assert "greta" in Store(copied).load().names
    scores = [Verifier(Store(copied).load(), name).verify_file(heard("greta")).score for name in ("greta", "anna")]
    assert scores[0] > scores[1] + 0.1


@pytest.fixture
def read_aloud(recordings, tmp_path, monkeypatch):
    """read_aloud(count): standard input is so many phrases of the voice hugo."""

    def start(count: int) -> None:
        (tmp_path / "hugo.wav").write_bytes(wav(*dictated(recordings, "hugo", count=count)))
        monkeypatch.setattr(sys, "stdin", (tmp_path / "hugo.wav").open())

    yield start
    sys.stdin.close()


def test_recordings_are_kept_where_asked_and_an_early_end_counts(copied, read_aloud, tmp_path, capsys):
    read_aloud(3)
    record("hugo", copied, "-", keep=tmp_path / "kept", jobs=1, as_json=True)
    shown = capsys.readouterr()
    table = json.loads(shown.out)
    assert len(list((tmp_path / "kept" / "hugo").glob("*.wav"))) == table["phrases"] == 3
    assert table["speech_seconds"] < table["asked_seconds"]
    assert "\x1b" not in shown.err


@pytest.mark.parametrize("as_json", [True, False])
def test_warnings_about_what_was_recorded_are_told(read_aloud, tmp_path, capsys, as_json):
    read_aloud(3)
    record("hugo", tmp_path / "new.store", "-", override=[*TINY, "checks.min_snr_db=300"], jobs=1, as_json=as_json)
    shown = capsys.readouterr()
    if as_json:
        (warning,) = json.loads(shown.out)["warnings"]
        assert (warning["name"], warning["check"]) == ("hugo", "noise")
    else:
        assert "warning: speaker 'hugo': the signal-to-noise ratio is" in shown.err
        assert re.search(r"note: the audio ended after [\d.]+ of 40 s of speech", shown.err)


def test_phrases_that_are_copies_are_named_by_their_number_unless_their_files_are_kept(
    tmp_path, copied, read_aloud, tiny_with, capsys
):
    read_aloud(3)
    warned = tmp_path / "warned.store"
    for store, config in ((copied, None), (warned, tiny_with("checks.duplicates=warn"))):
        enroll(store, {"hugo again": [tmp_path / "hugo.wav"]}, config)
    with pytest.raises(EnrollmentRefusedError, match=r"3 of 3 recordings .* the first of them phrase 1\."):
        record("hugo", copied, "-", jobs=1)
    for keep, named in ((tmp_path / "kept", r"kept/hugo/phrase_000\.wav"), (None, "phrase 1")):
        sys.stdin.close()
        read_aloud(3)
        record("hugo" if keep else "hugo b", warned, "-", keep=keep, jobs=1)
        assert re.search(rf"3 of 3 recordings .*the first of them \S*{named}\.", capsys.readouterr().err)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_recordings_that_are_not_kept_are_deleted_where_a_signal_ends_the_command(number, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = signal.getsignal(number)
    with pytest.raises(SystemExit) as left, signals_leave(), _files([np.zeros(800)], 8000, None) as paths:
        assert all(path.is_relative_to(tmp_path) and path.exists() for path in paths)
        signal.raise_signal(number)
    assert left.value.code == 128 + number
    assert list(tmp_path.iterdir()) == [] and signal.getsignal(number) == before


def test_a_closed_terminal_does_not_end_a_command_under_nohup():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with signals_leave():
            signal.raise_signal(signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_too_little_speech_enrolls_nobody(copied, read_aloud):
    before = copied.read_bytes()
    read_aloud(1)
    with pytest.raises(NotEnoughSpeechError, match="hugo"):
        record("hugo", copied, "-")
    assert copied.read_bytes() == before


@pytest.mark.parametrize("name", ["hugo", "a/b", ".hugo"])
def test_recordings_are_kept_in_a_folder_of_their_own_or_refused_before_anybody_speaks(copied, tmp_path, capsys, name):
    kept = tmp_path / "kept" / "hugo" / "phrase_000.wav"
    kept.parent.mkdir(parents=True)
    kept.write_bytes(b"earlier")
    with pytest.raises(InputError, match="--keep"):
        record(name, copied, "-", keep=tmp_path / "kept")
    assert "say:" not in capsys.readouterr().err
    assert kept.read_bytes() == b"earlier"


def test_a_name_that_is_taken_is_refused_before_anybody_speaks(copied, capsys):
    with pytest.raises(SpeakerExistsError, match="enrolled already"):
        record("anna", copied, "-")
    assert "say:" not in capsys.readouterr().err


def test_settings_that_are_not_those_of_the_store_are_refused_before_anybody_speaks(copied, capsys):
    with pytest.raises(ConfigError, match="enrolled with other settings"):
        record("hugo", copied, "-", override=["codebook.centroids=7"])
    assert "say:" not in capsys.readouterr().err
