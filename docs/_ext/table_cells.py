"""Words of tables: "± 0.01" is never broken; long names may be, after a dot or else an underscore."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform

LONG = re.compile(r"\S{19,}")
DOT, UNDERSCORE = (re.compile(rf"(?<=[^\W_]{sign})(?=[^\W\d_])") for sign in (r"\.", "_"))
SPREAD = re.compile(r"(?<=\d) ± (?=\d)")
NO_BREAK, MAY_BREAK = "\N{NO-BREAK SPACE}", "\N{ZERO WIDTH SPACE}"


class TableCells(SphinxPostTransform):
    """Say where the words of table cells may be broken."""

    default_priority = 900
    formats = ("html",)

    def run(self, **_kwargs: Any) -> None:
        """Change the texts of one page."""
        for cell in self.document.findall(nodes.entry):
            for text in list(cell.findall(nodes.Text)):
                if not isinstance(text.parent, nodes.math):
                    parts: list[nodes.Node] = []
                    for part in breakable(text.astext()):
                        parts += [nodes.raw("", "<wbr>", format="html"), nodes.Text(part)]
                    text.parent.replace(text, parts[1:])


def breakable(text: str) -> list[str]:
    """Return the parts of ``text`` that a line may end between, besides at its spaces."""
    text = SPREAD.sub(f" ±{NO_BREAK}", text)
    return LONG.sub(_marked, text).split(MAY_BREAK)


def _marked(word: re.Match[str]) -> str:
    place = DOT if DOT.search(word[0]) else UNDERSCORE
    return place.sub(MAY_BREAK, word[0])


def setup(app: Sphinx) -> dict[str, Any]:
    """Add the transform."""
    app.add_post_transform(TableCells)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
