"""Linear prediction against linear algebra, closed forms, the Fourier transform and librosa."""

from __future__ import annotations

import librosa
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.linalg import solve_toeplitz
from scipy.signal import lfilter
from sounds import hard_sounds

from pipeline.features import lpc

ORDERS = (1, 2, 3, 5, 12, 13, 20)
LENGTH = 240
SEEDS = st.integers(0, 2**32 - 1)


def frame_batch(seed: int) -> np.ndarray:
    """Frames (7, LENGTH) of shapes that speech, faults or instruments give, at random levels, windowed."""
    generator, n = np.random.default_rng(seed), np.arange(LENGTH)
    frequency, phase = generator.uniform(0.01, 3.1, (2, 1)), generator.uniform(0, 6.28, (2, 1))
    tone, other = np.sin(frequency * n + phase)
    steps = np.repeat(generator.standard_normal(LENGTH // 8), 8)
    shapes = [generator.standard_normal(LENGTH), tone, tone + 0.1 * other, np.clip(5 * tone, -1, 1), steps]
    shapes += [n - generator.uniform(0, LENGTH), tone * np.exp(-n / generator.uniform(2, 50))]
    return np.stack(shapes) * 10.0 ** generator.uniform(-4, 0, (7, 1)) * np.hamming(LENGTH)


def predict(frames: np.ndarray, order: int) -> np.ndarray:
    return lpc.levinson_durbin(lpc.autocorrelate(frames, order))


def stable_model(order: int, seed: int, *, radius: float = 0.95) -> np.ndarray:
    """a_1..a_order of a random polynomial A(z) with all its roots inside ``radius``."""
    generator = np.random.default_rng(seed)
    pairs = generator.uniform(radius / 5, radius, order // 2) * np.exp(1j * generator.uniform(0.05, 3.09, order // 2))
    real = generator.uniform(-radius, radius, order % 2)
    return np.poly(np.concatenate((pairs, pairs.conj(), real))).real[1:]


def autocorrelation_of(model: np.ndarray, order: int, *, size: int = 2**14) -> np.ndarray:
    """r_0..r_order of the AR process driven by white noise of variance 1: the transform of its power spectrum."""
    spectrum = 1.0 / np.abs(np.fft.rfft(np.r_[1.0, model], size)) ** 2
    return np.fft.irfft(spectrum, size)[: order + 1]


# Autocorrelation and Levinson-Durbin.


@settings(deadline=None)
@given(arrays(np.float64, (3, 40), elements=st.floats(-1, 1)), st.integers(0, 45))
def test_autocorrelation_is_the_middle_of_the_full_correlation(frames, order):
    result = lpc.autocorrelate(frames, order)
    assert result.shape == (3, order + 1)
    for frame, row in zip(frames, result, strict=True):
        full = np.correlate(frame, frame, mode="full")[len(frame) - 1 :]
        expected = np.concatenate((full, np.zeros(order)))[: order + 1]
        np.testing.assert_allclose(row, expected, rtol=1e-12, atol=1e-12)


@settings(deadline=None)
@given(SEEDS, st.sampled_from(ORDERS))
def test_levinson_durbin_solves_the_normal_equations_as_scipy_does(seed, order):
    r = lpc.autocorrelate(np.random.default_rng(seed).standard_normal((6, LENGTH)), order)
    for row, coefficients in zip(r, lpc.levinson_durbin(r), strict=True):
        corrected = np.r_[row[0] * (1 + lpc.RELATIVE_FLOOR), row[1:-1]]
        np.testing.assert_allclose(coefficients, solve_toeplitz(corrected, -row[1:]), rtol=1e-9, atol=1e-11)


@settings(deadline=None)
@given(SEEDS, st.floats(0.1, 0.97))
def test_levinson_durbin_solves_ill_conditioned_systems_to_their_residual(seed, radius):
    order = 12
    r = autocorrelation_of(stable_model(order, seed, radius=radius), order)[None]
    coefficients = lpc.levinson_durbin(r)[0]
    corrected = np.r_[r[0, 0] * (1 + lpc.RELATIVE_FLOOR), r[0, 1:-1]]
    lags = np.abs(np.arange(order)[:, None] - np.arange(order))
    residual = corrected[lags] @ coefficients + r[0, 1:]
    assert np.abs(residual).max() <= 1e-12 * np.abs(coefficients).sum() * r[0, 0]


@pytest.mark.parametrize(("a1", "a2"), [(-1.5, 0.7), (0.4, -0.3), (1.2, 0.9), (0.0, 0.5), (-0.9, 0.0)])
def test_second_order_process_is_recovered_from_its_closed_form_autocorrelation(a1, a2):
    r0 = (1 + a2) / ((1 - a2) * ((1 + a2) ** 2 - a1**2))
    r1 = -a1 / (1 + a2) * r0
    result = lpc.levinson_durbin(np.array([[r0, r1, -a1 * r1 - a2 * r0]]))
    np.testing.assert_allclose(result[0], [a1, a2], atol=1e-6)


@settings(deadline=None)
@given(SEEDS)
def test_more_order_than_the_process_has_adds_zeros(seed):
    model = stable_model(2, seed, radius=0.8)
    result = lpc.levinson_durbin(autocorrelation_of(model, 8)[None])
    np.testing.assert_allclose(result[0], np.r_[model, np.zeros(6)], atol=1e-5)


# Burg's method.


@pytest.mark.parametrize("seed", [0, 7])
def test_long_realisation_gives_the_same_model_by_autocorrelation_by_burg_and_in_truth(seed):
    model = stable_model(12, seed)
    noise = np.random.default_rng(seed).standard_normal(120_000)
    realisation = lfilter([1.0], np.r_[1.0, model], noise)[20_000:]
    ours = predict(realisation[None], 12)[0]
    burg = librosa.lpc(realisation, order=12)[1:]
    # The standard error of a coefficient is sqrt([sigma^2 R^-1]_kk / n) for n samples.
    r = autocorrelation_of(model, 11)
    error = np.sqrt(np.diag(np.linalg.inv(r[np.abs(np.arange(12)[:, None] - np.arange(12))])) / 100_000)
    assert np.all(np.abs(ours - model) < 4.5 * error)
    assert np.all(np.abs(ours - burg) < 0.2 * error)


def test_burg_option_is_librosa_frame_by_frame():
    frames = frame_batch(3)
    for frame, row in zip(frames, lpc.burg(frames, 12), strict=True):
        np.testing.assert_array_equal(row, librosa.lpc(frame, order=12)[1:])


def test_burg_option_is_finite_on_hard_frames_and_zero_on_silence():
    result = lpc.burg(np.stack(list(hard_sounds(LENGTH).values())), 12)
    assert np.isfinite(result).all()
    assert not result[list(hard_sounds(LENGTH)).index("silence")].any()


# Stability and scale.


def assert_stable(models: np.ndarray) -> None:
    assert np.isfinite(models).all()
    for model in models:
        assert np.abs(np.roots(np.r_[1.0, model])).max(initial=0.0) < 1


def assert_usable(frames: np.ndarray, order: int) -> None:
    """Models of ``frames`` and their cepstra are finite, and stable."""
    models = predict(frames, order)
    assert_stable(models)
    assert np.isfinite(lpc.cepstrum(models)).all()


@pytest.mark.parametrize("order", ORDERS)
def test_hard_frames_have_finite_stable_models(order):
    assert_usable(np.stack(list(hard_sounds(LENGTH).values())), order)


@settings(max_examples=50, deadline=None)
@given(SEEDS, st.sampled_from(ORDERS))
def test_models_of_all_kinds_of_frame_are_stable(seed, order):
    assert_usable(frame_batch(seed), order)


@settings(max_examples=50, deadline=None)
@given(arrays(np.float64, (2, 64), elements=st.floats(-1, 1)), st.sampled_from((1, 2, 12, 20)))
def test_models_of_arbitrary_samples_are_finite_and_stable(frames, order):
    assert_stable(predict(frames, order))


@settings(max_examples=50, deadline=None)
@given(SEEDS, st.floats(1e-4, 1e4))
def test_scaling_by_any_gain_leaves_the_model(seed, gain):
    frames = np.random.default_rng(seed).standard_normal((4, LENGTH))
    np.testing.assert_allclose(predict(frames * gain, 12), predict(frames, 12), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", ["silence", "denormal", "square underflows", "impulse"])
def test_frames_without_energy_or_prediction_have_the_flat_model(name):
    result = predict(hard_sounds(LENGTH)[name][None], 12)
    np.testing.assert_array_equal(result, np.zeros((1, 12)))
    np.testing.assert_array_equal(lpc.cepstrum(result), np.zeros((1, 12)))


# Cepstrum.


@settings(deadline=None)
@given(SEEDS, st.sampled_from(ORDERS))
def test_cepstrum_is_the_inverse_transform_of_the_log_spectrum(seed, order):
    models = np.stack([stable_model(order, seed + k) for k in range(3)])
    log_spectrum = -np.log(np.abs(np.fft.rfft(np.concatenate((np.ones((3, 1)), models), axis=1), 2**13, axis=1)))
    # The real cepstrum is even, so each side holds half of the minimum-phase one.
    expected = 2.0 * np.fft.irfft(log_spectrum, axis=1)[:, 1 : order + 1]
    np.testing.assert_allclose(lpc.cepstrum(models), expected, rtol=1e-9, atol=1e-9)


@settings(deadline=None)
@given(st.floats(-0.99, 0.99))
def test_cepstrum_of_one_pole_is_its_logarithm_series(pole):
    result = lpc.cepstrum(np.array([[-pole, *np.zeros(19)]]))[0]
    np.testing.assert_allclose(result, [pole**n / n for n in range(1, 21)], rtol=1e-12, atol=1e-300)
