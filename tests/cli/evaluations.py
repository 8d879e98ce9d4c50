"""Contents of a folder with an evaluation: its files and pictures."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

WRITTEN = {"scores.txt", "metrics.json", "report.html", "table.csv", "table.tex"}


def written(folder: Path, figures: set[str]) -> bool:
    """Check that the folder holds an evaluation with these figures, and nothing else."""
    names = {f"{name}.{suffix}" for name in figures for suffix in ("png", "svg")}
    return {path.name for path in folder.iterdir()} == names | WRITTEN


def is_png(path: Path) -> bool:
    return path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n") and path.stat().st_size > 5000


def svg_text(path: Path) -> str:
    """All text of an SVG picture, which must be well-formed."""
    root = ET.parse(path).getroot()  # noqa: S314  (a file of our own making)
    return " ".join(" ".join(root.itertext()).split())
