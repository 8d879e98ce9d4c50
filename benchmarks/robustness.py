#!/usr/bin/env python3
"""Error rates in conditions unlike the enrollment's: noise, other voices, telephones, codecs, rooms, short speech.

    pip install '.[bench]'
    python benchmarks/robustness.py CORPORA [--config NAME] [--set KEY=VALUE] [--list NAME] [--only GLOB] [--quick]
                                            [--rows GLOB] [--jobs N] [--json OUT]

CORPORA holds commands30 (docs/results.md says what it is). Its speakers are enrolled from clean speech once, and once
for each row that enrolls otherwise; each row verifies the files of one list (trials_dev), degraded as the row says and
written as FLAC with the same names. --only picks speakers, as claims and as voices; --quick takes a handful of rows,
--rows those whose names match.

- Ratios are of mean squares over a whole file. Babble is six voices other than the one who speaks; the claimed speaker
  may be among them. For files to verify it comes from other files of the list, so that no machine was trained on it,
  not even as babble in augmented versions; for files to enroll it comes from enrollment clips.
- Codecs run at libsndfile's own quality. Rooms are shoeboxes by the image method, their RT60 by Sabine's formula
  (measured on the responses: 0.27 to 0.32 and 0.61 to 0.85 s). The microphone is far: echoes carry most of the energy.
- "n s of audio" is the middle of a file, or of the files of that speaker from this one on, joined. In these rows, files
  with less speech than ``scoring.min_seconds`` are scored, too; only files without any speech are not.
- Enrollment of n seconds draws clips at random until they last so long, pauses included.

A row gives the equal error rate of the settings' own scoring system over the trials that could be scored, how many
could not, and false accepts and rejects at the threshold that enrollment found.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache, cached_property, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

import pipeline
from benchmarks.tables import decimals, markdown_table
from pipeline.audio.augmentation import babble, mix_at_snr
from pipeline.audio.channels import mu_law, reverberate, telephone
from pipeline.audio.corpus import Utterance
from pipeline.audio.files import open_audio
from pipeline.audio.streams import Samples
from pipeline.config import Config
from pipeline.evaluation import Trial
from pipeline.metrics import rates_at
from pipeline.resources import find_config

RATIOS_DB = (20, 10, 5, 0)
CODECS = (("MP3", "MP3", "MPEG_LAYER_III"), ("Opus", "OGG", "OPUS"))
CLIPPED_DB = (12, 18)
RT60_SECONDS = (0.3, 0.6)
TRIAL_SECONDS = (0.5, 1, 2, 3, 5)
ENROLL_SECONDS = (5, 10, 30, 100)
QUICK = ("clean", "babble, 10 dB", "telephone", "1 s of audio", "clean, enrolled by telephone")
BABBLE_CLIPS = 40  # of a speaker: enough babble to choose from, and those of 30 speakers fit into memory
ROOMS = 8  # for each RT60; a file is placed in one of them


@dataclass(frozen=True)
class Scene:
    """Inputs of a degradation: the recording's ``rate`` in Hz, its random generator, the speech of other people."""

    rate: int
    rng: np.random.Generator
    others: Sequence[Samples]


Change = Callable[[Samples, Scene], Samples]


@dataclass(frozen=True)
class Condition:
    """One row: what happens to the files that are verified and to those enrolled; None leaves them alone."""

    name: str
    verify: Change | None = None
    seconds: float | None = None
    enroll: Change | None = None
    enroll_seconds: float | None = None


def add_white_noise(samples: Samples, scene: Scene, *, snr_db: float) -> Samples:
    """Add white noise at a ratio."""
    return mix_at_snr(samples, scene.rng.standard_normal(len(samples)), snr_db)


def add_babble(samples: Samples, scene: Scene, *, snr_db: float) -> Samples:
    """Add six other people at a ratio."""
    return mix_at_snr(samples, babble(scene.others, len(samples), scene.rng), snr_db)


def by_telephone(samples: Samples, scene: Scene) -> Samples:
    """Send through a telephone line."""
    return telephone(samples, scene.rate)


def by_mu_law(samples: Samples, _scene: Scene) -> Samples:
    """Code as a telephone line does, without its band."""
    return mu_law(samples)


def clipped(samples: Samples, _scene: Scene, *, db: float) -> Samples:
    """Clip at a level below the peak."""
    level = np.abs(samples).max(initial=0.0) * 10.0 ** (-db / 20.0)
    return np.clip(samples, -level, level)


