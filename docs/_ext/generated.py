"""Generated parts of pages: ``<!-- generated: NAME -->`` is replaced by Markdown when the site is built.

``commands`` is the command line; ``api``, ``evaluation`` and ``estimators`` are directives of autodoc; the others are
tables of ``benchmarks/results``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import benchmark_results
import command_line
import public_names
from sphinx.application import Sphinx

MARK = re.compile(r"^<!-- generated: (\w+) -->$", re.M)
RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results"
MAKERS: dict[str, Callable[[], str]] = {
    "commands": command_line.markdown,
    **public_names.PAGES,
    **{name: lambda make=make: make(RESULTS) for name, make in benchmark_results.TABLES.items()},
}


def fill(app: Sphinx, page: str, source: list[str]) -> None:
    """Replace the marks of a page; an unknown name fails the build."""
    names = MARK.findall(source[0])
    if not names:
        return
    for path in [*RESULTS.glob("*.json"), *Path(__file__).parent.glob("*.py")]:
        app.env.note_dependency(str(path), docname=page)
    source[0] = MARK.sub(lambda match: MAKERS[match[1]](), source[0])


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect to the reading of pages."""
    app.connect("source-read", fill)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
