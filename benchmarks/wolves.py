#!/usr/bin/env python3
"""Wolf inputs: sounds that pass as speech, claimed for everybody enrolled, and how often they are accepted.

    python benchmarks/wolves.py CORPORA [--inputs N] [--store STORE] [--json OUT]

CORPORA holds commands30 and libri158 (docs/results.md says what they are). The 30 speakers of commands30 are enrolled
with the default settings, or STORE holds them already. N / 8 inputs of each of eight kinds are drawn, each about 3 s
long: noise in bursts, music, tones, formant synthesis, speech of espeak-ng (apt-get install espeak-ng) in all its
languages, and libri158's strangers: through a noise vocoder, through a vocoder of pulses at a drawn pitch, and at a
drawn speed through a drawn equaliser. Inputs without enough speech for a score are counted and drawn again. Each other
one is claimed for all 30 speakers, at the default threshold.

A wolf is an impostor whom many claims accept (Doddington et al., Sheep, goats, lambs and wolves, 1998). Ends with 1
where over 0.5 percent of the claims are accepted.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import librosa
import numpy as np
import soundfile
import soxr
from numpy.typing import NDArray
from scipy.signal import butter, lfilter, sosfilt

import pipeline
from benchmarks.tables import markdown_table

Array = NDArray[np.float64]
Draw = np.random.Generator
RATE, SECONDS = 16_000, 3.0
COUNT = round(RATE * SECONDS)
MOST_ACCEPTED = 0.005
STRICTER = (0.1, 0.05)  # priors of a target trial, at equal costs, that the default threshold is compared with
MOST_TRIES = 20  # for each input that passes as speech


def syllables(draw: Draw) -> Array:
    """Return the envelope (n,) of bursts of 80 to 400 ms with pauses, as speech has."""
    parts: list[Array] = []
    while sum(map(len, parts)) < COUNT:
        burst = np.hanning(round(draw.uniform(0.08, 0.4) * RATE)) ** draw.uniform(0.2, 1.0)
        parts += [draw.uniform(0.3, 1.0) * burst, np.zeros(round(draw.uniform(0.0, 0.15) * RATE))]
    return np.concatenate(parts)[:COUNT]


def band(samples: Array, draw: Draw) -> Array:
    """Filter by a drawn band-pass."""
    low, high = draw.uniform(60, 800), draw.uniform(1200, 7500)
    return np.asarray(sosfilt(butter(2, (low, high), "bandpass", fs=RATE, output="sos"), samples))


def noise(draw: Draw) -> Array:
    """Return coloured noise in bursts."""
    coloured = lfilter([1.0], [1.0, -draw.uniform(0.0, 0.98)], draw.standard_normal(COUNT))
    return band(coloured, draw) * syllables(draw)


def tones(draw: Draw) -> Array:
    """Return one to four gliding, trembling tones in bursts."""
    time, total = np.arange(COUNT) / RATE, np.zeros(COUNT)
    for _ in range(draw.integers(1, 5)):
        glide = draw.uniform(0.7, 1.4) ** (time / SECONDS)
        tremble = 1 + draw.uniform(0, 0.05) * np.sin(2 * np.pi * draw.uniform(3, 8) * time)
        total += draw.uniform(0.2, 1) * np.sin(2 * np.pi * np.cumsum(draw.uniform(120, 3500) * glide * tremble) / RATE)
    return total * syllables(draw)


def music(draw: Draw) -> Array:
    """Return notes of a drawn instrument in chords, and a drum."""
    total, overtones = np.zeros(COUNT), draw.uniform(0.3, 1.0, 12).cumprod()
    for beat in range(0, COUNT, round(draw.uniform(0.15, 0.5) * RATE)):
        time = np.arange(COUNT - beat) / RATE
        fade = np.exp(-time / draw.uniform(0.1, 0.6))
        for step in draw.choice([0, 3, 4, 7, 10, 12, 16, 19], draw.integers(1, 5), replace=False):
            pitch = 110 * 2 ** ((step + draw.integers(0, 24)) / 12)
            for number, level in enumerate(overtones, 1):
                if pitch * number < RATE / 2:
                    total[beat:] += level * fade * np.sin(2 * np.pi * pitch * number * time)
        total[beat:] += draw.uniform(0, 0.5) * np.exp(-time / 0.03) * draw.standard_normal(len(time))
    return total


def pulses(draw: Draw) -> Array:
    """Return pulses (n,) at a drawn, gliding pitch, and some noise."""
    time = np.arange(COUNT) / RATE
    pitch = draw.uniform(80, 260) * (1 + 0.15 * np.sin(2 * np.pi * draw.uniform(0.3, 2) * time + draw.uniform(0, 6)))
    jittered = np.cumsum(pitch * (1 + 0.01 * draw.standard_normal(COUNT))) / RATE
    return np.diff(np.floor(jittered), prepend=0.0) + draw.uniform(0.005, 0.05) * draw.standard_normal(COUNT)


def formants(draw: Draw) -> Array:
    """Return vowels of a drawn vocal tract, and fricatives, by resonators in series."""
    source, tract, parts = pulses(draw), draw.uniform(0.85, 1.2), []
    for syllable in np.split(source, np.sort(draw.integers(0, COUNT, 12))):
        if draw.random() < 0.2:
            parts.append(0.1 * band(draw.standard_normal(len(syllable)), draw))
            continue
        for low, high in ((250, 850), (700, 2400), (2200, 3200), (3300, 4300)):
            centre, width = draw.uniform(low, high) * tract, draw.uniform(50, 200)
            radius, angle = np.exp(-np.pi * width / RATE), 2 * np.pi * centre / RATE
            syllable = lfilter([1 - radius], [1.0, -2 * radius * np.cos(angle), radius**2], syllable)  # noqa: PLW2901
        parts.append(syllable / (np.abs(syllable).max(initial=0.0) + 1e-9))
    return np.concatenate(parts) * syllables(draw)


def spoken(draw: Draw) -> Array:
    """Return drawn numbers by espeak-ng, in a drawn language, voice, pitch and speed."""
    languages, variants = listed("--voices", r"^ *\d+ +([\w-]+)"), listed("--voices=variant", r"!v/([\w-]+)")
    while True:
        voice = f"{draw.choice(languages)}+{draw.choice(variants)}"
        options = ["-v", voice, "-p", str(draw.integers(0, 100)), "-s", str(draw.integers(120, 220))]
        numbers = " ".join(map(str, draw.integers(1, 100, 5)))
        with suppress(subprocess.CalledProcessError):  # a few languages crash some versions
            return heard(espeak(*options, "--stdout", numbers))


def espeak(*options: str) -> bytes:
    """Run espeak-ng and return what it writes."""
    command = ["espeak-ng", *options]
    return subprocess.run(command, capture_output=True, check=True).stdout


@cache
def listed(kind: str, pattern: str) -> list[str]:
    """Return the matches of ``pattern`` in the lines of a list of espeak-ng's voices."""
    return re.findall(pattern, espeak(kind).decode(), flags=re.MULTILINE)


