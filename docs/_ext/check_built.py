"""Every link and anchor of the built pages leads to a file or an element: python docs/_ext/check_built.py DIR."""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """What a page links to and what it can be linked at."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note ids and addresses."""
        found = {name: value for name, value in attrs if value}
        self.anchors |= {found[name] for name in ("id", "name") if name in found}
        self.links += [found[name] for name in ("href", "src") if name in found and tag != "base"]


def broken(folder: Path) -> list[str]:
    """Links of the pages in ``folder`` that lead nowhere; addresses of the web are not looked at."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("*.html"))}
    found = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            aim = (path.parent / unquote(parts.path)).resolve() if parts.path else path.resolve()
            anchors = next((other.anchors for name, other in pages.items() if name.resolve() == aim), None)
            if not aim.exists() or (parts.fragment and anchors is not None and unquote(parts.fragment) not in anchors):
                found.append(f"{path.relative_to(folder)}: {link}")
    return found


if __name__ == "__main__":
    if lost := broken(Path(sys.argv[1])):
        sys.exit("links that lead nowhere:\n" + "\n".join(lost))
