#!/usr/bin/env python3
"""Voice activity detection in rumble, hum and noise: the frames that pass, and the effect on verification.

    python benchmarks/vad.py CORPORA [--jobs N] [--json OUT]

CORPORA holds commands30. For each band in which the level of a frame is measured, its speakers are enrolled from clean
speech with small supervector machines, and half the files of trials_dev are verified, degraded as
``robustness.py`` does it. A row gives the equal error rate of the trials that could be scored, the files that could
not, and the share of frames that pass: of those that the level of the whole band passes in the clean file (hits), and
of the others (false alarms).
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from robustness import (
    Bench,
    Condition,
    Scene,
    add_babble,
    add_white_noise,
    by_telephone,
    equal_error_rate,
    percent,
    read,
)

import pipeline
from benchmarks.tables import decimals, markdown_table
from pipeline.audio.augmentation import mix_at_snr
from pipeline.audio.streams import Samples
from pipeline.config import Config, FeatureSettings
from pipeline.features.framing import FrameStream
from pipeline.features.vad import VoiceActivityDetector, speech_level

WHOLE = (0, 8000)  # Hz: the level of the frame itself
BANDS = (WHOLE, (150, 4000), (150, 8000), (200, 4000), (150, 2000), (100, 4000), (250, 4000))
CHEAP = (
    'machines.kinds=["one_class", "supervector"]',
    'scoring.system="supervector_rival"',
    "supervector.speeds_below=0",
    "ubm.components=64",
)


def shaped_noise(count: int, scene: Scene, gain: Callable[[Samples], Samples]) -> Samples:
    """Return noise (n,) through a filter of this gain at frequencies in Hz."""
    spectrum = np.fft.rfft(scene.rng.standard_normal(count))
    return np.fft.irfft(spectrum * gain(np.fft.rfftfreq(count, 1.0 / scene.rate)), count)


def add_rumble(samples: Samples, scene: Scene, *, snr_db: float) -> Samples:
    """Add noise below 100 Hz at a ratio."""
    noise = shaped_noise(len(samples), scene, lambda hertz: (hertz < 100.0).astype(np.float64))
    return mix_at_snr(samples, noise, snr_db)


def add_pink_noise(samples: Samples, scene: Scene, *, snr_db: float) -> Samples:
    """Add noise that falls 3 dB an octave, from 20 Hz on, at a ratio."""
    noise = shaped_noise(len(samples), scene, lambda hertz: np.maximum(hertz, 20.0) ** -0.5)
    return mix_at_snr(samples, noise, snr_db)


def add_hum(samples: Samples, scene: Scene, *, snr_db: float) -> Samples:
    """Add 50 Hz and four harmonics, the n-th of amplitude 1/n, at a ratio."""
    phase = 2.0 * np.pi * (50.0 / scene.rate * np.arange(len(samples)) + scene.rng.uniform())
    return mix_at_snr(samples, np.sum([np.sin(n * phase) / n for n in range(1, 6)], axis=0), snr_db)


CONDITIONS = (
    Condition("clean"),
    *(Condition(f"rumble, {db} dB", partial(add_rumble, snr_db=db)) for db in (0, -10)),
    Condition("hum, 0 dB", partial(add_hum, snr_db=0)),
    Condition("pink noise, 10 dB", partial(add_pink_noise, snr_db=10)),
    *(Condition(f"white noise, {db} dB", partial(add_white_noise, snr_db=db)) for db in (20, 10, 0)),
    Condition("babble, 10 dB", partial(add_babble, snr_db=10)),
    Condition("telephone", by_telephone),
)


def row_of(bench: Bench, condition: Condition) -> dict[str, Any]:
    """Enroll if that is still to be done, verify, count the frames that pass."""
    store = bench.store(CONDITIONS[0])
    system = store.config.scoring.system
    with tempfile.TemporaryDirectory(dir=bench.work) as folder:
        root = bench.recordings(condition, Path(folder))
        found = pipeline.assess(store, bench.trials, root, systems=(system,), jobs=bench.jobs)
        passed = np.concatenate([speech_of(root / path, bench.config.features) for path in bench.paths])
    whole = with_band(WHOLE).features
    reference = np.concatenate([speech_of(bench.root / path, whole) for path in bench.paths])
    scores = found.scores[system]
    return {
        "condition": condition.name,
        "eer_percent": percent(equal_error_rate(scores.target, scores.nontarget)),
        "trials_not_scored": found.failed_trials,
        "trials": len(bench.trials),
        "hit_percent": percent(float(passed[reference].mean())),
        "false_alarm_percent": percent(float(passed[~reference].mean())),
    }


def with_band(band: tuple[int, int]) -> Config:
    """Return the cheap settings with levels in this band."""
    low, high = map(float, band)
    return pipeline.load_config(None, [*CHEAP, f"features.vad.low_hz={low}", f"features.vad.high_hz={high}"])


def speech_of(path: Path, settings: FeatureSettings) -> NDArray[np.bool_]:
    """Return the flags (T,) of a file at the settings' rate."""
    frames = FrameStream(settings.frame_length, settings.frame_step).push(read(path)[0])
    vad = VoiceActivityDetector(settings.vad, frames_per_second=1.0 / settings.step_seconds)
    return vad.push(speech_level(settings)(frames))[0]


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    """Return a table with a row for each band and condition."""
    lines = []
    for condition in CONDITIONS:
        for row in (row for row in rows if row["condition"] == condition.name):
            missing = f"{row['trials_not_scored']} of {row['trials']}" if row["trials_not_scored"] else "0"
            shares = [f"{row['hit_percent']:.1f}", f"{row['false_alarm_percent']:.1f}"]
            band = "{} to {}".format(*row["band_hz"])
            lines.append([condition.name, band, *decimals(row["eer_percent"]), missing, *shares])
    head = ("condition", "band in Hz", "EER", "trials not scored", "hits", "false alarms")
    return markdown_table(head, lines, words=2)


def main() -> None:
    """Run, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpora", type=Path)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    root = options.corpora / "commands30"
    every = pipeline.read_trials(root / "trials_dev.txt")
    half = set(list(dict.fromkeys(trial.path for trial in every))[::2])
    trials = [trial for trial in every if trial.path in half]
    rows = []
    for band in BANDS:
        with tempfile.TemporaryDirectory() as work:
            bench = Bench(root, trials, with_band(band), only="*", work=Path(work), jobs=options.jobs)
            for condition in CONDITIONS:
                rows.append({"band_hz": band, **row_of(bench, condition)})
                print(rows[-1], flush=True)
    print(markdown(rows))
    if options.json:
        options.json.write_text(json.dumps({"list": "trials_dev", "set": CHEAP, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
