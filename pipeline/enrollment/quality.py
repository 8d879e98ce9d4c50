"""Quality of a recording, measured while it is read: clipping, signal-to-noise ratio, band, fingerprints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipeline.audio.corpus import Utterance
from pipeline.audio.files import open_utterance
from pipeline.audio.levels import Clipping
from pipeline.audio.resampling import Resampler
from pipeline.config import FeatureSettings
from pipeline.features.fingerprints import RANGE_DB, FingerprintStream, Prints, joined
from pipeline.features.framing import FrameStream
from pipeline.features.quality import SpeechMeter
from pipeline.features.vad import VoiceActivityDetector, frame_level, speech_level

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Recording:
    """One recording: its ``samples``, the ``clipped`` among them, its ``snr_db`` (None without speech).

    ``prints`` (T,) are its fingerprints; ``loud`` (T,) marks those loud enough to be compared. ``high_db`` is that of
    ``SpeechMeter``. ``channels_differ`` is True if the samples are the mean of channels that hold different sounds,
    ``is_off_scale`` if full scale is not 1.
    """

    path: Path
    samples: int
    clipped: int
    snr_db: float | None
    prints: Prints
    loud: NDArray[np.bool_]
    high_db: float | None = None
    channels_differ: bool = False
    is_off_scale: bool = False


def kept_of(prints: Prints) -> Recording:
    """Return recordings as a store keeps them: nothing but their ``prints`` (T,)."""
    return Recording(Path(), 0, 0, None, prints, prints != 0)


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
        self._speech = SpeechMeter(settings)
        self._prints: list[tuple[Prints, Array]] = []

    def push(self, samples: Array, rate: int) -> None:
        """Take mono ``samples`` (n,) at ``rate`` Hz, the same for all blocks."""
        if self._streams is None:
            self._streams = Resampler(rate, self._settings.rate), FingerprintStream(rate)
        resampler, fingerprints = self._streams
        self._clipping.push(samples)
        self._prints.append(fingerprints.push(samples))
        self._measure(resampler.push(samples))

    def finish(self, *, channels_differ: bool = False) -> Recording:
        """Return the measurements, with the downmix's finding on its channels."""
        if self._streams is not None:
            resampler, fingerprints = self._streams
            self._prints.append(fingerprints.flush())
            self._measure(resampler.flush())
        prints = joined(part[:, 0] for part, _ in self._prints)
        levels = np.concatenate([np.empty(0), *(part for _, part in self._prints)])
        loud = (levels > np.maximum.accumulate(levels) - RANGE_DB) & (prints != 0)
        clipping, speech = self._clipping, self._speech
        return Recording(
            self._path, clipping.samples, clipping.clipped, speech.snr_db, prints, loud, speech.high_db,
            channels_differ, clipping.is_off_scale,
        )  # fmt: skip

    def _measure(self, samples: Array) -> None:
        frames = self._frames.push(samples)
        levels = frame_level(frames)
        self._speech.push(frames, levels, self._vad.push(self._level(frames, levels))[0])


def measured(utterance: Utterance, settings: FeatureSettings) -> Recording:
    """Decode one utterance and return its measurements; raises AudioError."""
    meter = RecordingMeter(utterance.path, settings)
    with open_utterance(utterance) as audio:
        for samples in audio.blocks():
            meter.push(samples, audio.rate)
    return meter.finish()


def clipped_share(recordings: Sequence[Recording]) -> float:
    """Return the share of clipped samples in ``recordings`` together."""
    return sum(one.clipped for one in recordings) / max(1, sum(one.samples for one in recordings))


def median_snr(recordings: Sequence[Recording]) -> float | None:
    """Return the median of the recordings' signal-to-noise ratios in dB; None where none has one."""
    ratios = [one.snr_db for one in recordings if one.snr_db is not None]
    return float(np.median(ratios)) if ratios else None
