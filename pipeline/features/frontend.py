"""Audio to speech feature vectors: the one front end that enrollment and verification share."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from pipeline.audio.corpus import Utterance
from pipeline.audio.files import open_audio
from pipeline.audio.resampling import Resampler
from pipeline.audio.streams import check_samples
from pipeline.config import FeatureSettings
from pipeline.features.standardize import Standardizer
from pipeline.features.stream import FeatureBlock, FeatureStream, joined

Array = NDArray[np.float64]
Listener = Callable[[Array, int], None]
"""Called with blocks of mono samples (n,) and their rate in Hz, as they are read."""


class FrontEnd:
    """Mono samples at ``rate`` Hz to feature vectors: resampler, feature stream and scaling."""

    def __init__(
        self, settings: FeatureSettings, rate: int, *, scaling: Standardizer | None = None, where: str = "stream"
    ) -> None:
        self.rate = rate
        self.samples = 0
        self._where = where
        self._resampler = Resampler(rate, settings.rate)
        self._features = FeatureStream(settings)
        self._scaling = scaling

    @property
    def delay_ms(self) -> float:
        """Largest delay from a sound to its vector."""
        return self._resampler.delay_ms + self._features.delay_ms

    def push(self, samples: Array) -> FeatureBlock:
        """Return the vectors completed by ``samples`` (n,), full scale 1.

        Raises AudioError for samples that are not finite or absurdly large, StreamClosedError after ``flush``.
        """
        check_samples(samples, self._where, rate=self.rate, first=self.samples)
        block = self._features.push(self._resampler.push(samples))
        self.samples += len(samples)
        return self._scaled(block)

    def flush(self) -> FeatureBlock:
        """Return the vectors held back for look-ahead, and close."""
        tail = self._features.push(self._resampler.flush())
        return self._scaled(joined([tail, self._features.flush()]))

    def _scaled(self, block: FeatureBlock) -> FeatureBlock:
        if self._scaling is None or len(block.vectors) == 0:
            return block
        return FeatureBlock(self._scaling(block.vectors), block.frames, block.below_peak)


def read_features(
    utterance: Utterance,
    settings: FeatureSettings,
    scaling: Standardizer | None = None,
    *,
    listen: Listener | None = None,
) -> FeatureBlock:
    """Decode one utterance and push it through a front end of its own, block by block.

    ``listen`` receives every block too. Raises AudioError.
    """
    path, blocks = utterance.path, []
    with open_audio(path, start=utterance.start, end=utterance.end) as audio:
        front_end = FrontEnd(settings, audio.rate, scaling=scaling, where=str(path))
        for samples in audio.blocks():
            blocks.append(front_end.push(samples))
            if listen is not None:
                listen(samples, audio.rate)
    return joined([*blocks, front_end.flush()])


def features_of(
    samples: Array, rate: int, settings: FeatureSettings, scaling: Standardizer | None = None, *, where: str = "samples"
) -> FeatureBlock:
    """Push the mono ``samples`` (n,) at ``rate`` Hz through a front end of their own; raises AudioError."""
    front_end = FrontEnd(settings, rate, scaling=scaling, where=where)
    return joined([front_end.push(samples), front_end.flush()])
