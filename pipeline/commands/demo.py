"""The command `voiceclaim demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipeline.commands.evaluate import evaluate_list
from pipeline.commands.shared import Jobs
from pipeline.commands.verify import verify_file
from pipeline.terminal import bars, cores, print_metrics, say


def demo(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder for the store and results.")] = Path(
        "demo-out"
    ),
    jobs: Jobs = None,
) -> None:
    """Run the main job on the synthetic demo corpus: enroll, verify, evaluate, plot.

    \b
    Example: voiceclaim demo --out demo-out
    """
    import shutil

    from pipeline.config import load_config
    from pipeline.corpus import read_corpus
    from pipeline.enrollment import enroll as enroll_speakers
    from pipeline.evaluation import read_trials
    from pipeline.resources import demo_folder
    from pipeline.store import SpeakerStore
    from pipeline.verification import Verifier

    corpus, store = demo_folder(), out / "store"
    shutil.rmtree(store, ignore_errors=True)
    say(f"Enrolling the synthetic voices of {corpus / 'enroll'} (8 kHz) ...")
    with bars(quiet=False) as progress:
        report = enroll_speakers(
            store,
            read_corpus(corpus / "enroll").speakers,
            load_config(None, ["features.rate=8000", "replay.keep=false"]),
            jobs=jobs or cores(),
            progress=progress,
        )
    say(f"{len(report.enrolled)} speakers, {report.machines} machines, {report.elapsed_seconds:.1f} s\n")
    truth = next(trial for trial in read_trials(corpus / "trials.txt") if trial.target)
    impostor = next(s.name for s in report.enrolled if s.name != truth.speaker)
    for claim in (truth.speaker, impostor):
        verify_file(Verifier(SpeakerStore.open(store), claim), str(corpus / truth.path), as_json=False)
    table, written = evaluate_list(
        store, corpus / "trials.txt", None, out / "evaluation", None, jobs or cores(), quiet=False
    )
    say("")
    print_metrics(table)
    say("Synthetic voices: these rates say nothing about real ones.")
    say("plots: " + ", ".join(str(path) for path in written if path.suffix == ".png"))
