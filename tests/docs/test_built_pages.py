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


def test_long_names_in_tables_may_be_broken_and_numbers_may_not():
    pytest.importorskip("sphinx")
    breakable = extension("table_cells").breakable
    assert breakable("see `pipeline.machines.gmm.map_mean`") == ["see `pipeline.", "machines.", "gmm.", "map_mean`"]
    assert breakable("refined_worst_rival of worst_rival") == ["refined_", "worst_", "rival of worst_rival"]
    assert breakable("-0.12\N{NO-BREAK SPACE}(-0.40\N{NO-BREAK SPACE}to\N{NO-BREAK SPACE}0.09)") == [
        "-0.12\N{NO-BREAK SPACE}(-0.40\N{NO-BREAK SPACE}to\N{NO-BREAK SPACE}0.09)"
    ]
    assert breakable("0.55 ± 0.01") == ["0.55 ±\N{NO-BREAK SPACE}0.01"]


# Links to headings that begin a line of their own, and are the only thing on it.
ALONE = """
return [...document.querySelectorAll("a.headerlink")].filter((link) => {
  const range = document.createRange();
  range.selectNodeContents(link.parentElement);
  range.setEndBefore(link);
  return link.getBoundingClientRect().top >= [...range.getClientRects()].at(-1).bottom;
}).map((link) => link.parentElement.textContent)
"""


# The element that has the focus, unless it or a card around it has an outline in the window.
UNSEEN_FOCUS = """
const focused = document.activeElement;
const marked = focused.matches(".sd-stretched-link") ? focused.closest(".sd-card") : focused;
const box = marked.getBoundingClientRect();
const seen = getComputedStyle(marked).outlineStyle !== "none" && box.left >= 0 && box.right <= window.innerWidth + 1;
return seen || focused === document.body ? "" : focused.outerHTML;
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
    from selenium.webdriver.common.keys import Keys

    if CHROMIUM is None or DRIVER is None:
        return
    with browser("") as seen:
        for name in ("index", "tutorial"):
            for width in WIDTHS:
                seen.resize(width)
                seen.driver.get(f"file://{tmp_path}/html/{name}.html")
                for _ in range(60):
                    seen.driver.switch_to.active_element.send_keys(Keys.TAB)
                    seen.wait(lambda: seen.driver.execute_script(UNSEEN_FOCUS) == "")
        for path in sorted((tmp_path / "html").rglob("*.html")):
            for width in WIDTHS:
                seen.resize(width)
                seen.driver.get(f"file://{path}")
                assert seen.clipped() == [], f"{path.name} at {width}"
                assert seen.driver.execute_script(ALONE) == [], f"{path.name} at {width}"
                diagrams = seen.all("article img[src$='.svg']")
                assert "<wbr>" not in seen.driver.find_element("tag name", "article").text, path.name
                assert all(diagram.rect["width"] > 600 for diagram in diagrams), f"{path.name} at {width}"
