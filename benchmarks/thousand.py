#!/usr/bin/env python3
"""A thousand speakers under the default: time and memory of enrollment, one claim, and the error rate of real voices.

    python -m benchmarks.thousand CORPORA [--speakers 1000] [--folder DIR] [--json OUT]

CORPORA holds libri158. Enrolled are its 158 speakers and, up to the number asked for, voices made of them: the same
recordings played faster or slower, which moves pitch and formants together. Made voices are enrolled and nobody claims
them. The list ``trials`` is verified with everybody enrolled, and with the 158 alone; the difference of the error rates
has a 95 percent interval by paired bootstrap over speakers. Then one more voice is added by the command line. Memory is
the most that the enrolling process had held by the end of each stage, as the system reports it.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import soundfile
import soxr

import pipeline
from benchmarks.peers import difference
from pipeline.evaluation.report import read_metrics, read_results

SPEEDS = (0.82, 1.22, 0.88, 1.14, 0.94, 1.07)  # of made voices, in the order in which they are used
CLAIMS = 40
ADDED = 1.03  # speed of the voice that is added


def made_corpus(enroll: Path, folder: Path, speakers: int) -> Path:
    """Write ``speakers`` folders below ``folder``: those of ``enroll``, and then made voices."""
    real = sorted(path for path in enroll.iterdir() if path.is_dir())
    for number in range(speakers):
        source, round_ = real[number % len(real)], number // len(real)
        if round_ == 0:
            (folder / source.name).symlink_to(source.resolve(), target_is_directory=True)
            continue
        make_voice(source, folder, SPEEDS[round_ - 1])
    return folder


def make_voice(source: Path, folder: Path, speed: float) -> None:
    """Write the recordings in ``source``, played at ``speed``, to a folder below ``folder``."""
    into = folder / f"{source.name}-{speed}"
    into.mkdir(parents=True)
    for path in source.iterdir():
        samples, rate = soundfile.read(path, dtype="float32")
        played = soxr.resample(samples, rate * speed, rate)
        soundfile.write(into / f"{path.stem}.flac", played.clip(-1.0, 1.0), rate)


def enrolled(folder: str, store: str) -> dict[str, Any]:
    """Enroll ``folder`` into ``store`` and return seconds and peak memory, by stage."""
    started, stages = time.perf_counter(), dict[str, dict[str, float]]()

    def progress(stage: str, _done: int, _total: int) -> None:
        seconds, peak = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
        if stage not in stages:
            print(f"{seconds:6.0f} s {peak:6.0f} MiB {stage}", file=sys.stderr, flush=True)
            stages[stage] = {"from_second": round(seconds, 1)}
        stages[stage] |= {"to_second": round(seconds, 1), "peak_mib": round(peak)}

    report = pipeline.enroll(store, folder, jobs=os.cpu_count() or 1, progress=progress)
    return {
        "speakers": len(report.enrolled),
        "seconds": time.perf_counter() - started,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10,
        "store_mib": Path(store).stat().st_size / 2**20,
        "stages": stages,
    }


def voiceclaim(*arguments: str) -> float:
    """Run one command and return the seconds that it took."""
    started = time.perf_counter()
    call = [sys.executable, "-c", "from pipeline.cli.main import main; main()", *arguments]
    code = subprocess.run(call, stdout=sys.stderr, check=False).returncode
    if code not in {0, 4}:  # 4: some trials were left out, and counted
        sys.exit(f"voiceclaim {arguments[0]}: exit code {code}")
    return time.perf_counter() - started


def claim_ms(store: Path, files: list[Path]) -> float:
    """Return the median time of one claim, the store open, in milliseconds."""
    model = pipeline.Store(store).load()
    verifier, times = pipeline.Verifier(model, files[0].parent.name), []
    for path in (files[0], *files):
        started = time.perf_counter()
        verifier.verify_file(path)
        times.append(time.perf_counter() - started)
    return 1000.0 * statistics.median(times[1:])


def measured(corpora: Path, work: Path, speakers: int) -> dict[str, Any]:
    """Return all figures for ``speakers``, and for the real ones alone."""
    corpus, found, scores = corpora / "libri158", {}, {}
    for name, count in (("alone", 158), ("among", speakers)):
        folder, store = work / name, work / f"{name}.store"
        folder.mkdir()
        made_corpus(corpus / "enroll", folder, count)
        command = [sys.executable, "-m", "benchmarks.thousand", "--enroll", str(folder), str(store)]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
        out = work / f"{name}-results"
        trials = str(corpus / "trials.txt")
        voiceclaim("evaluate", str(store), trials, "--root", str(corpus), "--out", str(out), "--systems", "fused")
        make_voice(sorted((corpus / "enroll").iterdir())[0], work / f"{name}-added", ADDED)
        entry = read_metrics(out)["systems"]["fused"]
        scores[name] = read_results(out)["fused"]
        files = sorted((corpus / "verify").rglob("*.*"))
        found[name] = {
            **json.loads(done.stdout),
            "claim_ms": claim_ms(store, files[:: max(1, len(files) // CLAIMS)][:CLAIMS]),
            "add_seconds": voiceclaim("enroll", str(work / f"{name}-added"), "--store", str(store)),
            **{key: entry[key] for key in ("eer_percent", "false_accept_percent", "false_reject_percent")},
        }
    return {**found, "among_less_alone": difference(scores["among"], scores["alone"])}


def main() -> None:
    """Run and print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpora", type=Path, nargs="?")
    parser.add_argument("--speakers", type=int, default=1000)
    parser.add_argument("--folder", type=Path, help="kept; a new one")
    parser.add_argument("--enroll", nargs=2, metavar=("FOLDER", "STORE"), help="one enrollment alone, by stage")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.enroll:
        print(json.dumps(enrolled(*options.enroll)))
        return
    with tempfile.TemporaryDirectory() as temporary:
        work = options.folder or Path(temporary)
        work.mkdir(exist_ok=True)
        found = measured(options.corpora, work, options.speakers)
    print(json.dumps(found, indent=1))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
