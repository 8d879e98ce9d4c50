"""Clipping and scale of audio, measured as it arrives."""

from __future__ import annotations

import numpy as np

from pipeline.audio.streams import Samples

OFF_SCALE = (
    "the samples are far above full scale, which is 1, or all below a step of 16 bits; divide integers that were"
    " converted by their own full scale, 32768 for 16 bits"
)
# Sizes of the largest sample. Music may be mastered 12 dB above full scale; unscaled 8-bit integers are 30 dB above,
# unless the speech is quiet; 16-bit integers divided by the full scale of 32 bits reach at most half a 16-bit step.
_MOST_SIZE, _LEAST_SIZE = 16.0, 2.0**-16
# Samples within this share of the largest count as at the top, and this many of them in a row as clipped.
_AT_THE_TOP = 1e-4
_RUN = 3
# Full scale is 1. Quieter audio spans few 16-bit steps, so that rounding alone gives runs at the largest.
_FEW_STEPS = 12 / 2**15


class Clipping:
    """Clipping meter: counts ``samples``, and those ``clipped``, in runs of three or more at the ``largest`` size.

    A run has one sign. The largest size so far may be below full scale, since audio may be turned down after clipping,
    but not below a few 16-bit steps. Clipping before a codec, which smooths such runs, is not detected.
    """

    def __init__(self) -> None:
        self.samples = 0
        self.clipped = 0
        self.largest = 0.0

    @property
    def share(self) -> float:
        """Return the share of clipped samples."""
        return self.clipped / max(1, self.samples)

    @property
    def is_off_scale(self) -> bool:
        """Return True if the largest sample shows that full scale is not 1."""
        return self.largest > _MOST_SIZE or 0.0 < self.largest <= _LEAST_SIZE

    def push(self, samples: Samples) -> None:
        """Take ``samples`` (n,); a run is not followed from one block to the next."""
        self.samples += len(samples)
        sizes = np.abs(samples)
        largest = float(sizes.max(initial=0.0))
        if largest > self.largest * (1.0 + _AT_THE_TOP):
            self.largest, self.clipped = largest, 0
        if self.largest < _FEW_STEPS:
            return
        are_at_the_top = sizes >= self.largest * (1.0 - _AT_THE_TOP)
        if np.count_nonzero(are_at_the_top) < _RUN:  # nearly always
            return
        at_the_top = np.concatenate(([False], are_at_the_top, [False]))
        signs = np.concatenate(([0.0], np.sign(samples), [0.0]))
        changes = np.flatnonzero((at_the_top[1:] != at_the_top[:-1]) | (signs[1:] != signs[:-1]))
        lengths = np.diff(changes)
        runs = lengths[at_the_top[1:][changes[:-1]]]
        self.clipped += int(runs[runs >= _RUN].sum())
