"""Evaluations side by side as a page to read, to print or to send: compare.html, what compare.json says."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.html_page import Html, joined, name, note, number, page, paragraph, picture, section, span, table, text
from pipeline.html_report import COST, PERCENT
from pipeline.report_words import CAVEAT

MEASURES = {"eer_percent": "EER %", "min_dcf": "minDCF p05", "cllr": "Cllr", "min_cllr": "minimum Cllr"}

READING = (
    "A difference is that of an evaluation less the first one, on the claims that both scored: below zero it is better."
    " Its interval draws the same speakers for both, again and again; where zero lies inside, the list cannot tell the"
    " two apart. Of many comparisons one in twenty looks like a difference by chance."
)


def comparison_page(compared: Mapping[str, Any], *, det: bytes) -> str:
    """The page of ``compared``, the content of compare.json; ``det`` is the picture of the DET curves as SVG."""
    parts = [
        paragraph(text("Compared with the first, "), name(compared["reference"]), text(".")),
        note(CAVEAT),
        section("Side by side", _side_by_side(compared["evaluations"])),
        section("Differences from the first", paragraph(text(READING)), *_differences(compared["differences"])),
        section("Error trade-off", _det(compared["evaluations"], det)),
        section("Where they come from", _sources(compared["evaluations"])),
        section("Settings that differ", _settings(compared)),
    ]
    return page("Speaker verification: evaluations compared", *parts)


def verdict(low_high: Sequence[float]) -> str:
    """What the interval of a difference says in words."""
    low, high = low_high
    return "worse" if low > 0 else "better" if high < 0 else "not told apart"


def _digits(key: str) -> str:
    return PERCENT if key.endswith("percent") else COST


def _side_by_side(evaluations: Sequence[Mapping[str, Any]]) -> Html:
    def measured(found: Mapping[str, Any], key: str) -> Html:
        if found[key] is None:
            return text("n/a")
        ends = span(found[f"{key}_ci95"], _digits(key))
        return joined("", [number(found[key], _digits(key)), text(" ("), ends, text(")")])

    return table(
        "Every claim of each folder, 95 % intervals over speakers in brackets; the lower, the better",
        ("evaluation", "system", *MEASURES.values()),
        [
            (name(found["label"]), name(found["system"]), *(measured(found, key) for key in MEASURES))
            for found in evaluations
        ],
    )


def _differences(differences: Sequence[Mapping[str, Any]]) -> list[Html]:
    rows, counts = [], []
    for found in differences:
        claims = (
            f": {found['n_target']} true and {found['n_nontarget']} false claims in common, {found['unmatched']} not."
        )
        counts.append(paragraph(name(found["label"]), text(claims)))
        for key, title in MEASURES.items():
            if found[key] is None:
                continue
            values = found[key]
            rows.append(
                (
                    name(found["label"]),
                    text(title),
                    number(values["first"], _digits(key)),
                    number(values["second"], _digits(key)),
                    number(values["difference"], f"+{_digits(key)}"),
                    span(values["ci95"], f"+{_digits(key)}"),
                    text(verdict(values["ci95"])),
                )
            )
    header = ("evaluation", "measure", "the first", "this one", "difference", "95 % interval", "in words")
    return [table("Paired differences on the claims that both scored", header, rows), *counts]


def _det(evaluations: Sequence[Mapping[str, Any]], det: bytes) -> Html:
    of = ", ".join(f"{found['label']}: {found['system']}" for found in evaluations)
    alt = f"DET curves of {of}: false rejects against false accepts. The equal error rates are in the table above."
    return picture(det, alt, "Detection error trade-off; nearer to the lower left is better.")


def _sources(evaluations: Sequence[Mapping[str, Any]]) -> Html:
    return table(
        "Folders, and the lists that they were evaluated on",
        ("evaluation", "folder", "trial list", "true claims", "false claims", "version"),
        [
            (
                name(found["label"]),
                name(found["folder"]),
                name(found["trials"] or "unknown"),
                number(found["n_target"], "d"),
                number(found["n_nontarget"], "d"),
                text(found["version"] or "unknown"),
            )
            for found in evaluations
        ],
        words=True,
    )


def _settings(found: Mapping[str, Any]) -> Html:
    if not found["settings"]:
        why = "None." if found["settings"] is not None else "Unknown: an earlier version wrote one of the folders."
        return paragraph(text(why))
    labels = [evaluation["label"] for evaluation in found["evaluations"]]
    rows = [
        (text(key), *(text(json.dumps(value, ensure_ascii=False)) for value in values))
        for key, values in found["settings"].items()
    ]
    return table(
        "Settings of the stores; null where there is none of that name", ("setting", *labels), rows, words=True
    )
