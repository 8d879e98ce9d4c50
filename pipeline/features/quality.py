"""Quality of speech, measured on its frames in constant memory: signal-to-noise ratio, and the level above 4 kHz.

The signal-to-noise ratio is (S - N) / N, with S the mean power of the speech frames and N the 10th percentile of the
power of all frames except digital silence. If speech never pauses, N is too high and the ratio too low; if a recorder
mutes the pauses, the reverse. Levels are counted in bins of 0.2 dB.

A telephone line, or sampling at 8 kHz, leaves next to nothing above 4 kHz.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from pipeline.config import FeatureSettings
from pipeline.features.vad import SILENCE_DB

Array = NDArray[np.float64]

_QUIETEST = 0.1
_BINS_PER_DB, _BINS = 5, 800  # up to 60 dB above full scale; louder frames count in the last bin
_POWERS = 10.0 ** ((SILENCE_DB + (np.arange(_BINS) + 0.5) / _BINS_PER_DB) / 10.0)

LOW_HZ, HIGH_HZ = (100.0, 4000.0), 4300.0
# Power above 4.3 kHz over that below (``SpeechMeter.high_db``): the lowest of 900 recordings of commands30 and libri158
# at 16 kHz is at -59.6 dB; the highest of 600 sent through a telephone line and rounded to 16 bits is at -63.1.
NARROW_DB = -60.0
_LEAST_SHARE = 1e-12
_EVERY = 4  # one in this many frames is transformed


class SpeechMeter:
    """Measures the frames of one utterance. Any chunking gives the same signal-to-noise ratio bit for bit."""

    def __init__(self, settings: FeatureSettings) -> None:
        self._counts = np.zeros((2, _BINS), dtype=np.int64)  # histograms of audible frames by level: not speech, speech
        hertz = np.fft.rfftfreq(settings.frame_length, 1.0 / settings.rate)
        low, high, above = np.searchsorted(hertz, (*LOW_HZ, HIGH_HZ)).tolist()
        self._bands = (slice(low, high), slice(above, None))
        self._reaches = above < len(hertz)
        self._window = np.hanning(settings.frame_length)
        self._powers = [0.0, 0.0]  # below and above, summed over some of the speech frames
        self._frames = 0

    def push(self, frames: Array, levels: Array, speech: NDArray[np.bool_]) -> None:
        """Take ``frames`` (T, L), their ``frame_level`` (T,), and which of them are ``speech`` (T,)."""
        audible = levels >= SILENCE_DB
        bins = np.minimum((levels[audible] - SILENCE_DB) * _BINS_PER_DB, _BINS - 1).astype(np.int64)
        np.add.at(self._counts, (speech[audible].astype(np.int64), bins), 1)
        if self._reaches:
            some = slice(-self._frames % _EVERY, None, _EVERY)
            spectrum = np.fft.rfft(frames[some][speech[some]] * self._window, axis=1)
            for number, band in enumerate(self._bands):
                self._powers[number] += float(np.vdot(spectrum[:, band], spectrum[:, band]).real)
        self._frames += len(frames)

    @property
    def snr_db(self) -> float | None:
        """Return the signal-to-noise ratio in dB; None without speech."""
        audible = np.cumsum(self._counts.sum(axis=0))
        count = int(self._counts[1].sum())
        if count == 0:
            return None
        # A tenth of the audible frames are quieter.
        noise = float(_POWERS[np.searchsorted(audible, _QUIETEST * (int(audible[-1]) - 1), side="right")])
        power = float(self._counts[1] @ _POWERS) / count
        return float(10.0 * np.log10(max(power - noise, 1e-3 * noise) / noise))

    @property
    def high_db(self) -> float | None:
        """Return the power of speech above 4.3 kHz over that from 100 Hz to 4 kHz, in dB, at least -120.

        None without speech, and at sampling rates too low for this band.
        """
        below, above = self._powers
        return 10.0 * math.log10(max(above / below, _LEAST_SHARE)) if below > 0.0 else None
