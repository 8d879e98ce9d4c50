#!/usr/bin/env python3
"""Duplicate audio: detected duplicates of enrollment recordings, and false alarms on genuine utterances.

    python benchmarks/duplicate_audio.py CORPORA [--every N] [--speakers N] [--json OUT]

CORPORA holds commands30. Duplicates are made of enrollment recordings and compared with those of their own speaker: bit
by bit, by MP3 (128 kbit/s), mu-law (16 and 8 kHz), a fifth of the level after a third of a second of hiss, other rates,
the second half alone. Each N-th recording of a speaker is duplicated (--every, 1: all).

The development phrases are also changed, as copies of audio that was accepted before: at another speed (pitch and tempo
together), another pitch or another tempo alone, each drawn evenly up to ten percent off, and coded at low bit rates.
That needs ffmpeg on PATH, with rubberband, libopus and libmp3lame; Debian's has them.

Genuine audio: the development and test phrases, new takes of enrolled words, against the recordings of their own
speaker; and enrollment recordings against the other ones of their speaker. The thresholds were chosen on enrollment
recordings, on development phrases and on data/demo. Ends with 1 where a copy is missed, under 90 percent of changed
phrases are found (Opus at 6 kbit/s is only counted: it resynthesises speech), or over 0.5 percent of genuine ones are
flagged.
"""

from __future__ import annotations

import argparse
import io
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import soxr
from numpy.typing import NDArray

from benchmarks.tables import markdown_table
from pipeline.features.copies import DuplicateDetector
from pipeline.features.fingerprints import FingerprintStream, Prints, joined

Array = NDArray[np.float64]
Audio = tuple[Array, int]


def coded(samples: Array, rate: int, **how: Any) -> Audio:
    """Write ``samples`` to a sound file and read them again."""
    file = io.BytesIO()
    with soundfile.SoundFile(file, "w", rate, 1, **how) as sound:
        sound.write(samples)
    file.seek(0)
    decoded, decoded_rate = soundfile.read(file)
    return decoded, decoded_rate


def resampled(samples: Array, rate: int, to: int) -> Audio:
    """Resample ``samples`` to another rate."""
    return (samples if rate == to else soxr.resample(samples, rate, to)), to


def mp3(samples: Array, rate: int) -> Audio:
    """Code as MP3 at 128 kbit/s; libsndfile's level runs from the highest bit rate (0) to the lowest (1)."""
    low, high = (8, 160) if rate < 32_000 else (32, 320)
    how = {"format": "MP3", "subtype": "MPEG_LAYER_III", "bitrate_mode": "CONSTANT"}
    return coded(samples, rate, compression_level=(high - 128) / (high - low), **how)


def mu_law(samples: Array, rate: int) -> Audio:
    """Code as G.711 mu-law at the given rate."""
    return coded(samples, rate, format="WAV", subtype="ULAW")


