"""Docstrings as plain text with ``names`` in double backticks: other markup of reStructuredText is escaped.

An indented paragraph is a drawing, such as the tree of exceptions, and is kept as it is.
"""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx

LITERAL = re.compile(r"(``.+?``)")
SPECIAL = re.compile(r"[\\*`|]|_(?=\W|$)")


def escaped(line: str) -> str:
    """Escape ``line``, except its literals."""
    parts = LITERAL.split(line)
    return "".join(part if LITERAL.fullmatch(part) else SPECIAL.sub(r"\\\g<0>", part) for part in parts)


def plain(lines: list[str]) -> list[str]:
    """Return a docstring's ``lines`` as reStructuredText that shows them as written."""
    shown: list[str] = []
    drawing = False
    for line in lines:
        indented = line.startswith("    ")
        if indented and not drawing and (not shown or not shown[-1].strip()):
            shown += ["::", ""]
            drawing = True
        elif line.strip() and not indented and drawing:
            drawing = False
        shown.append(line if drawing else escaped(line))
    return shown


def process(_app: Sphinx, _what: str, _name: str, _of: Any, _options: Any, lines: list[str]) -> None:
    """Rewrite a docstring in place."""
    lines[:] = plain(lines)


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect to autodoc."""
    app.connect("autodoc-process-docstring", process)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
