#!/usr/bin/env python3
"""Detections and false alarms of the enrollment checks on real recordings: the tables of ENROLLMENT_CHECKS.md.

    python benchmarks/enrollment_checks.py CORPORA [--files 80] [--recordings 300] [--only PART] [--json OUT]

CORPORA holds commands30 and libri158 (docs/results.md says what they are); only their enrollment recordings are used.
Parts: `recordings` (clipping, noise and duplicates: every recording as it is, then `--recordings` of them degraded or
duplicated), `clean` (the held-out checks on every folder as it is, `--files` per speaker), `voices` (folders mixed of
two speakers, among twenty others), `names` (speakers whose recordings are split between two names). The held-out checks
run without one-vs-rest machines, which the default system does not use.
"""

from __future__ import annotations

import argparse
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from threadpoolctl import threadpool_limits
from tqdm import tqdm

from pipeline.audio.augmentation import mix_at_snr
from pipeline.audio.channels import telephone
from pipeline.audio.corpus import Utterance, read_corpus
from pipeline.audio.files import read_samples
from pipeline.config import NO_CHECKS, Config, load_config
from pipeline.enrollment.checks import held_out_seconds, strengths_of
from pipeline.enrollment.duplicates import duplicates
from pipeline.enrollment.holdout import hold_out_pass
from pipeline.enrollment.quality import Recording, RecordingMeter, clipped_share, median_snr
from pipeline.enrollment.speech import audible, read_speech
from pipeline.enrollment.training import Trainer
from pipeline.machines.workers import LocalThreads
from pipeline.store.model import SpeakerModel

Array = np.ndarray
SILENT = lambda *_: None  # noqa: E731
OTHERS = 20


def coded(samples: Array, rate: int, **format_: Any) -> Array:
    """Return ``samples`` written to a file of some format, and read again."""
    file = io.BytesIO()
    soundfile.write(file, np.clip(samples, -1.0, 1.0), rate, **format_)
    file.seek(0)
    return np.asarray(soundfile.read(file)[0])