def heard(data: bytes) -> Array:
    """Return the samples of a WAV file, as long as an input."""
    samples, rate = soundfile.read(io.BytesIO(data))
    return np.asarray(soxr.resample(samples, rate, RATE)[:COUNT])


def vocoded(samples: Array, carrier: Array, bands: int) -> Array:
    """Give ``carrier`` the level of ``samples`` (n,) in each of the ``bands`` and frames of 32 ms."""
    voice, other = (librosa.stft(signal[: len(samples)], n_fft=512, hop_length=128) for signal in (samples, carrier))
    edges = np.unique(np.rint(np.geomspace(80, RATE / 2, bands + 1) / RATE * 512).astype(int))
    gains = np.zeros(voice.shape)
    for low, high in pairwise(edges):
        power = [np.sum(np.abs(part[low:high]) ** 2, axis=0) for part in (voice, other)]
        gains[low:high] = np.sqrt(power[0] / (power[1] + 1e-12))
    return np.asarray(librosa.istft(other * gains, hop_length=128))


def whispered(samples: Array, draw: Draw) -> Array:
    """Vocode by noise."""
    return vocoded(samples, draw.standard_normal(len(samples)), int(draw.integers(8, 40)))


def buzzed(samples: Array, draw: Draw) -> Array:
    """Vocode by pulses at a drawn pitch."""
    return vocoded(samples, np.resize(pulses(draw), len(samples)), int(draw.integers(8, 40)))


def equalised(samples: Array, draw: Draw) -> Array:
    """Play at a drawn speed, through a drawn equaliser of five bands."""
    spectrum = np.fft.rfft(soxr.resample(samples, RATE * draw.uniform(0.8, 1.25), RATE))
    places = np.geomspace(100, 8000, 5)
    gains = np.interp(np.linspace(0, RATE / 2, len(spectrum)), places, draw.uniform(-12, 12, 5))
    return np.fft.irfft(spectrum * 10 ** (gains / 20))


MADE: dict[str, Callable[[Draw], Array]] = {
    "noise in bursts": noise,
    "tones": tones,
    "music": music,
    "formant synthesis": formants,
    "espeak-ng": spoken,
}
OF_STRANGERS: dict[str, Callable[[Array, Draw], Array]] = {
    "strangers, vocoded by noise": whispered,
    "strangers, vocoded by pulses": buzzed,
    "strangers, speed and equaliser": equalised,
}


