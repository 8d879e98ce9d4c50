"""Quality of a recording, measured while it is read: clipping, signal-to-noise ratio, fingerprints.

The signal-to-noise ratio is the mean power of the speech frames, less that of the noise, over the noise: the tenth of
the frames that are quietest, digital silence aside. Where speech never pauses, those hold speech, and the ratio is too
low; where a recorder mutes the pauses, too high.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipeline.audio.levels import Clipping
from pipeline.audio.resampling import Resampler
from pipeline.config import FeatureSettings
from pipeline.features.fingerprints import RANGE_DB, FingerprintStream, Prints
from pipeline.features.framing import FrameStream
from pipeline.features.vad import SILENCE_DB, VoiceActivityDetector, frame_level, speech_level

Array = NDArray[np.float64]

_QUIETEST = 0.1


@dataclass(frozen=True)
class Recording:
    """One recording: its ``samples``, the ``clipped`` among them, its ``snr_db`` (None without speech).

    ``prints`` (T,) are its fingerprints; ``loud`` (T,) marks those loud enough to be compared.
    """

    path: Path
    samples: int
    clipped: int
    snr_db: float | None
    prints: Prints
    loud: NDArray[np.bool_]


class RecordingMeter:
    """Measures one recording, block by block."""

    def __init__(self, path: Path, settings: FeatureSettings) -> None:
        self._path = path
        self._settings = settings
        self._streams: tuple[Resampler, FingerprintStream] | None = None
        self._frames = FrameStream(settings.frame_length, settings.frame_step)
        self._level = speech_level(settings)
        self._vad = VoiceActivityDetector(settings.vad, frames_per_second=1.0 / settings.step_seconds)
        self._clipping = Clipping()
        self._levels: list[Array] = []
        self._speech: list[NDArray[np.bool_]] = []
        self._prints: list[tuple[Prints, Array]] = []

    def push(self, samples: Array, rate: int) -> None:
        """Take mono ``samples`` (n,) at ``rate`` Hz, the same for all blocks."""
        if self._streams is None:
            self._streams = Resampler(rate, self._settings.rate), FingerprintStream(rate)
        resampler, fingerprints = self._streams
        self._clipping.push(samples)
        self._prints.append(fingerprints.push(samples))
        self._measure(resampler.push(samples))

    def finish(self) -> Recording:
        """Return the measurements."""
        if self._streams is not None:
            resampler, fingerprints = self._streams
            self._prints.append(fingerprints.flush())
            self._measure(resampler.flush())
        prints = np.concatenate([np.empty(0, dtype=np.uint32), *(part for part, _ in self._prints)])
        levels = np.concatenate([np.empty(0), *(part for _, part in self._prints)])
        loud = (levels > np.maximum.accumulate(levels) - RANGE_DB) & (prints != 0)
        return Recording(self._path, self._clipping.samples, self._clipping.clipped, self._snr(), prints, loud)

    def _measure(self, samples: Array) -> None:
        frames = self._frames.push(samples)
        self._levels.append(frame_level(frames))
        self._speech.append(self._vad.push(self._level(frames))[0])

    def _snr(self) -> float | None:
        levels = np.concatenate([np.empty(0), *self._levels])
        speech = np.concatenate([np.empty(0, dtype=bool), *self._speech])
        audible = levels >= SILENCE_DB
        if not (speech & audible).any():
            return None
        power = 10.0 ** (levels / 10.0)
        noise = float(np.quantile(power[audible], _QUIETEST))
        return float(10.0 * np.log10(max(power[speech & audible].mean() - noise, 1e-3 * noise) / noise))


def clipped_share(recordings: Sequence[Recording]) -> float:
    """Return the share of clipped samples in ``recordings`` together."""
    return sum(one.clipped for one in recordings) / max(1, sum(one.samples for one in recordings))


def median_snr(recordings: Sequence[Recording]) -> float | None:
    """Return the median of the recordings' signal-to-noise ratios in dB; None where none has one."""
    ratios = [one.snr_db for one in recordings if one.snr_db is not None]
    return float(np.median(ratios)) if ratios else None
