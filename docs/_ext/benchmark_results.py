"""Tables of measured numbers, from the JSON files of ``benchmarks/results`` as the benchmarks wrote them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.tables import markdown_table

# The systems of Xin, Wu and Pan first, then the default, then the others.
SYSTEMS = (
    *("boar", "poar", "boao", "poao", "rpoao", "fused", "worst_rival", "refined_worst_rival"),
    *("supervector", "supervector_rival", "gmm", "gmm_rival"),
    *("normalised_supervector", "normalised_supervector_rival", "normalised_gmm", "normalised_gmm_rival"),
    "pitch_rival",
)
# The system that each preset decides by.
DEFAULTS = {"default": "fused", "lean": "fused", "paper": "rpoao"}
# Lists that encoders and our default are compared on, and what they are called.
COMPARED_LISTS = {
    ("commands30", "trials_test"): "commands30, 30 speakers",
    ("commands30", "trials_open"): "commands30, 20 enrolled, 10 not",
    ("libri158", "trials"): "libri158, 158 speakers",
    ("libri158", "unseen"): "libri158, unknown impostors",
    ("commands30", "trials_test_tel"): "commands30 by telephone",
    ("commands30", "trials_test_babble10"): "commands30 under babble, 10 dB",
}
ENCODER, RIVAL = "CAM++", "less its best rival"
NORMALISATIONS = ("raw", RIVAL, "adaptive s-norm", "raw + rival")
COMPARED = (f"{ENCODER} {RIVAL}", "best of the paper's five", "the default")
CHART_WIDTH, LABELS, BAR, GROUP = 820, 240, 17, 66  # pixels
PAPERS = ("xin2002_commands30", "xin2002_libri158_50", "platt1999", "lin2007", "implied2020")
# Rows of a paper's table without a published number.
LOST = {None, "lost", ""}
NO_BREAK = "\N{NO-BREAK SPACE}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, words: int) -> str:
    """Return a Markdown table whose first ``words`` columns are text and the others numbers."""
    rows = [[*cells[:words], *(cell.replace(" ", NO_BREAK) for cell in cells[words:])] for cells in rows]
    return markdown_table(head, rows, words=words) + "\n"


def read(folder: Path, name: str) -> Any:
    """Return the results in the file ``name``."""
    return json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))


def accuracy(folder: Path) -> str:
    """Return the EER of each preset's default system with its interval."""
    rows = []
    for row in read(folder, "real_speech"):
        name = DEFAULTS[row["config"]]
        result = row["systems"][name]
        low, high = result["eer_percent_ci95"]
        trials = f"{result['n_target']}{NO_BREAK}/{NO_BREAK}{result['n_nontarget']}"
        rates = (f"{result['eer_percent']:.2f}", f"{low:.1f} to {high:.1f}")
        rows.append((row["corpus"], row["list"], row["config"], f"`{name}`", trials, *rates))
    head = ("corpus", "list", "settings", "system", "target / nontarget", "EER %", "95 %")
    return table(head, rows, words=5)


def _peers(folder: Path, file: str = "peers") -> dict[tuple[str, str, str, str], dict[str, Any]]:
    rows = read(folder, file)["rows"]
    return {(row["corpus"], row["list"], row["system"], row["normalisation"]): row for row in rows}


def comparison(folder: Path) -> str:
    """Return the EER of an encoder, raw and less its best rival, beside the default's, and the difference."""
    peers, rows = _peers(folder), []
    by = {(row["corpus"], row["list"], row["config"]): row["systems"] for row in read(folder, "real_speech")}
    for (corpus, name), title in COMPARED_LISTS.items():
        encoder = [peers[corpus, name, ENCODER, way] for way in ("raw", RIVAL)]
        own = by[corpus, name, "default"]["fused"]
        resting = own["eer_percent"] / 100 * min(own["n_target"], own["n_nontarget"]) >= 30
        rates = [
            *(_marked(row["eer_percent"], row["rule_of_30"]) for row in encoder),
            _marked(own["eer_percent"], resting),
        ]
        decided = (f"{own[f'false_{error}_percent']:.2f}" for error in ("accept", "reject"))
        rows.append((title, *rates, *decided, _difference(encoder[1])))
    scored = (f"{ENCODER}, raw", f"{ENCODER}, {RIVAL}", f"`default`, {RIVAL}")
    head = ("list", *scored, "its FA %", "its FR %", "difference")
    return table(head, rows, words=1)


