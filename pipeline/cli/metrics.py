"""Metrics in a terminal: error rates, costs and remarks, and the files without a score or with a doubtful one."""

from __future__ import annotations

from collections.abc import Sequence
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.cli.terminal import print_line, print_note, print_table

if TYPE_CHECKING:
    from pipeline.config import ChecksConfig
    from pipeline.evaluation.assess import FailedFile

_MOST_NAMED = 10  # missing files that are named one by one


def print_evaluation(table: dict[str, Any], written: Sequence[Path]) -> None:
    """Print the content of metrics.json, ``table``, remarks on it, and the files ``written``."""
    print_metrics(table)
    print_by_metadata(table)
    for line in _remarks(table):
        print_line(line)
    figures = [path for path in written if path.suffix in {".png", ".svg"}]
    files = ", ".join(str(path) for path in written if path not in figures)
    print_line(f"written: {files}" + (f", {len(figures)} figures" if figures else ""))


def print_metrics(table: dict[str, Any]) -> None:
    """Print the content of metrics.json as a table, the default system first."""
    default = table["default_system"]
    counts = table["systems"][default]
    print_table(
        ("system", "EER % [95 %]", "minDCF", "actDCF", "Cllr/min", "ID err %", "FA %", "FR %"),
        [
            (
                f"{name} *" if name == default else name,
                with_interval(entry["eer_percent"], entry["eer_percent_ci95"], ".2f"),
                number(entry["min_dcf"], ".3f"),
                number(entry["act_dcf"], ".3f"),
                f"{number(entry['cllr'], '.3f')}/{number(entry['min_cllr'], '.3f')}",
                number(entry["identification_error_percent"], ".2f"),
                number(entry["false_accept_percent"], ".2f"),
                number(entry["false_reject_percent"], ".2f"),
            )
            for name, entry in sorted(table["systems"].items(), key=lambda item: item[0] != default)
        ],
        optional=" [",
    )
    trials = (
        f"{counts['n_target']} target and {counts['n_nontarget']} nontarget trials, {counts['n_failed']} not scored"
    )
    print_line(f"* default; {trials}")
    if counts["n_failed"]:
        rates = counts["generalised"]
        print_line(
            f"with those as rejected (ISO/IEC 19795-1): EER {number(rates['eer_percent'], '.2f')} %,"
            f" FA {number(rates['false_accept_percent'], '.2f')} %, FR {number(rates['false_reject_percent'], '.2f')} %"
        )
    kinds = ("false_accept_percent", "false_reject_percent")
    at_threshold = any(entry[kind] is not None for entry in table["systems"].values() for kind in kinds)
    decisions = " FA, FR at the store's threshold;" if at_threshold else ""
    print_line(f"DCF at prior 0.05;{decisions} ID err: rank-1 errors")


def print_by_metadata(table: dict[str, Any]) -> None:
    """Print the default system's rates by each further column of the list."""
    from pipeline.evaluation.breakdowns import SPEECH

    columns = {
        name: of for name, of in table["systems"][table["default_system"]]["by_metadata"].items() if name != SPEECH
    }
    for name, groups in columns.items():
        print_table(
            (name, "targets", "nontargets", "EER %", "FA %", "FR %"),
            [
                (
                    value or "(empty)",
                    str(group["n_target"]),
                    str(group["n_nontarget"]),
                    number(group["eer_percent"], ".2f") + ("" if group["rule_of_30"] else "†"),
                    number(group["false_accept_percent"], ".2f"),
                    number(group["false_reject_percent"], ".2f"),
                )
                for value, group in groups.items()
            ],
        )
    if columns:
        print_line("FA, FR at one threshold for all; † fewer than 30 errors of a kind")


def _remarks(table: dict[str, Any]) -> list[str]:
    """Describe scores and trials that did not match one to one, scores that look reversed, and what was left out."""
    words = {
        "extra_scores": "scores of trials that are not in the key were ignored",
        "repeated_trials": "trials are repeated and count each time",
        "repeated_scores": "scores are repeated with the same value",
    }
    counted = [
        f"{name}: {counts[key]:,} {meaning}"
        for name, counts in table.get("joined", {}).items()
        for key, meaning in words.items()
        if counts[key]
    ]
    lower = [
        f"{name}: targets score lower than nontargets; are these distances? Negate them"
        for name, entry in table["systems"].items()
        if "scores" in table and (entry["eer_percent"] or 0.0) > 50.0
    ]
    return [*counted, *lower, *(f"left out: {what}" for what in table.get("left_out", ()))]


def number(value: float | None, form: str) -> str:
    """Format a number, or "-" for None."""
    return "-" if value is None else format(value, form)


def with_interval(value: float | None, low_high: list[float] | None, form: str) -> str:
    """Format a number with its confidence interval."""
    ends = "" if low_high is None else f" [{low_high[0]:{form}}, {low_high[1]:{form}}]"
    return f"{number(value, form)}{ends}"


def note_mixed(files: Sequence[str], checks: ChecksConfig) -> None:
    """Print how many ``files`` were scored by the mean of channels that differ, unless ``checks`` leave it out."""
    if files and checks.channels != "off":
        print_note(
            f"note: {len(files)} files were scored by the mean of channels that differ, the first of them {files[0]};"
            " choose one: --channel N"
        )


def name_failed(failed: Sequence[FailedFile], root: Path, trials: int) -> None:
    """Print why files have no score; in one line if many are missing, or the files of all ``trials``."""
    from pipeline.audio.paths import NO_SUCH_FILE

    missing = [one for one in failed if f": {NO_SUCH_FILE}; " in one.reason]
    lost = sum(one.trials for one in missing)
    if len(missing) > _MOST_NAMED or 0 < lost == trials:
        first = missing[0].path
        print_note(
            f"not scored ({lost} trials): {len(missing)} files are missing, the first is {first}; paths are"
            f" relative to {root.absolute()}; {_where(root / first)}"
        )
        failed = [one for one in failed if one not in missing]
    for one in failed:
        print_note(f"not scored ({one.trials} trials): {one.reason}")


def _where(path: Path) -> str:
    """Return where else to look for a file that is missing at ``path``."""
    longer = sorted(path.parent.glob(f"{escape(path.name)}.*"))
    if longer:
        return f"{longer[0].name} is there: files are listed with their suffixes"
    return "give the folder of the audio with --root, or the Kaldi data directory of these utterances"
