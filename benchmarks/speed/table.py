"""The figures as Markdown: the targets and whether they are met, then everything that was measured."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from speed.measuring import Figures

BEGIN, END = "<!-- figures -->", "<!-- end of figures -->"


@dataclass(frozen=True)
class Target:
    """``bound`` of a figure: at most, or with ``least`` at least."""

    key: str
    what: str
    bound: float
    least: bool = False

    def met(self, value: float) -> bool:
        """Return True if ``value`` meets the target."""
        return value >= self.bound if self.least else value <= self.bound

    def row(self, value: float) -> str:
        """Return a row of the table."""
        sign = "≥" if self.least else "≤"
        answer = "yes" if self.met(value) else "**no**"
        return f"| `{self.key}` | {self.what} | {shown(value)} | {sign} {shown(self.bound)} | {answer} |"


TARGETS = (
    Target("train.ratio_sklearn", "training, times as fast as scikit-learn", 10, least=True),
    Target("train.margin_difference", "largest difference of margins from scikit-learn's", 1e-2),
    Target("train.alike", "share of frames decided alike", 0.999, least=True),
    Target("claim.ratio_multiclass", "a claim, times as fast as one multi-class `SVC`", 30, least=True),
    Target("claim.ratio_loop", "a claim, times as fast as all pair machines in a loop", 500, least=True),
    Target("gemm.fraction", "pairwise products, share of the machine's best sgemm", 0.6, least=True),
    Target("features.ratio_librosa", "12th-order features, times as fast as `librosa.lpc`", 3, least=True),
    Target("features.realtime", "default features, times real time", 500, least=True),
    Target("stream.rtf", "10 ms chunks, seconds per second of audio", 0.01),
    Target("stream.p99_ms", "99th percentile of a chunk, ms", 2),
    Target("stream.growth_kib", "memory gained over the stream, KiB", 1024),
    Target("growth.claim_exponent", "a claim grows as N to the", 1.1),
    Target("growth.add_exponent", "adding a speaker grows as N to the", 1.2),
    Target("growth.claim_realtime_factor", "a claim at the largest N, seconds per second of audio", 0.1),
    Target("growth.train_seconds", "training the largest population, s", 900),
    Target("growth.train_peak_gib", "memory of that, GiB", 8),
    Target("enroll.seconds", "enrolling `enroll.speakers` speakers, s", 60),
    Target("add.seconds", "adding one more by a new process, s", 2),
    Target("add.warm_seconds", "adding one more by a process that lives, s", 2),
    Target("claim.ms", "verifying a recording, the store open, ms", 15),
)
CONTRACT = (
    *("train.ratio_sklearn", "claim.ratio_multiclass", "claim.ratio_loop", "gemm.fraction"),
    *("features.ratio_librosa", "features.realtime", "stream.rtf", "stream.p99_ms"),
    *("growth.claim_exponent", "growth.add_exponent"),
)


def markdown(found: Figures) -> str:
    """Return both tables; targets that were not measured are left out."""
    lines = ["| key | what | measured | target | met |", "|---|---|---:|---:|---|"]
    lines += [target.row(float(found[target.key])) for target in TARGETS if target.key in found]
    lines += ["", *_predictions(found), "| key | value |", "|---|---:|"]
    lines += [f"| `{key}` | {shown(value)} |" for key, value in found.items() if not key.startswith("model.")]
    return "\n".join(lines) + "\n"


def _predictions(found: Figures) -> list[str]:
    """Return the table of the cost model (docs/scale.md) beside what was measured."""
    rows = []
    for key, value in found.items():
        name = key.removeprefix("model.")
        if name != key:
            ratio = float(found[name]) / float(value)
            rows.append(f"| `{name}` | {shown(value)} | {shown(found[name])} | {shown(ratio)} |")
    if not rows:
        return []
    return ["| cost model | predicted | measured | ratio |", "|---|---:|---:|---:|", *rows, ""]


def shown(value: float | int | str) -> str:
    """Return a number as text, with three digits unless it is whole."""
    if isinstance(value, str):
        return value
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def write(path: Path, table: str) -> None:
    """Put the table between the marks of the page at ``path``, or make it the page."""
    page = path.read_text(encoding="utf-8") if path.exists() else ""
    if BEGIN in page and END in page:
        before, rest = page.split(BEGIN, 1)
        table = f"{before}{BEGIN}\n\n{table}\n{END}{rest.split(END, 1)[1]}"
    path.write_text(table, encoding="utf-8")