def coded(samples: Samples, scene: Scene, *, file_format: str, subtype: str) -> Samples:
    """Code by a lossy codec, written to a file and read again."""
    file = io.BytesIO()
    soundfile.write(file, samples, scene.rate, format=file_format, subtype=subtype)
    file.seek(0)
    decoded: Samples = soundfile.read(file, dtype="float64")[0]
    return decoded[: len(samples)]


def in_a_room(samples: Samples, scene: Scene, *, rt60: float) -> Samples:
    """Place in one of the rooms with this reverberation time, chosen by the file."""
    responses = room_responses(rt60, scene.rate)
    return reverberate(samples, responses[scene.rng.integers(len(responses))])


def in_turn(samples: Samples, scene: Scene, *, changes: Sequence[Change]) -> Samples:
    """Apply several degradations, one after the other."""
    for change in changes:
        samples = change(samples, scene)
    return samples


@cache
def room_responses(rt60: float, rate: int) -> list[Samples]:
    """Return impulse responses of shoebox rooms, talker and microphone at least half a metre from the walls."""
    import pyroomacoustics

    rng = np.random.default_rng(round(1000 * rt60))
    responses = []
    for _ in range(ROOMS):
        size = rng.uniform((3.0, 3.0, 2.4), (7.0, 5.0, 3.2))
        absorption, order = pyroomacoustics.inverse_sabine(rt60, size)
        room = pyroomacoustics.ShoeBox(size, fs=rate, materials=pyroomacoustics.Material(absorption), max_order=order)
        room.add_source(rng.uniform(0.5, size - 0.5))
        room.add_microphone(rng.uniform(0.5, size - 0.5))
        room.compute_rir()
        responses.append(np.asarray(room.rir[0][0], dtype=np.float64))
    return responses


def conditions() -> list[Condition]:
    """Return every row that this machine's libraries allow, in the order of the table."""
    rows = [Condition("clean")]
    rows += [Condition(f"white noise, {db} dB", partial(add_white_noise, snr_db=db)) for db in RATIOS_DB]
    rows += [Condition(f"babble, {db} dB", partial(add_babble, snr_db=db)) for db in RATIOS_DB]
    rows += [Condition("telephone", by_telephone), Condition("mu-law alone", by_mu_law)]
    for name, file_format, subtype in CODECS:
        if soundfile.check_format(file_format, subtype):
            rows.append(Condition(name, partial(coded, file_format=file_format, subtype=subtype)))
        else:
            print(f"no rows for {name}: libsndfile {soundfile.__libsndfile_version__} does not write it")
    rows += [Condition(f"clipped by {db} dB", partial(clipped, db=db)) for db in CLIPPED_DB]
    loud_call = partial(in_turn, changes=(partial(clipped, db=CLIPPED_DB[0]), by_telephone))
    rows.append(Condition(f"clipped by {CLIPPED_DB[0]} dB, by telephone", loud_call))
    if find_spec("pyroomacoustics"):
        rows += [Condition(f"room, RT60 {rt60} s", partial(in_a_room, rt60=rt60)) for rt60 in RT60_SECONDS]
        noisy_room = (partial(in_a_room, rt60=RT60_SECONDS[-1]), partial(add_white_noise, snr_db=RATIOS_DB[0]))
        name = f"room, RT60 {RT60_SECONDS[-1]} s, white noise, {RATIOS_DB[0]} dB"
        rows.append(Condition(name, partial(in_turn, changes=noisy_room)))
    else:
        print("no rows for rooms: pyroomacoustics is not installed")
    rows += [Condition(f"{seconds} s of audio", seconds=seconds) for seconds in TRIAL_SECONDS]
    rows += [Condition(f"clean, {seconds} s enrolled", enroll_seconds=seconds) for seconds in ENROLL_SECONDS]
    rows.append(Condition("clean, enrolled by telephone", enroll=by_telephone))
    rows.append(Condition("clean, enrolled under babble, 10 dB", enroll=partial(add_babble, snr_db=10)))
    return rows


def read(path: Path) -> tuple[Samples, int]:
    """Return the samples (n,) and the rate of a whole file."""
    with open_audio(path) as audio:
        return np.concatenate([np.empty(0), *audio.blocks()]), audio.rate


def write(path: Path, samples: Samples, rate: int) -> None:
    """Write 24-bit FLAC whatever the suffix; attenuate it if it would be clipped, which changes no feature."""
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, samples / max(1.0, np.abs(samples).max(initial=0.0)), rate, format="FLAC", subtype="PCM_24")


