"""Perceptual linear prediction against librosa, scipy and all-pole spectra that are known beforehand."""

from __future__ import annotations

import librosa
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.fft import dct
from scipy.linalg import solve_toeplitz
from scipy.optimize import nnls
from scipy.signal import lfilter

from pipeline.config import FeatureSettings
from pipeline.features.plp import POWER_FLOOR, mel_edges, mel_filters, perceptual_prediction
from pipeline.features.stream import static_features


def mel_powers(frames: np.ndarray, rate: int, bands: int, size: int) -> np.ndarray:
    """Power in each band (T, bands), by librosa's own spectrogram: each frame padded to one hop."""
    padded = np.pad(frames, ((0, 0), (0, size - frames.shape[1])))
    return librosa.feature.melspectrogram(
        y=padded.ravel(), sr=rate, n_fft=size, hop_length=size, window="boxcar", center=False, n_mels=bands,
        fmin=100.0, fmax=0.4875 * rate, norm=None, dtype=np.float64,
    ).T  # fmt: skip


@pytest.mark.parametrize(
    ("rate", "length", "size"), [(16_000, 480, 512), (8_000, 240, 256), (16_000, 80, 512), (44_100, 1323, 2048)]
)
@pytest.mark.parametrize(("order", "bands", "compression"), [(20, 32, 0.33), (12, 24, 1.0), (1, 40, 0.1)])
def test_coefficients_are_those_of_librosas_bands_a_cosine_transform_and_scipys_solver(
    rate, length, size, order, bands, compression
):
    rng = np.random.default_rng(length + order)
    frames = lfilter([1.0], [1.0, -0.9], rng.standard_normal((6, length))) * np.hamming(length) * 0.1
    loudness = (mel_powers(frames, rate, bands, size) + POWER_FLOOR) ** compression
    # The inverse transform of a power spectrum is a sum of cosines: scipy's DCT of type 2 is twice that sum.
    autocorrelation = dct(loudness, type=2, axis=1)[:, : order + 1] / (2 * bands)
    autocorrelation[:, 0] *= 1.0 + 1e-9
    expected = [solve_toeplitz(r[:-1], -r[1:]) for r in autocorrelation]
    result = perceptual_prediction(rate, length, order, bands=bands, compression=compression)(frames)
    np.testing.assert_allclose(result, expected, rtol=0, atol=1e-8)
    assert np.abs(result).max() > 0.05, "models of nothing"


@pytest.mark.parametrize("compression", [1.0, 0.33])
def test_a_spectrum_that_is_all_pole_once_compressed_gives_its_own_poles(compression):
    rate, length, bands = 16_000, 512, 48
    poles = np.array([0.6 * np.exp(0.9j), 0.6 * np.exp(-0.9j), 0.5 * np.exp(2.0j), 0.5 * np.exp(-2.0j)])
    model = np.poly(poles).real
    # What each band's loudness must be, at the middle of the band on the perceived, evenly divided axis.
    middles = np.pi * (np.arange(bands) + 0.5) / bands
    wanted = np.abs(np.exp(-1j * np.outer(middles, np.arange(5))) @ model) ** -2
    mel = librosa.filters.mel(sr=rate, n_fft=length, n_mels=bands, fmin=100.0, fmax=0.4875 * rate, norm=None)
    power, rest = nnls(mel.astype(np.float64), wanted ** (1.0 / compression))
    assert rest < 1e-9, "no frame has such a spectrum"
    frame = np.fft.irfft(np.sqrt(power), length)[None]
    result = perceptual_prediction(rate, length, 4, bands=bands, compression=compression)(frame)
    np.testing.assert_allclose(result[0], model[1:], rtol=0, atol=1e-6)


def test_the_cepstrum_is_that_of_the_model():
    configuration = FeatureSettings(kind="plp", order=20)
    frames = np.random.default_rng(0).standard_normal((5, 480)) * np.hamming(480)
    models = perceptual_prediction(16_000, 480, 20, bands=32, compression=0.33)(frames)
    polynomials = np.concatenate((np.ones((5, 1)), models), axis=1)
    expected = 2.0 * np.fft.irfft(-np.log(np.abs(np.fft.rfft(polynomials, 8192, axis=1))), axis=1)[:, 1:21]
    np.testing.assert_allclose(static_features(configuration)(frames), expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("rate", [8_000, 16_000])
def test_silence_is_flat_and_finite(rate):
    configuration = FeatureSettings(kind="plp", rate=rate)
    result = static_features(configuration)(np.zeros((3, configuration.frame_length)))
    assert np.isfinite(result).all()
    np.testing.assert_allclose(result, 0.0, rtol=0, atol=1e-12)


@given(gain=st.floats(0.1, 10.0), seed=st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_level_changes_nothing_well_above_the_floor(gain, seed):
    frames = 0.1 * np.random.default_rng(seed).standard_normal((4, 480)) * np.hamming(480)
    function = static_features(FeatureSettings(kind="plp"))
    np.testing.assert_allclose(function(gain * frames), function(frames), rtol=0, atol=1e-5)


def test_a_sound_below_the_floor_comes_to_silence_and_not_to_noise_of_its_own():
    frames = np.random.default_rng(0).standard_normal((4, 480)) * np.hamming(480)
    function = static_features(FeatureSettings(kind="plp"))
    size = [np.abs(function(level * frames)).max() for level in (1.0, 1e-5, 1e-6, 1e-9)]
    assert size == sorted(size, reverse=True)
    assert size[0] > 0.1
    assert size[-1] < 1e-6


def test_compression_draws_the_model_towards_flat():
    """With loudness to the power 0 every band is alike, and the predictor has nothing to predict."""
    frames = lfilter([1.0], [1.0, -0.95], np.random.default_rng(0).standard_normal((4, 480))) * np.hamming(480)
    sizes = []
    for compression in (1.0, 0.5, 0.1, 0.001):
        model = perceptual_prediction(16_000, 480, 10, bands=32, compression=compression)(frames)
        sizes.append(np.linalg.norm(model, axis=1).mean())
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] < 0.01


@pytest.mark.parametrize(("rate", "size", "bands"), [(4000, 128, 32), (16000, 512, 32), (22050, 1024, 40)])
def test_mel_filters_are_those_of_librosa(rate, size, bands):
    limits = {"fmin": 100.0, "fmax": 0.4875 * rate}
    expected = librosa.filters.mel(sr=rate, n_fft=size, n_mels=bands, norm=None, dtype=np.float64, **limits)
    result = mel_filters(np.fft.rfftfreq(size, 1 / rate), mel_edges(bands, *limits.values()))
    np.testing.assert_allclose(result, expected, atol=1e-9)
