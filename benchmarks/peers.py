#!/usr/bin/env python3
"""A pretrained neural encoder, Resemblyzer, on the trial lists of the README's table.

    pip install '.[peers]'
    python benchmarks/peers.py CORPORA [--only GLOB] [--preprocessing own none] [--enrollment joined clips]
                                       [--threads N] [--json OUT]

CORPORA holds commands30 and libri158 (docs/results.md says what they are). A trial's score is the cosine between the
embedding of its file and the claimed speaker's model. --only picks lists by their names. Prints a Markdown table of
equal error rates as ``pipeline.equal_error_rate`` defines them, a row for each way of using the encoder:

- --preprocessing is what is done to sound before it is embedded: "own" is Resemblyzer's preprocess_wav (louder if
  quiet, pauses shortened), "none" nothing.
- --enrollment is how a model comes of a speaker's clips: "joined" embeds all of them as one recording, "clips" embeds
  each and takes the mean, brought back to length 1. On libri158, with one clip a speaker, they are the same. The clips
  of commands30 hold one word, less than the 1.6 s that the encoder listens to at a time, and do much worse alone.

Unlike this project, the encoder was trained on thousands of other people, and it needs PyTorch.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Sequence
from fnmatch import fnmatchcase
from importlib.metadata import version
from pathlib import Path
from typing import Any

import librosa
import numpy as np
import torch
from numpy.typing import NDArray

import pipeline
from pipeline.evaluation import Trial

with warnings.catch_warnings():  # it imports scipy.ndimage and pkg_resources by names that are going away
    warnings.simplefilter("ignore")
    from resemblyzer import VoiceEncoder, preprocess_wav, sampling_rate

Vector = NDArray[np.float32]

# List, corpus, where its target trials are, where its nontarget trials are.
LISTS = (
    ("test", "commands30", "trials_test", "trials_test"),
    ("open", "commands30", "trials_open", "trials_open"),
    ("tel", "commands30", "trials_test_tel", "trials_test_tel"),
    ("babble10", "commands30", "trials_test_babble10", "trials_test_babble10"),
    ("libri158", "libri158", "trials", "trials"),
    ("unseen", "libri158", "trials", "trials_unseen"),
)


class Embedder:
    """Sound to embeddings (256,) of length 1; ``untrimmed`` are files of which Resemblyzer's trimming left nothing."""

    def __init__(self, preprocessing: str) -> None:
        self.untrimmed: list[str] = []
        self._own = preprocessing == "own"
        self._encoder = VoiceEncoder("cpu", verbose=False)
        self._known: dict[Path, Vector] = {}

    def __call__(self, path: Path) -> Vector:
        """The embedding of one file, found once."""
        if path not in self._known:
            self._known[path] = self._embed(read(path), path)
        return self._known[path]

    def model(self, paths: Sequence[Path], enrollment: str) -> Vector:
        """What stands for a speaker with these enrollment clips."""
        if enrollment == "joined":
            return self._embed(np.concatenate([read(path) for path in paths]), paths[0].parent)
        mean = np.mean([self(path) for path in paths], axis=0)
        return np.asarray(mean / np.linalg.norm(mean))

    def _embed(self, samples: Vector, source: Path) -> Vector:
        trimmed = preprocess_wav(samples) if self._own else samples
        if len(trimmed) == 0:
            self.untrimmed.append("/".join(source.parts[-2:]))
            trimmed = samples
        embedding: Vector = self._encoder.embed_utterance(trimmed)
        return embedding


def read(path: Path) -> Vector:
    """A whole file at the encoder's rate."""
    samples: Vector = librosa.load(path, sr=sampling_rate)[0]
    return samples


def trials_of(root: Path, targets: str, nontargets: str) -> list[Trial]:
    """The target trials of one list with the nontarget trials of another, or the same."""
    return [trial for trial in pipeline.read_trials(root / f"{targets}.txt") if trial.target] + [
        trial for trial in pipeline.read_trials(root / f"{nontargets}.txt") if not trial.target
    ]


def evaluate(embed: Embedder, models: dict[str, Vector], root: Path, trials: list[Trial]) -> dict[str, Any]:
    """EER of one list, in percent, and how many trials it rests on."""
    scores = np.array([float(models[trial.speaker] @ embed(root / trial.path)) for trial in trials])
    is_target = np.array([trial.target for trial in trials])
    eer = pipeline.equal_error_rate(scores[is_target], scores[~is_target])
    return {
        "eer_percent": 100 * eer.rate,
        "n_target": int(is_target.sum()),
        "n_nontarget": int((~is_target).sum()),
    }


def run(corpora: Path, preprocessing: str, enrollments: Sequence[str], only: str) -> list[dict[str, Any]]:
    """One row a list and way of enrolling."""
    embed = Embedder(preprocessing)
    models: dict[tuple[str, str, str], Vector] = {}
    rows = []
    for name, corpus, targets, nontargets in LISTS:
        if not fnmatchcase(name, only):
            continue
        root = corpora / corpus
        trials = trials_of(root, targets, nontargets)
        clips = pipeline.read_corpus(root / "enroll").speakers
        for enrollment in enrollments:
            # Only who is claimed: on the open list the others are voices that nobody enrolled.
            claimed = {}
            for speaker in sorted({trial.speaker for trial in trials}):
                key = (corpus, enrollment, speaker)
                if key not in models:
                    models[key] = embed.model([clip.path for clip in clips[speaker]], enrollment)
                claimed[speaker] = models[key]
            found = evaluate(embed, claimed, root, trials)
            rows.append({"list": name, "preprocessing": preprocessing, "enrollment": enrollment, **found})
            print(rows[-1], flush=True)
    if embed.untrimmed:
        print(f"embedded untrimmed, because trimming left nothing: {', '.join(embed.untrimmed)}", flush=True)
    return rows


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    """EER percent: a row a way of using the encoder, a column a list."""
    names = list(dict.fromkeys(row["list"] for row in rows))
    ways = dict.fromkeys((row["preprocessing"], row["enrollment"]) for row in rows)
    rates = {(row["preprocessing"], row["enrollment"], row["list"]): row["eer_percent"] for row in rows}
    lines = ["| preprocessing | enrollment | " + " | ".join(names) + " |", "|---|---|" + "---:|" * len(names)]
    for way in ways:
        lines.append(f"| {way[0]} | {way[1]} | " + " | ".join(f"{rates[*way, name]:.2f}" for name in names) + " |")
    return "\n".join(lines)


def main() -> None:
    """Run and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpora", type=Path)
    parser.add_argument("--only", default="*", metavar="GLOB")
    parser.add_argument("--preprocessing", nargs="+", choices=("own", "none"), default=["own"])
    parser.add_argument("--enrollment", nargs="+", choices=("joined", "clips"), default=["joined", "clips"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows = [
        row for kind in options.preprocessing for row in run(options.corpora, kind, options.enrollment, options.only)
    ]
    print(markdown(rows))
    if options.json:
        versions = {package: version(package) for package in ("resemblyzer", "torch", "librosa", "webrtcvad")}
        options.json.write_text(json.dumps({"versions": versions, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
