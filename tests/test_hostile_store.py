"""Settings and stores made by hand: each opens and scores as its numbers say, or is refused by name."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import load, save
from test_hostile_input import bent, soon

from pipeline.config import load_config
from pipeline.errors import ConfigError, MetricError, StoreFormatError
from pipeline.store import SpeakerStore
from pipeline.verification import Verifier

SETTINGS = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.parametrize(
    "text",
    [
        "x = " + "[" * 20_000,
        "x = " + "[\n" * 20_000,
        "x = " + "{a=" * 5000,
        ".".join(["a"] * 20_000) + " = 1",
        "[" + ".".join(["a"] * 200_000) + "]",
        "seed = " + "9" * 5000,
        "seed = 0x" + "f" * 100_000,
        "seed = 1\0",
        "# " + "x" * 2**20,
        "[scoring]\nmin_seconds = 1e308",
    ],
)
def test_settings_that_would_take_for_ever_are_refused_by_name(tmp_path, text):
    path = tmp_path / "settings.toml"
    path.write_text(text)
    with soon(), pytest.raises(ConfigError, match=r"settings\.toml: ") as caught:
        load_config(path)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("override", ["seed=" + "[" * 20_000, "seed=" + "9" * 5000, ".".join(["a"] * 20_000) + "=1"])
def test_an_override_that_would_take_for_ever_is_refused(override):
    with soon(), pytest.raises(ConfigError):
        load_config(None, [override])


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_pipes_in_the_places_of_settings_and_manifests_are_not_waited_for(tmp_path):
    for name in ("settings.toml", "manifest.json"):
        os.mkfifo(tmp_path / name)
    with soon(), pytest.raises(ConfigError, match=r"settings\.toml: .*named pipe"):
        load_config(tmp_path / "settings.toml")
    with soon(), pytest.raises(StoreFormatError, match=r"manifest\.json: .*named pipe"):
        SpeakerStore.open(tmp_path)


def vouch_for(store: Path, name: str, data: bytes) -> None:
    """Put ``data`` in the place of a file, and its checksum into the manifest, as whoever can write both would."""
    (store / name).write_bytes(data)
    text = (store / "manifest.json").read_text(encoding="utf-8")

    def renewed(record: dict) -> dict:
        return {**record, "sha256": hashlib.sha256(data).hexdigest()} if record.get("name") == name else record

    (store / "manifest.json").write_text(json.dumps(json.loads(text, object_hook=renewed)), encoding="utf-8")


@settings(SETTINGS, max_examples=60)
@given(st.data())
def test_a_store_whose_arrays_do_not_fit_each_other_is_refused_though_checksums_hold(store, heard, tmp_path, data):
    folder = tmp_path / "bent.store"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(store, folder)
    path = data.draw(st.sampled_from(sorted(folder.rglob("*.safetensors"))))
    arrays = load(path.read_bytes())
    name = data.draw(st.sampled_from(sorted(name for name in arrays if arrays[name].size)))
    how = data.draw(st.sampled_from(["left out", "longer", "shorter", "narrower", "another kind", "NaN", "huge"]))
    changed = {key: np.ascontiguousarray(values) for key, values in bent(arrays, name, how).items()}
    vouch_for(folder, path.relative_to(folder).as_posix(), save(changed))
    try:
        opened = SpeakerStore.open(folder)
        for system in opened.systems:
            score = Verifier(opened, "anna", system=system, threshold=0.0).verify_file(heard("anna")).score
            assert score is not None
            assert np.isfinite(score)
        opened.stretches()
    except StoreFormatError as error:
        assert str(folder) in str(error)
    except MetricError:
        assert "calibration" in path.name  # fewer held-out trials, or none of a system
