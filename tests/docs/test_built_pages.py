"""Pages as they are built: no warning, no link that leads nowhere, the whole reference, and no text cut off."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from pages import PAGES, ROOT, extension
from typer.main import get_command

from pipeline.cli.app import app


def test_the_reference_has_every_command_and_option():
    text = extension("command_line").markdown()
    for name, command in get_command(app).commands.items():
        section = text.split(f"\n## voiceclaim {name}\n" if name != "enroll" else f"## voiceclaim {name}\n")[1]
        section = section.split("\n## ")[0]
        for parameter in command.params:
            for option in parameter.opts if parameter.param_type_name == "option" else ():
                assert re.search(rf"`[^`\n]*{re.escape(option)}\b", section), f"{name}: {option}"


def test_links_of_built_pages_that_lead_nowhere_are_found(tmp_path):
    (tmp_path / "a.html").write_text('<p id="x"><a href="b.html#y">1</a><a href="b.html#z">2</a><a href="#x">3</a>')
    (tmp_path / "b.html").write_text(
        '<p id="y"><a href="c.html">4</a><a href="https://example.org/">5</a><img src="d.png">'
    )
    assert extension("check_built").broken(tmp_path) == ["a.html: b.html#z", "b.html: c.html", "b.html: d.png"]


def test_docstrings_are_shown_as_they_are_written():
    pytest.importorskip("sphinx")
    plain = extension("docstrings").plain
    assert plain(["``A_`` and B_, |x|, a * b, `c`."]) == ["``A_`` and B\\_, \\|x\\|, a \\* b, \\`c\\`."]
    assert plain(["A tree.", "", "    a", "    └── b_", "", "After."]) == [
        "A tree.", "", "::", "", "    a", "    └── b_", "", "After.",
    ]  # fmt: skip


# Links to headings that begin a line of their own, and are the only thing on it.
ALONE = """
return [...document.querySelectorAll("a.headerlink")].filter((link) => {
  const range = document.createRange();
  range.selectNodeContents(link.parentElement);
  range.setEndBefore(link);
  return link.getBoundingClientRect().top >= [...range.getClientRects()].at(-1).bottom;
}).map((link) => link.parentElement.textContent)
"""


@pytest.mark.slow
def test_the_pages_are_built_without_a_warning_and_none_of_their_text_is_cut_off(tmp_path):
    pytest.importorskip("sphinx")
    pytest.importorskip("myst_nb")
    done = subprocess.run(
        [ROOT / "scripts" / "docs", tmp_path / "html"], capture_output=True, text=True, check=False, timeout=500
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    index = (tmp_path / "html" / "index.html").read_text(encoding="utf-8")
    assert "Voiceclaim" in index
    for name in PAGES:
        if name != "README.md":
            assert (tmp_path / "html" / Path(name).relative_to("docs")).with_suffix(".html").is_file()
    pytest.importorskip("selenium.webdriver")
    from browser import CHROMIUM, DRIVER, WIDTHS, browser

    if CHROMIUM is None or DRIVER is None:
        return
    with browser("") as seen:
        for path in sorted((tmp_path / "html").rglob("*.html")):
            for width in WIDTHS:
                seen.resize(width)
                seen.driver.get(f"file://{path}")
                assert seen.clipped() == [], f"{path.name} at {width}"
                assert seen.driver.execute_script(ALONE) == [], f"{path.name} at {width}"
                diagrams = seen.all("article img[src$='.svg']")
                assert all(diagram.rect["width"] > 600 for diagram in diagrams), f"{path.name} at {width}"
