"""Audio to speech feature vectors: the one front end that enrollment and verification share."""

from __future__ import annotations

from collections.abc import Callable

from pipeline.audio.corpus import Utterance
from pipeline.audio.downmix import Downmix
from pipeline.audio.files import open_utterance
from pipeline.audio.resampling import Resampler
from pipeline.audio.streams import check_samples
from pipeline.config import Analysis, FeatureSettings
from pipeline.features.quality import SpeechMeter
from pipeline.features.stream import Array, FeatureBlock, FeatureStream, joined

Listener = Callable[[Array, int], None]
"""Called with each block of mono samples (n,) that is read, and its rate in Hz."""


class FrontEnd:
    """Mono samples at ``rate`` Hz to feature vectors: a resampler and a feature stream.

    ``meter`` and ``only`` are as in ``FeatureStream``.
    """

    def __init__(
        self,
        settings: FeatureSettings,
        rate: int,
        *,
        where: str = "stream",
        meter: SpeechMeter | None = None,
        only: frozenset[Analysis] | None = None,
    ) -> None:
        self.rate = rate
        self.samples = 0
        self._where = where
        self._resampler = Resampler(rate, settings.rate)
        self._features = FeatureStream(settings, meter, only)

    @property
    def delay_ms(self) -> float:
        """Return the largest delay from a sound to its vector, in milliseconds."""
        return self._resampler.delay_ms + self._features.delay_ms

    def push(self, samples: Array) -> FeatureBlock:
        """Return the vectors completed by ``samples`` (n,), full scale 1.

        Raises AudioError for samples that are not finite or absurdly large, StreamClosedError after ``flush``.
        """
        check_samples(samples, self._where, rate=self.rate, first=self.samples)
        block = self._features.push(self._resampler.push(samples))
        self.samples += len(samples)
        return block

    def flush(self) -> FeatureBlock:
        """Return the vectors held back for look-ahead, and close."""
        tail = self._resampler.flush()
        blocks = [self._features.push(tail)] if len(tail) else []
        return joined([*blocks, self._features.flush()])


def read_features(
    utterance: Utterance,
    settings: FeatureSettings,
    *,
    listen: Listener | None = None,
    mix: Downmix | None = None,
) -> FeatureBlock:
    """Decode one utterance and push it, block by block, through a new front end.

    ``listen`` is called with every block; ``mix`` is as in ``open_utterance``. Raises AudioError.
    """
    blocks = []
    with open_utterance(utterance, mix) as audio:
        front_end = FrontEnd(settings, audio.rate, where=str(utterance.path))
        for samples in audio.blocks():
            blocks.append(front_end.push(samples))
            if listen is not None:
                listen(samples, audio.rate)
    return joined([*blocks, front_end.flush()])


def features_of(
    samples: Array,
    rate: int,
    settings: FeatureSettings,
    *,
    where: str = "samples",
    only: frozenset[Analysis] | None = None,
) -> FeatureBlock:
    """Push the mono ``samples`` (n,) at ``rate`` Hz through a new front end; raises AudioError."""
    front_end = FrontEnd(settings, rate, where=where, only=only)
    return joined([front_end.push(samples), front_end.flush()])
