"""Settings and stores made by hand: each opens and scores as its numbers say, or is refused by name."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import hostile
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import load, save
from test_hostile_input import bent, soon

from pipeline.config import load_config
from pipeline.enrollment import enroll
from pipeline.errors import ConfigError, MetricError, StoreFormatError
from pipeline.posteriors.machine_posteriors import evaluate
from pipeline.store import SpeakerStore
from pipeline.store_layout import POSTERIORS, SPEAKER, are_maps
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
    hostile.vouch_for(folder, path.relative_to(folder).as_posix(), save(changed))
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


# Fitted posteriors


@pytest.fixture(scope="module", params=["newton", "histogram"])
def fitted(request, tmp_path_factory, recordings, voices, tiny_with) -> Path:
    """A store whose maps are quadratics, and one whose maps are tables."""
    path = tmp_path_factory.mktemp("fitted") / "s"
    speakers = {name: recordings[name][:4] for name in voices[:3]}
    enroll(path, speakers, tiny_with(f"posterior.kind={request.param}"))
    return path


def test_fitted_posteriors_are_laid_out_as_the_tables_say(fitted, voices):
    store = SpeakerStore.open(fitted)
    store.check_files()
    names = [set(file.names()) for file in store.files.speakers()]
    kinds = ("pair", "one_class", "one_vs_rest")
    expected = {f"{kind}_{what}" for kind in kinds for what in ("map", "own_sample", "others_sample")}
    assert all(expected <= found for found in names)
    assert expected <= SPEAKER.keys()
    assert set(store.files.posteriors().names()) == set(POSTERIORS)


def bent_maps(maps: np.ndarray, how: str) -> np.ndarray:
    """Maps that no fit gives."""
    if how == "ends exchanged":
        return maps[..., [1, 0, *range(2, maps.shape[-1])]] if maps.shape[-1] > 3 else np.full_like(maps, np.inf)
    if how == "ends together":
        return np.zeros_like(maps) if maps.shape[-1] > 3 else maps[..., :2]
    return {
        "fewer numbers": maps[..., :2],
        "no numbers": maps[..., :0],
        "another map": maps[..., :-1],
        "infinite": np.full_like(maps, -np.inf),
        "huge": np.full_like(maps, 1e30),
        "flat": maps.ravel(),
        "whole numbers": np.zeros(maps.shape, dtype=np.int64),
    }[how]


BENT = (
    "ends exchanged", "ends together", "fewer numbers", "no numbers", "another map", "infinite", "huge", "flat",
    "whole numbers",
)  # fmt: skip


@pytest.mark.parametrize("how", BENT)
def test_maps_that_are_none_are_refused_though_checksums_hold(fitted, heard, tmp_path, how):
    for which in ("posteriors-*", "speakers/*"):
        folder = tmp_path / which.replace("*", "").replace("/", "")
        shutil.copytree(fitted, folder)
        path = sorted(folder.glob(which))[-1]
        arrays = load(path.read_bytes())
        name = "one_class_map" if which.startswith("speakers") else "pair_map"
        changed = bent_maps(arrays[name], how)
        if changed.shape == arrays[name].shape and np.array_equal(changed, arrays[name]):
            continue  # the pooled one is flat already
        hostile.vouch_for(
            folder, path.relative_to(folder).as_posix(), save({**arrays, name: np.ascontiguousarray(changed)})
        )
        with pytest.raises(StoreFormatError, match=re.escape(path.name)):
            SpeakerStore.open(folder).check_files()
        with pytest.raises(StoreFormatError, match=re.escape(path.name)):
            Verifier(SpeakerStore.open(folder), "anna", system="rpoao", threshold=0.0).verify_file(heard("anna"))


def test_pooled_maps_may_not_have_gaps_and_those_of_speakers_may(fitted, heard, tmp_path):
    folder = Path(shutil.copytree(fitted, tmp_path / "s"))
    for which, name in (("speakers/*", "one_class_map"), ("posteriors-*", "one_class_map")):
        path = sorted(folder.glob(which))[0]
        arrays = load(path.read_bytes())
        arrays[name] = np.full_like(arrays[name], np.nan)
        hostile.vouch_for(folder, path.relative_to(folder).as_posix(), save(arrays))
        opened = SpeakerStore.open(folder)
        if which == "speakers/*":
            update = Verifier(opened, "anna", system="rpoao", threshold=0.0).verify_file(heard("anna"))
            assert np.isfinite(update.score)
        else:
            with pytest.raises(StoreFormatError, match=re.escape(path.name)):
                Verifier(opened, "anna", system="rpoao", threshold=0.0)


@given(hnp.arrays(np.float64, st.tuples(st.integers(0, 3), st.integers(0, 6)), elements=st.floats(-1e15, 1e15)))
def test_maps_that_pass_give_numbers_for_every_margin(maps):
    if are_maps(maps) and len(maps):
        for dtype in (np.float32, np.float64):
            margins = np.array([-1e3, -1.0, 0.0, 1e-7, 1.0, 1e3], dtype=dtype)[:, None].repeat(len(maps), axis=1)
            with np.errstate(all="ignore"):
                found = evaluate(maps, margins)
            assert not np.isnan(found).any()


# Sizes


def test_a_file_that_grew_is_refused_before_it_is_read(store, tmp_path):
    folder = Path(shutil.copytree(store, tmp_path / "s"))
    path = next(folder.glob("segments-*"))
    hostile.sparse(path, path.read_bytes(), 2**35)
    with soon(), pytest.raises(StoreFormatError, match=rf"{path.name}: .* must have .* bytes, got 34,359,738,368"):
        SpeakerStore.open(folder).check_files()


def test_a_manifest_larger_than_any_is_refused_before_it_is_read(store, tmp_path):
    folder = Path(shutil.copytree(store, tmp_path / "s"))
    hostile.sparse(folder / "manifest.json", b"{", 2**25)
    with soon(), pytest.raises(StoreFormatError, match=r"manifest\.json: .*too large"):
        SpeakerStore.open(folder)
