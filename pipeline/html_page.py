"""Building blocks of an HTML page that is one file: no script, no network, every text escaped.

A function that takes ``Html`` puts it into the page as it stands; any other text has to go through ``text`` first,
which the type checker sees to.
"""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Sequence
from typing import NewType

Html = NewType("Html", str)
"""Markup that may stand in a page as it is."""

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")

# Should markup ever slip through, this still keeps the page from loading or running anything.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"

_STYLE = """
:root { color-scheme: light dark; --ink: #1a1a1a; --paper: #ffffff; --quiet: #595959; --line: #b5b5b5; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8e8e8; --paper: #181818; --quiet: #b0b0b0; --line: #5c5c5c; }
}
body { margin: 0; background: var(--paper); color: var(--ink); font: 1rem/1.5 system-ui, sans-serif; }
main { max-width: 62rem; margin: 0 auto; padding: 1rem 1.25rem 3rem; }
h1 { font-size: 1.6rem; line-height: 1.25; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin-top: 2.2rem; padding-bottom: 0.2rem; border-bottom: 1px solid var(--line); }
.scroll { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 0.9rem; }
caption { text-align: left; padding-bottom: 0.4rem; color: var(--quiet); }
th, td { padding: 0.25rem 0.7rem 0.25rem 0; text-align: right; vertical-align: top; }
th:first-child, .words th, .words td { text-align: left; }
tbody th { font-weight: 600; white-space: nowrap; }
td data, td span { white-space: nowrap; }
thead th { vertical-align: bottom; border-bottom: 2px solid var(--line); }
tbody tr { border-bottom: 1px solid var(--line); }
.words td, pre { overflow-wrap: anywhere; }
.note { border-left: 0.3rem solid var(--line); padding: 0.2rem 0 0.2rem 0.9rem; }
.figures { display: flex; flex-wrap: wrap; gap: 1.5rem; align-items: flex-start; }
figure { margin: 0; max-width: 100%; }
figure img { display: block; max-width: 100%; height: auto; background: #ffffff; padding: 0.4rem; }
figcaption { max-width: 21rem; color: var(--quiet); font-size: 0.9rem; }
pre { white-space: pre-wrap; font-size: 0.85rem; }
dt { font-weight: 600; }
dd { margin: 0 0 0.5rem 1.2rem; }
@media print {
  :root { --ink: #000000; --paper: #ffffff; --quiet: #333333; --line: #999999; }
  main { max-width: none; padding: 0; }
  table { font-size: 0.75rem; }
  .scroll { overflow: visible; }
  figure, tr, .scroll { break-inside: avoid; }
  .figures { display: block; }
  figure { display: inline-block; vertical-align: top; margin: 0 0.8rem 0.8rem 0; }
  h2 { break-after: avoid; }
}
"""


def text(value: object) -> Html:
    """Any value as text of a page, in an element or an attribute; what cannot be printed is replaced."""
    # Names of files may hold bytes that are no UTF-8, which Python keeps as unpaired surrogates.
    encodable = str(value).encode("utf-8", "backslashreplace").decode("utf-8")
    return Html(html.escape(_CONTROL.sub("\N{REPLACEMENT CHARACTER}", encodable)))


def name(value: object) -> Html:
    """A name that is data: whatever direction it is written in, it leaves the text around it alone."""
    return element("bdi", text(value))


def number(value: float | None, digits: str) -> Html:
    """A number as ``format(value, digits)``, its exact value kept in the markup; "n/a" for None."""
    return text("n/a") if value is None else element("data", text(format(value, digits)), value=repr(value))


def span(low_high: Sequence[float] | None, digits: str) -> Html:
    """Both ends of an interval, "n/a" for None."""
    if low_high is None:
        return text("n/a")
    return element("span", joined(" to ", [number(end, digits) for end in low_high]))


def joined(words: str, parts: Sequence[Html]) -> Html:
    """The parts in a row with the same words between them."""
    return Html(text(words).join(parts))


def element(tag: str, *content: Html, **attributes: str) -> Html:
    """``<tag attribute="...">content</tag>``; an underscore at the end of an attribute's name is left out."""
    words = "".join(f' {key.rstrip("_")}="{text(value)}"' for key, value in attributes.items())
    return Html(f"<{tag}{words}>{''.join(content)}</{tag}>")


def paragraph(*content: Html) -> Html:
    """A paragraph."""
    return element("p", *content)


def note(words: str) -> Html:
    """A paragraph that stands out, and not by colour."""
    return element("p", element("strong", text("Mind: ")), text(words), class_="note")


def section(heading: str, *content: Html) -> Html:
    """A part of the page under its heading."""
    return Html(f"{element('section', element('h2', text(heading)), *content)}\n")


def table(caption: str, header: Sequence[str], rows: Sequence[Sequence[Html]], *, words: bool = False) -> Html:
    """A table whose first column names its rows; numbers stand to the right, ``words`` to the left."""
    head = element("tr", *(element("th", text(title), scope="col") for title in header))
    body = [
        element("tr", element("th", first, scope="row"), *(element("td", cell) for cell in rest))
        for first, *rest in rows
    ]
    whole = element(
        "table",
        element("caption", text(caption)),
        element("thead", head),
        element("tbody", Html("\n".join(body))),
        class_="words" if words else "numbers",
    )
    # A wide table scrolls by itself, by keyboard too.
    attributes = {"class": "scroll", "role": "region", "aria-label": caption, "tabindex": "0"}
    return Html(f"{element('div', whole, **attributes)}\n")


def facts(caption: str, rows: Sequence[tuple[str, Html]]) -> Html:
    """A table of one value a row."""
    return table(caption, ("item", "value"), [(text(label), value) for label, value in rows], words=True)


def terms(meanings: Sequence[tuple[str, str]]) -> Html:
    """Words and what they mean."""
    return element("dl", *(Html(element("dt", text(term)) + element("dd", text(is_))) for term, is_ in meanings))


def picture(svg: bytes, alt: str, caption: str) -> Html:
    """An SVG figure inside the page; ``alt`` is for those who cannot see it."""
    # As an image of its own, so that the ids inside two figures cannot clash.
    source = f"data:image/svg+xml;base64,{base64.b64encode(svg).decode('ascii')}"
    image = Html(f'<img src="{source}" alt="{text(alt)}">')
    return Html(f"{element('figure', image, element('figcaption', text(caption)))}\n")


def page(title: str, *content: Html) -> str:
    """The whole document, its title as the heading."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{text(_POLICY)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{text(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n"
        f"<h1>{text(title)}</h1>\n{''.join(content)}</main>\n</body>\n</html>\n"
    )
