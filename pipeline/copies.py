"""Copies of enrollment audio: a speaker on the telephone, in a crowd, in noise, in a room; and strangers.

Machines that learn from them beside the recordings themselves recognise the speaker there too. Other voices come from
the people who are enrolled together; no other audio is needed, and none is kept. The same speech at another speed is
a voice that nobody here has: a few speakers learn from it how they differ from people who are not enrolled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import soxr
from numpy.typing import NDArray

from pipeline.config import Config, CopyConfig
from pipeline.corpus import Utterance
from pipeline.degradation import babble, mix_at_snr, reverberant, room_response, speed, telephone, white_noise
from pipeline.errors import AudioError
from pipeline.frontend import read_samples

Array = NDArray[np.float64]

# Speech of each speaker kept in memory for the others' babble, and of all speakers together, in seconds.
SOURCE_SECONDS = 20.0
ALL_SOURCE_SECONDS = 1800.0
# With fewer other speakers than this there is no crowd, and noise takes its place.
LEAST_VOICES = 2
# Of rooms: seconds in which echoes fade by 60 dB, from a bedroom to a lecture hall, and how far the direct sound stands
# above them, in dB, from across the room to an arm's length.
ROOM_RT60 = (0.2, 0.9)
ROOM_DIRECT_DB = (-6.0, 6.0)


class CopyMaker:
    """Copies of utterances at ``config.features.rate`` Hz; the same seed and utterance give the same copies.

    ``strangers`` are made where they are asked for.
    """

    def __init__(self, config: Config, speakers: Mapping[str, Sequence[Utterance]], *, strangers: bool = False) -> None:
        self.settings: CopyConfig = config.copies
        self.speeds = config.segments.speeds if strangers else ()
        self._rate = config.features.rate
        self._seed = config.seed
        self._sources: dict[str, Array] = {}
        if "babble" in config.copies.kinds:
            seconds = min(SOURCE_SECONDS, ALL_SOURCE_SECONDS / len(speakers))
            self._sources = {name: self._read_source(speakers[name], seconds) for name in speakers}

    def copies(self, samples: Array, rate: int, *, speaker: str, number: int) -> list[Array]:
        """One copy a kind, in the settings' order, of the ``number``-th utterance of ``speaker``: samples (n,)."""
        samples = self._resampled(samples, rate)
        return [self._copy(kind, samples, speaker, number, which) for which, kind in enumerate(self.settings.kinds)]

    def strangers(self, samples: Array, rate: int) -> list[Array]:
        """One stranger's voice a speed, in the settings' order: samples (n / speed,)."""
        samples = self._resampled(samples, rate)
        return [speed(samples, self._rate, factor) for factor in self.speeds]

    def _resampled(self, samples: Array, rate: int) -> Array:
        if rate == self._rate:
            return samples
        return np.asarray(soxr.resample(samples, rate, self._rate), dtype=np.float64)

    def _copy(self, kind: str, samples: Array, speaker: str, number: int, which: int) -> Array:
        if kind == "telephone":
            return telephone(samples, self._rate)
        random = np.random.default_rng([self._seed, which, number, *speaker.encode()])
        if kind == "room":
            rt60, direct_db = float(random.uniform(*ROOM_RT60)), float(random.uniform(*ROOM_DIRECT_DB))
            return reverberant(samples, room_response(self._rate, random, rt60=rt60, direct_db=direct_db))
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
