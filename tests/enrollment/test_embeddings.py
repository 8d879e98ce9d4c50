"""Machines over embeddings: enrolled, stored, verified in any chunks, added to and removed, by a network made here."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile
from encoders import WEIGHTS, write_network
from populations import TINY
from sklearn.linear_model import Ridge

from benchmarks.encoder import settings_with
from pipeline.audio.corpus import Utterance
from pipeline.config import Config, load_config
from pipeline.enrollment.enroll import enroll
from pipeline.enrollment.removal import retrained_without
from pipeline.errors import ConfigError
from pipeline.features.frontend import read_features
from pipeline.machines.branches import EMBEDDING
from pipeline.scoring.rules import systems_of
from pipeline.server.messages import service_error
from pipeline.server.newest import NewestModel, VerifierSettings
from pipeline.store.model import SpeakerModel
from pipeline.store.store import Store
from pipeline.verification.verifier import Verifier

KINDS = ("one_class", "supervector", "embedding")
VOICES = ("anna", "dexter", "ivan", "lars")


@pytest.fixture(scope="module")
def network(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("network") / "encoder.onnx"


@pytest.fixture(scope="module")
def settings(network) -> Config:
    named = write_network(network)
    kept = [one for one in TINY if not one.startswith(("machines.kinds", "features.rate", "scoring.system"))]
    encoder = [f"embedding.path={named.path}", f"embedding.sha256={named.sha256}", "features.log_mel=true"]
    return load_config(None, [*kept, f"machines.kinds={json.dumps(KINDS)}", *encoder])


@pytest.fixture(scope="module")
def path(settings, recordings, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("embedded") / "s.store"
    enroll(path, {name: recordings[name] for name in VOICES}, settings)
    return path


@pytest.fixture
def model(path) -> SpeakerModel:
    return Store(path).load()


def embedding_by_hand(bands: np.ndarray) -> np.ndarray:
    """Mean over windows of 1.5 s of the unit vectors that the network makes, the last one's frames repeated."""
    windows = [bands[first : first + 150] for first in range(0, len(bands), 150)]
    made = [np.tanh((part - part.mean(axis=0)) @ WEIGHTS) for part in (np.resize(one, (150, 80)) for one in windows)]
    units = [rows.mean(axis=0) / np.linalg.norm(rows.mean(axis=0)) for rows in made]
    return np.average(units, axis=0, weights=[*map(len, windows)])


def test_scores_are_those_of_a_ridge_regression_on_embeddings(model, heard):
    assert model.systems == systems_of(KINDS) == (
        "supervector", "supervector_rival", "embedding", "embedding_rival", "fused",
    )  # fmt: skip
    rows = model.segments(EMBEDDING)
    everybody = np.concatenate(rows).astype(np.float64)
    mean = everybody.mean(axis=0)
    units = (everybody - mean) / np.linalg.norm(everybody - mean, axis=1, keepdims=True)
    counts = np.repeat([*map(len, rows)], [*map(len, rows)])
    own = np.repeat(np.arange(4), [*map(len, rows)])
    targets = np.where(own[:, None] == np.arange(4), 1.0, -1.0 / 3)
    ridge = model.config.embedding.ridge
    # The mean squared error of each voice counts alike; targets are less their mean over segments.
    weights = counts.mean() / counts
    machine = Ridge(alpha=ridge, fit_intercept=False).fit(units, targets - targets.mean(axis=0), sample_weight=weights)
    speech = read_features(Utterance("", heard("ivan")), model.config.features)
    vector = embedding_by_hand(speech.of("embedding")) - mean
    margins = machine.predict((vector / np.linalg.norm(vector))[None])[0]
    for n, name in enumerate(VOICES):
        score = Verifier(model, name, system="embedding").verify_file(heard("ivan")).score
        assert score == pytest.approx(margins[n], abs=2e-3)
        rival = Verifier(model, name, system="embedding_rival").verify_file(heard("ivan")).score
        assert rival == pytest.approx(margins[n] - np.delete(margins, n).max(), abs=4e-3)
    assert margins.argmax() == 2


