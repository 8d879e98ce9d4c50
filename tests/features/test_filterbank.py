"""Log mel bands: Kaldi's frames against the bands worked out with numpy, whatever the chunks, beside speech frames."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.config import FeatureSettings
from pipeline.errors import ConfigError
from pipeline.features.filterbank import LogMelStream
from pipeline.features.frontend import FrontEnd
from pipeline.features.stream import FeatureStream, joined

RATE = 16000


def tone(seconds: float = 1.0, seed: int = 0) -> np.ndarray:
    time = np.arange(int(seconds * RATE)) / RATE
    noise = np.random.default_rng(seed).normal(0.0, 0.02, time.size)
    return 0.3 * np.sin(2 * np.pi * 440 * time) * (1 + np.sin(2 * np.pi * 3 * time)) + noise


def bands_by_hand(samples: np.ndarray) -> np.ndarray:
    """Kaldi's bands: 25 ms less the mean, pre-emphasis, Povey's window, 512 points, 80 triangles from 20 Hz up."""
    mel = lambda hertz: 1127.0 * np.log(1.0 + hertz / 700.0)  # noqa: E731
    edges = np.linspace(mel(20.0), mel(8000.0), 82)
    bins = mel(np.arange(256) * RATE / 512)
    rising = (bins - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    falling = (edges[2:, None] - bins) / (edges[2:] - edges[1:-1])[:, None]
    triangles = np.maximum(0.0, np.minimum(rising, falling))
    window = (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(400) / 399)) ** 0.85
    rows = []
    for start in range(0, len(samples) - 399, 160):
        frame = samples[start : start + 400] - samples[start : start + 400].mean()
        frame = frame - 0.97 * np.concatenate((frame[:1], frame[:-1]))
        power = np.abs(np.fft.rfft(frame * window, 512)[:256]) ** 2
        rows.append(np.log(np.maximum(triangles @ power, np.finfo(np.float32).eps)))
    return np.array(rows)


@pytest.mark.parametrize("sizes", [[16000], [0, 1, 79, 80, 81, 399, 400, 401, 4096], [160] * 100])
def test_bands_are_kaldis_whatever_the_chunks(sizes):
    samples, stream, parts, at = tone(), LogMelStream(), [], 0
    for size in [*sizes, RATE]:
        parts.append(stream.push(samples[at : at + size]))
        at += size
    found = np.concatenate(parts)
    np.testing.assert_allclose(found, bands_by_hand(samples), rtol=0, atol=2e-3)
    assert np.array_equal(found, LogMelStream().push(samples))


@pytest.mark.parametrize("chunk", [16000, 77, 480])
def test_bands_stand_beside_the_frames_of_speech(chunk):
    samples = np.concatenate((np.zeros(RATE // 2), tone(2.0), 1e-4 * tone(1.0, 1), tone(0.5, 2)))
    settings = FeatureSettings(log_mel=True)
    stream, whole = FeatureStream(settings), bands_by_hand(samples)
    block = joined([*(stream.push(samples[at : at + chunk]) for at in range(0, len(samples), chunk)), stream.flush()])
    plain = FeatureStream(FeatureSettings())
    without = joined([plain.push(samples), plain.flush()])
    assert np.array_equal(block.vectors, without.vectors)
    assert block.of("embedding").shape == (len(block.vectors), 80)
    assert 100 < len(block.vectors) < block.frames
    # Each row is that of a frame of the whole signal, in order, and the pauses are left out.
    places = [int(np.abs(whole - row).max(axis=1).argmin()) for row in block.of("embedding")]
    np.testing.assert_allclose(whole[places], block.of("embedding"), rtol=0, atol=2e-3)
    assert np.all(np.diff(places) > 0)
    half = block.part(slice(3, 9)).of("embedding")
    assert np.array_equal(half, block.of("embedding")[3:9])


def test_audio_at_other_rates_is_resampled_before(tmp_path):
    front_end = FrontEnd(FeatureSettings(log_mel=True), 8000)
    block = joined([front_end.push(tone(2.0)[::2]), front_end.flush()])
    assert block.of("embedding").shape == (len(block.vectors), 80)


@pytest.mark.parametrize("changes", [{"rate": 8000}, {"step_ms": 12.5}, {"frame_ms": 20.0}])
def test_frames_must_be_those_of_encoders(changes):
    with pytest.raises(ConfigError, match=r"^FeatureSettings: log_mel: encoders are trained on frames every 10 ms at"):
        FeatureSettings(log_mel=True, **changes)
