"""Fixture for tests of lists: a list of any text, written to a file."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def listed(tmp_path: Path):
    def write(text: bytes | str, name: str = "list.txt") -> Path:
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write
