"""Tables of measured numbers, from the JSON files of ``benchmarks/results`` as the benchmarks wrote them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

SYSTEMS = (
    *("boar", "poar", "boao", "poao", "rpoao", "worst_rival", "refined_worst_rival"),
    *("segment", "segment_rival", "mixture", "mixture_rival", "fused"),
)
# The system that each set of settings decides by.
DEFAULTS = {"default": "fused", "order12": "fused", "robust": "segment_rival", "xin2002": "rpoao"}
# Lists of benchmarks/peers.py as benchmarks/real_speech.py has them.
PEER_LISTS = {
    ("commands30", "trials_test"): "test",
    ("commands30", "trials_open"): "open",
    ("commands30", "trials_test_tel"): "tel",
    ("commands30", "trials_test_babble10"): "babble10",
    ("libri158", "trials"): "libri158",
    ("libri158", "unseen"): "unseen",
}
PAPERS = ("xin2002_commands30", "xin2002_libri158_50", "platt1999", "lin2007", "implied2020")
# Rows of a paper's table that say nothing to a reader of a page: the paper's number is lost or was never there.
LOST = {None, "lost", ""}
NO_BREAK = "\N{NO-BREAK SPACE}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, words: int) -> str:
    """A Markdown table whose first ``words`` columns are text and the others numbers."""
    rows = [[*cells[:words], *(cell.replace(" ", NO_BREAK) for cell in cells[words:])] for cells in rows]
    rule = ["---"] * words + ["---:"] * (len(head) - words)
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, rule, *rows)) + "\n"


def read(folder: Path, name: str) -> Any:
    """The results of ``name``."""
    return json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))


def accuracy(folder: Path) -> str:
    """EER of the default system of each settings with its interval, and of the other encoder on the same list."""
    peers = {
        row["list"]: f"{row['eer_percent']:.2f}"
        for row in read(folder, "peers")["rows"]
        if row["preprocessing"] == "own" and row["enrollment"] == "joined"
    }
    rows = []
    for row in read(folder, "real_speech"):
        name = DEFAULTS[row["config"]]
        found = row["systems"][name]
        low, high = found["eer_interval_percent"]
        trials = f"{found['n_target']}{NO_BREAK}/{NO_BREAK}{found['n_nontarget']}"
        peer = peers.get(PEER_LISTS.get((row["corpus"], row["list"]), ""), "")
        told = (f"{found['eer_percent']:.2f}", f"{low:.1f} to {high:.1f}", peer)
        rows.append((row["corpus"], row["list"], row["config"], f"`{name}`", trials, *told))
    head = ("corpus", "list", "settings", "system", "true / false", "EER %", "95 %", "Resemblyzer EER %")
    return table(head, rows, words=5)


def systems(folder: Path) -> str:
    """EER in percent of every system on every list."""
    rows = [
        (
            *(row["corpus"], row["config"], row["list"]),
            *(_rate(row["systems"].get(name)) for name in SYSTEMS),
            f"{row['enroll_seconds']:.0f}",
        )
        for row in read(folder, "real_speech")
    ]
    return table(("corpus", "settings", "list", *SYSTEMS, "enroll s"), rows, words=3)


def _rate(found: dict[str, Any] | None) -> str:
    return "-" if found is None else f"{found['eer_percent']:.2f}"


def calibration(folder: Path) -> str:
    """Whether log-likelihood ratios mean what they say: costs and Cllr beside their minimum."""
    rows = []
    for row in read(folder, "real_speech"):
        system = DEFAULTS[row["config"]]
        stated = row.get("stated")
        told = [("", row["systems"][system])]
        if stated is not None:
            told.append((f", outsiders: {stated['outsiders']}", stated["systems"][system]))
        for words, found in told:
            if found.get("cllr") is not None:
                rows.append((row["corpus"], row["list"] + words, row["config"], *_costs(found)))
    costs = ("actual cost, prior 0.05", "minimum", "Cllr (bits)", "by line", "minimum")
    return table(("corpus", "list", "settings", *costs, "FA % at the store's threshold", "FR %"), rows, words=3)


def _costs(found: dict[str, Any]) -> tuple[str, ...]:
    keys = ("act_dcf", "min_dcf", "cllr", "affine_cllr", "min_cllr")
    costs = (f"{found[key]:.3f}" if key in found else "-" for key in keys)
    return (*costs, f"{found['false_accept_percent']:.2f}", f"{found['false_reject_percent']:.2f}")


def orderings(folder: Path) -> str:
    """EER of the paper's systems against C and the one-class scale."""
    names = SYSTEMS[:5]
    rows = [
        (corpus, f"{row['C']:g}", row["one_class_scale"], *(f"{row[name]:.2f}" for name in names))
        for corpus in ("commands30", "libri158")
        for row in read(folder, f"paper_orderings_{corpus}")
    ]
    return table(("corpus", "C", "one-class scale", *names), rows, words=3)


