"""Times that users wait, under the default settings, for commands that they type: enrolling, adding, verifying.

Each command is a process of its own, on every core that it takes by default. A peer, where it is installed
(``pip install resemblyzer``), does the same work in the same run: embeddings of the same files, one process.
"""

from __future__ import annotations

import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import soundfile
from speed.measuring import Figures, seconds_of
from speed.options import Options

import pipeline
from pipeline.audio.corpus import read_corpus

ADDED_SECONDS = 13.0  # of recordings of the speaker who is added
ROUNDS, QUICK_ROUNDS = 5, 3
CLAIMS = 20  # recordings that are verified, warm
# A running process adds a speaker, as the service's does. The first time, which includes imports, is not counted.
LIVING = """
import os, sys, time
from pipeline import enroll, remove_speaker
store, folder, name, times = sys.argv[1:]
for _ in range(1 + int(times)):
    began = time.perf_counter()
    enroll(store, folder, jobs=os.cpu_count() or 1)
    print(time.perf_counter() - began)
    remove_speaker(store, name)
"""
PEER = """
import sys, warnings
warnings.simplefilter("ignore")
from resemblyzer import VoiceEncoder, preprocess_wav
encoder = VoiceEncoder("cpu", verbose=False)
for path in sys.argv[1:]:
    encoder.embed_utterance(preprocess_wav(path))
"""


def measure(options: Options) -> Figures:
    """Measure the median waiting times, and the sizes of the stores."""
    found: Figures = {}
    corpus = options.corpus if options.corpora is None else options.corpora / "commands30"
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        rest, one = _parted(corpus / "enroll", folder)
        store = folder / "speakers.store"
        settings = ["--set", "features.rate=8000"] if options.corpora is None else []
        seconds = seconds_of(lambda: _command("enroll", str(rest), "--store", str(store), *settings))
        found["enroll.speakers"] = len(list(rest.iterdir()))
        found["enroll.seconds"] = seconds
        found["enroll.seconds_per_hour_of_audio"] = seconds / _seconds_of_audio(rest) * 3600.0
        found["store.mib"] = store.stat().st_size / 2**20
        name, times, rounds = next(one.iterdir()).name, [], QUICK_ROUNDS if options.quick else ROUNDS
        for _ in range(rounds):
            times.append(seconds_of(lambda: _command("enroll", str(one), "--store", str(store))))
            _command("speakers", "remove", str(store), name)
        living = _run([sys.executable, "-c", LIVING, str(store), str(one), name, str(rounds)])
        found["add.seconds"] = statistics.median(times)
        found["add.warm_seconds"] = statistics.median(map(float, living.split()[1:]))
        found["add.seconds_of_audio"] = _seconds_of_audio(one)
        found |= _claims(corpus / "verify", store)
        found |= _peer(rest, one)
    return found


def _parted(source: Path, folder: Path) -> tuple[Path, Path]:
    """Return a folder of all speakers of ``source`` but the last, and one of the last with ``ADDED_SECONDS``."""
    rest, one = folder / "rest", folder / "one"
    *speakers, last = sorted(path for path in source.iterdir() if path.is_dir())
    for speaker in speakers:
        (rest / speaker.name).parent.mkdir(exist_ok=True)
        (rest / speaker.name).symlink_to(speaker.resolve(), target_is_directory=True)
    (one / last.name).mkdir(parents=True)
    total = 0.0
    for path in sorted(last.iterdir()):
        if total < ADDED_SECONDS:
            shutil.copy(path, one / last.name)
            total += soundfile.info(path).duration
    return rest, one


def _claims(folder: Path, store: Path) -> Figures:
    """Measure the milliseconds of a claim and an identification, the store open, and of a claim by a new process."""
    model = pipeline.Store(store).load()
    files = [utterance.path for own in read_corpus(folder).speakers.values() for utterance in own]
    some = files[:: max(1, len(files) // CLAIMS)][:CLAIMS]
    verifier, identifier = pipeline.Verifier(model, model.names[0]), pipeline.Identifier(model)
    calls: dict[str, Callable[[Path], object]] = {
        "claim.ms": verifier.verify_file,
        "identify.ms": identifier.identify_file,
        "claim.cold_ms": lambda path: _command(
            "verify", str(store), "--claim", model.names[0], str(path), accepts=(0, 1, 3)
        ),
    }
    found: Figures = {"claim.seconds_of_audio": statistics.mean(soundfile.info(path).duration for path in some)}
    for key, call in calls.items():
        call(some[0])
        found[key] = 1000.0 * statistics.median(seconds_of(partial(call, path)) for path in some)
    return found


def _peer(rest: Path, one: Path) -> Figures:
    """Return the seconds that Resemblyzer takes to embed the same recordings; nothing where it is not installed."""
    try:
        import resemblyzer  # noqa: F401
    except ImportError:
        return {}
    # One speaker at a time: a pattern for all folders would skip those that are links.
    paths = {
        key: [str(path) for speaker in sorted(folder.iterdir()) for path in sorted(speaker.iterdir())]
        for key, folder in (("enroll", rest), ("add", one))
    }
    return {
        f"{key}.resemblyzer_seconds": seconds_of(partial(_run, [sys.executable, "-c", PEER, *own]))
        for key, own in paths.items()
    }


def _command(*arguments: str, accepts: tuple[int, ...] = (0,)) -> None:
    """Run ``voiceclaim`` with ``arguments``; raises RuntimeError with its output unless its exit code is accepted."""
    _run([sys.executable, "-c", "from pipeline.cli.main import main; main()", *arguments], accepts)


def _run(command: list[str], accepts: tuple[int, ...] = (0,)) -> str:
    # An installed program finds its modules compiled: without that, each process would compile them first.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode not in accepts:
        raise RuntimeError(f"{' '.join(command[2:6])}: exit code {done.returncode}\n{done.stderr}")
    return done.stdout


def _seconds_of_audio(folder: Path) -> float:
    return math.fsum(soundfile.info(path).duration for speaker in folder.iterdir() for path in speaker.iterdir())
