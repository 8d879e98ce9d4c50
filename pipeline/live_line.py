"""One line on a terminal, redrawn in place: how loud it is, and how a claim or a recording stands."""

from __future__ import annotations

import math
import shutil
import sys
import time
from typing import TYPE_CHECKING, TextIO

from pipeline.terminal import plain

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_FLOOR_DB = -60.0
_CELLS = 12
_FULL_SCALE = 0.999
_HOLD_SECONDS = 1.0
_REDRAW_SECONDS = 0.08


class LevelMeter:
    """The level of what was heard last, in dB below full scale, and whether it was clipped within the last second."""

    def __init__(self, rate: int) -> None:
        self.level_db = -math.inf
        self.clipped_seconds = 0.0
        self._rate = rate
        self._since_clipped = math.inf

    def push(self, samples: NDArray[np.float64]) -> None:
        """Take in mono ``samples`` (n,), full scale 1."""
        if len(samples) == 0:
            return
        power = float((samples * samples).mean())
        self.level_db = 10.0 * math.log10(power) if power > 0.0 else -math.inf
        clipped = int((abs(samples) >= _FULL_SCALE).sum())
        self.clipped_seconds += clipped / self._rate
        self._since_clipped = 0.0 if clipped else self._since_clipped + len(samples) / self._rate

    @property
    def clipping(self) -> bool:
        """Whether it is too loud now."""
        return self._since_clipped < _HOLD_SECONDS

    def __str__(self) -> str:
        share = (max(self.level_db, _FLOOR_DB) - _FLOOR_DB) / -_FLOOR_DB
        full = min(_CELLS, round(_CELLS * share))
        level = "silence" if self.level_db == -math.inf else f"{self.level_db:4.0f} dB"
        return f"[{'#' * full}{'.' * (_CELLS - full)}] {level:7}{' CLIPPED' if self.clipping else ''}"


class LiveLine:
    """The line, on ``out`` (the error output without one); without a terminal there is none, and nothing is written."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = sys.stderr if out is None else out
        self.shown = self._out is not None and self._out.isatty()
        self._drawn = -math.inf

    def show(self, text: str, *, now: bool = False) -> None:
        """Draw ``text``, cut to the terminal's width, unless something was drawn a moment ago."""
        if not self.shown or (not now and time.monotonic() - self._drawn < _REDRAW_SECONDS):
            return
        self._drawn = time.monotonic()
        width = shutil.get_terminal_size().columns
        self._write(f"\r\x1b[2K{plain(text)[: max(1, width - 1)]}")

    def clear(self) -> None:
        """Leave the line empty, for whatever is printed next."""
        if self.shown and self._drawn > -math.inf:
            self._write("\r\x1b[2K")

    def _write(self, text: str) -> None:
        try:
            self._out.write(text)
            self._out.flush()
        except (OSError, UnicodeEncodeError):  # a terminal that is gone, or that cannot spell a name
            self.shown = False
