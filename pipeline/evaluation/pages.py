"""HTML pages of results: one file each without outside resources, every text escaped by Jinja2.

Templates are in ``templates/``. The only script, which the page allows by its hash, is that of ``charts/``, shared with
the service's page. The same results give the same page, byte for byte.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from pipeline.evaluation.assess import FailedFile
from pipeline.evaluation.curves import Evaluation
from pipeline.evaluation.details import Details
from pipeline.evaluation.exports import COMPARED_COLUMNS
from pipeline.metrics import MEAN_COSTS
from pipeline.scoring.rules import RULES

CHARTS = Path(__file__).resolve().parent / "charts"
_SCRIPTS = ("dom.js", "chart.js", "rates.js")  # each imports from those before it
_START = """const data = document.getElementById("curves");
if (data) ratesPanel(document.getElementById("panel")).show(JSON.parse(data.textContent));
"""
_MODULES = re.compile(r"^import .*;\n|^export ", re.M)
_WIDTH = re.compile(rb'<svg [^>]*width="([0-9.]+)pt"')
_COLUMN_POINTS = 300.0
MOST_ROWS = 20  # of a table of speakers
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def _printable(value: object) -> object:
    """Return ``value`` as text that a page can hold; markup is left as it is."""
    if hasattr(value, "__html__"):
        return value
    # File names that are not valid UTF-8 hold unpaired surrogates.
    encodable = str(value).encode("utf-8", "backslashreplace").decode("utf-8")
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", encodable)


TEMPLATES = Environment(
    loader=PackageLoader("pipeline.evaluation"),
    autoescape=True,
    undefined=StrictUndefined,
    finalize=_printable,
    trim_blocks=True,
    lstrip_blocks=True,
)
TEMPLATES.filters["json"] = lambda value: json.dumps(value, ensure_ascii=False)


def evaluation_page(
    metrics: Mapping[str, Any],
    *,
    figures: Iterable[Path],
    curves: Evaluation | None = None,
    details: Details | None = None,
    failed: Sequence[FailedFile] = (),
    command: str | None = None,
) -> str:
    """Render report.html from the content of metrics.json; of ``figures`` it has the SVG files.

    ``curves`` are for the chart on which the reader chooses a threshold, ``details`` are those of the default system.
    """
    settings = metrics.get("settings", {})
    return TEMPLATES.get_template("evaluation.html").render(
        metrics=metrics,
        list_name=PurePath(str(metrics["trials"])).name,
        store_default=settings.get("scoring", {}).get("system", metrics["default_system"]),
        settings=settings_toml(settings),
        mean_costs=MEAN_COSTS,
        units={name: rule.unit for name, rule in RULES.items()},
        figures=_sources(figures),
        **_charts(curves),
        charts_css=(CHARTS / "charts.css").read_text(encoding="utf-8"),
        details=details,
        most_rows=MOST_ROWS,
        speaker_rows=[] if details is None else [entry for entry in details.errors if entry.count][:MOST_ROWS],
        failed=failed,
        command=command,
    )


def _charts(curves: Evaluation | None) -> dict[str, str | None]:
    """Return the curves as JSON, the modules of ``charts/`` as one script, and its hash; None where none are drawn."""
    if curves is None or not curves.systems:
        return dict.fromkeys(("curves", "script", "script_hash"))
    parts = (_MODULES.sub("", (CHARTS / name).read_text(encoding="utf-8")) for name in _SCRIPTS)
    script = "".join([*parts, _START])
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    # Escaped, so that no text in it can end the element around it.
    embedded = curves.model_dump_json(exclude={"state", "stale"}).replace("<", "\\u003c")
    return {"curves": embedded, "script": script, "script_hash": f"sha256-{digest}"}


def comparison_page(compared: Mapping[str, Any], *, figures: Iterable[Path]) -> str:
    """Render compare.html from the content of compare.json; of ``figures`` it has the SVG files."""
    curves = ", ".join(f"{entry['label']}: {entry['system']}" for entry in compared["evaluations"])
    return TEMPLATES.get_template("comparison.html").render(
        compared=compared,
        columns=COMPARED_COLUMNS,
        curves=curves,
        figures=_sources(figures),
        script_hash=None,
        charts_css="",
    )


def _sources(figures: Iterable[Path]) -> dict[str, tuple[str, bool]]:
    """Return the data URI of each SVG file by its stem, and whether it is wider than a column."""
    drawn = {path.stem: path.read_bytes() for path in figures if path.suffix == ".svg"}
    widths = {stem: _WIDTH.search(svg) for stem, svg in drawn.items()}
    wide = {stem: width is not None and float(width[1]) > _COLUMN_POINTS for stem, width in widths.items()}
    prefix = "data:image/svg+xml;base64,"
    return {stem: (prefix + base64.b64encode(svg).decode("ascii"), wide[stem]) for stem, svg in drawn.items()}


def settings_toml(settings: Mapping[str, Any], section: str = "") -> str:
    """Format settings as a TOML file; TOML has no null, so settings that are None are left out."""
    lines = [f"[{section}]"] if section else []
    tables = []
    for key, value in settings.items():
        if isinstance(value, Mapping):
            tables.append("\n" + settings_toml(value, f"{section}.{key}" if section else key))
        elif value is not None:
            lines.append(f"{key} = {json.dumps(value, ensure_ascii=False)}")
    return "\n".join([*lines, *tables]).lstrip("\n") + ("" if section else "\n")
