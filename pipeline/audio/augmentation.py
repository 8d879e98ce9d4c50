"""Data augmentation: enrollment speech through a telephone, under babble or noise, in a room, and at another speed.

Machines that are trained on augmented versions beside the recordings themselves recognise the speaker there too. Babble
is made of the other speakers enrolled together; no other audio is needed, and none is kept. Speech at another speed has
the voice of a pseudo-speaker (Ko et al., Audio augmentation for speech recognition, 2015).

Conventions. Samples are mono float64 (n,), finite, full scale [-1, 1]. Output, but for ``speed_perturbation``, is as
long as the input and aligned with it: no filter delays. Nothing is clipped but by the mu-law coder, as on a real line.
The same input and the same state of a numpy Generator give the same output. "Silent" means that every sample is zero.
Samples that are not mono and finite are an ``AudioError``.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence

import numpy as np
import soundfile
import soxr
from scipy.signal import firwin, oaconvolve

from pipeline.audio.corpus import Utterance
from pipeline.audio.files import read_samples
from pipeline.audio.resampling import resampled
from pipeline.audio.streams import PcmFormat, Samples
from pipeline.config import Config
from pipeline.errors import AudioError

# Speech of each speaker kept in memory for the others' babble, and of all speakers together, in seconds.
SOURCE_SECONDS = 20.0
ALL_SOURCE_SECONDS = 1800.0
# With fewer other speakers than this, white noise takes the place of babble.
LEAST_VOICES = 2
# Rooms: reverberation time in seconds, from a bedroom to a lecture hall, and direct-to-reverberant ratio in dB, from
# across the room to an arm's length.
ROOM_RT60 = (0.2, 0.9)
ROOM_DIRECT_DB = (-6.0, 6.0)

LINE_RATE = 8_000  # Hz, of a digital telephone line (ITU-T G.711)
_MU_LAW = PcmFormat(LINE_RATE, 1, "mulaw").as_soundfile
# ITU-T G.712 asks for 300 to 3400 Hz. Symmetric taps of odd number, centred, delay nothing; 25 ms of them fall from
# full to nothing within about 130 Hz, around the two frequencies below (each 6 dB down).
_BAND = (240.0, 3_460.0)
_TAPS: Samples = firwin(201, _BAND, pass_zero=False, fs=LINE_RATE)
_MOST_DB = 300.0
_SETTLING_SECONDS = 0.05  # of silence after the end, so that no filter meets the edge of the buffer


class Augmenter:
    """Augmented versions of utterances at ``config.features.rate`` Hz, the same for the same seed and utterance.

    ``speeds`` is empty unless ``speed_perturbed``.
    """

    def __init__(
        self, config: Config, speakers: Mapping[str, Sequence[Utterance]], *, speed_perturbed: bool = False
    ) -> None:
        self.settings = config.augmentation
        self.speeds = config.supervector.speeds if speed_perturbed else ()
        self._rate = config.features.rate
        self._seed = config.seed
        self._sources: dict[str, Samples] = {}
        if "babble" in self.settings.kinds:
            seconds = min(SOURCE_SECONDS, ALL_SOURCE_SECONDS / len(speakers))
            self._sources = {name: self._read_source(speakers[name], seconds) for name in speakers}

    def versions(self, samples: Samples, rate: int, *, speaker: str, number: int) -> list[Samples]:
        """Return one version (n,) a kind, in the settings' order, of the ``number``-th utterance of ``speaker``."""
        samples = resampled(samples, rate, self._rate)
        return [self._version(kind, samples, speaker, number, which) for which, kind in enumerate(self.settings.kinds)]

    def pseudo_speakers(self, samples: Samples, rate: int) -> list[Samples]:
        """Return the utterance (n / speed,) at each of ``speeds``."""
        samples = resampled(samples, rate, self._rate)
        return [speed_perturbation(samples, self._rate, factor) for factor in self.speeds]

    def _version(self, kind: str, samples: Samples, speaker: str, number: int, which: int) -> Samples:
        if kind == "telephone":
            return telephone(samples, self._rate)
        random = np.random.default_rng([self._seed, which, number, *speaker.encode()])
        if kind == "room":
            rt60, direct_db = float(random.uniform(*ROOM_RT60)), float(random.uniform(*ROOM_DIRECT_DB))
            return reverberate(samples, room_response(self._rate, random, rt60=rt60, direct_db=direct_db))
        snr = float(random.uniform(self.settings.min_snr_db, self.settings.max_snr_db))
        return mix_at_snr(samples, self._noise(kind, speaker, len(samples), random), snr)

    def _noise(self, kind: str, speaker: str, length: int, random: np.random.Generator) -> Samples:
        others = [name for name, source in self._sources.items() if name != speaker and len(source)]
        if kind == "noise" or len(others) < LEAST_VOICES:
            return white_noise(length, random)
        drawn = random.permutation(len(others))[: self.settings.voices]
        return babble([self._sources[others[n]] for n in drawn], length, random, voices=self.settings.voices)

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


