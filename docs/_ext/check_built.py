"""Check that every link of the built pages leads to a file or an element: python docs/_ext/check_built.py DIR."""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """Links and anchors of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note ids and addresses."""
        broken_links = {name: value for name, value in attrs if value}
        self.anchors |= {broken_links[name] for name in ("id", "name") if name in broken_links}
        self.links += [broken_links[name] for name in ("href", "src") if name in broken_links and tag != "base"]


def broken(folder: Path) -> list[str]:
    """Return broken links of the pages in ``folder``; addresses of the web are not checked."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("*.html"))}
    broken_links = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            aim = (path.parent / unquote(parts.path)).resolve() if parts.path else path.resolve()
            anchors = next((other.anchors for name, other in pages.items() if name.resolve() == aim), None)
            if not aim.exists() or (parts.fragment and anchors is not None and unquote(parts.fragment) not in anchors):
                broken_links.append(f"{path.relative_to(folder)}: {link}")
    return broken_links


if __name__ == "__main__":
    if lost := broken(Path(sys.argv[1])):
        sys.exit("links that lead nowhere:\n" + "\n".join(lost))
