"""The report of one evaluation as a page to read, to print or to send: report.html.

It says what metrics.json says, for somebody who has neither the README nor the list at hand. The same evaluation
gives the same page, byte for byte, unless a date is asked for.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from pipeline.file_scoring import FailedFile
from pipeline.html_page import (
    Html,
    element,
    facts,
    joined,
    name,
    note,
    number,
    page,
    paragraph,
    picture,
    section,
    span,
    table,
    terms,
    text,
)
from pipeline.posteriors.coupling import RULES
from pipeline.report_words import CAVEAT, FIGURES_OF_ALL, FIGURES_OF_DEFAULT, TERMS

PERCENT, COST, SCORE = ".2f", ".3f", ".5g"
# Of systems that are not of this program, by their scores.
_FIGURES_OF_OTHERS = {
    "fa_fr": (
        "False accepts and false rejects against the threshold, one panel a system.",
        "Error rates against the threshold of each system.",
    ),
}
Metrics = Mapping[str, Any]
"""What metrics.json holds, or its entry of one system."""


@dataclass(frozen=True, slots=True)
class Printing:
    """What a page says of how it was made: the command, and a date if one is wanted."""

    command: str | None = None
    date: str | None = None


def evaluation_page(
    metrics: Metrics, *, failed: Sequence[FailedFile], pictures: Mapping[str, bytes], printing: Printing
) -> str:
    """The page of ``metrics``, the content of metrics.json; ``pictures`` are the figures as SVG, by file stem."""
    default = str(metrics["default_system"])
    figures = {**FIGURES_OF_ALL, **_FIGURES_OF_OTHERS}
    settings = [section("Settings in force", _settings(metrics.get("settings", {})))] if "scores" not in metrics else []
    return page(
        f"Speaker verification on {PurePath(str(metrics['trials'])).name}",
        _summary(default, metrics["systems"][default]),
        note(CAVEAT),
        section("What was measured", _corpus(metrics, printing)),
        section("All systems", _error_rates(metrics), _decisions(metrics), _figures(figures, pictures)),
        section(f"The default system: {default}", _points(default, metrics), _figures(FIGURES_OF_DEFAULT, pictures)),
        section("Operating points of all systems", _all_points(metrics)),
        section("From speaker to speaker", _spread(metrics)),
        section("Files without a score", _failed(failed)),
        section("What the words mean", terms(TERMS)),
        *settings,
    )


def _summary(default: str, found: Metrics) -> Html:
    if found["eer_percent"] is None:
        return paragraph(
            text("The list has scored claims of one kind only, true or false, and defines no error rates.")
        )
    parts = [
        text(f"The default system, {default}, has an equal error rate of "),
        element("strong", number(found["eer_percent"], PERCENT), text(" %")),
    ]
    if found["eer_interval_percent"] is not None:
        parts += [text(" (95 % interval "), span(found["eer_interval_percent"], PERCENT), text(" %)")]
    if found["store_threshold"] is not None:
        accepted, rejected = found["false_accept_percent"], found["false_reject_percent"]
        parts += [text(". At the store's own threshold it accepts "), number(accepted, PERCENT)]
        parts += [text(" % of the false claims and rejects "), number(rejected, PERCENT), text(" % of the true ones")]
    return paragraph(*parts, text("."))


def _corpus(metrics: Metrics, printing: Printing) -> Html:
    found = metrics["systems"][metrics["default_system"]]
    rows = [("Trial list", name(metrics["trials"]))]
    rows += [("Speaker store", name(metrics["store"]))] if "store" in metrics else []
    rows += [("Score file", name(metrics["scores"]))] if "scores" in metrics else []
    rows += [
        (label, number(value, "d"))
        for label, value in (
            ("True claims scored", found["n_target"]),
            ("False claims scored", found["n_nontarget"]),
            ("Claims without a score", found["n_failed"]),
            ("Files", metrics.get("files")),
            ("Speakers claimed", metrics.get("speakers_claimed")),
            ("Speakers enrolled", metrics.get("speakers")),
            *_joined(metrics),
        )
        if value is not None
    ]
    rows += [("Left out", text("; ".join(metrics["left_out"])))] if metrics.get("left_out") else []
    rows.append(("Default system", _default(metrics)))
    rows += [("Command", element("code", text(printing.command)))] if printing.command else []
    rows += [("Date", text(printing.date))] if printing.date else []
    rows += [("Voiceclaim version", text(metrics["version"]))] if "version" in metrics else []
    of = "scores" if "scores" in metrics else "store"
    return facts(f"The list, the {of}, and how this page was made", rows)


def _joined(metrics: Metrics) -> Sequence[tuple[str, int | None]]:
    """What was told of the scores when they met their key, where it is not 0."""
    counts = metrics.get("joined", {}).get(metrics["default_system"], {})
    words = (
        ("Scores of other trials, left out", "extra_scores"),
        ("Trials listed again", "repeated_trials"),
        ("Scores given again", "repeated_scores"),
    )
    return [(label, counts.get(key) or None) for label, key in words]


def _default(metrics: Metrics) -> Html:
    """The system that the page shows closely, which is not the store's own where that was not asked for."""
    shown = metrics["default_system"]
    own = metrics.get("settings", {}).get("scoring", {}).get("system", shown)
    return text(shown if own == shown else f"{shown}; that of the store's settings, {own}, was not asked for")


