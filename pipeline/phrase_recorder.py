"""Phrases recorded one by one as they are spoken: when one is over, whether it is good enough, what is still needed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from pipeline.config import FeatureSettings
from pipeline.frontend import FrontEnd

Array = NDArray[np.float64]

# A phrase is over after so much speech and then so long a pause, and however it goes after so long.
_LEAST_SPEECH = 0.6  # seconds
_PAUSE = 0.8
_MOST = 20.0
# What makes a phrase useless: more samples at full scale than this share, or speech no louder than this.
_MOST_CLIPPED = 0.001
_FULL_SCALE = 0.999
_LEAST_DB = -50.0


class Quality(StrEnum):
    """What a phrase is worth."""

    GOOD = "good"
    TOO_LOUD = "too loud: clipped"
    TOO_QUIET = "too quiet"
    NO_SPEECH = "no speech heard"


@dataclass(frozen=True, slots=True)
class Phrase:
    """One phrase: mono ``samples`` (n,), ``speech_seconds`` of them speech, ``level_db`` the level of its loudest tenth
    of a second below full scale, ``clipped`` the share of samples at full scale.
    """

    samples: Array
    speech_seconds: float
    level_db: float
    clipped: float

    @property
    def quality(self) -> Quality:
        """Whether the phrase is of use, and why not."""
        if self.clipped > _MOST_CLIPPED:
            return Quality.TOO_LOUD
        if self.level_db < _LEAST_DB and self.speech_seconds > 0.0:
            return Quality.TOO_QUIET
        return Quality.GOOD if self.speech_seconds >= _LEAST_SPEECH else Quality.NO_SPEECH


class PhraseRecorder:
    """Takes in one phrase at ``rate`` Hz until it is ``over``; ``speech_seconds`` of it have been heard."""

    def __init__(self, settings: FeatureSettings, rate: int) -> None:
        self._front_end = FrontEnd(settings, rate, where="recording")
        self._step = settings.step_seconds
        self._rate = rate
        self._blocks: list[Array] = []
        self._frames = 0
        self._since_speech = 0.0

    @property
    def speech_seconds(self) -> float:
        """Speech heard in this phrase."""
        return self._frames * self._step

    @property
    def seconds(self) -> float:
        """Audio heard."""
        return self._front_end.samples / self._rate

    @property
    def over(self) -> bool:
        """Whether the phrase has been spoken: enough speech and a pause, or too long a wait."""
        spoken = self.speech_seconds >= _LEAST_SPEECH and self._since_speech >= _PAUSE
        return spoken or self.seconds >= _MOST

    def push(self, samples: Array) -> None:
        """Take in mono ``samples`` (n,), full scale 1; raises AudioError for what is no sample."""
        speech = len(self._front_end.push(samples).vectors)
        self._blocks.append(np.array(samples, dtype=np.float64))
        self._frames += speech
        self._since_speech = 0.0 if speech else self._since_speech + len(samples) / self._rate

    def finish(self) -> Phrase:
        """The phrase as it was heard."""
        samples = np.concatenate([np.empty(0), *self._blocks])
        size = max(1, self._rate // 10)
        tenths = [samples[at : at + size] for at in range(0, len(samples), size)]
        power = max((float((part * part).mean()) for part in tenths), default=0.0)
        return Phrase(
            samples,
            self.speech_seconds,
            10.0 * math.log10(power) if power > 0.0 else -math.inf,
            float((np.abs(samples) >= _FULL_SCALE).mean()) if len(samples) else 0.0,
        )