COPIES: dict[str, Callable[[Array, int, np.random.Generator], Array]] = {
    "a second time": lambda x, _r, _g: x,
    "a quarter as loud": lambda x, _r, _g: 0.25 * x,
    "50 ms cut off": lambda x, r, _g: x[r // 20 :],
    "0.3 s of noise before and after": lambda x, r, g: np.concatenate(
        (1e-4 * g.standard_normal(r // 3), x, 1e-4 * g.standard_normal(r // 3))
    ),
    "MP3, 128 kbit/s": lambda x, r, _g: coded(
        x, r, format="MP3", subtype="MPEG_LAYER_III", bitrate_mode="CONSTANT", compression_level=0.5
    ),
    "Ogg Vorbis": lambda x, r, _g: coded(x, r, format="OGG", subtype="VORBIS"),
    "mu-law": lambda x, r, _g: coded(x, r, format="WAV", subtype="ULAW"),
    "telephone": lambda x, r, _g: telephone(x, r),
    "white noise, 20 dB": lambda x, _r, g: mix_at_snr(x, g.standard_normal(len(x)), 20.0),
}


def measured(samples: Array, rate: int, path: Path, config: Config) -> Recording:
    """Measure one recording as enrollment does."""
    meter = RecordingMeter(path, config.features)
    meter.push(samples, rate)
    return meter.finish()


def recordings(corpus: Path, config: Config, count: int) -> dict[str, Any]:
    """Count false alarms on a whole corpus, and detections among ``count`` degraded or duplicated recordings."""
    random, checks = np.random.default_rng(0), config.checks
    spoken = [u for utterances in read_corpus(corpus / "enroll").speakers.values() for u in utterances]
    meters = [measured(*read_samples(u), u.path, config) for u in tqdm(spoken, desc=corpus.name, disable=None)]
    names = sorted({u.speaker for u in spoken})
    own = [[one for u, one in zip(spoken, meters, strict=True) if u.speaker == name] for name in names]
    whose = [names.index(u.speaker) for u in spoken]
    chosen = sorted(random.permutation(len(spoken))[:count].tolist())
    results: dict[str, Any] = {
        "speakers": len(names),
        "recordings": len(meters),
        "clipped_share_most": max(map(clipped_share, own)),
        "clipping_flagged": sum(clipped_share(one) > checks.max_clipped for one in own),
        "snr_db_least": min(value for one in own if (value := median_snr(one)) is not None),
        "noise_flagged": sum((median_snr(one) or np.inf) < checks.min_snr_db for one in own),
        "copies_flagged": len(duplicates(list(zip(whose, meters, strict=True)))),
        "copies_found": {},
        "clipped": {},
        "noise": {},
    }
    for kind, change in tqdm(COPIES.items(), desc="copies", disable=None):
        hits = 0
        for number in chosen:
            samples, rate = read_samples(spoken[number])
            copy = measured(change(samples, rate, random), rate, spoken[number].path, config)
            hits += bool(duplicates([(0, meters[number]), (1, copy)]))
        results["copies_found"][kind] = hits / len(chosen)
    for gain in (6, 12, 20):
        shares = [clipped_share([_louder(spoken[number], gain, config)]) for number in chosen]
        results["clipped"][f"{gain} dB over full scale"] = float(np.mean(np.array(shares) > checks.max_clipped))
    for snr in (0, 5, 10, 15, 20):
        estimates = [_noisy(spoken[number], snr, config, random) for number in chosen]
        results["noise"][f"{snr} dB"] = [float(value) for value in np.quantile(estimates, (0.05, 0.5, 0.95))]
    return results


def _louder(utterance: Utterance, gain: float, config: Config) -> Recording:
    """Return a recording ``gain`` dB over full scale, clipped there."""
    samples, rate = read_samples(utterance)
    loud = samples / np.abs(samples).max() * 10 ** (gain / 20)
    return measured(0.5 * np.clip(loud, -1.0, 1.0), rate, utterance.path, config)


def _noisy(utterance: Utterance, snr: float, config: Config, random: np.random.Generator) -> float:
    """Return the SNR estimate of a recording with white noise ``snr`` dB below its mean power, pauses included."""
    samples, rate = read_samples(utterance)
    noisy = mix_at_snr(samples, random.standard_normal(len(samples)), snr)
    estimate = measured(noisy, rate, utterance.path, config).snr_db
    return -np.inf if estimate is None else estimate


def judged(speakers: dict[str, Sequence[Utterance]], config: Config) -> dict[str, dict[str, Any]]:
    """Return the strength of each speaker's held-out utterances, by name, on their own and the best other machines."""
    voices, _ = read_speech(speakers, config, enrolled=0, workers=LocalThreads(), progress=SILENT)
    voices, _ = audible(voices, config)
    trials = hold_out_pass(
        Trainer(config, SpeakerModel(config), "speaker", LocalThreads(), SILENT), voices, NO_CHECKS
    ).trials
    names = {voice.id: voice.name for voice in voices}
    seconds = held_out_seconds(trials, config.features.step_seconds)
    strengths = strengths_of(list(names), trials, config.scoring.system, config.threshold, population=len(names))
    return {
        names[number]: {
            "own": one.own,
            "other": one.other,
            "claim": names[one.claim],
            "held_out_seconds": seconds[number],
        }
        for number, one in strengths.items()
    }


def taken(utterances: Sequence[Utterance], count: int) -> list[Utterance]:
    """Return ``count`` of a speaker's recordings, spread evenly."""
    return [utterances[n] for n in np.linspace(0, len(utterances) - 1, min(count, len(utterances))).round().astype(int)]


def mixed(first: list[Utterance], second: list[Utterance], share: float, *, alternating: bool) -> list[Utterance]:
    """Replace a ``share`` of the recordings ``first`` by ``second``: the last ones, or some throughout."""
    count = len(first)
    places = np.arange(count)
    theirs = (places * share % 1 + share >= 1 - 1e-9) if alternating else places >= round(count * (1 - share))
    return [replace(second[n] if theirs[n] else first[n], speaker=first[0].speaker) for n in range(count)]


def two_voices(corpus: Path, config: Config, files: int) -> list[dict[str, Any]]:
    """Judge folders of two voices among clean ones; one row per way of mixing."""
    speakers = {name: taken(spoken, files) for name, spoken in read_corpus(corpus / "enroll").speakers.items()}
    names = sorted(speakers)
    pairs = list(zip(names[OTHERS::2], names[OTHERS + 1 :: 2], strict=True))
    rows = []
    for share in (0.5, 0.2):
        for alternating in (False, True):
            given: dict[str, Sequence[Utterance]] = {name: speakers[name] for name in names[:OTHERS]}
            for one, other in pairs:
                given[one] = mixed(speakers[one], speakers[other], share, alternating=alternating)
            strengths = judged(given, config)
            rows.append(
                {
                    "second_voice": share,
                    "alternating": alternating,
                    "mixed": [strengths[one]["own"] for one, _ in pairs],
                    "clean": [strengths[name]["own"] for name in names[:OTHERS]],
                }
            )
            print(_voices_row(rows[-1], config.checks.min_consistency), flush=True)
    return rows


def two_names(corpus: Path, config: Config, files: int) -> dict[str, Any]:
    """Judge speakers whose recordings are split between two names: earlier and later takes of each word."""
    speakers = {name: taken(spoken, 2 * files) for name, spoken in read_corpus(corpus / "enroll").speakers.items()}
    names = sorted(speakers)
    given: dict[str, Sequence[Utterance]] = {name: speakers[name][::2] for name in names[:OTHERS]}
    parted = names[OTHERS : OTHERS + 5]
    for name in parted:
        half = len(speakers[name]) // 2
        by_take = sorted(speakers[name], key=lambda u: (u.path.stem.rpartition("_")[2], str(u.path)))
        given[name], given[f"{name} again"] = by_take[:half], by_take[half:]
    strengths = judged(given, config)
    twins = [*parted, *(f"{name} again" for name in parted)]
    return {
        "parted": [strengths[name]["other"] for name in twins],
        "right": sum(strengths[name]["claim"].split()[0] == name.split()[0] for name in twins),
        "clean": [strengths[name]["other"] for name in names[:OTHERS]],
    }


def _voices_row(row: dict[str, Any], limit: float) -> str:
    clean, two = np.array(row["clean"]), np.array(row["mixed"])
    how = "alternating" if row["alternating"] else "one after the other"
    return (
        f"| {row['second_voice']:.0%}, {how} | {(two < limit).sum()} of {len(two)} | {np.median(two):.2f}"
        f" | {(clean < limit).sum()} of {len(clean)} | {clean.min():.2f} |"
    )


def main() -> None:
    """Measure, print, write JSON if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpora", type=Path)
    parser.add_argument("--files", type=int, default=80)
    parser.add_argument("--recordings", type=int, default=300)
    parser.add_argument("--only", choices=("recordings", "clean", "voices", "names"))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    config = load_config()
    commands30, libri158 = options.corpora / "commands30", options.corpora / "libri158"
    parts: dict[str, Callable[[], Any]] = {
        "recordings": lambda: {c.name: recordings(c, config, options.recordings) for c in (commands30, libri158)},
        "clean": lambda: {
            c.name: judged({n: taken(u, options.files) for n, u in read_corpus(c / "enroll").speakers.items()}, config)
            for c in (commands30, libri158)
        },
        "voices": lambda: two_voices(commands30, config, options.files),
        "names": lambda: two_names(commands30, config, options.files),
    }
    table: dict[str, Any] = json.loads(options.json.read_text()) if options.json and options.json.exists() else {}
    with threadpool_limits(1):
        for name, part in parts.items():
            if options.only in (None, name):
                table[name] = part()
                print(name, json.dumps(table[name], indent=1), flush=True)
                if options.json:
                    options.json.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main()