def papers(folder: Path) -> str:
    """Each paper's published numbers beside those found here, with the command and what is to be known of it."""
    parts = []
    for name in PAPERS:
        found = read(folder, name)
        rows = [
            (_plain(row["name"]), _plain(row["note"]), str(row["paper"]), str(row["here"]))
            for row in found["rows"]
            if row["paper"] not in LOST
        ]
        parts += [f"### {_titled(name, found['title'])}", "", "```text", found["command"], "```", ""]
        if rows:
            parts += [table(("", "", "paper", "here"), rows, words=2), ""]
        else:
            parts += ["The paper's own numbers are not at hand; what was found here is in the file.", ""]
        parts += [f"- {_plain(note)}" for note in found["notes"]]
        parts += [f"- Version {found['version']}, {found['seconds']:.0f} s; `benchmarks/results/{name}.json`.", ""]
    return "\n".join(parts)


def _titled(name: str, title: str) -> str:
    return f"{title} ({name.removeprefix('xin2002_')})" if name.startswith("xin2002") else title


def _plain(text: str) -> str:
    """``text`` with nothing that Markdown would read as more."""
    return text.replace("|", "\\|").replace("*", "\\*").replace("_", "\\_").replace("<", "&lt;").replace("$", "\\$")


def posteriors(folder: Path) -> str:
    """Log loss of multi-class posteriors, a column a data set."""
    found = read(folder, "posterior_classifiers")
    sets = list(dict.fromkeys(row["set"] for row in found))
    by = {(row["method"], row["set"]): row for row in found}
    rows = []
    for method in dict.fromkeys(row["method"] for row in found):
        cells = [by.get((method, name)) for name in sets]
        rows.append((method, *("-" if c is None else f"{c['log_loss']:.3f} ± {c['log_loss_se']:.3f}" for c in cells)))
    return table(("method", *sets), rows, words=1)


def speed(folder: Path) -> str:
    """Scoring and training beside scikit-learn, the same machines."""
    scoring = [
        (
            *(row["case"], str(row["machines"]), f"{1e3 * row['scikit_learn_seconds']:.1f}"),
            *(f"{1e3 * row['seconds']:.2f}", f"{row['scikit_learn_seconds'] / row['seconds']:.0f}"),
        )
        for row in read(folder, "claim_scoring")
    ]
    found = read(folder, "training")
    training = [
        (
            *(f"{row['corpus']}, {row['settings']}", str(row["speakers"]), str(row["machines"])),
            *(f"{_median(row['scikit_learn_seconds']):.0f}", f"{_median(row['one_thread_seconds']):.1f}"),
            f"{row['one_thread_ratio']['median']:.1f}",
            f"{row['one_thread_ratio']['least']:.1f} to {row['one_thread_ratio']['greatest']:.1f}",
        )
        for row in found["rows"]
    ]
    return "\n".join(
        (
            "### Scoring 2.4 s of speech, 50 speakers enrolled, one thread",
            "",
            "```text\npython benchmarks/claim_scoring.py --json benchmarks/results/claim_scoring.json\n```",
            "",
            table(("case", "machines", "scikit-learn, looped (ms)", "here (ms)", "ratio"), scoring, words=1),
            "",
            "### Training pair and one-class machines, one thread",
            "",
            "```text\npython benchmarks/training.py CORPORA --json benchmarks/results/training.json\n```",
            "",
            table(
                ("corpus", "speakers", "machines", "scikit-learn (s)", "here (s)", "ratio, median", "ratio, range"),
                training,
                words=1,
            ),
            "",
            f"The very first training on a machine also compiles its kernels:"
            f" {found['first_training']['compiling_seconds']:.0f} s once, on a busy machine; with the compiled code at"
            f" hand a process takes {found['first_training']['cached_seconds']:.0f} s to load it.",
            "",
        )
    )


def _median(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]


def others(folder: Path) -> str:
    """The files that no table is made of, with the command that each names."""
    shown = {"real_speech", "peers", "posterior_classifiers", "claim_scoring", "training", *PAPERS}
    rest = sorted(
        path.stem
        for path in folder.glob("*.json")
        if path.stem not in shown and not path.stem.startswith("paper_orderings_")
    )
    lines = []
    for name in rest:
        found = read(folder, name)
        command = found.get("command") if isinstance(found, dict) else None
        lines.append(f"- `benchmarks/results/{name}.json`" + (f": `{command}`" if command else ""))
    return "\n".join(lines) + "\n"


TABLES: dict[str, Callable[[Path], str]] = {
    make.__name__: make for make in (accuracy, systems, calibration, orderings, papers, posteriors, speed, others)
}
