"""Audio to speech feature vectors: the one front end that enrollment and verification share."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.audio import BLOCK_FRAMES, Resampler, open_audio
from pipeline.config import FeatureSettings
from pipeline.corpus import Utterance
from pipeline.features.standardize import Standardizer
from pipeline.features.stream import FeatureBlock, FeatureStream
from pipeline.pcm import check_samples

Array = NDArray[np.float64]


class FrontEnd:
    """Mono samples at ``rate`` Hz to feature vectors, through the resampler, the feature stream and the scaling."""

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
        """From a sound to the vector that holds it, at most."""
        return self._resampler.delay_ms + self._features.delay_ms

    def push(self, samples: Array) -> FeatureBlock:
        """Vectors completed by ``samples`` (n,), full scale 1.

        Raises AudioError for samples that are not finite or absurdly large, StreamClosedError after ``flush``.
        """
        check_samples(samples, self._where, rate=self.rate, first=self.samples)
        block = self._features.push(self._resampler.push(samples))
        self.samples += len(samples)
        return self._scaled(block)

    def flush(self) -> FeatureBlock:
        """Vectors that were waiting for audio after them; the stream is closed."""
        tail = self._features.push(self._resampler.flush())
        rest = self._features.flush()
        return self._scaled(FeatureBlock(np.concatenate((tail.vectors, rest.vectors)), tail.frames + rest.frames))

    def _scaled(self, block: FeatureBlock) -> FeatureBlock:
        if self._scaling is None or len(block.vectors) == 0:
            return block
        return FeatureBlock(self._scaling(block.vectors), block.frames)


@dataclass(frozen=True, slots=True)
class UtteranceFeatures:
    """One decoded utterance: speech ``vectors`` (T, d) and the ``seconds`` of audio they came from."""

    vectors: Array
    seconds: float


def read_features(
    utterance: Utterance, settings: FeatureSettings, scaling: Standardizer | None = None
) -> UtteranceFeatures:
    """Decode one utterance and push it through a front end of its own; raises AudioError."""
    path = utterance.path
    with open_audio(path, start=utterance.start, end=utterance.end) as audio:
        front_end = FrontEnd(settings, audio.rate, scaling=scaling, where=str(path))
        blocks = [front_end.push(samples) for samples in audio.blocks(BLOCK_FRAMES)]
    blocks.append(front_end.flush())
    vectors = np.concatenate([block.vectors for block in blocks])
    return UtteranceFeatures(vectors, front_end.samples / front_end.rate)