def with_encoder(folder: Path) -> str:
    """Return the EER of an encoder under its best normalisation, and of the default without and with it as a part."""
    alone, parted, rows = _peers(folder), _peers(folder, "encoder"), []
    for (corpus, name), title in COMPARED_LISTS.items():
        way, best = min(
            ((way, parted[corpus, name, ENCODER, way]) for way in NORMALISATIONS),
            key=lambda pair: pair[1]["eer_percent"],
        )
        own = [peers[corpus, name, "default", f"{RIVAL}, fused"] for peers in (alone, parted)]
        rates = (_marked(row["eer_percent"], row["rule_of_30"]) for row in (best, *own))
        decided = (f"{own[1][f'false_{error}_percent']:.2f}" for error in ("accept", "reject"))
        rows.append((title, way, *rates, *decided, _difference(best)))
    systems = (ENCODER, "`default`", f"`default` with {ENCODER}")
    head = ("list", "best normalisation", *systems, "its FA %", "its FR %", f"difference to {ENCODER}")
    return table(head, rows, words=2)


def encoders(folder: Path) -> str:
    """Return the EER of every encoder under every normalisation, and the default's less each."""
    peers, rows = _peers(folder), []
    for corpus, name in COMPARED_LISTS:
        for system in dict.fromkeys(of for _, _, of, _ in peers if of != "default"):
            for way in NORMALISATIONS:
                row = peers[corpus, name, system, way]
                low, high = row["eer_percent_ci95"]
                rate = _marked(row["eer_percent"], row["rule_of_30"])
                rows.append((corpus, name, system, way, rate, f"{low:.2f} to {high:.2f}", _difference(row)))
    head = ("corpus", "list", "encoder", "normalisation", "EER %", "95 %", "`default` less this")
    return table(head, rows, words=4)


def _marked(rate: float, resting: bool) -> str:
    """Return a rate, with a dagger where it rests on fewer than 30 errors."""
    return f"{rate:.2f}" + ("" if resting else "\N{DAGGER}")


def _difference(row: dict[str, Any]) -> str:
    """Return a paired difference with its interval, with a star where that leaves out 0."""
    found = row.get("default_less_this")
    if found is None:
        return ""
    low, high = found["ci95"]
    return f"{found['difference_percent']:+.2f} ({low:.2f} to {high:.2f})" + ("*" if found["significant"] else "")


def bars_of(folder: Path) -> dict[str, dict[str, float]]:
    """Return the EER in percent, by list, of each system that ``chart`` compares."""
    peers = _peers(folder)
    by = {(row["corpus"], row["list"], row["config"]): row["systems"] for row in read(folder, "real_speech")}
    result = {}
    for corpus, name in COMPARED_LISTS:
        paper = by.get((corpus, name, "paper"), by[corpus, name, "default"])
        rates = (
            peers[corpus, name, ENCODER, RIVAL]["eer_percent"],
            min(paper[rule]["eer_percent"] for rule in SYSTEMS[:5]),
            by[corpus, name, "default"]["fused"]["eer_percent"],
        )
        result[f"{corpus}, {name}"] = dict(zip(COMPARED, rates, strict=True))
    return result


def chart(folder: Path) -> str:
    """Return a bar chart of ``bars_of``: inline SVG in the colours of the page."""
    groups = bars_of(folder)
    scale = (CHART_WIDTH - LABELS - 60) / max(rate for bars in groups.values() for rate in bars.values())
    height = len(groups) * GROUP + 30
    parts = [
        '<div class="scrolled"><svg class="bars" role="img" aria-label="Equal error rates in percent by list"'
        f' viewBox="0 0 {CHART_WIDTH} {height}">'
    ]
    for n, label in enumerate(COMPARED):
        parts.append(f'<rect class="bar{n}" x="{LABELS + n * 190}" y="4" width="12" height="12"></rect>')
        parts.append(f'<text x="{LABELS + 17 + n * 190}" y="14">{label}</text>')
    for group, (title, bars) in enumerate(groups.items()):
        top = 30 + group * GROUP
        parts.append(f'<text x="{LABELS - 8}" y="{top + 28}" text-anchor="end">{title}</text>')
        for n, rate in enumerate(bars.values()):
            width, y = max(scale * rate, 1.0), top + n * BAR
            parts.append(f'<rect class="bar{n}" x="{LABELS}" y="{y}" width="{width:.1f}" height="{BAR - 3}"></rect>')
            parts.append(f'<text class="rate" x="{LABELS + width + 5:.1f}" y="{y + BAR - 5}">{rate:.2f}</text>')
    return "\n".join(["```{raw} html", *parts, "</svg></div>", "```"]) + "\n"


