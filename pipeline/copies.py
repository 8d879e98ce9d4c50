"""Degraded copies of enrollment audio: what a speaker would sound like on the telephone, in a crowd, in noise.

Machines that learn from them beside the recordings themselves recognise the speaker there too. Other voices come from
the people who are enrolled together; no other audio is needed, and none is kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import soxr
from numpy.typing import NDArray

from pipeline.config import Config, CopyConfig
from pipeline.corpus import Utterance
from pipeline.degradation import babble, mix_at_snr, telephone, white_noise
from pipeline.errors import AudioError
from pipeline.frontend import read_samples

Array = NDArray[np.float64]

# Speech of each speaker kept in memory for the others' babble, and of all speakers together, in seconds.
SOURCE_SECONDS = 20.0
ALL_SOURCE_SECONDS = 1800.0
# With fewer other speakers than this there is no crowd, and noise takes its place.
LEAST_VOICES = 2


class CopyMaker:
    """Copies of utterances at ``config.features.rate`` Hz; the same seed and utterance give the same copies."""

    def __init__(self, config: Config, speakers: Mapping[str, Sequence[Utterance]]) -> None:
        self.settings: CopyConfig = config.copies
        self._rate = config.features.rate
        self._seed = config.seed
        self._sources: dict[str, Array] = {}
        if "babble" in config.copies.kinds:
            seconds = min(SOURCE_SECONDS, ALL_SOURCE_SECONDS / len(speakers))
            self._sources = {name: self._read_source(speakers[name], seconds) for name in speakers}

    def copies(self, samples: Array, rate: int, *, speaker: str, number: int) -> list[Array]:
        """One copy a kind, in the settings' order, of the ``number``-th utterance of ``speaker``: samples (n,)."""
        if rate != self._rate:
            samples = np.asarray(soxr.resample(samples, rate, self._rate), dtype=np.float64)
        return [self._copy(kind, samples, speaker, number, which) for which, kind in enumerate(self.settings.kinds)]

    def _copy(self, kind: str, samples: Array, speaker: str, number: int, which: int) -> Array:
        if kind == "telephone":
            return telephone(samples, self._rate)
        random = np.random.default_rng([self._seed, which, number, *speaker.encode()])
        snr = float(random.uniform(self.settings.least_snr_db, self.settings.most_snr_db))
        return mix_at_snr(samples, self._noise(kind, speaker, len(samples), random), snr)

    def _noise(self, kind: str, speaker: str, length: int, random: np.random.Generator) -> Array:
        others = [name for name, sources in self._sources.items() if name != speaker and len(sources)]
        if kind == "noise" or len(others) < LEAST_VOICES:
            return white_noise(length, random)
        drawn = random.permutation(len(others))[: self.settings.voices]
        return babble([self._sources[others[n]] for n in drawn], length, random, voices=self.settings.voices)

    def _read_source(self, utterances: Sequence[Utterance], seconds: float) -> Array:
        """The first ``seconds`` of somebody's recordings, end to end."""
        found: list[Array] = []
        for utterance in utterances:
            if sum(map(len, found)) >= seconds * self._rate:
                break
            try:
                samples, rate = read_samples(utterance)
            except AudioError:
                continue  # reported when the utterance itself is read
            wanted = samples[: round(seconds * rate)]
            if wanted.any():
                found.append(np.asarray(soxr.resample(wanted, rate, self._rate), dtype=np.float64))
        return np.concatenate([np.empty(0), *found])
