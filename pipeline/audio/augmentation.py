"""Data augmentation: enrollment speech through random channels, under babble or noise, and at another speed.

Machines trained on augmented versions as well as on the recordings also recognise the speaker in such conditions.
Babble is made from the other speakers of the same enrollment; no other audio is needed, and none is kept. Speech played
at another speed gives a pseudo-speaker (Ko et al., Audio augmentation for speech recognition, 2015). Channels are in
``pipeline.audio.channels``.

Conventions. Samples are mono float64 (n,), finite, full scale [-1, 1]. Except for ``speed_perturbation``, output is as
long as the input and aligned with it. Only ``telephone`` clips at full scale. The same input and the same state of a
numpy Generator give the same output. "Silent" means that every sample is zero. Samples that are not mono and finite are
an ``AudioError``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from pipeline.audio.channels import (
    at_unit_rms,
    check_mono,
    coloured_noise,
    random_band,
    random_clipping,
    random_codec,
    random_equaliser,
    reverberate,
    rms,
    room_response,
    telephone,
)
from pipeline.audio.files import read_samples
from pipeline.audio.resampling import resampled
from pipeline.audio.streams import Samples
from pipeline.audio.utterance import Utterance
from pipeline.config import Config
from pipeline.errors import AudioError

# Speech of each speaker kept in memory for the others' babble, and of all speakers together, in seconds.
SOURCE_SECONDS = 20.0
ALL_SOURCE_SECONDS = 1800.0
# With fewer other speakers, white noise takes the place of babble.
LEAST_VOICES = 2
# Rooms: reverberation time in seconds, from a bedroom to a lecture hall, and direct-to-reverberant ratio in dB, from
# across the room to an arm's length.
ROOM_RT60 = (0.2, 0.9)
ROOM_DIRECT_DB = (-6.0, 6.0)
# Response of the microphone before a telephone line, a codec or a band; line noise added after a band.
EQUALISER_DB = 6.0
BAND_SNR_DB = (10.0, 30.0)
# Least number of a speaker's utterances that get a version of each kind: its segments need more than one text.
LEAST_VERSIONS = 2

_MOST_DB = 300.0


class Augmenter:
    """Augmented versions of utterances, one for each of ``kinds`` and ``speeds``, at ``config.features.rate`` Hz.

    The same seed and utterance give the same versions.
    """

    def __init__(
        self,
        config: Config,
        speakers: Mapping[str, Sequence[Utterance]],
        *,
        kinds: Sequence[str],
        speeds: Sequence[float] = (),
    ) -> None:
        self.settings = config.augmentation
        self.kinds = tuple(kinds)
        self.speeds = tuple(speeds)
        self._rate = config.features.rate
        self._seed = config.seed
        self._counts = {name: len(utterances) for name, utterances in speakers.items()}
        # One array, which processes share; many small ones would be copied into each task.
        self._speech, self._sources = np.empty(0), dict[str, slice]()
        if "babble" in self.kinds:
            seconds = min(SOURCE_SECONDS, ALL_SOURCE_SECONDS / len(speakers))
            sources = [self._read_source(speakers[name], seconds) for name in speakers]
            ends = np.cumsum([0, *map(len, sources)]).tolist()
            self._speech = np.concatenate(sources)
            self._sources = {name: slice(*span) for name, span in zip(speakers, pairwise(ends), strict=True)}

    def versions(self, samples: Samples, rate: int, *, speaker: str, number: int) -> list[Samples | None]:
        """Return one version (n,) of each kind, in order, for the ``number``-th utterance of ``speaker``.

        A version is None if the utterance is not in the share of the speaker's utterances that get this kind
        (``has_version``).
        """
        samples = resampled(samples, rate, self._rate)
        has = self._chosen(speaker, number, len(self.kinds))
        return [
            self._version(kind, samples, speaker, number, which) if has[which] else None
            for which, kind in enumerate(self.kinds)
        ]

    def pseudo_speakers(self, samples: Samples, rate: int, *, speaker: str, number: int) -> list[Samples | None]:
        """Return the utterance (n / speed,) at each of ``speeds``, or None as ``versions`` does."""
        samples, has = resampled(samples, rate, self._rate), self._chosen(speaker, number, len(self.speeds))
        return [
            speed_perturbation(samples, self._rate, factor) if chosen else None
            for factor, chosen in zip(self.speeds, has, strict=True)
        ]

    def _chosen(self, speaker: str, number: int, kinds: int) -> list[bool]:
        count, share = self._counts[speaker], self.settings.share
        return [has_version(number, count, which=which, kinds=kinds, share=share) for which in range(kinds)]

    def _version(self, kind: str, samples: Samples, speaker: str, number: int, which: int) -> Samples:
        random = np.random.default_rng([self._seed, which, number, *speaker.encode()])
        if kind == "room":
            rt60, direct_db = float(random.uniform(*ROOM_RT60)), float(random.uniform(*ROOM_DIRECT_DB))
            return reverberate(samples, room_response(self._rate, random, rt60=rt60, direct_db=direct_db))
        if kind == "telephone":
            return telephone(_by_microphone(samples, self._rate, random), self._rate)
        if kind == "codec":
            return by_codec(samples, self._rate, random)
        if kind == "band":
            return in_a_band(samples, self._rate, random)
        snr = float(random.uniform(self.settings.min_snr_db, self.settings.max_snr_db))
        return mix_at_snr(samples, self._noise(kind, speaker, len(samples), random), snr)

    def _noise(self, kind: str, speaker: str, length: int, random: np.random.Generator) -> Samples:
        if kind == "coloured":
            return coloured_noise(length, self._rate, random)
        others = [span for name, span in self._sources.items() if name != speaker and span.start < span.stop]
        if kind == "noise" or len(others) < LEAST_VOICES:
            return random.standard_normal(length)  # white noise
        drawn = random.permutation(len(others))[: self.settings.voices]
        return babble([self._speech[others[n]] for n in drawn], length, random, voices=self.settings.voices)

    def _read_source(self, utterances: Sequence[Utterance], seconds: float) -> Samples:
        """Return the first ``seconds`` of one speaker's recordings, end to end."""
        parts = [np.empty(0)]
        for utterance in utterances:
            if sum(map(len, parts)) >= seconds * self._rate:
                break
            try:
                samples, rate = read_samples(utterance)
            except AudioError:
                continue  # reported when the utterance itself is read
            wanted = samples[: round(seconds * rate)]
            if wanted.any():
                parts.append(resampled(wanted, rate, self._rate))
        return np.concatenate(parts)