def systems(folder: Path) -> str:
    """Return the EER in percent of every system on every list, and the errors of the default one as it decides."""
    rows = []
    for row in read(folder, "real_speech"):
        own = row["systems"][DEFAULTS[row["config"]]]
        rates = (_rate(row["systems"].get(name)) for name in SYSTEMS)
        errors = (f"{own[key]:.2f}" for key in ("false_reject_percent", "false_accept_percent"))
        rows.append((row["corpus"], row["config"], row["list"], *rates, *errors, f"{row['enroll_seconds']:.0f}"))
    return table(("corpus", "settings", "list", *SYSTEMS, "FR %", "FA %", "enroll s"), rows, words=3)


def _rate(result: dict[str, Any] | None) -> str:
    return "-" if result is None else f"{result['eer_percent']:.2f}"


def calibration(folder: Path) -> str:
    """Return actual costs and Cllr beside their minima."""
    rows = []
    for row in read(folder, "real_speech"):
        system = DEFAULTS[row["config"]]
        stated = row.get("stated")
        results = [("", row["systems"][system])]
        if stated is not None:
            results.append((f", unknown_impostors: {stated['unknown_impostors']}", stated["systems"][system]))
        for words, result in results:
            if result.get("cllr") is not None:
                rows.append((row["corpus"], row["list"] + words, row["config"], *_costs(result)))
    costs = ("actual cost, prior 0.05", "minimum", "Cllr (bits)", "affine", "minimum")
    return table(("corpus", "list", "settings", *costs, "FA % at the store's threshold", "FR %"), rows, words=3)


def _costs(result: dict[str, Any]) -> tuple[str, ...]:
    keys = ("act_dcf", "min_dcf", "cllr", "affine_cllr", "min_cllr")
    costs = (f"{result[key]:.3f}" if key in result else "-" for key in keys)
    return (*costs, f"{result['false_accept_percent']:.2f}", f"{result['false_reject_percent']:.2f}")


def orderings(folder: Path) -> str:
    """Return the EER of the paper's systems for each C and one-class scale."""
    names = SYSTEMS[:5]
    rows = [
        (corpus, f"{row['C']:g}", row["one_class_scale"], *(f"{row[name]:.2f}" for name in names))
        for corpus in ("commands30", "libri158")
        for row in read(folder, f"paper_orderings_{corpus}")
    ]
    return table(("corpus", "C", "one-class scale", *names), rows, words=3)


def papers(folder: Path) -> str:
    """Return each paper's published numbers beside those measured here, with the command and notes."""
    parts = []
    for name in PAPERS:
        results = read(folder, name)
        rows = [
            (_plain(row["name"]), _plain(row["note"]), str(row["paper"]), _number(row["here"]))
            for row in results["rows"]
            if row["paper"] not in LOST
        ]
        parts += [f"### {_titled(name, results['title'])}", "", "```text", results["command"], "```", ""]
        if rows:
            parts += [table(("", "", "paper", "here"), rows, words=2), ""]
        else:
            parts += ["The paper's own numbers are not available; those measured here are in the file.", ""]
        parts += [f"- {_plain(note)}" for note in results["notes"]]
        parts += [f"- Version {results['version']}, {results['seconds']:.0f} s; `benchmarks/results/{name}.json`.", ""]
    return "\n".join(parts)


def _number(value: object) -> str:
    """Return ``value`` as it was measured; with two digits if it has more than nine, as p-values do."""
    return f"{value:.2g}" if isinstance(value, float) and value != float(f"{value:.9g}") else str(value)


def _titled(name: str, title: str) -> str:
    return f"{title} ({name.removeprefix('xin2002_')})" if name.startswith("xin2002") else title


def _plain(text: str) -> str:
    """Escape Markdown in ``text``."""
    return text.replace("|", "\\|").replace("*", "\\*").replace("_", "\\_").replace("<", "&lt;").replace("$", "\\$")


