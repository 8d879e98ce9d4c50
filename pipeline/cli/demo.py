"""The command `voiceclaim demo`: enroll, verify and evaluate the synthetic voices that come with the package."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipeline.cli.evaluate import evaluate_list
from pipeline.cli.metrics import number
from pipeline.cli.options import PAPER, Jobs, make_folder
from pipeline.cli.terminal import cores, print_line, print_table, progress_bar
from pipeline.cli.verify import verify_file
from pipeline.errors import InputError

if TYPE_CHECKING:
    import numpy as np

    from pipeline.audio.streams import Samples

DRAWN = ("fused", "boar")  # of the paper's five, boar errs least here
# Unlike the augmentation of the enrollment audio: other voices and texts, fewer at a time, a stronger equaliser.
VOICES, BABBLE_DB = 4, 5.0
EQUALISER_DB, LINE_DB = 10.0, 12.0
_MEANING = f"""\
EER: the error rate at the threshold where false accepts and false rejects are equally frequent; lower is better.
FA, FR: impostors accepted and true speakers rejected at the store's own threshold, which no test file has touched.
under babble: {VOICES} other voices talk at the same time, {BABBLE_DB:g} dB below the speaker.
by telephone: a microphone whose response is off by up to {EQUALISER_DB:g} dB, a 300-3400 Hz line with noise, a codec.
fused, the default, is trained on simulated lines and babble too, with other voices and parameters; Xin, Wu and Pan's
five rules on the recordings alone. The voices are synthetic: these error rates say nothing about real ones."""


def demo(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder for the store and the results.")] = Path(
        "demo-out"
    ),
    jobs: Jobs = None,
) -> None:
    """Enroll, verify and evaluate synthetic voices: as recorded, under babble, by telephone.

    Examples:
    - `voiceclaim demo --out demo-out`
    """
    from pipeline.audio.corpus import read_corpus
    from pipeline.config import load_config
    from pipeline.enrollment.enroll import enroll as enroll_speakers
    from pipeline.evaluation import read_trials
    from pipeline.evaluation.comparison_report import plot_evaluations
    from pipeline.resources import demo_folder
    from pipeline.store.store import Store
    from pipeline.verification.verifier import Verifier

    corpus, store, jobs = demo_folder(), out / "voices.store", jobs or cores()
    remove_earlier(store)
    print_line(f"Enrolling the synthetic voices of {corpus / 'enroll'} (8 kHz) ...")
    with progress_bar(quiet=False) as progress:
        report = enroll_speakers(
            store,
            read_corpus(corpus / "enroll").speakers,
            load_config(None, ["features.rate=8000", "duplicate_audio.keep=false"]),
            jobs=jobs,
            progress=progress,
        )
    print_line(f"{len(report.enrolled)} speakers, {report.machines} machines, {report.elapsed_seconds:.1f} s\n")
    target = next(trial for trial in read_trials(corpus / "trials.txt") if trial.target)
    impostor = next(s.name for s in report.enrolled if s.name != target.speaker)
    for claim in (target.speaker, impostor):
        verify_file(Verifier(Store(store).load(), claim), str(corpus / target.path), lambda *_: None, as_json=False)
    roots = {"as recorded": corpus, **degraded_copies(corpus, out)}
    folders = {condition: out / f"results-{condition.split()[-1]}" for condition in roots}
    tables = {
        condition: evaluate_list(
            *(store, corpus / "trials.txt", root, folders[condition], ["fused", *PAPER], jobs), quiet=False
        )[0]
        for condition, root in roots.items()
    }
    print_line("")
    print_rates(tables)
    print_line(_MEANING)
    plot_evaluations([*folders.values()][1:], out / "det.png", DRAWN)
    print_line(f"DET curves: {out / 'det.png'}\nreport: {folders['under babble'] / 'report.html'}")


def remove_earlier(store: Path) -> None:
    """Remove the store of an earlier demo, and mark its folder as a demo's; raises InputError for anybody else's."""
    from pipeline.store.connection import logs_of

    mark = store.parent / "babble"
    if store.exists() and not mark.is_dir():
        raise InputError(f"{store}: a demo replaces its own store only, and no demo made this one; use another --out")
    make_folder(store.parent)
    make_folder(mark)
    for path in (store, *logs_of(store)):
        path.unlink(missing_ok=True)


def print_rates(tables: dict[str, dict[str, Any]]) -> None:
    """Print the equal error rates by system and condition, and the default's errors at the store's threshold."""
    systems = [table["systems"] for table in tables.values()]
    rows: list[tuple[str, ...]] = [
        (f"{name} *" if name == "fused" else name, *(number(of[name]["eer_percent"], ".2f") for of in systems))
        for name in systems[0]
    ]
    for title, key in (("FA % of fused", "false_accept_percent"), ("FR % of fused", "false_reject_percent")):
        rows.append((title, *(number(of["fused"][key], ".2f") for of in systems)))
    print_table(("EER %", *tables), rows)
    true, false = (systems[0]["fused"][key] for key in ("n_target", "n_nontarget"))
    print_line(f"* default; {true} true claims and {false} false ones in each condition\n")


def degraded_copies(corpus: Path, out: Path) -> dict[str, Path]:
    """Write the verification files under babble and by telephone below ``out``; return the folders by condition."""
    import numpy as np
    import soundfile

    audio = {path: soundfile.read(path) for path in sorted((corpus / "verify").glob("*/*.flac"))}
    voices = {
        name: np.concatenate([samples for path, (samples, _) in audio.items() if path.parent.name == name])
        for name in {path.parent.name: None for path in audio}
    }
    folders = {"under babble": out / "babble", "by telephone": out / "telephone"}
    for seed, (path, (samples, rate)) in enumerate(audio.items()):
        others = [voice for name, voice in voices.items() if name != path.parent.name]
        changed = {
            "under babble": _under_babble(samples, others, np.random.default_rng(seed)),
            "by telephone": _by_telephone(samples, rate, np.random.default_rng(seed)),
        }
        for condition, version in changed.items():
            to = folders[condition] / path.relative_to(corpus)
            to.parent.mkdir(parents=True, exist_ok=True)
            soundfile.write(to, version / max(1.0, np.abs(version).max()), rate)
    return folders


def _under_babble(samples: Samples, others: list[Samples], rng: np.random.Generator) -> Samples:
    from pipeline.audio.augmentation import babble, mix_at_snr

    return mix_at_snr(samples, babble(others, len(samples), rng, voices=VOICES), BABBLE_DB)


def _by_telephone(samples: Samples, rate: int, rng: np.random.Generator) -> Samples:
    from pipeline.audio.augmentation import mix_at_snr
    from pipeline.audio.channels import coloured_noise, random_codec, random_equaliser, telephone

    line = telephone(random_equaliser(samples, rate, rng, EQUALISER_DB), rate)
    return random_codec(mix_at_snr(line, coloured_noise(len(line), rate, rng), LINE_DB), rate, rng)