def quiet_and_late(samples: Array, rate: int) -> Audio:
    """Attenuate by 14 dB after hiss, which shifts the frame grid."""
    hiss = 1e-4 * np.random.default_rng(0).standard_normal(rate // 3 + 37)
    return np.concatenate([hiss, 0.2 * samples]), rate


COPIES: dict[str, Callable[[Array, int], Audio]] = {
    "bit by bit": lambda samples, rate: (samples, rate),
    "MP3, 128 kbit/s": mp3,
    "MP3, 128 kbit/s, 44.1 kHz": lambda samples, rate: mp3(*resampled(samples, rate, 44_100)),
    "mu-law, 16 kHz": mu_law,
    "mu-law, 8 kHz": lambda samples, rate: mu_law(*resampled(samples, rate, 8_000)),
    "a fifth of the level, late": quiet_and_late,
    "48 kHz": lambda samples, rate: resampled(samples, rate, 48_000),
    "second half alone": lambda samples, rate: (samples[len(samples) // 2 :], rate),
}
MUST = ("bit by bit", "MP3, 128 kbit/s", "MP3, 128 kbit/s, 44.1 kHz", "mu-law, 16 kHz", "mu-law, 8 kHz")


def ffmpeg(samples: Array, rate: int, *options: str) -> Audio:
    """Give ``samples`` to ffmpeg with ``options``, and its output, where that is a file, to ffmpeg again."""
    raw = ("-f", "f32le", "-ar", str(rate), "-ac", "1")
    data = samples.astype("<f4").tobytes()
    through = [*raw, "-i", "-", *options, *([] if "-f" in options else raw), "-"]
    for arguments in [through, *([["-i", "-", *raw, "-"]] if "-f" in options else [])]:
        command = ["ffmpeg", "-v", "error", *arguments]
        data = subprocess.run(command, input=data, capture_output=True, check=True).stdout
    return np.frombuffer(data, "<f4").astype(np.float64), rate


def sped(samples: Array, rate: int, factor: float) -> Audio:
    """Play at another speed: ``factor`` times the frequencies, in the duration divided by ``factor``."""
    return soxr.resample(samples, rate * factor, rate), rate


# How a phrase is changed, by a number drawn from 0.9 to 1.1.
CHANGES: dict[str, Callable[[Array, int, float], Audio]] = {
    "speed, 0.9 to 1.1": sped,
    "speed, 0.9": lambda samples, rate, _: sped(samples, rate, 0.9),
    "speed, 1.1": lambda samples, rate, _: sped(samples, rate, 1.1),
    "pitch, 0.9 to 1.1": lambda samples, rate, drawn: ffmpeg(samples, rate, "-af", f"rubberband=pitch={drawn}"),
    "tempo, 0.9 to 1.1": lambda samples, rate, drawn: ffmpeg(samples, rate, "-af", f"rubberband=tempo={drawn}"),
    "Opus, 12 kbit/s": lambda samples, rate, _: ffmpeg(samples, rate, "-b:a", "12k", "-c:a", "libopus", "-f", "ogg"),
    "Opus, 6 kbit/s": lambda samples, rate, _: ffmpeg(samples, rate, "-b:a", "6k", "-c:a", "libopus", "-f", "ogg"),
    "MP3, 16 kbit/s": lambda samples, rate, _: ffmpeg(samples, rate, "-b:a", "16k", "-f", "mp3"),
    "GSM 6.10": lambda samples, rate, _: coded(*resampled(samples, rate, 8_000), format="WAV", subtype="GSM610"),
    "speed, then mu-law, 8 kHz": lambda samples, rate, drawn: mu_law(*resampled(*sped(samples, rate, drawn), 8_000)),
}
LEAST_FOUND, MOST_FLAGGED = 0.9, 0.005
COUNTED_ONLY = "Opus, 6 kbit/s"


def suspected(known: list[Prints], samples: Array, rate: int) -> bool:
    """Return True if ``samples``, pushed in tenths of a second, are flagged."""
    detector, size = DuplicateDetector(known, rate), rate // 10
    for at in range(0, len(samples), size):
        detector.push(samples[at : at + size])
    return detector.close()


def run(corpus: Path, every: int, speakers: int | None) -> dict[str, Any]:
    """Count detections and trials by kind of duplicate and of genuine audio."""
    counts: dict[str, list[int]] = {name: [0, 0] for name in COPIES}
    genuine: dict[str, list[int]] = {
        "dev phrases": [0, 0],
        "test phrases": [0, 0],
        "enrollment, leaving one out": [0, 0],
    }
    changed: dict[str, list[int]] = {name: [0, 0] for name in CHANGES}
    missed: list[str] = []
    for folder in sorted((corpus / "enroll").iterdir())[:speakers]:
        files = sorted(folder.glob("*.flac"))
        drawn = np.random.default_rng(int(folder.name))
        recordings = [soundfile.read(file) for file in files]
        prints = [prints_of(samples, rate) for samples, rate in recordings]
        for number in range(int(folder.name) % every, len(files), every):
            samples, rate = recordings[number]
            for name, copy in COPIES.items():
                flagged = suspected(prints, *copy(samples, rate))
                tally(counts[name], flagged)
                if not flagged and name in MUST:
                    missed.append(f"{name}: {folder.name}/{files[number].name}")
            others = [*prints[:number], *prints[number + 1 :]]
            tally(genuine["enrollment, leaving one out"], suspected(others, samples, rate))
        for file in sorted((corpus / "verify" / folder.name).glob("*.flac")):
            kind = "dev phrases" if int(file.stem.rpartition("_")[2]) < 10 else "test phrases"
            samples, rate = soundfile.read(file)
            tally(genuine[kind], suspected(prints, samples, rate))
            known = [*prints, prints_of(samples, rate)]
            for name, change in CHANGES.items() if kind == "dev phrases" else ():
                tally(changed[name], suspected(known, *change(samples, rate, drawn.uniform(0.9, 1.1))))
        print(folder.name, "missed:", missed, flush=True)
    return {
        "copies": {name: {"found": flagged, "tried": tried} for name, (flagged, tried) in counts.items()},
        "changed": {name: {"found": flagged, "tried": tried} for name, (flagged, tried) in changed.items()},
        "genuine": {name: {"flagged": flagged, "tried": tried} for name, (flagged, tried) in genuine.items()},
        "missed": missed,
    }


def prints_of(samples: Array, rate: int) -> Prints:
    """Return the fingerprints of a whole recording."""
    stream = FingerprintStream(rate)
    return joined(prints[:, 0] for prints, _ in (stream.push(samples), stream.flush()))


def tally(count: list[int], flagged: bool) -> None:
    """Add one trial to ``count``."""
    count[0] += flagged
    count[1] += 1


def markdown(table: dict[str, Any]) -> str:
    """Return the counts as a table."""
    lines = []
    for kind, counted in (("duplicate: ", "copies"), ("changed: ", "changed"), ("genuine: ", "genuine")):
        flagged = "flagged" if counted == "genuine" else "found"
        lines += [(f"{kind}{name}", row[flagged], row["tried"]) for name, row in table[counted].items()]
    return markdown_table(("audio", "flagged", "of"), lines)


def main() -> None:
    """Count and print; exit with 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpora", type=Path)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--speakers", type=int)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    table = run(options.corpora / "commands30", options.every, options.speakers)
    print(markdown(table))
    if options.json:
        options.json.write_text(json.dumps(table, indent=1) + "\n")
    phrases = [table["genuine"][f"{kind} phrases"] for kind in ("dev", "test")]
    many = sum(row["flagged"] for row in phrases) > MOST_FLAGGED * sum(row["tried"] for row in phrases)
    rows = [row for name, row in table["changed"].items() if name != COUNTED_ONLY]
    few = any(row["found"] < LEAST_FOUND * row["tried"] for row in rows)
    if table["missed"] or few or many:
        raise SystemExit("a duplicate was missed, too few changed ones were found, or too many genuine phrases flagged")


if __name__ == "__main__":
    main()
