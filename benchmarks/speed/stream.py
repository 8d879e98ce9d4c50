"""A claim being checked while the audio comes in, 10 ms at a time, on one thread.

The store is enrolled from recordings with the default settings (fused scores), but without one-vs-rest machines, which
that system does not use. Without corpora, speakers beyond those of the demo corpus are its recordings at other speeds.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import numpy as np
import soundfile
import soxr
from speed.measuring import Figures, held_kib, in_child, peak_gib
from speed.options import Options

from pipeline.audio.corpus import Utterance, read_corpus
from pipeline.audio.files import read_samples
from pipeline.config import Config
from pipeline.enrollment.enroll import enroll
from pipeline.scoring.decisions import Update
from pipeline.store.store import Store
from pipeline.verification.stream import VerificationStream
from pipeline.verification.verifier import Verifier

CHUNK_MS = 10
WARM_SECONDS = 120.0  # of audio before memory is measured: batches have their full length by then
QUICK_RECORDINGS = 4  # of each speaker, some ten seconds: what is enrolled changes no cost of a stream
SPEEDS = (1.0, 0.92, 1.08, 0.85, 1.16, 0.79, 1.25)
# Copies under other names, and voices that resemble each other, are made here on purpose.
CHECKS = ("clipping", "noise", "narrow_band", "duplicates", "consistency", "matches")
SETTINGS = tuple(f"checks.{check}=off" for check in CHECKS)


def measure(options: Options) -> Figures:
    """Enroll, then stream in another process, whose memory enrollment never used."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store"
        speakers = voices(options, Path(folder))
        started = time.perf_counter()
        enroll(path, speakers, options.config(*SETTINGS), jobs=os.cpu_count() or 1)
        enrolled = time.perf_counter() - started
        return {"stream.enroll_seconds": enrolled, **in_child(streamed, options, path, next(iter(speakers)))}


def voices(options: Options, folder: Path) -> dict[str, list[Utterance]]:
    """Return recordings of every speaker to enroll."""
    real = list(read_corpus(options.corpus / "enroll").speakers.items())
    if options.quick:
        real = [(name, utterances[:QUICK_RECORDINGS]) for name, utterances in real]
    found = {name: list(utterances) for name, utterances in real[: options.speakers]}
    for number in range(len(found), options.speakers):
        name, utterances = real[number % len(real)]
        speed = SPEEDS[number // len(real)]
        found[f"{name} at {speed}"] = [at_speed(utterance, speed, folder) for utterance in utterances]
    return found


def at_speed(utterance: Utterance, speed: float, folder: Path) -> Utterance:
    """Return a recording played faster or slower, as a file in ``folder``."""
    samples, rate = read_samples(utterance)
    path = folder / f"{utterance.speaker} {speed}" / utterance.path.with_suffix(".wav").name
    path.parent.mkdir(exist_ok=True)
    soundfile.write(path, soxr.resample(samples, rate * speed, rate), rate)
    return Utterance(path.parent.name, path)


def streamed(options: Options, path: Path, claim: str) -> Figures:
    """Push the audio chunk by chunk; then a minute of it in larger chunks."""
    config = Store(path).load().config
    verifier = Verifier(Store(path).load(), claim)
    samples = audio(options, config, claim)
    chunk = config.features.rate * CHUNK_MS // 1000
    stream = verifier.stream(config.features.rate)
    count, warm = int(60_000 * options.minutes / CHUNK_MS), int(1000 * WARM_SECONDS / CHUNK_MS)
    spent = np.full(count, 0.0)  # written, so that its pages are there before memory is measured
    held, processor = held_kib(), time.process_time()
    for n in range(count):
        start = n * chunk % (len(samples) - chunk)
        spent[n] = push(stream, samples[start : start + chunk])[0]
        if n == min(warm, count // 2):
            held = held_kib()
    grown, processor = held_kib() - held, time.process_time() - processor
    end = stream.close()
    coarse = in_chunks(verifier, samples, 10 * chunk)
    return {
        "stream.speakers": len(verifier.model.speakers),
        "stream.system": verifier.system,
        "stream.dtype": config.scoring.dtype,
        "stream.threads": 1,
        "stream.chunk_ms": CHUNK_MS,
        "stream.chunks": count,
        "stream.audio_seconds": end.audio_seconds,
        "stream.speech_seconds": end.speech_seconds,
        "stream.seconds": float(spent.sum()),
        "stream.rtf": float(spent.sum()) / end.audio_seconds,
        "stream.processor_rtf": processor / end.audio_seconds,
        "stream.p50_ms": 1e3 * float(np.median(spent)),
        "stream.p99_ms": 1e3 * float(np.percentile(spent, 99)),
        "stream.most_ms": 1e3 * float(spent.max()),
        "stream.growth_kib": grown,
        "stream.rtf_100ms_chunks": coarse,
        "stream.peak_gib": peak_gib(),
    }


def audio(options: Options, config: Config, claim: str) -> np.ndarray:
    """Return the claimed speaker's recordings to verify, at the store's rate, joined."""
    found = []
    for utterance in read_corpus(options.corpus / "verify").speakers[claim]:
        samples, rate = read_samples(utterance)
        found.append(soxr.resample(samples, rate, config.features.rate))
    return np.concatenate(found)


def push(stream: VerificationStream, samples: np.ndarray) -> tuple[float, Update]:
    """Push one chunk; return the seconds that it took, and the update."""
    started = time.perf_counter()
    update = stream.push(samples)
    return time.perf_counter() - started, update


def in_chunks(verifier: Verifier, samples: np.ndarray, chunk: int) -> float:
    """Return the real-time factor over the audio once, in chunks of so many samples."""
    stream = verifier.stream()
    spent = sum(push(stream, samples[start : start + chunk])[0] for start in range(0, len(samples), chunk))
    return spent / stream.close().audio_seconds
