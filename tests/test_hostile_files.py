"""Paths that are not files, and files that promise terabytes, are refused by name, quickly and in little memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import hostile
import numpy as np
import pytest
import soundfile
from hostile import SOON, soon

from pipeline.audio.corpus import Utterance, read_corpus
from pipeline.audio.files import open_audio, read_samples
from pipeline.audio.rttm import read_rttm
from pipeline.errors import AudioError, AuditError, InputError, StoreError
from pipeline.evaluation import read_scores, read_trials
from pipeline.evaluation.report import read_metrics
from pipeline.store.store import Store
from pipeline.verification.audit import check_log, read_key

pytestmark = hostile.POSIX_ONLY


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
