"""Warnings about the audio of a claim, which may explain a poor score or a wrong decision; they change neither."""

from __future__ import annotations

from collections.abc import Iterable
from math import log

import numpy as np
from numpy.typing import NDArray

from pipeline.audio.downmix import Mixed
from pipeline.audio.levels import OFF_SCALE, Clipping
from pipeline.audio.streams import check_rate
from pipeline.features.framing import FrameStream
from pipeline.features.quality import NARROW_DB, SpeechMeter
from pipeline.scoring.claims import RunningScores
from pipeline.store.model import SpeakerModel

WARNINGS = {
    "scale": OFF_SCALE,
    "narrow_band": "the audio ends at about 4 kHz, as on a telephone, and the enrollment recordings do not",
    "clipping": "the audio is clipped; the recording level was too high",
    "noise": "the speech is hardly louder than the noise",
    "condition": "the channel, the room or the noise is unlike that of the enrollment recordings",
    "outlier": "the sound is unlike all enrollment speech, as music or noise would be, which lowers the score",
    "little_speech": "there is little speech; with more, the score would be more certain",
    "channels": "the audio is the mean of channels that differ, as of two people, or with one inverted;"
    " choose one: --channel N (channel=N)",
}
"""Every code, and its sentence; a warning reads "code: sentence"."""

WIDE_DB = -50.0  # level above 4.3 kHz from which an enrollment is wide-band beyond doubt
CHANGED_LOG_ODDS = log(9.0)  # of a changed condition
LITTLE_SPEECH = 2.0  # times the least speech that is scored

_BLOCK_SECONDS = 0.25  # clipping is measured in blocks of this length, however the audio is cut


class AudioMeter:
    """Measurements of audio at ``rate`` Hz that is scored on ``model``, in constant memory.

    The front end measures speech with ``speech``; ``mix`` is the downmix of the recording.
    """

    def __init__(self, model: SpeakerModel, rate: int, mix: Mixed) -> None:
        check_rate(rate, "audio")
        self.speech = SpeechMeter(model.config.features)
        self._model, self._config, self._mix = model, model.config, mix
        self._clipping = Clipping()
        block = max(1, round(_BLOCK_SECONDS * rate))
        self._blocks = FrameStream(block, block)

    def push(self, samples: NDArray[np.float64]) -> None:
        """Take mono ``samples`` (n,)."""
        for block in self._blocks.push(samples):
            self._clipping.push(block)

    def warnings(self, scores: RunningScores, claim: str | None, *, sequential: bool = False) -> tuple[str, ...]:
        """Return the warnings about the audio so far, compared with the enrollment of ``claim``.

        Little speech gives no warning under a ``sequential`` test, which itself decides how much suffices.
        """
        enrolled = None if claim is None else self._model.high_band(claim)
        checks, snr, high = self._config.checks, self.speech.snr_db, self.speech.high_db
        applies = {"scale": self._clipping.is_off_scale}
        if snr is None:  # no speech
            return _sentences(applies)
        least, (condition, is_outlying) = LITTLE_SPEECH * self._config.min_frames, scores.audio_condition()
        applies |= {
            "narrow_band": enrolled is not None and enrolled > WIDE_DB and high is not None and high < NARROW_DB,
            "clipping": checks.clipping != "off" and self._clipping.share > checks.max_clipped,
            "noise": checks.noise != "off" and snr < checks.min_snr_db,
            "condition": condition is not None and condition > CHANGED_LOG_ODDS,
            "outlier": is_outlying,
            "little_speech": not sequential and self._config.min_frames <= scores.frames < least,
            "channels": checks.channels != "off" and self._mix.channels_differ,
        }
        return _sentences(applies)


def _sentences(applies: dict[str, bool]) -> tuple[str, ...]:
    """Return the warnings whose codes apply."""
    return tuple(f"{code}: {sentence}" for code, sentence in WARNINGS.items() if applies.get(code))


def codes(warnings: Iterable[str]) -> list[str]:
    """Return the codes of ``warnings``."""
    return [warning.partition(":")[0] for warning in warnings]
