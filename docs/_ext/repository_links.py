"""Links from a page to files of the repository that are not pages: they lead to the file itself, as a download.

MyST would look for a page at ``../benchmarks/REPRODUCE.md`` and warn. The same link works where the repository shows
the page as it is.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from sphinx.addnodes import download_reference, pending_xref
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

ROOT = Path(__file__).resolve().parents[2]


class RepositoryLinks(SphinxTransform):
    """Turn links to files outside ``docs/`` into links to copies of them, and links to folders into plain text."""

    default_priority = 500

    def apply(self, **_kwargs: Any) -> None:
        """Replace the references of one page."""
        source = Path(self.env.srcdir).resolve()
        for node in list(self.document.findall(pending_xref)):
            if node.get("reftype") != "myst":
                continue
            aim = self._aim(node, source)
            if aim is None or aim.is_relative_to(source):
                continue
            if aim.is_dir():
                node.replace_self(node.children)
                continue
            target = os.path.relpath(aim, source / Path(self.env.docname).parent)
            node.replace_self(download_reference("", "", *node.children, reftarget=target, refdoc=self.env.docname))

    def _aim(self, node: pending_xref, source: Path) -> Path | None:
        """Return the file or folder of the repository that ``node`` refers to, if any."""
        page = source / Path(self.env.docname).parent
        target = str(node["reftarget"]).partition("#")[0]
        for name in (target, f"{target}.md"):
            # MyST has turned the path of a page into a document name, without the suffix.
            for aim in ((page / name).resolve(), (source / name).resolve()):
                if target and aim.is_relative_to(ROOT) and aim.exists():
                    return aim
        return None


def setup(app: Sphinx) -> dict[str, Any]:
    """Add the transform."""
    app.add_transform(RepositoryLinks)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