@pytest.mark.parametrize("size", [80, 1234, 8000])
def test_a_stream_has_the_score_of_its_file_whatever_the_chunks(model, heard, size):
    samples, rate = soundfile.read(heard("anna"))
    for system in ("embedding_rival", "fused"):
        verifier = Verifier(model, "anna", system=system, update_ms=0)
        stream = verifier.stream(rate)
        for at in range(0, len(samples), size):
            stream.push(samples[at : at + size])
        assert stream.close().score == pytest.approx(verifier.verify_file(heard("anna")).score, abs=1e-9)


def test_the_sum_reads_embeddings(model, heard):
    assert {"embedding", "embedding_rival"} < set(model.calibration("fused").systems)
    decisions = [[Verifier(model, claim).verify_file(heard(name)).decision for claim in VOICES] for name in VOICES]
    expected = [["accepted" if claim == name else "rejected" for claim in VOICES] for name in VOICES]
    assert decisions == expected


def test_speakers_are_added_and_removed(path, settings, recordings, heard, tmp_path):
    copied = tmp_path / "s.store"
    enroll(copied, {name: recordings[name] for name in VOICES[:3]}, settings)
    grown = enroll(copied, {"lars": recordings["lars"]}).model
    whole = Store(path).load()
    assert grown.names == whole.names
    assert Verifier(grown, "lars", system="embedding_rival").verify_file(heard("lars")).score > 0
    rest = retrained_without(whole, "ivan")
    assert rest.names == ("anna", "dexter", "lars")
    assert len(rest.segments(EMBEDDING)) == 3
    assert Verifier(rest, "lars", system="embedding").verify_file(heard("lars")).score > 0


def test_another_network_under_the_same_path_is_refused(path, network, heard):
    content = network.read_bytes()
    try:
        write_network(network, WEIGHTS + np.float32(1e-3))
        # In a process that has the right one in memory already, that one stays.
        from pipeline.machines import encoder

        encoder._network.cache_clear()
        encoder._embedded.cache_clear()
        with pytest.raises(ConfigError, match=r"embedding\.sha256: the SHA-256 of .* should be"):
            Verifier(Store(path).load(), "anna").verify_file(heard("anna"))
    finally:
        network.write_bytes(content)


def test_callers_of_the_service_are_not_told_where_the_network_is(path, network):
    newest = NewestModel(VerifierSettings(path, most=1))
    assert newest.aliases == []
    assert newest.current() is not None
    told = service_error(ConfigError(f"embedding.path: {network}: cannot be read"), newest.aliases)
    assert told.detail == "embedding.path: the encoder: cannot be read"


def test_the_benchmarks_settings_are_the_default_with_the_encoder(network, settings, tmp_path):
    path = tmp_path / "encoder.toml"
    path.write_text(settings_with(network))
    made, default = load_config(path), Config()
    assert made.machines.kinds == (*default.machines.kinds, "embedding")
    assert (made.embedding.path, made.embedding.sha256) == (str(network), settings.embedding.sha256)
    unchanged = {"features": default.features, "machines": default.machines, "embedding": default.embedding}
    assert made.model_copy(update=unchanged) == default


@pytest.mark.parametrize(
    ("changes", "missing"),
    [
        ([], "embedding.path, embedding.sha256, features.log_mel = true"),
        (["embedding.path=x.onnx", f"embedding.sha256={'0' * 64}"], "features.log_mel = true"),
        (["embedding.path=x.onnx", "features.log_mel=true"], "embedding.sha256"),
    ],
)
def test_what_an_encoder_needs_is_named(changes, missing):
    with pytest.raises(ConfigError, match=f"settings: machines.kinds has embedding, which needs {missing}$"):
        load_config(None, ['machines.kinds=["one_class", "embedding"]', *changes])
