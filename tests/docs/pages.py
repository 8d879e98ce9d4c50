"""The pages, their blocks of code, and the modules that make parts of them at the build."""

from __future__ import annotations

import functools
import re
import runpy
import types
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = {
    str(path.relative_to(ROOT)): path
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    if not {"_build", "_ext"} & set(path.parts)
}
RUNNABLE = {"python", "sh", "bash", "console"}
FENCE = re.compile(r"^(?P<indent> *)```(?P<language>[\w-]*)[^\n]*\n(?P<code>.*?)^(?P=indent)``` *$", re.M | re.S)
NOT_RUN = re.compile(r'<!-- not run(?: where "(?P<where>[^"]+)")?: (?P<reason>[^>]+?) -->')


@dataclass(frozen=True)
class Block:
    """A fenced block: its ``language``, where it begins (``line``), and the comments right before it."""

    language: str
    code: str
    line: int
    comments: tuple[str, ...]

    @property
    def runnable(self) -> bool:
        return self.language in RUNNABLE

    @property
    def excuses(self) -> dict[str | None, str]:
        """Reasons why lines are not run, by the text that marks these lines; None stands for the whole block."""
        return {m["where"]: m["reason"] for comment in self.comments if (m := NOT_RUN.fullmatch(comment))}

    @property
    def fresh(self) -> bool:
        return "<!-- fresh folder -->" in self.comments

    @property
    def kept(self) -> str:
        """The code that is run: nothing of an excused block."""
        if None in self.excuses:
            return ""
        lines = self.code.splitlines(keepends=True)
        return "".join(line for line in lines if not any(text in line for text in self.excuses))


def blocks_of(text: str) -> list[Block]:
    """Every fenced block of a page, in order."""
    result = []
    for match in FENCE.finditer(text):
        before = text[: match.start()].rstrip().splitlines()
        comments: list[str] = []
        while before and re.fullmatch(r"\s*<!--.*-->\s*", before[-1]):
            comments.insert(0, before.pop().strip())
        width = len(match["indent"])
        code = "".join(line[width:] if line.strip() else line for line in match["code"].splitlines(keepends=True))
        line = text.count("\n", 0, match.start()) + 1
        result.append(Block(match["language"], code, line, tuple(comments)))
    return result


@functools.cache
def page(name: str) -> tuple[str, tuple[Block, ...]]:
    text = PAGES[name].read_text(encoding="utf-8")
    return text, tuple(blocks_of(text))


def extension(name: str) -> types.SimpleNamespace:
    """Names of a module of docs/_ext."""
    return types.SimpleNamespace(**runpy.run_path(str(ROOT / "docs" / "_ext" / f"{name}.py")))
