"""What a recording tells of its own quality, measured while it is read: clipping, noise, and its fingerprints.

Clipped samples are those that stand in runs of at least three at the largest value of the recording, wherever that is:
audio may have been turned down after it was cut off. A codec smooths such runs away, and what it hides is not found.

The signal-to-noise ratio is the mean power of the frames that the speech gate lets through, less that of the noise,
over the noise: the tenth of the frames that are quietest, digital silence aside. Where speech never pauses, those hold
speech, and the ratio comes out too low; where a recorder mutes the pauses, too high.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipeline.audio import Resampler
from pipeline.config import FeatureSettings
from pipeline.features.framing import FrameStream
from pipeline.features.gate import SILENCE_DB, SpeechGate, frame_level
from pipeline.fingerprint import RANGE_DB, FingerprintStream, Prints

Array = NDArray[np.float64]

# Samples within this share of the largest are at the top, and this many of them in a row are cut off there.
_AT_THE_TOP = 1e-4
_RUN = 3
_QUIETEST = 0.1


@dataclass(frozen=True)
class Recording:
    """One recording: ``samples`` in all and those ``clipped``, its ``snr_db`` (None where there is no telling).

    ``prints`` (T,) are its fingerprints, ``loud`` (T,) marks those that say something.
    """

    path: Path
    samples: int
    clipped: int
    snr_db: float | None
    prints: Prints
    loud: NDArray[np.bool_]


class RecordingMeter:
    """Takes in one recording, block by block."""

    def __init__(self, path: Path, settings: FeatureSettings) -> None:
        self._path = path
        self._settings = settings
        self._streams: tuple[Resampler, FingerprintStream] | None = None
        self._frames = FrameStream(settings.frame_length, settings.frame_step)
        self._gate = SpeechGate(settings.gate, frames_per_second=1.0 / settings.step_seconds)
        self._clipping = Clipping()
        self._levels: list[Array] = []
        self._speech: list[NDArray[np.bool_]] = []
        self._prints: list[tuple[Prints, Array]] = []

    def push(self, samples: Array, rate: int) -> None:
        """Mono ``samples`` (n,) at ``rate`` Hz, which stays the same."""
        if self._streams is None:
            self._streams = Resampler(rate, self._settings.rate), FingerprintStream(rate)
        resampler, fingerprints = self._streams
        self._clipping.push(samples)
        self._prints.append(fingerprints.push(samples))
        self._hear(resampler.push(samples))

    def finish(self) -> Recording:
        """What it came to."""
        if self._streams is not None:
            resampler, fingerprints = self._streams
            self._prints.append(fingerprints.flush())
            self._hear(resampler.flush())
        prints = np.concatenate([np.empty(0, dtype=np.uint32), *(found for found, _ in self._prints)])
        levels = np.concatenate([np.empty(0), *(found for _, found in self._prints)])
        loud = (levels > np.maximum.accumulate(levels) - RANGE_DB) & (prints != 0)
        return Recording(self._path, self._clipping.samples, self._clipping.clipped, self._snr(), prints, loud)

    def _hear(self, samples: Array) -> None:
        levels = frame_level(self._frames.push(samples))
        self._levels.append(levels)
        self._speech.append(self._gate.push(levels))

    def _snr(self) -> float | None:
        levels = np.concatenate([np.empty(0), *self._levels])
        speech = np.concatenate([np.empty(0, dtype=bool), *self._speech])
        heard = levels >= SILENCE_DB
        if not (speech & heard).any():
            return None
        power = 10.0 ** (levels / 10.0)
        noise = float(np.quantile(power[heard], _QUIETEST))
        return float(10.0 * np.log10(max(power[speech & heard].mean() - noise, 1e-3 * noise) / noise))


class Clipping:
    """Counts ``samples``, and those ``clipped``: in a run at the largest value so far, of either sign."""

    def __init__(self) -> None:
        self.samples = 0
        self.clipped = 0
        self._top = 0.0

    def push(self, samples: Array) -> None:
        """Take in ``samples`` (n,); a run is not followed from one block to the next."""
        self.samples += len(samples)
        sizes = np.abs(samples)
        largest = float(sizes.max(initial=0.0))
        if largest > self._top * (1.0 + _AT_THE_TOP):
            self._top, self.clipped = largest, 0
        if self._top == 0.0:
            return
        at_the_top = np.concatenate(([False], sizes >= self._top * (1.0 - _AT_THE_TOP), [False]))
        signs = np.concatenate(([0.0], np.sign(samples), [0.0]))
        changes = np.flatnonzero((at_the_top[1:] != at_the_top[:-1]) | (signs[1:] != signs[:-1]))
        lengths = np.diff(changes)
        runs = lengths[at_the_top[1:][changes[:-1]]]
        self.clipped += int(runs[runs >= _RUN].sum())


def clipped_share(recordings: Sequence[Recording]) -> float:
    """Share of clipped samples in ``recordings`` together."""
    return sum(one.clipped for one in recordings) / max(1, sum(one.samples for one in recordings))


def median_snr(recordings: Sequence[Recording]) -> float | None:
    """The median of the recordings' signal-to-noise ratios in dB; None where none has one."""
    found = [one.snr_db for one in recordings if one.snr_db is not None]
    return float(np.median(found)) if found else None
