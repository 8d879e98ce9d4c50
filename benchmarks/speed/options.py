"""Options of the parts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pipeline.config import Config, load_config
from pipeline.resources import configs_folder, demo_folder

SIZES = (10, 50, 158, 500, 1000)
QUICK_SIZES = (10, 50, 158, 300)
SYSTEM = "refined_worst_rival"


@dataclass(frozen=True)
class Options:
    """Extent of the measurements. ``corpora`` holds libri158; without it the demo corpus's voices, at 8 kHz, stand in.

    ``speakers`` of ``centroids`` each in every part but growth, whose populations have ``sizes``; ``minutes`` of audio
    go through the stream. ``quick`` samples what is slow. A call that is timed is repeated for ``patience`` seconds.
    """

    corpora: Path | None = None
    quick: bool = False
    speakers: int = 50
    centroids: int = 200
    sizes: tuple[int, ...] = SIZES
    minutes: float = 60.0
    patience: float = 2.0

    @property
    def corpus(self) -> Path:
        """Return the folder with enroll/ and verify/."""
        return demo_folder() if self.corpora is None else self.corpora / "libri158"

    def config(self, *overrides: str, name: str = "default") -> Config:
        """Return settings ``name`` at the rate of the corpus."""
        own = [f"codebook.centroids={self.centroids}", *(["features.rate=8000"] if self.corpora is None else [])]
        return load_config(configs_folder() / f"{name}.toml", [*own, *overrides])
