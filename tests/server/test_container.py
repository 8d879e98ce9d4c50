"""The container: what the package's build includes by force is copied into it, and not left out of the context."""

from __future__ import annotations

import re
import tomllib
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]
INCLUDED = sorted(BUILD["targets"]["wheel"]["force-include"])


def is_sent(path: str) -> bool:
    """Return True if .dockerignore lets ``path`` into the context: the last line for it or a folder above decides."""
    sent = True
    for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").split():
        above = [str(one) for one in (PurePosixPath(path), *PurePosixPath(path).parents)]
        if any(fnmatchcase(one, line.removeprefix("!").rstrip("/")) for one in above):
            sent = line.startswith("!")
    return sent


@pytest.mark.parametrize("path", INCLUDED)
def test_what_the_package_includes_is_in_the_container_that_builds_it(path):
    copied = re.findall(r"^COPY (?!--from)(\S+) (\S+)$", (ROOT / "Dockerfile").read_text(encoding="utf-8"), re.M)
    assert (path, path) in copied
    assert is_sent(path) and is_sent(f"{path}/file")
    assert (ROOT / path).is_dir()


def test_the_context_holds_nothing_that_is_not_named():
    assert not is_sent("tests") and not is_sent("data/other/file") and not is_sent(".git/config")