def has_version(number: int, count: int, *, which: int, kinds: int, share: float) -> bool:
    """Check whether the ``number``-th of a speaker's ``count`` utterances has a version of kind ``which`` of ``kinds``.

    Each kind is made from ``share`` of the utterances, rounded, but from at least two where there are two. They are
    spread evenly and start at another utterance for each kind, so that no utterance has
    two versions more than another.
    """
    wanted = max(LEAST_VERSIONS, round(share * count))
    # As number goes up to count, number * wanted / count passes ``wanted`` whole numbers. Kinds are shifted against
    # each other by equal fractions of the step between these.
    return (number * wanted + which * count // kinds) % count < wanted


def speed_perturbation(samples: Samples, rate: int, factor: float) -> Samples:
    """Play ``samples`` (n,) at ``rate`` Hz ``factor`` times as fast: pitch and formants are that many times higher.

    Returns about (n / factor,) at ``rate``.
    """
    check_mono(samples, "speed perturbation")
    return resampled(samples, rate * factor, rate)


def by_codec(samples: Samples, rate: int, rng: np.random.Generator) -> Samples:
    """Pass ``samples`` (n,) at ``rate`` Hz through a random microphone and a random codec; (n,)."""
    return random_codec(_by_microphone(samples, rate, rng), rate, rng)


def in_a_band(samples: Samples, rate: int, rng: np.random.Generator) -> Samples:
    """Pass ``samples`` (n,) at ``rate`` Hz through a random microphone and a random band, with the noise of a line."""
    played = _by_microphone(samples, rate, rng)
    snr, noise = float(rng.uniform(*BAND_SNR_DB)), coloured_noise(len(samples), rate, rng)
    return mix_at_snr(random_band(played, rate, rng), noise, snr)


def _by_microphone(samples: Samples, rate: int, rng: np.random.Generator) -> Samples:
    """Filter as a random microphone does, and clip as its amplifier may."""
    return random_clipping(random_equaliser(samples, rate, rng, EQUALISER_DB), rng)


def mix_at_snr(samples: Samples, noise: Samples, snr_db: float) -> Samples:
    """Add ``noise``, looped or cut to length n, to ``samples`` (n,) at a signal-to-noise ratio of ``snr_db``.

    The ratio compares the mean square of the whole signal, pauses included, with that of the noise actually used. If
    either is silent or empty, no gain gives the ratio, and the samples are returned unchanged. Raises AudioError for a
    ratio beyond 300 dB either way.
    """
    check_mono(samples, "mix: samples")
    check_mono(noise, "mix: noise")
    if not abs(snr_db) <= _MOST_DB:
        raise AudioError(f"mix: the signal-to-noise ratio must lie within +-{_MOST_DB:g} dB, got {snr_db}")
    added = at_unit_rms(np.resize(noise, len(samples)))
    return samples + added * (rms(samples) * float(10.0 ** (-snr_db / 20.0)))


def babble(sources: Sequence[Samples], n: int, rng: np.random.Generator, voices: int = 6) -> Samples:
    """Sum ``voices`` segments of ``sources`` to (n,), each segment at an rms of 1.

    ``sources`` are recordings at one rate, preferably one per speaker: each is used once before any is used twice.
    Silent and empty ones are skipped. A segment starts anywhere in its recording and wraps around at the end. Raises
    AudioError if no source has sound.
    """
    sounding = [source for source in sources if source.any()]
    if not sounding:
        raise AudioError(f"babble: at least one source must hold sound, got {len(sources)} that hold none")
    total = np.zeros(n)
    for turn in range(voices):
        place = turn % len(sounding)
        if place == 0:
            order = rng.permutation(len(sounding))
        segment = _segment(sounding[order[place]], n, rng)
        check_mono(segment, "babble: a source")  # not whole sources: minutes of them may be given for each second
        total += at_unit_rms(segment)
    return total


def _segment(source: Samples, n: int, rng: np.random.Generator) -> Samples:
    """Return ``n`` samples of ``source`` from a random start, or from its loudest sample if those are silent."""
    # Without a seam if the recording is long enough.
    start = int(rng.integers(len(source) - n + 1 if len(source) > n else len(source)))
    segment = source[(start + np.arange(n)) % len(source)]
    if np.any(segment):
        return segment
    return source[(int(np.argmax(np.abs(source))) + np.arange(n)) % len(source)]
