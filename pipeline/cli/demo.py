"""The command `voiceclaim demo`: enroll, verify and evaluate the synthetic voices that come with the package."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipeline.cli.evaluate import evaluate_list, print_metrics
from pipeline.cli.options import Jobs
from pipeline.cli.terminal import cores, print_line, progress_bar
from pipeline.cli.verify import verify_file


def demo(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Directory for the store and the results.")] = Path(
        "demo-out"
    ),
    jobs: Jobs = None,
) -> None:
    """Enroll, verify and evaluate a small corpus of synthetic voices.

    \b
    Example: voiceclaim demo --out demo-out
    """
    from pipeline.audio.corpus import read_corpus
    from pipeline.config import load_config
    from pipeline.enrollment.enroll import enroll as enroll_speakers
    from pipeline.evaluation import read_trials
    from pipeline.files import demo_folder
    from pipeline.store.store import Store
    from pipeline.verification.verifier import Verifier

    corpus, store = demo_folder(), out / "voices.store"
    out.mkdir(parents=True, exist_ok=True)
    for old in out.glob(f"{store.name}*"):
        old.unlink()
    print_line(f"Enrolling the synthetic voices of {corpus / 'enroll'} (8 kHz) ...")
    with progress_bar(quiet=False) as progress:
        report = enroll_speakers(
            store,
            read_corpus(corpus / "enroll").speakers,
            load_config(None, ["features.rate=8000", "duplicate_audio.keep=false"]),
            jobs=jobs or cores(),
            progress=progress,
        )
    print_line(f"{len(report.enrolled)} speakers, {report.machines} machines, {report.elapsed_seconds:.1f} s\n")
    target = next(trial for trial in read_trials(corpus / "trials.txt") if trial.target)
    impostor = next(s.name for s in report.enrolled if s.name != target.speaker)
    for claim in (target.speaker, impostor):
        verify_file(Verifier(Store(store).load(), claim), str(corpus / target.path), lambda *_: None, as_json=False)
    table, written = evaluate_list(
        store, corpus / "trials.txt", None, out / "evaluation", None, jobs or cores(), quiet=False
    )
    print_line("")
    print_metrics(table)
    print_line("These voices are synthetic: the error rates say nothing about real ones.")
    print_line(f"written: {', '.join(str(path) for path in written if path.suffix == '.html')}, with figures")