def of_strangers(files: list[Path], change: Callable[[Array, Draw], Array]) -> Callable[[Draw], Array]:
    """Return a function that draws a stranger's recording and changes it."""

    def make(draw: Draw) -> Array:
        samples, rate = soundfile.read(files[draw.integers(len(files))])
        return change(soxr.resample(samples, rate, RATE)[:COUNT], draw)

    return make


def real_voices(corpora: Path, store: Path | None) -> pipeline.SpeakerModel:
    """Return the model in ``store``, or one of all speakers of commands30 with the default settings."""
    if store is not None:
        return pipeline.Store(store).load()
    speakers = pipeline.read_corpus(corpora / "commands30" / "enroll").speakers
    with tempfile.TemporaryDirectory() as folder:
        return pipeline.enroll(Path(folder) / "real.store", speakers, jobs=os.cpu_count() or 1).model


def strangers_of(corpora: Path) -> list[Path]:
    """Return recordings of people whom nobody enrolls."""
    return sorted((corpora / "libri158" / "impostor").glob("*/*.flac"))


def claimed(model: pipeline.SpeakerModel, kinds: dict[str, Callable[[Draw], Array]], each: int) -> list[dict[str, Any]]:
    """Return how many claims on each kind of input are accepted at the default threshold."""
    identifier = pipeline.Identifier(model, best=len(model.names))
    decider = pipeline.DefaultThreshold().decider(model, identifier.system)
    bounds = {prior: math.log((1 - prior) / prior) for prior in STRICTER}
    rows = []
    for number, (kind, make) in enumerate(kinds.items()):
        draw = np.random.default_rng(number)
        accepted, tried = list[int](), 0
        stricter = dict.fromkeys(STRICTER, 0)
        while len(accepted) < each and tried < MOST_TRIES * each:
            tried += 1
            samples = make(draw)
            result = identifier.identify(samples * (0.3 / (np.abs(samples).max(initial=0.0) + 1e-9)), RATE)
            if result.candidates:
                accepted.append(sum(decider.accepts(one.score, one.llr) for one in result.candidates))
                for prior, bound in bounds.items():
                    stricter[prior] += sum(one.llr >= bound for one in result.candidates)
        rows.append(
            {
                "kind": kind,
                "drawn": tried,
                "inputs": len(accepted),
                "claims": len(accepted) * len(model.names),
                "accepted": sum(accepted),
                "inputs_accepted": sum(map(bool, accepted)),
                "accepted_at_prior": stricter,
            }
        )
        print(markdown(rows[-1:]).splitlines()[-1], flush=True)
    return rows


def markdown(rows: list[dict[str, Any]]) -> str:
    """Return the rows as a table."""
    head = ("input", "drawn", "passed as speech", "claims", "accepted", *(f"at prior {prior}" for prior in STRICTER))
    keys = ("kind", "drawn", "inputs", "claims", "accepted")
    return markdown_table(head, [[*map(row.get, keys), *row["accepted_at_prior"].values()] for row in rows])


def main() -> None:
    """Run and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpora", type=Path)
    parser.add_argument("--inputs", type=int, default=1000)
    parser.add_argument("--store", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if shutil.which("espeak-ng") is None:
        raise SystemExit("espeak-ng is not on PATH: apt-get install espeak-ng")
    strangers = strangers_of(options.corpora)
    kinds = {**MADE, **{name: of_strangers(strangers, change) for name, change in OF_STRANGERS.items()}}
    rows = claimed(real_voices(options.corpora, options.store), kinds, -(-options.inputs // len(kinds)))
    inputs, claims, accepted, once = (
        sum(row[key] for row in rows) for key in ("inputs", "claims", "accepted", "inputs_accepted")
    )
    share = accepted / claims
    by_prior = {prior: sum(row["accepted_at_prior"][prior] for row in rows) for prior in STRICTER}
    table = {
        "inputs": inputs,
        "claims": claims,
        "accepted": accepted,
        "inputs_accepted": once,
        "false_accept_percent": 100 * share,
        "false_accept_percent_at_prior": {prior: 100 * count / claims for prior, count in by_prior.items()},
    }
    print(markdown(rows), json.dumps(table, indent=1), sep="\n")
    if options.json:
        table["rows"] = rows
        options.json.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")
    if share > MOST_ACCEPTED:
        raise SystemExit(f"over {100 * MOST_ACCEPTED:g} % of the claims are accepted")


if __name__ == "__main__":
    main()
