#!/usr/bin/env python3
"""Error rates on public speech that no setting was chosen on, measured once with the settings frozen.

    python -m benchmarks.untouched FOLDER [--corpora NAME ...] [--part test|dev] [--config NAME] [--json OUT]

Fetches the archives into FOLDER, checked by SHA-256, lays each part out as a corpus with trial lists, enrolls and
evaluates by the command line as a user would, and prints error rates of the default system.

- librispeech (dev-clean or test-clean, 0.3 GB; Panayotov and others 2015, CC BY 4.0): speakers with two chapters or
  more, enrolled with 30 s of the first, verified by ten utterances of the others. None of them is in train-clean-100,
  of which libri158 is.
- speech_commands (v0.02, 2.4 GB; Warden 2018, CC BY 4.0), speakers of its validation or testing list with 40 one-word
  clips or more: two thirds of the clips are enrolled, the others joined to phrases of three words.

Dev and test have no common speakers. The last quarter of a part's speakers is not enrolled: ``trials`` has claims among
the enrolled, ``open`` the same target trials and claims by these unknown impostors. Settings may be chosen on the dev
part only: a test part on which settings were tried is a dev part.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pooch
import soundfile

from benchmarks.real_speech import voiceclaim
from benchmarks.tables import decimals, markdown_table
from pipeline.errors import InputError

ENROLL_SECONDS, LIBRI_TRIALS = 30.0, 10
LEAST_CLIPS, WORDS = 40, 3
UNKNOWN_SHARE = 0.25
CLIP = re.compile(r"(?P<speaker>[0-9a-f]+)_nohash_\d+")

Speakers = dict[str, tuple[list[Path], list[list[Path]]]]
"""Enrollment files, and the files that make each verified utterance, by speaker."""


@dataclass(frozen=True)
class Archive:
    """An archive at ``address`` with its SHA-256; ``parts`` maps dev and test to the names that select them."""

    address: str
    sha256: str

    def unpacked(self, folder: Path) -> Path:
        """Return the folder of its files below ``folder``, fetched if missing; raises InputError."""
        name = self.address.rsplit("/", 1)[-1]
        into = name.removesuffix(".tar.gz")
        unpack = pooch.Untar(extract_dir=into)
        try:
            pooch.retrieve(self.address, f"sha256:{self.sha256}", fname=name, path=folder, processor=unpack)
        except OSError as error:
            raise InputError(f"{name}: cannot be fetched from {self.address}: {error}") from error
        except ValueError as error:
            raise InputError(f"{name}: what {self.address} gave is not the file that was expected: {error}") from error
        return folder / into


OPENSLR = "https://www.openslr.org/resources/12"
COMMANDS = Archive(
    "https://storage.googleapis.com/download.tensorflow.org/data/speech_commands_v0.02.tar.gz",
    "af14739ee7dc311471de98f5f9d2c9191b18aedfe957f4a6ff791c709868ff58",
)
ARCHIVES = {
    ("librispeech", "dev"): Archive(
        f"{OPENSLR}/dev-clean.tar.gz", "76f87d090650617fca0cac8f88b9416e0ebf80350acb97b343a85fa903728ab3"
    ),
    ("librispeech", "test"): Archive(
        f"{OPENSLR}/test-clean.tar.gz", "39fde525e59672dc6d1551919b1478f724438a95aa55f874b576be21967e6c23"
    ),
    ("speech_commands", "dev"): COMMANDS,
    ("speech_commands", "test"): COMMANDS,
}


def librispeech(root: Path, part: str) -> Speakers:
    """Return the speakers of ``root``/LibriSpeech/PART-clean who read two chapters or more."""
    found: Speakers = {}
    for home in sorted((root / "LibriSpeech" / f"{part}-clean").iterdir()):
        chapters = [sorted(chapter.glob("*.flac")) for chapter in sorted(home.iterdir()) if chapter.is_dir()]
        if len(chapters) < 2:
            continue
        lengths = np.cumsum([soundfile.info(path).duration for path in chapters[0]])
        enough = 1 + int(np.searchsorted(lengths, ENROLL_SECONDS))
        others = [path for chapter in chapters[1:] for path in chapter]
        found[home.name] = chapters[0][:enough], [[path] for path in others[:LIBRI_TRIALS]]
    return found


def speech_commands(root: Path, part: str) -> Speakers:
    """Return the speakers of the validation or testing list below ``root`` with enough clips."""
    name = {"dev": "validation_list.txt", "test": "testing_list.txt"}[part]
    clips: dict[str, list[Path]] = defaultdict(list)
    for line in sorted((root / name).read_text(encoding="utf-8").split()):
        if match := CLIP.match(Path(line).stem):
            clips[match["speaker"]].append(root / line)
    found: Speakers = {}
    for speaker, paths in sorted(clips.items()):
        if len(paths) >= LEAST_CLIPS:
            # Clips are in alphabetical order of their words; every third is verified, so both sides have all words.
            verified = paths[2::3]
            phrases = [verified[k : k + WORDS] for k in range(0, len(verified) - WORDS + 1, WORDS)]
            found[speaker] = [path for k, path in enumerate(paths) if k % 3 != 2], phrases
    return found


READERS: Mapping[str, Callable[[Path, str], Speakers]] = {
    "librispeech": librispeech,
    "speech_commands": speech_commands,
}


def lay_out(speakers: Speakers, corpus: Path) -> None:
    """Write enroll, verify, trials.txt and open.txt below ``corpus``; raises InputError for too few speakers."""
    names = sorted(speakers)
    enrolled = names[: len(names) - max(1, round(UNKNOWN_SHARE * len(names)))]
    if len(enrolled) < 2:
        raise InputError(f"{corpus}: three speakers with enough speech are needed, got {len(names)}; another corpus?")
    heard: dict[str, list[str]] = {}
    for name, (enrollment, utterances) in speakers.items():
        if name in enrolled:
            for k, path in enumerate(enrollment):
                link = corpus / "enroll" / name / f"{k:03d}{path.suffix}"
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(path.resolve())
        heard[name] = [_written(paths, corpus, f"verify/{name}/{k:03d}") for k, paths in enumerate(utterances)]
    unknown = [name for name in names if name not in enrolled]
    own = [f"{name} {path} target" for name in enrolled for path in heard[name]]
    lists = {
        list_name: [
            f"{claim} {path} nontarget" for name in by for path in heard[name] for claim in enrolled if claim != name
        ]
        for list_name, by in (("trials", enrolled), ("open", unknown))
    }
    for list_name, nontargets in lists.items():
        (corpus / f"{list_name}.txt").write_text("\n".join([*own, *nontargets]) + "\n", encoding="utf-8")


def _written(paths: Sequence[Path], corpus: Path, stem: str) -> str:
    """Write the joined files at ``stem`` below ``corpus``; return the path with its ending."""
    read = [soundfile.read(path, dtype="int16") for path in paths]
    (corpus / stem).parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(corpus / f"{stem}.flac", np.concatenate([samples for samples, _ in read]), read[0][1])
    return f"{stem}.flac"


def measured(corpus: Path, config: str) -> list[dict[str, Any]]:
    """Enroll and evaluate one corpus; a row for each list."""
    with tempfile.TemporaryDirectory() as work:
        store = Path(work) / "speakers.store"
        voiceclaim("enroll", str(corpus / "enroll"), "--store", str(store), "--config", config)
        rows = []
        for name in ("trials", "open"):
            found = voiceclaim("evaluate", str(store), str(corpus / f"{name}.txt"), "--out", str(Path(work) / name))
            system = found["default_system"]
            rows.append({"list": name, "config": config, "system": system, **found["systems"][system]})
    return rows


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a line for each list."""
    lines = []
    for row in rows:
        low, high = row["eer_percent_ci95"]
        decided = decimals(row["false_accept_percent"], row["false_reject_percent"])
        named = [row[key] for key in ("corpus", "part", "list")]
        trials = f"{row['n_target']} / {row['n_nontarget']}"
        lines.append([*named, trials, *decimals(row["eer_percent"]), f"{low:.2f} to {high:.2f}", *decided])
    head = ("corpus", "part", "list", "target / nontarget", "EER %", "95 %", "FA %", "FR %")
    return markdown_table(head, lines, words=3)


def main() -> None:
    """Fetch, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--corpora", nargs="+", choices=tuple(READERS), default=tuple(READERS))
    parser.add_argument("--part", choices=("dev", "test"), default="test")
    parser.add_argument("--config", default="default")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = []
    for name in options.corpora:
        root = ARCHIVES[name, options.part].unpacked(options.folder)
        with tempfile.TemporaryDirectory(dir=options.folder) as work:
            lay_out(READERS[name](root, options.part), Path(work))
            about = {"corpus": name, "part": options.part}
            rows += [{**about, **row} for row in measured(Path(work), options.config)]
        print(markdown(rows), flush=True)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
