"""Strict outline of an HTML page by the standard library's parser, and checks of pages."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from xml.etree import ElementTree

VOID = {"meta", "img", "br", "hr", "link", "input"}
NOT_IN_A_PARAGRAPH = {"p", "table", "div", "section", "figure", "dl", "pre", "h1", "h2"}
LOADING = {"script", "link", "iframe", "object", "embed", "base", "form"}
ADDRESSES = {"src", "href", "srcset", "action", "data", "poster"}


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
        inside = [element for child in self.children for element in (child, *child.all())]
        return [element for element in inside if not tags or element.tag in tags]


class Outline(HTMLParser):
    """The tree of a page; an element that is not closed, or closed out of order, is an AssertionError."""

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
        element = Element(tag, dict(attrs), self.at)
        self.at.children.append(element)
        if tag not in VOID:
            self.at = element

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
        """Cells of the table whose caption begins with ``caption``, the header first."""
        (table,) = [table for table in self.all("table") if table.all("caption")[0].text.startswith(caption)]
        return [[cell.text for cell in row.all("th", "td")] for row in table.all("tr")]

    def pictures(self) -> list[bytes]:
        """Contents of the images, all of them inline SVG."""
        prefix = "data:image/svg+xml;base64,"
        sources = [image.attributes["src"] or "" for image in self.all("img")]
        assert all(source.startswith(prefix) for source in sources)
        return [base64.b64decode(source.removeprefix(prefix), validate=True) for source in sources]


def check_self_contained(page: str) -> Outline:
    """Assert that the page and its pictures load nothing, and run only the script whose hash its policy names."""
    outline = Outline(page)
    assert outline.declarations == ["DOCTYPE html"]
    (policy,) = [m.attributes["content"] for m in outline.all("meta") if "http-equiv" in m.attributes]
    allowed = re.findall(r"script-src '([^']*)'", policy)
    scripts = outline.all("script")
    for element in scripts:
        assert set(element.attributes) <= {"type", "id"}
        digest = base64.b64encode(hashlib.sha256(element.text.encode()).digest()).decode()
        assert element.attributes.get("type") == "application/json" or allowed == [f"sha256-{digest}"]
    for element in outline.all():
        assert element.tag not in LOADING or element in scripts
        for key, value in element.attributes.items():
            assert not key.startswith("on"), f"{key} of <{element.tag}>"
            assert key not in ADDRESSES or (value or "").startswith("data:image/"), f"{key} of <{element.tag}>"
    assert not any("url(" in style.text or "@import" in style.text for style in outline.all("style"))
    assert not re.search(r"https?://", page.replace("http://www.w3.org/2000/svg", ""))
    for svg in outline.pictures():
        for node in ElementTree.fromstring(svg).iter():  # noqa: S314  (a file of our own making)
            assert not node.tag.endswith("}script")
            for key, value in node.attrib.items():
                assert not key.endswith("href") or value.startswith("#")
                assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)\)", value))
    return outline


def check_accessible(outline: Outline) -> None:
    """Assert what a screen reader needs: a language, one main heading, named tables and pictures."""
    (root,) = outline.all("html")
    assert root.attributes["lang"] == "en"
    assert outline.all("title")[0].text == outline.all("h1")[0].text
    first, *others = [heading.tag for heading in outline.all("h1", "h2", "h3")]
    assert first == "h1"
    assert set(others) == {"h2"}
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