def middle(samples: Samples, count: int) -> Samples:
    """Return the middle ``count`` samples, or all if there are fewer."""
    start = max(0, (len(samples) - count) // 2)
    return samples[start : start + count]


def voice_of(path: str) -> str:
    """Return the speaker of a file of a list, the name of its folder."""
    return Path(path).parent.name


class Bench:
    """Measurement of conditions with one corpus, list and settings. Stores and changed audio go to ``work``."""

    def __init__(
        self, root: Path, trials: Iterable[Trial], config: Config, *, only: str, work: Path, jobs: int
    ) -> None:
        self.root = root
        self.config = config
        self.work = work
        self.jobs = jobs
        self.trials = [t for t in trials if fnmatchcase(t.speaker, only) and fnmatchcase(voice_of(t.path), only)]
        self.paths = list(dict.fromkeys(trial.path for trial in self.trials))
        claimed = {trial.speaker for trial in self.trials}
        speakers = pipeline.read_corpus(root / "enroll").speakers
        self.speakers = {name: clips for name, clips in speakers.items() if name in claimed}
        self._stores: dict[tuple[Any, ...], pipeline.SpeakerModel] = {}
        if len(self.speakers) < 2:
            sys.exit(f"{root}: at least two speakers like {only!r} must be claimed and enrolled")
        if any(Path(path).is_absolute() or ".." in Path(path).parts for path in self.paths):
            sys.exit(f"{root}: the paths of a list must lie in the corpus, or changed files would not lie in theirs")

    def row(self, condition: Condition) -> dict[str, Any]:
        """Enroll if this row needs it, verify, measure."""
        store = self.store(condition)
        system = store.config.scoring.system
        trials = [trial for trial in self.trials if trial.speaker in store.names]
        with tempfile.TemporaryDirectory(dir=self.work) as folder:
            found = pipeline.assess(
                store, trials, self.recordings(condition, Path(folder)), systems=(system,), jobs=self.jobs
            )
        scores = found.scores[system]
        rates = rates_at(scores.target, scores.nontarget, store.threshold(system))
        return {
            "condition": condition.name,
            "eer_percent": percent(equal_error_rate(scores.target, scores.nontarget)),
            "false_accept_percent": percent(rates.false_accept),
            "false_reject_percent": percent(rates.false_reject),
            "trials": len(self.trials),
            "not_scored": len(self.trials) - len(trials) + found.failed_trials,
            "speakers_refused": len(self.speakers) - len(store.names),
        }

    def store(self, condition: Condition) -> pipeline.SpeakerModel:
        """Return the store that this row verifies against; rows that enroll alike share one."""
        however_short = condition.seconds is not None
        key = (condition.enroll, condition.enroll_seconds, however_short)
        if key not in self._stores:
            clips = {name: self._clips(name, condition.enroll_seconds) for name in self.speakers}
            if condition.enroll is not None:
                folder = self.work / f"enroll-{len(self._stores)}"
                clips = {name: self._changed(its, condition.enroll, folder) for name, its in clips.items()}
            config = scoring_however_short(self.config) if however_short else self.config
            path = self.work / f"store-{len(self._stores)}"
            self._stores[key] = pipeline.enroll(path, clips, config, jobs=self.jobs).model
        return self._stores[key]

    def _clips(self, speaker: str, seconds: float | None) -> list[Utterance]:
        """Return all enrollment clips, or clips drawn until they last ``seconds``, the last one cut to fit."""
        clips = list(self.speakers[speaker])
        if seconds is None:
            return clips
        chosen, left = [], seconds
        for number in self._rng(speaker).permutation(len(clips)).tolist():
            if left <= 0:
                break
            lasts = soundfile.info(clips[number].path).duration
            chosen.append(Utterance(speaker, clips[number].path, end=min(lasts, left)))
            left -= lasts
        return sorted(chosen, key=lambda clip: clip.path)

    def _changed(self, clips: Sequence[Utterance], change: Change, folder: Path) -> list[Utterance]:
        """Write the same clips, degraded, to ``folder``."""
        changed = []
        for clip in clips:
            path = clip.path.relative_to(self.root)
            samples, rate = read(clip.path)
            write(folder / path, change(samples, self._scene(str(path), clip.speaker, rate, self._enrolled)), rate)
            changed.append(Utterance(clip.speaker, folder / path))
        return changed

    def recordings(self, condition: Condition, folder: Path) -> Path:
        """Return the root of the files to verify: the corpus itself, or ``folder`` with the degraded files."""
        if condition.verify is None and condition.seconds is None:
            return self.root
        for path in self.paths:
            samples, rate = self._lasting(path, condition.seconds)
            if condition.verify is not None:
                samples = condition.verify(samples, self._scene(path, voice_of(path), rate, self._said))
            write(folder / path, samples, rate)
        return folder

    def _lasting(self, path: str, seconds: float | None) -> tuple[Samples, int]:
        """Return a file or its middle ``seconds``; if it is too short, the middle of it and the next files, joined."""
        samples, rate = read(self.root / path)
        if seconds is None:
            return samples, rate
        own = [other for other in self.paths if Path(other).parent == Path(path).parent]
        first = own.index(path)
        for other in own[first + 1 :] + own[:first]:
            if len(samples) >= seconds * rate:
                break
            samples = np.concatenate((samples, read(self.root / other)[0]))
        return middle(samples, round(seconds * rate)), rate

    def _scene(self, path: str, speaker: str, rate: int, said: Mapping[str, Samples]) -> Scene:
        """Return the scene of a file, with a random generator of its own: the same noise is added at every ratio."""
        return Scene(rate, self._rng(path), [samples for name, samples in said.items() if name != speaker])

    @cached_property
    def _said(self) -> dict[str, Samples]:
        """Return the speech of every voice in the files of the list, joined."""
        found: dict[str, list[Samples]] = {}
        for path in self.paths:
            found.setdefault(voice_of(path), []).append(read(self.root / path)[0])
        return {name: np.concatenate(parts) for name, parts in found.items()}

    @cached_property
    def _enrolled(self) -> dict[str, Samples]:
        """Return the speech of every speaker in some of their enrollment clips, from first to last, joined."""
        chosen = {name: clips[:: max(1, len(clips) // BABBLE_CLIPS)] for name, clips in self.speakers.items()}
        return {name: np.concatenate([read(clip.path)[0] for clip in clips]) for name, clips in chosen.items()}

    def _rng(self, name: str) -> np.random.Generator:
        return np.random.default_rng([self.config.seed, zlib.crc32(name.encode())])


def scoring_however_short(config: Config) -> Config:
    """Return the same settings without a minimum length of speech."""
    return config.model_copy(update={"scoring": config.scoring.model_copy(update={"min_seconds": 0.0})})


def equal_error_rate(target: Samples, nontarget: Samples) -> float | None:
    """Return a share; None where nothing could be scored."""
    return pipeline.equal_error_rate(target, nontarget).rate if target.size and nontarget.size else None


def percent(share: float | None) -> float | None:
    """Return a share in percent; None if there is no share."""
    return None if share is None else 100 * share


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    """Return a table with a row for each condition."""
    lines = []
    for row in rows:
        rates = [row[key] for key in ("eer_percent", "false_accept_percent", "false_reject_percent")]
        missing = f"{row['not_scored']} of {row['trials']}" if row["not_scored"] else "0"
        lines.append([row["condition"], *decimals(*rates), missing])
    return markdown_table(("condition", "EER", "FA", "FR", "trials not scored"), lines)


def options_of_command() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpora", type=Path)
    parser.add_argument("--config")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--list", default="trials_dev", metavar="NAME")
    parser.add_argument("--only", default="*", metavar="GLOB")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rows", default="*", metavar="GLOB")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def main() -> None:
    """Run, print the table."""
    options = options_of_command()
    root = options.corpora / "commands30"
    config = pipeline.load_config(find_config(options.config) if options.config else None, options.set)
    trials = pipeline.read_trials(root / f"{options.list}.txt")
    rows = []
    with tempfile.TemporaryDirectory() as work:
        bench = Bench(root, trials, config, only=options.only, work=Path(work), jobs=options.jobs)
        for condition in conditions():
            if (not options.quick or condition.name in QUICK) and fnmatchcase(condition.name, options.rows):
                rows.append(bench.row(condition))
                print(rows[-1], flush=True)
    print(markdown(rows))
    if options.json:
        head = {"config": options.config or "default", "set": options.set, "list": options.list, "only": options.only}
        head |= {"system": config.scoring.system, "libsndfile": soundfile.__libsndfile_version__}
        options.json.write_text(json.dumps({**head, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
