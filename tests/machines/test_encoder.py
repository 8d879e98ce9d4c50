"""Embeddings by a network: windows and running means against the network worked out by hand, and what is refused."""

from __future__ import annotations

import hashlib
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from encoders import WEIGHTS, network, write_network

from pipeline.config import EmbeddingConfig
from pipeline.errors import ConfigError
from pipeline.machines.encoder import Encoder

WINDOW = 150


@pytest.fixture
def settings(tmp_path) -> EmbeddingConfig:
    return write_network(tmp_path / "encoder.onnx")


def embedding_by_hand(window: np.ndarray) -> np.ndarray:
    """The network's embedding of a window: mean over frames of tanh(x W), of length 1."""
    made = np.tanh((window - window.mean(axis=0)) @ WEIGHTS).mean(axis=0)
    return made / np.linalg.norm(made)


def bands(frames: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(-5.0, 3.0, (frames, 80)).astype(np.float32)


@pytest.mark.parametrize("frames", [3, 149, 150, 151, 300, 517])
@pytest.mark.parametrize("cuts", [[], [1, 2, 149, 150, 151], [70, 70, 310]])
def test_an_utterance_has_the_mean_of_its_windows_however_it_comes(settings, frames, cuts):
    encoder, x, sums = Encoder(settings), bands(frames), None
    for first, last in pairwise([0, *(cut for cut in cuts if cut < frames), frames]):
        sums = encoder.running_sums(x[first:last], np.zeros(last - first), sums)
        sums.flags.writeable = False  # a stream may be asked what it would be with more frames
    windows = [x[first : first + WINDOW] for first in range(0, frames, WINDOW)]
    repeated = [np.concatenate([window] * WINDOW)[:WINDOW] for window in windows]
    expected = np.average([*map(embedding_by_hand, repeated)], axis=0, weights=[*map(len, windows)])
    assert encoder.dimension == WEIGHTS.shape[1]
    np.testing.assert_allclose(encoder.utterance_statistics(sums), expected[None], rtol=0, atol=1e-6)
    whole = encoder.running_sums(x, np.zeros(frames))
    assert np.array_equal(encoder.utterance_statistics(whole), encoder.utterance_statistics(sums))  # bit for bit
    assert np.array_equal(encoder.statistics(*encoder.weighed(x, np.ones(frames))), encoder.utterance_statistics(whole))


def test_loudness_and_channel_are_gone_with_the_mean_of_a_window(settings):
    encoder, x = Encoder(settings), bands(300)
    plain, shifted = (
        encoder.utterance_statistics(encoder.running_sums(part, np.zeros(300)))
        for part in (x, x + np.linspace(-2, 2, 80))
    )
    np.testing.assert_allclose(plain, shifted, atol=1e-5)


def refused(path: Path, content: bytes | None, **changes: object) -> str:
    if content is not None:
        path.write_bytes(content)
    digest = hashlib.sha256(content or b"").hexdigest()
    settings = EmbeddingConfig(**{"path": str(path), "sha256": digest, **changes})
    with pytest.raises(ConfigError) as raised:
        Encoder(settings).dimension  # noqa: B018
    return str(raised.value)


def test_a_network_too_large_to_read_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("pipeline.machines.encoder.MOST_BYTES", 1000)
    assert refused(tmp_path / "n.onnx", network()).endswith("cannot be read: too large: at most 1,000 bytes are read")


def test_what_is_wrong_with_a_network_is_said_with_the_setting(tmp_path):
    path, good = tmp_path / "n.onnx", network()
    assert refused(path, None).startswith(f"embedding.path: {path}: cannot be read: No such file")
    message = refused(path, good, sha256="0" * 64)
    assert message.startswith(f"embedding.sha256: the SHA-256 of {path} should be {'0' * 64}, got ")
    assert "not a network in ONNX's format" in refused(path, b"no network at all")
    assert "not a network in ONNX's format" in refused(path, good[: len(good) // 2])
    assert "(1, 150, 80) log mel bands expected" in refused(path, network(bands=40))
    assert "(1, 100, 80) log mel bands expected" in refused(path, network(frames=150), segment_seconds=1.0)
    assert "one input expected, got 2" in refused(path, network(inputs=2))
    assert "got the shape (1, 150, 16)" in refused(path, network(pooled=False))
    assert "got numbers that are not finite" in refused(path, network(weights=np.full((80, 3), np.nan)))
    with pytest.raises(ConfigError, match=r"^EmbeddingConfig: sha256: must be text that matches pattern"):
        EmbeddingConfig(path="x", sha256="ABC")
