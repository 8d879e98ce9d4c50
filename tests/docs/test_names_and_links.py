"""Names on the pages: every link, command, option, function and module that a page names is there."""

from __future__ import annotations

import contextlib
import functools
import importlib
import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pages import PAGES, ROOT, RUNNABLE, page
from typer.main import get_command

from pipeline.cli.app import app


def command_lines(name: str) -> Iterator[tuple[str, list[str]]]:
    """Words of every call of the command on a page, run or not."""
    for block in page(name)[1]:
        if block.language in RUNNABLE - {"python"}:
            code = block.code.replace("\\\n", " ")
            for line in code.splitlines():
                for part in re.split(r"\||&&|;|\$\(", line.removeprefix("$ ")):
                    words = part.split("#")[0].split()
                    if words[:1] == ["voiceclaim"]:
                        yield f"{name}, line {block.line}: {part.strip()}", words[1:]


@pytest.mark.parametrize("name", PAGES)
def test_commands_and_options_exist(name):
    commands = get_command(app).commands
    for where, words in command_lines(name):
        if not words or words[0].startswith("-"):
            continue
        assert words[0] in commands, f"{where}: no such command"
        command = commands[words[0]]
        if hasattr(command, "commands") and words[1:2] and not words[1].startswith("-"):
            assert words[1] in command.commands, f"{where}: no such command"
            command = command.commands[words[1]]
        known = {option for p in command.params for option in (*p.opts, *p.secondary_opts)} | {"--help"}
        used = {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)}
        assert used <= known, f"{where}: no option {used - known}"


@pytest.mark.parametrize("name", PAGES)
def test_links_to_files_and_headings_lead_somewhere(name):
    text = re.sub(r"^```.*?^```", "", page(name)[0], flags=re.M | re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        aim = (PAGES[name].parent / path).resolve() if path else PAGES[name]
        assert aim.exists(), f"{name}: {target}"
        # Headings that are made at the build are looked for by scripts/docs.
        if anchor and aim.suffix == ".md" and "<!-- generated: " not in aim.read_text(encoding="utf-8"):
            assert anchor in anchors_of(aim), f"{name}: {target} is none of {sorted(anchors_of(aim))}"


@functools.cache
def anchors_of(path: Path) -> frozenset[str]:
    """Headings of a page as GitHub and MyST name them."""
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.M | re.S)
    titles = re.findall(r"^#{1,6} (.+)$", text, re.M)
    return frozenset(re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-") for title in titles)


@pytest.mark.parametrize("name", PAGES)
def test_functions_and_modules_that_a_page_names_exist(name):
    for dotted in sorted(set(re.findall(r"`(pipeline(?:\.\w+)+)`", page(name)[0]))):
        resolve(dotted, name)
    for path in re.findall(r"`(pipeline/[\w/]+\.py)`", page(name)[0]):
        assert (ROOT / path).is_file(), f"{name}: {path}"


def resolve(dotted: str, name: str) -> Any:
    """Fail, with the page's ``name``, unless ``dotted`` is a module or in one."""
    parts = dotted.split(".")
    for cut in range(len(parts), 0, -1):
        with contextlib.suppress(ModuleNotFoundError, AttributeError):
            return functools.reduce(getattr, parts[cut:], importlib.import_module(".".join(parts[:cut])))
    raise AssertionError(f"{name}: there is no {dotted}")


def test_the_explanation_says_where_each_equation_is():
    rows = [
        line for line in page("docs/explanation.md")[0].splitlines() if line.startswith("|") and "`pipeline." in line
    ]
    marked = " ".join(row.split("|")[1] for row in rows)
    assert {"10", "12", "13", "14", "15", "16", "17", "18"} <= set(re.findall(r"\d+", marked))


def test_a_newcomers_commands_are_the_readmes():
    names = runpy.run_path(str(ROOT / "scripts" / "newcomer"), run_name="newcomer")
    lines = names["commands"](ROOT / "README.md", "voiceclaim enroll")
    assert lines[0].startswith("pip install")
    assert any(line.startswith("voiceclaim enroll") for line in lines)
    assert any(line.startswith("voiceclaim verify") and "call.wav" in line for line in lines)
    assert not any("ffmpeg" in line for line in lines)
    assert all(f"\n{line}\n" in page("README.md")[0] for line in lines)


def test_functions_that_the_page_on_architecture_names_are_where_it_says():
    """`Class.method` or `function`, one or more with commas between them, before (`folder/file.py`)."""
    named = re.findall(r"((?:`[\w.]+`(?:, )?)+) \(`([\w/]+\.py)`\)", page("docs/architecture.md")[0])
    assert len(named) > 30
    for names, path in named:
        source = (ROOT / "pipeline" / path).read_text(encoding="utf-8")
        for name in re.findall(r"\w+", names):
            assert re.search(rf"(?:def|class) {name}\b", source), f"{name} in {path}"
