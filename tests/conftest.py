"""Fixtures for all tests: the demo corpus, one small enrolled store, and a way to run the real command."""

from __future__ import annotations

import functools
import importlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import soundfile
from hypothesis import settings
from populations import TINY

from pipeline.audio.corpus import Utterance, read_corpus
from pipeline.cli.main import main
from pipeline.config import Config, load_config
from pipeline.enrollment.enroll import enroll
from pipeline.evaluation import NameColumn, TrialTable
from pipeline.store.model import SpeakerModel
from pipeline.store.store import Store

ROOT = Path(__file__).resolve().parents[1]
VOICES = ("anna", "dexter", "ivan", "lars")
# What the tests count on is said here, whatever the defaults are.
COMMAND = (sys.executable, "-c", "from pipeline.cli.main import main; main()")
# librosa compiles functions of several signatures when it is imported. Where two processes do so at once and numba's
# cache is empty, a function may be stored as another, and who calls it crashes: so it is imported before workers start.
if "PYTEST_XDIST_WORKER" not in os.environ:
    importlib.import_module("librosa.core.pitch")
# The same cases are generated in every run: a change is judged by what it does, not by what was drawn for it. New cases
# are drawn by --hypothesis-profile=default.
settings.register_profile("same", derandomize=True)
settings.load_profile("same")
# Where a shell runs the tests in the background, SIGINT is ignored, and would be by every command that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)


@dataclass(frozen=True)
class Result:
    """Outcome of a finished command: its exit code and its two outputs."""

    code: int
    out: str
    err: str


@pytest.fixture(scope="session")
def demo() -> Path:
    """The demo corpus of synthetic voices, 8 kHz."""
    return ROOT / "data" / "demo"


@pytest.fixture(scope="session")
def voices() -> tuple[str, ...]:
    """The four demo voices that the session's store holds, in enrollment order."""
    return VOICES


@pytest.fixture(scope="session")
def tiny() -> Config:
    """Settings that enroll in a fraction of a second."""
    return load_config(None, TINY)


@pytest.fixture(scope="session")
def tiny_with() -> Callable[..., Config]:
    """tiny_with("key=value", ...): ``tiny`` with some settings changed."""
    return lambda *overrides: load_config(None, [*TINY, *overrides])


@pytest.fixture(scope="session")
def recordings(demo) -> dict[str, tuple[Utterance, ...]]:
    """Enrollment utterances of every demo voice."""
    return read_corpus(demo / "enroll").speakers


@pytest.fixture(scope="session")
def wide_band(tmp_path_factory, recordings) -> dict[str, list[Utterance]]:
    """Enrollment utterances of speech up to 8 kHz: three demo voices, played twice as fast."""
    folder, fast = tmp_path_factory.mktemp("wide"), {}
    for voice in ("anna", "dexter", "ivan"):
        for number, one in enumerate(recordings[voice]):
            path = folder / f"{voice}{number}.wav"
            soundfile.write(path, soundfile.read(one.path)[0], 16_000)
            fast.setdefault(voice, []).append(Utterance(voice, path))
    return fast


@pytest.fixture(scope="session")
def heard(demo) -> Callable[[str, int], Path]:
    """heard(voice, n): the n-th verification file of a demo voice, never enrolled."""
    return lambda voice, n=0: sorted((demo / "verify" / voice).glob("*.flac"))[n]


@pytest.fixture(scope="session")
def said(heard) -> tuple[np.ndarray, int]:
    """Samples and rate of one of anna's verification files."""
    return soundfile.read(heard("anna"))


@pytest.fixture(scope="session")
def store(tmp_path_factory, recordings, tiny) -> Path:
    """A store of the four voices. Many tests read it: change a ``copied`` one instead."""
    path = tmp_path_factory.mktemp("shared") / "voices.store"
    enroll(path, {name: recordings[name] for name in VOICES}, tiny)
    return path


@pytest.fixture(scope="session")
def opened(store) -> SpeakerModel:
    """The session's store, opened."""
    return Store(store).load()


@pytest.fixture
def copied(store, tmp_path) -> Path:
    """A copy of the session's store, free to be changed."""
    return Path(shutil.copy(store, tmp_path / "copy.store"))