def telephone(samples: Samples, rate: int) -> Samples:
    """Pass ``samples`` (n,) at ``rate`` Hz through a telephone line: 300 to 3400 Hz, mu-law at 8 kHz.

    The level is not touched before the coder: quiet speech meets its coarse end, as on a line, and samples beyond
    full scale are clipped. The band is flat within 3 dB; up to 200 Hz and from 3550 Hz on all is 20 dB down or more.
    Returns (n,) at ``rate``.
    """
    _check(samples, "telephone")
    if len(samples) == 0:
        return np.empty(0)
    padded = np.concatenate((samples, np.zeros(round(_SETTLING_SECONDS * rate) + 1)))
    line = oaconvolve(resampled(padded, rate, LINE_RATE), _TAPS, mode="same")
    return resampled(mu_law(line), LINE_RATE, rate)[: len(samples)]


def mu_law(samples: Samples) -> Samples:
    """Code ``samples`` (n,) in 8 bits by the mu-law of ITU-T G.711 and decode them, both by libsndfile.

    A sample on a decision value takes the larger output, from 0 to 8031 / 8192 = 0.98. The error is at most half the
    step: 1/8192 near zero, 128/8192 near full scale; beyond 8159 / 8192 samples are clipped.
    """
    _check(samples, "mu-law")
    if len(samples) == 0:
        return np.empty(0)
    pcm = np.clip(samples * 2.0**15, -32767.0, 32767.0).astype(np.int16)  # towards zero, as the decision values ask
    coded = io.BytesIO()
    soundfile.write(coded, pcm, LINE_RATE, format="RAW", subtype="ULAW")
    coded.seek(0)
    decoded: Samples = soundfile.read(coded, **_MU_LAW)[0]
    return decoded


def speed_perturbation(samples: Samples, rate: int, factor: float) -> Samples:
    """Play ``samples`` (n,) at ``rate`` Hz ``factor`` times as fast: pitch and formants are that many times higher.

    Returns about (n / factor,) at ``rate``.
    """
    _check(samples, "speed perturbation")
    return np.asarray(soxr.resample(samples, rate * factor, rate, quality="HQ"), dtype=np.float64)


def mix_at_snr(samples: Samples, noise: Samples, snr_db: float) -> Samples:
    """Add ``noise``, looped or cut to length n, to ``samples`` (n,) at a signal-to-noise ratio of ``snr_db``.

    The ratio is of mean squares over the whole signal, its pauses included, and over just the noise that is used. If
    either side is silent or empty no gain gives the ratio, and the samples are returned unchanged. Raises AudioError
    for a ratio beyond 300 dB either way.
    """
    _check(samples, "mix: samples")
    _check(noise, "mix: noise")
    if not abs(snr_db) <= _MOST_DB:
        raise AudioError(f"mix: the signal-to-noise ratio must lie within +-{_MOST_DB:g} dB, got {snr_db}")
    added = _at_unit_rms(np.resize(noise, len(samples)))
    return samples + added * (_rms(samples) * float(10.0 ** (-snr_db / 20.0)))


def white_noise(n: int, rng: np.random.Generator) -> Samples:
    """Return Gaussian noise (n,) of unit variance, flat in frequency."""
    return rng.standard_normal(n)


