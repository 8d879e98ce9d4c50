"""Speech of the recordings that trials name, with a mark on copies of enrollment recordings.

Trials on recordings that machines were trained on give error rates that are too low. Copies are found by the
fingerprints in a store, in two steps, since fingerprints of everything would add a quarter to the time of reading:
first those of one second, after any silence at the beginning; if they match, those of the whole recording, which is
decoded again.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipeline.audio.downmix import Downmix
from pipeline.audio.streams import Samples
from pipeline.enrollment.duplicates import KnownRecordings
from pipeline.enrollment.quality import kept_of, measured
from pipeline.errors import NotEnoughSpeechError
from pipeline.evaluation.recordings import Recordings
from pipeline.features.fingerprints import FingerprintStream, Prints, joined
from pipeline.features.frontend import read_features
from pipeline.features.stream import FeatureBlock
from pipeline.store.model import SpeakerModel

_COMPARED_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class RecordingSpeech:
    """The ``features`` of a recording.

    ``channels_differ`` is True if the features are of the mean of channels with different sounds, ``is_enrolled`` if
    the recording is a copy of an enrolled one or of a part of it.
    """

    features: FeatureBlock
    channels_differ: bool
    is_enrolled: bool


class SpeechReader:
    """Reads the speech of ``recordings`` as ``model`` does."""

    def __init__(self, model: SpeakerModel, recordings: Recordings) -> None:
        self.recordings = recordings
        self._config = model.config
        self._enrolled = KnownRecordings(
            joined(arrays["fingerprints"] for arrays in model.arrays if "fingerprints" in arrays)
        )

    def read(self, path: str) -> RecordingSpeech:
        """Return the speech of the recording that a trial calls ``path``; raises AudioError or NotEnoughSpeechError."""
        settings, least = self._config.features, self._config.min_frames
        utterance = self.recordings.find(path)
        mix, beginning = Downmix(str(utterance.path), utterance.channel), _Beginning()
        features = read_features(utterance, settings, listen=beginning.push, mix=mix)
        if len(features.vectors) < least:
            step = settings.step_seconds
            raise NotEnoughSpeechError(path, seconds=len(features.vectors) * step, needed=least * step)
        is_enrolled = self._enrolled.hold(kept_of(beginning.prints)) and self._enrolled.hold(
            measured(utterance, settings)
        )
        return RecordingSpeech(features, mix.channels_differ, is_enrolled)


class _Beginning:
    """The beginning of a recording: any digital silence, and the second after it."""

    def __init__(self) -> None:
        self._blocks: list[Samples] = []
        self._rate, self._sounding = 0, 0

    def push(self, samples: Samples, rate: int) -> None:
        """Take mono ``samples`` (n,) at ``rate`` Hz, the same for all blocks."""
        if (missing := round(_COMPARED_SECONDS * rate) - self._sounding) > 0:
            first = 0 if self._sounding else int(np.argmax(samples != 0)) if samples.any() else len(samples)
            kept = samples[: first + missing].copy()
            self._blocks.append(kept)
            self._rate, self._sounding = rate, self._sounding + len(kept) - first

    @property
    def prints(self) -> Prints:
        """Fingerprints (T,) of its frames."""
        if not self._blocks:
            return joined([])
        return FingerprintStream(self._rate).push(np.concatenate(self._blocks))[0][:, 0]
