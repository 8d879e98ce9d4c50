"""Clean speech made worse: telephone lines, noise, other voices, rooms; and made somebody else's, by its speed.

Conventions. Samples are mono float64 (n,), finite, full scale [-1, 1]. What comes out, but for ``speed``, is as long as
what went in and aligned with it: no filter delays. Nothing is clipped but by the mu-law coder, as on a real line. The
same input and the same state of a numpy Generator give the same output. "Silent" means that every sample is zero. Every
failure is an ``AudioError``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import soxr
from numpy.typing import NDArray
from scipy.signal import firwin, oaconvolve

from pipeline.errors import AudioError

Samples = NDArray[np.float64]

LINE_RATE = 8_000  # Hz, of a digital telephone line (ITU-T G.711)

# ITU-T G.712 asks for 300 to 3400 Hz. Symmetric taps of odd number, centred, delay nothing; 25 ms of them fall from
# full to nothing within about 130 Hz, around the two frequencies below (each 6 dB down).
_BAND = (240.0, 3_460.0)
_TAPS: Samples = firwin(201, _BAND, pass_zero=False, fs=LINE_RATE)
_MOST_DB = 300.0
_LONGEST_DECAY = 20.0  # seconds: a large church's is ten
_SETTLING_SECONDS = 0.05  # of silence after the end, so that no filter meets the edge of the buffer


def telephone(samples: Samples, rate: int) -> Samples:
    """What a telephone line leaves of ``samples`` (n,) at ``rate`` Hz: 300 to 3400 Hz, mu-law at 8 kHz.

    The level is not touched before the coder: quiet speech meets its coarse end, as on a line, and what goes beyond
    full scale is cut off. The band is flat within 3 dB; up to 200 Hz and from 3550 Hz on all is 20 dB down or more.
    Returns (n,) at ``rate``. Raises AudioError for samples that are not mono and finite and for a rate below 1 Hz.
    """
    _check(samples, "telephone")
    if rate < 1:
        raise AudioError(f"telephone: the sampling rate must be at least 1 Hz, got {rate}")
    if len(samples) == 0:
        return np.empty(0)
    padded = np.concatenate((samples, np.zeros(round(_SETTLING_SECONDS * rate) + 1)))
    line = oaconvolve(_resampled(padded, rate, LINE_RATE), _TAPS, mode="same")
    return _resampled(mu_law(line), LINE_RATE, rate)[: len(samples)]


def speed(samples: Samples, rate: int, factor: float) -> Samples:
    """``samples`` (n,) at ``rate`` Hz played ``factor`` times as fast: pitch and formants are those times higher.

    To a verifier that is another speaker's voice (Ko et al., Audio augmentation for speech recognition, 2015, who
    change nothing else either). Returns about (n / factor,) at ``rate``. Raises AudioError as ``telephone`` does, and
    for factors outside 0.5 to 2.
    """
    _check(samples, "speed")
    if rate < 1:
        raise AudioError(f"speed: the sampling rate must be at least 1 Hz, got {rate}")
    if not 0.5 <= factor <= 2.0:
        raise AudioError(f"speed: the factor must be between 0.5 and 2, got {factor:g}")
    return np.asarray(soxr.resample(samples, rate * factor, rate, quality="HQ"), dtype=np.float64)


def _resampled(samples: Samples, rate: int, new_rate: int) -> Samples:
    resampled: Samples = soxr.resample(samples, rate, new_rate, quality="HQ")
    return resampled


def _mu_law_tables() -> tuple[Samples, Samples]:
    """Lower decision value and output value of the 128 codes of one sign, full scale 8192 (G.711, tables 2a and 2b).

    Code 16 s + m is step m of segment s, whose steps are 2**(s + 1) wide; its output is the middle of the step. The
    first step lies across zero, so its lower end is negative.
    """
    segment, step = np.divmod(np.arange(128), 16)
    decisions = (step + 16 << segment + 1) - 33
    outputs = (2 * step + 33 << segment) - 33
    return decisions.astype(np.float64), outputs.astype(np.float64)


_DECISIONS, _OUTPUTS = _mu_law_tables()


def mu_law(samples: Samples) -> Samples:
    """``samples`` (n,) coded in 8 bits and decoded again by the segmented mu-law of ITU-T G.711 (not its formula).

    A sample on a decision value takes the larger output. The outputs are those that ``pcm.py`` decodes, from 0 to
    8031 / 8192 = 0.98; the error is at most half the step: 1/8192 near zero, 128/8192 near full scale, and beyond
    8159 / 8192 samples are cut off. Raises AudioError for samples that are not mono and finite.
    """
    _check(samples, "mu-law")
    size = np.minimum(np.abs(samples), 1.0) * 8192.0
    code = np.searchsorted(_DECISIONS, size, side="right") - 1
    decoded: Samples = np.copysign(_OUTPUTS[code] / 8192.0, samples)
    return decoded


def mix_at_snr(samples: Samples, noise: Samples, snr_db: float) -> Samples:
    """``samples`` (n,) plus ``noise``, looped or cut to length n and scaled to lie ``snr_db`` decibels below them.

    The ratio is of mean squares over the whole signal, its pauses included, and over just the noise that is used. If
    either side is silent or empty no gain gives the ratio, and the samples come back as they were. Raises AudioError
    for arrays that are not mono and finite and for a ratio beyond 300 dB either way.
    """
    _check(samples, "mix: samples")
    _check(noise, "mix: noise")
    if not abs(snr_db) <= _MOST_DB:
        raise AudioError(f"mix: the signal-to-noise ratio must lie within +-{_MOST_DB:g} dB, got {snr_db}")
    added = _at_unit_rms(np.resize(noise, len(samples)))
    level = _rms(samples) * float(10.0 ** (-snr_db / 20.0))
    return samples + added * level


def white_noise(n: int, rng: np.random.Generator) -> Samples:
    """Gaussian noise (n,) of unit variance, flat in frequency; for ``mix_at_snr``, not for listening as it is."""
    return rng.standard_normal(n)


def babble(sources: Sequence[Samples], n: int, rng: np.random.Generator, voices: int = 6) -> Samples:
    """Several people at once: the sum (n,) of ``voices`` stretches of ``sources``, each stretch at an rms of 1.

    ``sources`` are recordings at one rate, best one a person: each serves once before any serves twice. Silent and
    empty ones are passed over. A stretch begins anywhere; where a recording ends it begins again. Raises AudioError
    for sources without sound, arrays that are not mono, stretches that are not finite, and fewer than one voice.
    """
    for number, source in enumerate(sources):
        _check_mono(source, f"babble: source {number}")
    if voices < 1:
        raise AudioError(f"babble: at least 1 voice is needed, got {voices}")
    total = np.zeros(n)
    for source in _in_turn(sources, voices, rng):
        stretch = _stretch(source, n, rng)
        _check(stretch, "babble: a source")  # not whole sources: minutes of them may be given for each second
        total += _at_unit_rms(stretch)
    return total


def _in_turn(sources: Sequence[Samples], count: int, rng: np.random.Generator) -> Iterator[Samples]:
    """``count`` sources with sound in them, by lot; none comes again before all others have come."""
    given = 0
    while True:
        before = given
        for number in rng.permutation(len(sources)).tolist():
            if np.any(sources[number]):
                yield sources[number]
                given += 1
                if given == count:
                    return
        if given == before:
            raise AudioError(f"babble: at least one source must hold sound, got {len(sources)} that hold none")


def _stretch(source: Samples, n: int, rng: np.random.Generator) -> Samples:
    """``n`` samples of ``source`` from a random place on; from its loudest sample if those were silent."""
    # While the recording is long enough, a stretch that needs no seam.
    start = int(rng.integers(len(source) - n + 1 if len(source) > n else len(source)))
    stretch = source[(start + np.arange(n)) % len(source)]
    if np.any(stretch):
        return stretch
    return source[(int(np.argmax(np.abs(source))) + np.arange(n)) % len(source)]


def reverberant(samples: Samples, response: Samples) -> Samples:
    """``samples`` (n,) as heard through ``response`` (m,), the impulse response of a room at the same rate; (n,).

    The largest value of the response is taken for the direct sound, and as time zero: the output is aligned with the
    input, however far away the microphone stood. What rings on after the end is cut off, and the rms of what is left
    is that of the input. Raises AudioError for a silent or empty response and arrays that are not mono and finite.
    """
    _check(samples, "reverberation: samples")
    _check(response, "reverberation: response")
    if not np.any(response):
        raise AudioError("reverberation: an impulse response must hold something other than zeros")
    if not np.any(samples):
        return np.zeros(len(samples))
    direct = int(np.argmax(np.abs(response)))
    scaled = samples / np.abs(samples).max()
    heard = oaconvolve(scaled, response / np.abs(response).max())[direct : direct + len(samples)]
    return _at_unit_rms(heard) * _rms(samples)


def room_response(rate: int, rng: np.random.Generator, *, rt60: float, direct_db: float) -> Samples:
    """Impulse response (n,) of a made-up room at ``rate`` Hz: the direct sound, then noise that fades by 60 dB.

    ``rt60`` are the seconds that it takes to, ``direct_db`` how far the energy of the direct sound stands above that of
    all echoes. Without the places of walls: what is left of a room when its echoes are so dense that only their decay
    is heard (Polack, La transmission de l'energie sonore dans les salles, 1988). Raises AudioError for a rate below
    1 Hz, a decay that is not positive or longer than 20 s, and a ratio beyond 300 dB.
    """
    if rate < 1:
        raise AudioError(f"room: the sampling rate must be at least 1 Hz, got {rate}")
    if not 0.0 < rt60 <= _LONGEST_DECAY:
        raise AudioError(f"room: a decay must last more than 0 and at most {_LONGEST_DECAY:g} s, got {rt60:g}")
    if not abs(direct_db) <= _MOST_DB:
        raise AudioError(f"room: the direct sound must lie within +-{_MOST_DB:g} dB of the echoes, got {direct_db}")
    seconds = np.arange(1, round(rt60 * rate) + 1) / rate
    tail = rng.standard_normal(len(seconds)) * 10.0 ** (-3.0 * seconds / rt60)
    energy = float(tail @ tail)
    if energy == 0.0:
        return np.ones(1)
    return np.concatenate(([1.0], tail * (10.0 ** (-direct_db / 20.0) / np.sqrt(energy))))


def _rms(samples: Samples) -> float:
    """Root of the mean square; scaled on the way, so that the squares of tiny samples do not vanish."""
    peak = float(np.abs(samples).max(initial=0.0))
    return peak * float(np.sqrt(np.mean((samples / peak) ** 2))) if peak else 0.0


def _at_unit_rms(samples: Samples) -> Samples:
    """``samples`` scaled to an rms of 1; silence stays silence."""
    peak = float(np.abs(samples).max(initial=0.0))
    if peak == 0.0:
        return np.zeros(len(samples))
    scaled = samples / peak
    return scaled / float(np.sqrt(np.mean(scaled**2)))


def _check(samples: Samples, where: str) -> None:
    _check_mono(samples, where)
    if not np.all(np.isfinite(samples)):
        raise AudioError(f"{where}: samples must be finite, got NaN or an infinity; a failed float conversion?")


def _check_mono(samples: Samples, where: str) -> None:
    if samples.ndim != 1:
        raise AudioError(f"{where}: mono samples of shape (n,) were expected, got shape {samples.shape}")
