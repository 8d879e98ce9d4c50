"""An HTML page taken apart by the standard parser, strictly: what the tests of pages look at."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from xml.etree import ElementTree

VOID = {"meta", "img", "br", "hr", "link", "input"}
NOT_IN_A_PARAGRAPH = {"p", "table", "div", "section", "figure", "dl", "pre", "h1", "h2"}


@dataclass
class Element:
    tag: str
    attributes: dict[str, str | None]
    parent: Element | None
    children: list[Element] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """All text inside, in the order of the page."""
        return "".join(self.pieces)

    def all(self, *tags: str) -> list[Element]:
        inside = [found for child in self.children for found in (child, *child.all())]
        return [found for found in inside if not tags or found.tag in tags]


class Outline(HTMLParser):
    """The tree of a page; an element that is not closed, or closed out of turn, is an AssertionError."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.root = self.at = Element("", {}, None)
        self.declarations: list[str] = []
        self.feed(page)
        self.close()
        assert self.at is self.root, f"<{self.at.tag}> is never closed"

    def handle_decl(self, decl: str) -> None:
        self.declarations.append(decl)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs), f"an attribute of <{tag}> is given twice"
        assert not (self.at.tag == "p" and tag in NOT_IN_A_PARAGRAPH), f"<{tag}> would end the paragraph"
        found = Element(tag, dict(attrs), self.at)
        self.at.children.append(found)
        if tag not in VOID:
            self.at = found

    def handle_endtag(self, tag: str) -> None:
        assert self.at.tag == tag, f"</{tag}> where <{self.at.tag}> is open"
        assert self.at.parent is not None
        self.at = self.at.parent

    def handle_data(self, data: str) -> None:
        above: Element | None = self.at
        while above is not None:
            above.pieces.append(data)
            above = above.parent

    def all(self, *tags: str) -> list[Element]:
        return self.root.all(*tags)

    def table(self, caption: str) -> list[list[str]]:
        """Cells of the table whose caption begins so, the header first."""
        (found,) = [table for table in self.all("table") if table.all("caption")[0].text.startswith(caption)]
        return [[cell.text for cell in row.all("th", "td")] for row in found.all("tr")]

    def pictures(self) -> list[bytes]:
        """What the images show."""
        sources = [image.attributes["src"] or "" for image in self.all("img")]
        prefix = "data:image/svg+xml;base64,"
        assert all(source.startswith(prefix) for source in sources)
        return [base64.b64decode(source.removeprefix(prefix), validate=True) for source in sources]


def check_self_contained(page: str) -> Outline:
    """Assert that the page loads nothing and runs nothing, its pictures included, and return its outline."""
    outline = Outline(page)
    assert outline.declarations == ["DOCTYPE html"]
    assert not {found.tag for found in outline.all()} & {"script", "link", "iframe", "object", "embed", "base", "form"}
    for found in outline.all():
        for key, value in found.attributes.items():
            assert not key.startswith("on"), f"{key} of <{found.tag}>"
            if key in {"src", "href", "srcset", "action", "data", "poster"}:
                assert (value or "").startswith("data:image/"), f"{key} of <{found.tag}>"
    for style in outline.all("style"):
        assert "url(" not in style.text
        assert "@import" not in style.text
    assert not re.search(r"https?://", page)
    for svg in outline.pictures():
        _check_svg(svg)
    return outline


def _check_svg(svg: bytes) -> None:
    for found in ElementTree.fromstring(svg).iter():  # noqa: S314  (a file of our own making)
        assert not found.tag.endswith("}script")
        for key, value in found.attrib.items():
            if key.endswith("href"):
                assert value.startswith("#")
            assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)\)", value))


def check_accessible(outline: Outline) -> None:
    """Assert what a screen reader needs: language, one heading of each page, named tables and pictures."""
    (root,) = outline.all("html")
    assert root.attributes["lang"] == "en"
    assert outline.all("title")[0].text == outline.all("h1")[0].text
    headings = [found.tag for found in outline.all("h1", "h2", "h3")]
    assert headings[0] == "h1"
    assert set(headings[1:]) == {"h2"}
    assert len(outline.all("main")) == 1
    assert all((image.attributes["alt"] or "").strip() for image in outline.all("img"))
    for table in outline.all("table"):
        assert table.children[0].tag == "caption"
        assert table.children[0].text.strip()
        header, *rows = table.all("tr")
        assert all(cell.tag == "th" and cell.attributes["scope"] == "col" and cell.text for cell in header.children)
        for row in rows:
            assert [cell.tag for cell in row.children] == ["th"] + ["td"] * (len(header.children) - 1)
            assert row.children[0].attributes["scope"] == "row"