def _by_system(metrics: Metrics, cells: Callable[[str, Metrics], Sequence[Html]]) -> list[Sequence[Html]]:
    """One row for each system, the default one said to be."""
    default = metrics["default_system"]
    return [
        (text(f"{system} (default)" if system == default else system), *cells(system, found))
        for system, found in metrics["systems"].items()
    ]


def _error_rates(metrics: Metrics) -> Html:
    return table(
        "Error rates and costs; the lower, the better. Costs are those at the operating point p05.",
        (
            "system",
            "EER %",
            "95 % interval",
            "hull EER %",
            "minDCF",
            "actDCF",
            "Cllr",
            "min. Cllr",
            "by line",
            "ident. error %",
        ),
        _by_system(
            metrics,
            lambda _, found: (
                number(found["eer_percent"], PERCENT),
                span(found["eer_interval_percent"], PERCENT),
                number(found["eer_hull_percent"], PERCENT),
                number(found["min_dcf"], COST),
                number(found["act_dcf"], COST),
                number(found["cllr"], COST),
                number(found["min_cllr"], COST),
                number(found["affine_cllr"], COST),
                number(found["identification_error_percent"], PERCENT),
            ),
        ),
    )


def _decisions(metrics: Metrics) -> Html:
    if "scores" in metrics:
        return table(
            "Thresholds of the equal error rates, chosen on this very list",
            ("system", "EER threshold"),
            _by_system(metrics, lambda _, found: (number(found["threshold"], SCORE),)),
        )
    return table(
        "Decisions at the store's own threshold, which was found at enrollment without this list; beside it the"
        " threshold of the equal error rate.",
        ("system", "store's threshold", "FA %", "FR %", "EER threshold", "unit of the score"),
        _by_system(
            metrics,
            lambda system, found: (
                number(found["store_threshold"], SCORE),
                number(found["false_accept_percent"], PERCENT),
                number(found["false_reject_percent"], PERCENT),
                number(found["threshold"], SCORE),
                text(RULES[system].unit if system in RULES else "score"),
            ),
        ),
    )


def _points(default: str, metrics: Metrics) -> Html:
    rows = [
        (
            text(point),
            number(found["prior"], "g"),
            number(found["cost_miss"], "g"),
            number(found["cost_false_accept"], "g"),
            number(found["min_dcf"], COST),
            number(found["act_dcf"], COST),
        )
        for point, found in metrics["systems"][default]["operating_points"].items()
    ]
    header = ("operating point", "prior of a true claim", "cost of an FR", "cost of an FA", "minDCF", "actDCF")
    return table(f"Detection costs of {default}, and what each operating point is", header, rows)


def _all_points(metrics: Metrics) -> Html:
    points = list(metrics["systems"][metrics["default_system"]]["operating_points"])
    kinds = (("min_dcf", "minDCF"), ("act_dcf", "actDCF"))
    return table(
        "Detection costs of every system at every operating point",
        ("system", *(f"{point} {title}" for point in points for _, title in kinds)),
        _by_system(
            metrics,
            lambda _, found: [
                number(found["operating_points"][point][key], COST) for point in points for key, _ in kinds
            ],
        ),
    )


def _spread(metrics: Metrics) -> Html:
    def cells(_: str, found: Metrics) -> Sequence[Html]:
        spread = found["speaker_eer_percent"]
        if spread is None:
            return [text("n/a")] * 4
        middle = number(spread["median"], PERCENT), span(spread["quartiles"], PERCENT)
        worst = name(spread["worst_speaker"]) if spread["worst"] > 0 else text("none")
        return (*middle, number(spread["worst"], PERCENT), worst)

    return table(
        "Equal error rates of the claims on each speaker, in percent, each at the speaker's own best threshold",
        ("system", "median", "middle half", "worst", "worst speaker"),
        _by_system(metrics, cells),
    )


def _failed(failed: Sequence[FailedFile]) -> Html:
    if not failed:
        return paragraph(text("None: every file of the list was scored."))
    rows = [(name(file.path), number(file.trials, "d"), name(file.reason)) for file in failed]
    return table("Their claims count in no error rate.", ("file", "claims lost", "why"), rows, words=True)


def _figures(words: Mapping[str, tuple[str, str]], pictures: Mapping[str, bytes]) -> Html:
    shown = [picture(pictures[stem], alt, caption) for stem, (alt, caption) in words.items() if stem in pictures]
    return element("div", *shown, class_="figures") if shown else text("")


def _settings(settings: Mapping[str, Any]) -> Html:
    words = text("Saved as a file, they are what `voiceclaim enroll --config` takes.")
    return joined("", [paragraph(words), element("pre", element("code", text(settings_toml(settings))))])


def settings_toml(settings: Mapping[str, Any], section: str = "") -> str:
    """Settings as a TOML file that gives them again; those that are None, which TOML cannot say, are left out."""
    lines = [f"[{section}]"] if section else []
    lines += [
        f"{key} = {json.dumps(value, ensure_ascii=False)}"
        for key, value in settings.items()
        if value is not None and not isinstance(value, Mapping)
    ]
    tables = [
        settings_toml(value, f"{section}.{key}" if section else key)
        for key, value in settings.items()
        if isinstance(value, Mapping)
    ]
    return "\n".join([*lines, *(f"\n{part}" for part in tables)]).lstrip("\n") + ("" if section else "\n")
