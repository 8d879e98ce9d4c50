"""Channels: telephone lines, codecs, equalisers, bands and rooms, clipping, and coloured noise.

Random channels are drawn anew at every call, so that machines are trained on many of them.

Conventions. Samples are mono float64 (n,), finite, full scale [-1, 1]. Output is as long as the input and aligned with
it: no filter delays. Only the mu-law coder clips at full scale, as on a real line. Filters by FFT have zero phase, and
pad the signal with silence so that its end does not wrap around to the start. Magnitude responses apply to amplitudes.
The same input and the same state of a numpy Generator give the same output. "Silent" means that every sample is zero.
Samples that are not mono and finite are an ``AudioError``.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import lru_cache

import numpy as np
import soundfile
from numpy.polynomial.polynomial import polyval
from scipy.fft import irfft, next_fast_len, rfft, rfftfreq

from pipeline.audio.resampling import resampled
from pipeline.audio.streams import Samples
from pipeline.errors import AudioError

LINE_RATE = 8_000  # Hz, of a digital telephone line (ITU-T G.711)
# ITU-T G.712 asks for 300 to 3400 Hz. An odd number of symmetric, centred taps delays nothing; with 25 ms of taps, each
# edge falls from full gain to nothing within about 130 Hz around its frequency below (6 dB down).
_BAND = (240.0, 3_460.0)
_HALF = 100  # taps on either side of the centre
_SETTLING_SECONDS = 0.05  # of silence after the end, so that no filter meets the edge of the buffer

# Codecs of telephone lines, mobile telephones and answering machines: libsndfile's format and subtype. None delays.
CODECS = (("WAV", "GSM610"), ("AU", "G721_32"), ("AU", "G723_24"), ("WAV", "ULAW"), ("WAV", "IMA_ADPCM"))
CODEC_PEAK = 0.7  # of full scale: room for the overshoot of a coder
EQUALISER_HZ = (50.0, 150.0, 300.0, 700.0, 1_500.0, 3_000.0, 5_000.0, 8_000.0)
LOW_EDGE_HZ = (50.0, 400.0)
HIGH_EDGES_HZ = ((2_800.0, 3_800.0), (3_800.0, 7_600.0))  # of telephones, and of wideband devices
_HIGHEST_EDGE = 0.95  # of half the rate
CLIPPING_DB = (-20.0, 20.0)  # of the peak over the clipping level; nothing is clipped below 0
NOISE_SLOPE = (-0.5, 1.5)  # a in f^-a, of amplitudes: from 3 dB an octave up, through white and pink, to 9 dB down
NOISE_EQUALISER_DB = 10.0
HUM_HZ = (50.0, 400.0)  # of mains, engines and fans
HUM_HARMONICS = 8
MOST_HUM = 1.5  # times the rms of the noise


def telephone(samples: Samples, rate: int) -> Samples:
    """Pass ``samples`` (n,) at ``rate`` Hz through a telephone line: 300 to 3400 Hz, mu-law at 8 kHz.

    The level is not adjusted before the coder: quiet speech is coded in few steps, as on a line, and samples beyond
    full scale are clipped. The band is flat within 3 dB; up to 200 Hz and from 3550 Hz on, gain is -20 dB or less.
    Returns (n,) at ``rate``.
    """
    check_mono(samples, "telephone")
    line = resampled(_settled(samples, rate), rate, LINE_RATE)
    return resampled(mu_law(_convolved(line, band_pass())[_HALF:-_HALF]), LINE_RATE, rate)[: len(samples)]


@lru_cache(maxsize=1)
def band_pass() -> Samples:
    """Return the taps (201,) of the telephone band: a sinc for each edge, under a Hamming window, gain 1 in the middle.

    ``scipy.signal.firwin`` gives the same, and takes longer to import than a speaker takes to augment.
    """
    n, (low, high) = np.arange(-_HALF, _HALF + 1), (2.0 * edge / LINE_RATE for edge in _BAND)
    taps = (high * np.sinc(high * n) - low * np.sinc(low * n)) * np.hamming(len(n))
    return np.asarray(taps / (taps @ np.cos(np.pi * n * (low + high) / 2.0)))


def _convolved(samples: Samples, response: Samples) -> Samples:
    """Return the convolution (n + m - 1,) of ``samples`` (n,) and ``response`` (m,)."""
    count = len(samples) + len(response) - 1
    size = next_fast_len(count, real=True)
    return np.asarray(irfft(rfft(samples, size) * rfft(response, size), size)[:count])


def mu_law(samples: Samples) -> Samples:
    """Code ``samples`` (n,) in 8 bits by the mu-law of ITU-T G.711 and decode them, both by libsndfile.

    A sample on a decision value takes the larger output, from 0 to 8031 / 8192 = 0.98. The error is at most half the
    step: 1/8192 near zero, 128/8192 near full scale; beyond 8159 / 8192 samples are clipped.
    """
    check_mono(samples, "mu-law")
    return _coded(samples, "WAV", "ULAW")


def random_codec(samples: Samples, rate: int, rng: np.random.Generator) -> Samples:
    """Pass ``samples`` (n,) at ``rate`` Hz through one of ``CODECS`` at 8 kHz, at a peak of ``CODEC_PEAK``.

    The level is restored after it. Silence stays silence. Returns (n,) at ``rate``.
    """
    check_mono(samples, "codec")
    file_format, subtype = CODECS[rng.integers(len(CODECS))]
    peak = _peak(samples)
    if peak == 0.0:
        return np.zeros(len(samples))
    line = resampled(_settled(samples / peak, rate), rate, LINE_RATE)
    gain = CODEC_PEAK / (_peak(line) or 1.0)
    decoded = _coded(line * gain, file_format, subtype)
    return resampled(decoded, LINE_RATE, rate)[: len(samples)] * (peak / gain)


def _coded(samples: Samples, file_format: str, subtype: str) -> Samples:
    """Code ``samples`` (n,) at 8 kHz by libsndfile and decode them: (n,), or more in codecs of whole blocks."""
    # Rounded towards zero, as the decision values of mu-law require.
    pcm = np.clip(samples * 2.0**15, -32767.0, 32767.0).astype(np.int16)
    coded = io.BytesIO()
    soundfile.write(coded, pcm, LINE_RATE, format=file_format, subtype=subtype)
    coded.seek(0)
    decoded: Samples = soundfile.read(coded)[0]
    return decoded


def random_equaliser(samples: Samples, rate: int, rng: np.random.Generator, most_db: float) -> Samples:
    """Filter ``samples`` (n,) at ``rate`` Hz by gains drawn within +-``most_db`` at ``EQUALISER_HZ``.

    Between these frequencies the gain in dB is linear over their logarithm, beyond the outer ones constant. Returns
    (n,).
    """
    check_mono(samples, "equaliser")
    return _filtered(samples, rate, _equaliser(rng, most_db))


def random_band(samples: Samples, rate: int, rng: np.random.Generator) -> Samples:
    """Limit ``samples`` (n,) at ``rate`` Hz to a band between random edges, each 6 dB down.

    The lower edge is drawn from ``LOW_EDGE_HZ``, the upper from either range of ``HIGH_EDGES_HZ`` with a probability of
    one half, limited to 0.95 of half the rate. The magnitude response 1 / (1 + (low / f)^6) / (1 + (f / high)^10) is
    that of Butterworth filters of order 3 and 5, each run forwards and backwards. Returns (n,).
    """
    check_mono(samples, "band")
    low = rng.uniform(*LOW_EDGE_HZ)
    high = min(rng.uniform(*HIGH_EDGES_HZ[rng.integers(len(HIGH_EDGES_HZ))]), _HIGHEST_EDGE * rate / 2)

    def response(frequencies: Samples) -> Samples:
        below: Samples = (frequencies / low) ** 6  # not its inverse: there is a frequency of 0
        return below / (1.0 + below) / (1.0 + (frequencies / high) ** 10)

    return _filtered(samples, rate, response)


def random_clipping(samples: Samples, rng: np.random.Generator) -> Samples:
    """Clip ``samples`` (n,) at a level U dB below their peak, with U drawn from ``CLIPPING_DB``; (n,).

    A level above the peak clips nothing.
    """
    check_mono(samples, "clipping")
    level = _peak(samples) * 10.0 ** (-rng.uniform(*CLIPPING_DB) / 20.0)
    clipped: Samples = np.clip(samples, -level, level)
    return clipped


def coloured_noise(n: int, rate: int, rng: np.random.Generator) -> Samples:
    """Return noise (n,) of a random colour at ``rate`` Hz and an rms of 1, with a hum in half of all draws.

    The amplitude spectrum of the noise is f^-a, with a drawn from ``NOISE_SLOPE``, times a random equaliser of
    +-``NOISE_EQUALISER_DB``. It is flat below the equaliser's lowest frequency, or most of the power of steep noise
    would be inaudible. The hum's rms is drawn up to ``MOST_HUM`` times that of the noise.
    """
    size = _fft_length(n, rate)
    frequencies = rfftfreq(size, 1.0 / rate)
    slope = rng.uniform(*NOISE_SLOPE)
    shape = np.maximum(frequencies, EQUALISER_HZ[0]) ** -slope * _equaliser(rng, NOISE_EQUALISER_DB)(frequencies)
    shape[0] = 0.0
    spectrum = rng.standard_normal(2 * len(shape)).view(np.complex128) * shape
    noise = at_unit_rms(irfft(spectrum, size)[:n])
    if rng.random() < 0.5:
        noise = noise + rng.uniform(0.0, MOST_HUM) * _hum(n, rate, rng)
    return at_unit_rms(noise)


def _hum(n: int, rate: int, rng: np.random.Generator) -> Samples:
    """Return a harmonic tone (n,) of random pitch at an rms of 1: harmonic k at U(0, 1) / k and any phase."""
    pitch = rng.uniform(*HUM_HZ)
    k = np.arange(1, HUM_HARMONICS + 1)
    harmonics = rng.uniform(size=len(k)) / k * np.exp(2j * np.pi * rng.uniform(size=len(k)))
    harmonics[k * pitch >= rate / 2] = 0.0
    turns = np.exp(2j * np.pi * pitch / rate * np.arange(n))
    # The sum over k of harmonic k times turns^k.
    return at_unit_rms(polyval(turns, [0.0, *harmonics]).real)


def _equaliser(rng: np.random.Generator, most_db: float) -> Callable[[Samples], Samples]:
    """Draw the magnitude response of a random equaliser: a function of frequencies (m,) in Hz."""
    gains = rng.uniform(-most_db, most_db, len(EQUALISER_HZ)) * (np.log(10.0) / 20.0)

    def equalise(frequencies: Samples) -> Samples:
        above = np.log(np.maximum(frequencies, EQUALISER_HZ[0]))  # there is a frequency of 0
        response: Samples = np.exp(np.interp(above, np.log(EQUALISER_HZ), gains))
        return response

    return equalise


def _filtered(samples: Samples, rate: int, response: Callable[[Samples], Samples]) -> Samples:
    """Filter ``samples`` (n,) at ``rate`` Hz by the magnitude ``response`` to frequencies in Hz; (n,)."""
    size = _fft_length(len(samples), rate)
    spectrum = rfft(samples, size) * response(rfftfreq(size, 1.0 / rate))
    filtered: Samples = irfft(spectrum, size)[: len(samples)]
    return filtered


def _fft_length(n: int, rate: int) -> int:
    """Return a length that is fast to transform and holds ``n`` samples and the silence after them."""
    length: int = next_fast_len(n + _settling(rate), real=True)
    return length


def _settled(samples: Samples, rate: int) -> Samples:
    return np.concatenate((samples, np.zeros(_settling(rate))))


def _settling(rate: int) -> int:
    return round(_SETTLING_SECONDS * rate) + 1


def reverberate(samples: Samples, response: Samples) -> Samples:
    """Convolve ``samples`` (n,) with ``response`` (m,), the impulse response of a room at the same rate; (n,).

    The largest value of the response is taken as the direct sound and as time zero: the output is aligned with the
    input, however far away the microphone stood. The tail after the end is cut off, and the rest scaled to the rms of
    the input. Raises AudioError for a silent or empty response.
    """
    check_mono(samples, "reverberation: samples")
    check_mono(response, "reverberation: response")
    if not np.any(response):
        raise AudioError("reverberation: an impulse response must hold something other than zeros")
    if not np.any(samples):
        return np.zeros(len(samples))
    direct = int(np.argmax(np.abs(response)))
    scaled = samples / np.abs(samples).max()
    wet = _convolved(scaled, response / np.abs(response).max())[direct : direct + len(samples)]
    return at_unit_rms(wet) * rms(samples)


def room_response(rate: int, rng: np.random.Generator, *, rt60: float, direct_db: float) -> Samples:
    """Return the impulse response (n,) of a random room at ``rate`` Hz: the direct sound, then decaying noise.

    The noise decays by 60 dB in ``rt60`` seconds; ``direct_db`` is the direct-to-reverberant energy ratio. There is no
    geometry: this is a room whose echoes are dense (Polack, La transmission de l'energie sonore dans les salles, 1988).
    """
    seconds = np.arange(1, round(rt60 * rate) + 1) / rate
    tail = rng.standard_normal(len(seconds)) * 10.0 ** (-3.0 * seconds / rt60)
    return np.concatenate(([1.0], tail * (10.0 ** (-direct_db / 20.0) / np.sqrt(float(tail @ tail)))))


def rms(samples: Samples) -> float:
    """Return the root of the mean square, scaled on the way so that the squares of tiny samples do not vanish."""
    peak = _peak(samples)
    return peak * float(np.sqrt(np.mean((samples / peak) ** 2))) if peak else 0.0


def at_unit_rms(samples: Samples) -> Samples:
    """Scale ``samples`` to an rms of 1; silence stays silence."""
    peak = _peak(samples) or 1.0
    return samples / peak / (rms(samples / peak) or 1.0)


def check_mono(samples: Samples, where: str) -> None:
    """Refuse samples that are not of shape (n,), or not finite, with an ``AudioError`` about ``where``."""
    if samples.ndim != 1:
        raise AudioError(f"{where}: mono samples of shape (n,) were expected, got shape {samples.shape}")
    if not np.all(np.isfinite(samples)):
        raise AudioError(f"{where}: samples must be finite, got NaN or an infinity; a failed float conversion?")


def _peak(samples: Samples) -> float:
    return float(np.abs(samples).max(initial=0.0))