def waiting(folder: Path) -> str:
    """Return the seconds that each command takes, beside the peer's where it was installed."""
    figures = read(folder, "speed")
    waits = (
        ("enroll.seconds", f"enroll {figures['enroll.speakers']} speakers (s)", 1, "enroll.resemblyzer_seconds"),
        ("enroll.seconds_per_hour_of_audio", "the same, an hour of audio (s)", 0, ""),
        (
            "add.seconds",
            f"add one more, {figures['add.seconds_of_audio']:.0f} s of audio (s)",
            1,
            "add.resemblyzer_seconds",
        ),
        ("claim.ms", f"verify {figures['claim.seconds_of_audio']:.1f} s of audio, the store open (ms)", 0, ""),
        ("claim.cold_ms", "the same by a new process (ms)", 0, ""),
        ("identify.ms", "identify the speaker, the store open (ms)", 0, ""),
        ("store.mib", "the store (MiB)", 0, ""),
    )
    rows = [
        (what, f"{figures[key]:.{places}f}", f"{figures[peer]:.1f}" if peer in figures else "")
        for key, what, places, peer in waits
    ]
    return table(("what people wait for", "`default`", "Resemblyzer"), rows, words=1)


def thousand(folder: Path) -> str:
    """Return time, memory and EER with the 158 real speakers alone, and with made voices added up to a thousand."""
    figures = read(folder, "thousand")
    sides = (figures["alone"], figures["among"])
    whats = (
        ("seconds", "enroll (s)", 0),
        ("peak_mib", "most memory held meanwhile (MiB)", 0),
        ("store_mib", "the store (MiB)", 0),
        ("add_seconds", "add one more, 8 s of audio (s)", 1),
        ("claim_ms", "one claim, 2.4 s of speech, the store open (ms)", 1),
        ("eer_percent", "EER of the 158 on `trials` (%)", 2),
        ("false_accept_percent", "FA % at the store's threshold", 2),
        ("false_reject_percent", "FR %", 2),
    )
    rows = [(what, *(f"{side[key]:.{places}f}" for side in sides)) for key, what, places in whats]
    return table(("libri158", *(f"{side['speakers']} enrolled" for side in sides)), rows, words=1)


def speed(folder: Path) -> str:
    """Return times of scoring and training beside scikit-learn's with the same machines."""
    scoring = [
        (
            *(row["case"], str(row["machines"]), f"{1e3 * row['scikit_learn_seconds']:.1f}"),
            *(f"{1e3 * row['seconds']:.2f}", f"{row['scikit_learn_seconds'] / row['seconds']:.0f}"),
        )
        for row in read(folder, "claim_scoring")
    ]
    results = read(folder, "training")
    training = [
        (
            *(f"{row['corpus']}, {row['settings']}", str(row["speakers"]), str(row["machines"])),
            *(f"{_median(row['scikit_learn_seconds']):.0f}", f"{_median(row['one_thread_seconds']):.1f}"),
            f"{row['one_thread_ratio']['median']:.1f}",
            f"{row['one_thread_ratio']['least']:.1f} to {row['one_thread_ratio']['greatest']:.1f}",
        )
        for row in results["rows"]
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
            f"The first training on a computer also compiles its kernels:"
            f" {results['first_training']['compiling_seconds']:.0f} s once, on a busy one; with the compiled code in"
            f" the cache a process takes {results['first_training']['cached_seconds']:.0f} s to load it.",
            "",
        )
    )


def _median(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]


def others(folder: Path) -> str:
    """Return the files without a table, with the command that each names."""
    shown = {"real_speech", "peers", "encoder", "posterior_classifiers", "claim_scoring", "training", *PAPERS}
    rest = sorted(
        path.stem
        for path in folder.glob("*.json")
        if path.stem not in shown and not path.stem.startswith("paper_orderings_")
    )
    lines = []
    for name in rest:
        results = read(folder, name)
        command = results.get("command") if isinstance(results, dict) else None
        lines.append(f"- `benchmarks/results/{name}.json`" + (f": `{command}`" if command else ""))
    return "\n".join(lines) + "\n"


TABLES: dict[str, Callable[[Path], str]] = {
    make.__name__: make
    for make in (
        chart,
        comparison,
        encoders,
        with_encoder,
        accuracy,
        systems,
        calibration,
        orderings,
        papers,
        waiting,
        thousand,
        speed,
        others,
    )
}