def babble(sources: Sequence[Samples], n: int, rng: np.random.Generator, voices: int = 6) -> Samples:
    """Sum ``voices`` segments of ``sources`` to (n,), each segment at an rms of 1.

    ``sources`` are recordings at one rate, best one a speaker: each serves once before any serves twice. Silent and
    empty ones are passed over. A segment begins anywhere; where a recording ends it begins again. Raises AudioError
    for sources without sound.
    """
    sounding = [source for source in sources if np.any(source)]
    if not sounding:
        raise AudioError(f"babble: at least one source must hold sound, got {len(sources)} that hold none")
    total = np.zeros(n)
    for turn in range(voices):
        place = turn % len(sounding)
        if place == 0:
            order = rng.permutation(len(sounding))
        segment = _segment(sounding[order[place]], n, rng)
        _check(segment, "babble: a source")  # not whole sources: minutes of them may be given for each second
        total += _at_unit_rms(segment)
    return total


def _segment(source: Samples, n: int, rng: np.random.Generator) -> Samples:
    """Return ``n`` samples of ``source`` from a random place on; from its loudest sample if those were silent."""
    # While the recording is long enough, a segment that needs no seam.
    start = int(rng.integers(len(source) - n + 1 if len(source) > n else len(source)))
    segment = source[(start + np.arange(n)) % len(source)]
    if np.any(segment):
        return segment
    return source[(int(np.argmax(np.abs(source))) + np.arange(n)) % len(source)]


def reverberate(samples: Samples, response: Samples) -> Samples:
    """Convolve ``samples`` (n,) with ``response`` (m,), the impulse response of a room at the same rate; (n,).

    The largest value of the response is taken for the direct sound, and as time zero: the output is aligned with the
    input, however far away the microphone stood. The tail after the end is cut off, and the rms of the rest is that of
    the input. Raises AudioError for a silent or empty response.
    """
    _check(samples, "reverberation: samples")
    _check(response, "reverberation: response")
    if not np.any(response):
        raise AudioError("reverberation: an impulse response must hold something other than zeros")
    if not np.any(samples):
        return np.zeros(len(samples))
    direct = int(np.argmax(np.abs(response)))
    scaled = samples / np.abs(samples).max()
    wet = oaconvolve(scaled, response / np.abs(response).max())[direct : direct + len(samples)]
    return _at_unit_rms(wet) * _rms(samples)


def room_response(rate: int, rng: np.random.Generator, *, rt60: float, direct_db: float) -> Samples:
    """Return the impulse response (n,) of a random room at ``rate`` Hz: the direct sound, then decaying noise.

    The noise decays by 60 dB in ``rt60`` seconds; ``direct_db`` is the direct-to-reverberant energy ratio. There is no
    geometry: this is a room whose echoes are dense (Polack, La transmission de l'energie sonore dans les salles, 1988).
    """
    seconds = np.arange(1, round(rt60 * rate) + 1) / rate
    tail = rng.standard_normal(len(seconds)) * 10.0 ** (-3.0 * seconds / rt60)
    energy = float(tail @ tail)
    if energy == 0.0:
        return np.ones(1)
    return np.concatenate(([1.0], tail * (10.0 ** (-direct_db / 20.0) / np.sqrt(energy))))


def _rms(samples: Samples) -> float:
    """Return the root of the mean square, scaled on the way so that the squares of tiny samples do not vanish."""
    peak = float(np.abs(samples).max(initial=0.0))
    return peak * float(np.sqrt(np.mean((samples / peak) ** 2))) if peak else 0.0


def _at_unit_rms(samples: Samples) -> Samples:
    """Scale ``samples`` to an rms of 1; silence stays silence."""
    peak = float(np.abs(samples).max(initial=0.0)) or 1.0
    return samples / peak / (_rms(samples / peak) or 1.0)


def _check(samples: Samples, where: str) -> None:
    if samples.ndim != 1:
        raise AudioError(f"{where}: mono samples of shape (n,) were expected, got shape {samples.shape}")
    if not np.all(np.isfinite(samples)):
        raise AudioError(f"{where}: samples must be finite, got NaN or an infinity; a failed float conversion?")