@pytest.fixture(scope="session")
def trials() -> TrialTable:
    """Twelve models, five segments of each, every segment claimed for everybody."""
    rng = np.random.default_rng(5)
    models, segments = np.tile(np.arange(12), 60), np.repeat(np.arange(60), 12)
    targets = models == segments % 12
    scores = np.round(rng.normal(np.where(targets, 2.0, -2.0), 1.6), 3)
    columns = NameColumn.of(f"spk{k}" for k in models), NameColumn.of(f"utt/{k}.wav" for k in segments)
    return TrialTable(*columns, targets, scores, scores)


@pytest.fixture(scope="session")
def trial_lines(voices, heard, demo) -> list[tuple[str, str, bool]]:
    """Claims for four voices on two files of each and of a stranger."""
    return [
        (claim, heard(speaker, n).relative_to(demo).as_posix(), claim == speaker)
        for speaker in (*voices, "marta")
        for n in range(2)
        for claim in voices
    ]


@pytest.fixture
def corpus_of(tmp_path, demo) -> Callable[..., Path]:
    """corpus_of(anna=3, ...): a folder with the first so many enrollment files of each voice."""

    def build(name: str = "corpus", /, **counts: int) -> Path:
        for voice, count in counts.items():
            folder = tmp_path / name / voice
            folder.mkdir(parents=True)
            for file in sorted((demo / "enroll" / voice).glob("*.flac"))[:count]:
                shutil.copy(file, folder)
        return tmp_path / name

    return build


@pytest.fixture(scope="session")
def silence(tmp_path_factory) -> Path:
    """Two seconds of digital silence."""
    path = tmp_path_factory.mktemp("audio") / "silence.wav"
    soundfile.write(path, np.zeros(16_000), 8_000)
    return path


@pytest.fixture(scope="session")
def garbage(tmp_path_factory) -> Path:
    """A file that is named like audio and is not."""
    path = tmp_path_factory.mktemp("audio") / "garbage.wav"
    path.write_bytes(b"RIFF" + bytes(range(256)) * 20)
    return path


@pytest.fixture(scope="session")
def command() -> tuple[str, ...]:
    """The words that start the real command in a process of its own."""
    return COMMAND


@pytest.fixture(scope="session")
def run_in() -> Callable[..., Result]:
    """run_in(folder, *words, data=bytes): the real command, to its end; no traceback or warning may show."""

    def start(folder: Path, *words: object, data: bytes = b"") -> Result:
        arguments = [*COMMAND, *map(str, words)]
        done = subprocess.run(arguments, input=data, capture_output=True, cwd=folder, timeout=300, check=False)
        result = Result(done.returncode, done.stdout.decode(), done.stderr.decode())
        last = (result.err.splitlines() or [""])[-1]
        assert "Traceback" not in result.err, f"{' '.join(arguments[3:])}: {last}"
        assert "Warning" not in result.err, result.err
        return result

    return start


@pytest.fixture
def run(run_in, tmp_path) -> Callable[..., Result]:
    """run(*words, data=bytes): ``run_in`` an empty folder."""
    return functools.partial(run_in, tmp_path)


@pytest.fixture
def inside(tmp_path, monkeypatch, capsys) -> Callable[..., SimpleNamespace]:
    """inside(*words, data=bytes): ``run`` in this process, without the seconds of its start."""

    def start(*words: object, data: bytes = b"") -> SimpleNamespace:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["voiceclaim", *map(str, words)])
        with tempfile.TemporaryFile() as file, pytest.raises(SystemExit) as ended:
            file.write(data)
            file.seek(0)
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(file))
            main()
        out, err = capsys.readouterr()
        lines = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
        return SimpleNamespace(code=ended.value.code or 0, out=out, err=err, lines=lines)

    return start


@pytest.fixture
def refused(inside) -> Callable[..., str]:
    """refused(*words, data=bytes): what an error prints; nothing else is printed, and the exit code is 2."""

    def start(*words: object, data: bytes = b"") -> str:
        result = inside(*words, data=data)
        assert (result.code, result.out) == (2, "")
        return result.err

    return start
