"""Fixtures for tests of the store: stores of three and of five speakers, made once, and copies of them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from populations import NAMES, add


@pytest.fixture(scope="session")
def stored(tmp_path_factory) -> dict[int, Path]:
    """The stores of three and of five speakers; change a copy."""
    paths = {count: tmp_path_factory.mktemp("stored") / "s" for count in (3, 5)}
    for count, path in paths.items():
        add(path, NAMES[:count])
    return paths


@pytest.fixture
def three(stored, tmp_path) -> Path:
    """A copy of the store of three, alone in its folder."""
    (tmp_path / "three").mkdir()
    return Path(shutil.copy(stored[3], tmp_path / "three" / "s"))


@pytest.fixture
def five(stored, tmp_path) -> Path:
    """A copy of the store of five, alone in its folder."""
    (tmp_path / "five").mkdir()
    return Path(shutil.copy(stored[5], tmp_path / "five" / "s"))
