"""Stores that keep pair machines against the hardest rivals alone: what is on disk, what a claim reads, who may go."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import hostile
import numpy as np
import pytest
from populations import add, codebooks, content, pool_of
from safetensors.numpy import load, save

from pipeline.assessment import assess
from pipeline.config import Config, load_config
from pipeline.enrollment import enroll, remove_speaker
from pipeline.errors import ConfigError, MetricError, StoreFormatError, SystemUnavailableError
from pipeline.evaluation import Trial
from pipeline.machines.assembly import train_population
from pipeline.machines.population import Population
from pipeline.store import SpeakerStore
from pipeline.transfer import export_speakers, import_speakers
from pipeline.verification import Verifier

NAMES = ("ada", "bea", "cyd", "dov", "eli", "fay", "gus", "hal")
VOICES = ("anna", "dexter", "ivan", "lars", "greta", "hugo")


def settings_of(most: int | str) -> Config:
    kinds = 'machines.kinds=["one_vs_one","one_class"]'
    overrides = ["features.order=3", "features.deltas=false", "codebook.centroids=12", "scoring.system=worst_rival"]
    return load_config(None, [*overrides, kinds, f"machines.rivals={most}"])


def trained(names: tuple[str, ...], most: int | str, known: Population | None = None) -> Population:
    books = [codebooks(len(NAMES))[NAMES.index(name)] for name in names]
    return train_population(pool_of(books), settings_of(most).machines, known=known)


def written(path: Path, most: int | str, names: tuple[str, ...] = NAMES) -> SpeakerStore:
    return add(path, trained(names, most), names, settings_of(most))


def machines_of(population: Population) -> dict[str, np.ndarray]:
    """Every number of the pair machines."""
    found = {"nearest": population.rivals.nearest, "hardness": population.rivals.hardness}
    for later in range(len(population)):
        found[f"{later}"] = population.rival_machines.earlier(later)
        for earlier in found[f"{later}"].tolist():
            machine = population.rival_machines.machine(later, earlier)
            found |= {f"{later} {earlier} {name}": getattr(machine, name) for name in ("own", "rival", "bias")}
    return found


def assert_same(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)


def arrays_of(store: SpeakerStore) -> dict[str, np.ndarray]:
    """Every array of every file, by the speaker's place or the file's kind."""
    files = {str(place): file for place, file in enumerate(store.files.speakers())}
    if store.manifest.rivals is not None:
        files["rivals"] = store.files.rivals()
    return {f"{what} {name}": file.read(name) for what, file in files.items() for name in file.names()}


def ids_replaced(store: SpeakerStore) -> dict[str, np.ndarray]:
    """``arrays_of`` with places for ids, which are random."""
    place = {speaker.id: number for number, speaker in enumerate(store.speakers)}
    arrays = arrays_of(store)
    for name in [name for name in arrays if name.endswith("earlier")]:
        arrays[name] = np.array([place[one] for one in arrays[name].tolist()])
    return arrays


# On disk


@pytest.mark.parametrize("most", [1, 3, 7, 20])
def test_machines_read_from_disk_are_those_trained_bit_for_bit(tmp_path, most):
    store = written(tmp_path / "s", most)
    store.check_files()
    assert_same(machines_of(store.population()), machines_of(trained(NAMES, most)))


def test_a_store_of_all_rivals_is_written_as_before_there_was_the_setting(tmp_path):
    written(tmp_path / "s", "all")
    table = json.loads((tmp_path / "s" / "manifest.json").read_text())
    assert "rivals" not in table
    assert "rivals" not in table["config"]["machines"]
    assert table["version"] == 2
    assert not list((tmp_path / "s").glob("rivals*"))


def test_a_program_from_before_the_setting_finds_settings_that_it_does_not_know(tmp_path):
    """It refuses unknown keys both of the manifest and of the settings."""
    written(tmp_path / "s", 3)
    table = json.loads((tmp_path / "s" / "manifest.json").read_text())
    assert table["config"]["machines"]["rivals"] == 3
    assert table["rivals"]["name"].startswith("rivals-")


def test_files_hold_the_machines_that_there_are_and_no_more(tmp_path):
    some, every = (written(tmp_path / str(most), most) for most in (2, "all"))
    ours, theirs = ([len(file.read("earlier")) for file in store.files.speakers()] for store in (some, every))
    assert theirs == list(range(len(NAMES)))
    assert sum(ours) <= 2 * 2 * len(NAMES) < sum(theirs) + 5
    for file, count in zip(some.files.speakers(), ours, strict=True):
        assert len(file.read("own")) == len(file.read("bias")) == count


@pytest.mark.parametrize("most", [1, 2, 5])
@pytest.mark.parametrize("count", [1, 2, 6])
def test_enrolling_in_steps_gives_the_files_of_one_step(tmp_path, most, count):
    add(tmp_path / "s", trained(NAMES[:count], most), NAMES[:count], settings_of(most))
    for names in (NAMES[: count + 1], NAMES):
        known = SpeakerStore.open(tmp_path / "s").population()
        store = add(tmp_path / "s", trained(names, most, known), names[len(known) :], settings_of(most))
    assert_same(ids_replaced(store), ids_replaced(written(tmp_path / "t", most)))


def test_enrolling_more_leaves_the_files_of_earlier_speakers_alone(tmp_path):
    path = tmp_path / "s"
    add(path, trained(NAMES[:6], 2), NAMES[:6], settings_of(2))
    before = {name: digest for name, digest in content(path).items() if name.startswith("speakers/")}
    add(path, trained(NAMES, 2, SpeakerStore.open(path).population()), NAMES[6:], settings_of(2))
    assert before.items() <= content(path).items()


# Removal


@pytest.mark.parametrize("most", [1, 2, 4, 20])
@pytest.mark.parametrize("gone", ["ada", "dov", "hal"])
def test_removing_a_speaker_leaves_the_files_of_a_store_that_never_had_them(tmp_path, most, gone):
    written(tmp_path / "s", most)
    left = remove_speaker(tmp_path / "s", gone)
    left.check_files()
    expected = written(tmp_path / "t", most, tuple(name for name in NAMES if name != gone))
    assert_same(ids_replaced(left), ids_replaced(expected))


def test_everybody_can_be_removed_one_by_one_and_others_enrolled_after(tmp_path):
    written(tmp_path / "s", 3)
    for number, name in enumerate(NAMES):
        left = remove_speaker(tmp_path / "s", name)
        if NAMES[number + 1 :]:
            assert_same(machines_of(left.population()), machines_of(trained(NAMES[number + 1 :], 3)))
    assert left.speakers == ()
    assert left.manifest.rivals is None
    again = add(tmp_path / "s", trained(NAMES[:4], 3), NAMES[:4], settings_of(3))
    assert_same(machines_of(again.population()), machines_of(trained(NAMES[:4], 3)))


def test_removal_writes_the_files_of_those_alone_who_had_or_get_a_machine_by_it(tmp_path):
    store, gone = written(tmp_path / "s", 1), 2
    identity = store.speakers[gone].id
    touched = {
        speaker.name
        for speaker, file in zip(store.speakers, store.files.speakers(), strict=True)
        if identity in file.read("earlier")
    }
    left = remove_speaker(tmp_path / "s", NAMES[gone])
    old = {speaker.name: speaker.file.name for speaker in store.speakers}
    rewritten = {speaker.name for speaker in left.speakers if speaker.file.name != old[speaker.name]}
    assert touched <= rewritten < set(NAMES[gone + 1 :])


# What is refused


def changed(path: Path, number: int, change) -> Path:
    """The store at ``path`` with the arrays of one speaker's file changed, and vouched for."""
    name = SpeakerStore.open(path).speakers[number].file.name
    arrays = load((path / name).read_bytes())
    change(arrays)
    hostile.vouch_for(path, name, save({key: np.ascontiguousarray(array) for key, array in arrays.items()}))
    return path


def exchanged(arrays: dict[str, np.ndarray]) -> None:
    arrays["earlier"] = arrays["earlier"][::-1]


def unknown(arrays: dict[str, np.ndarray]) -> None:
    arrays["earlier"] = arrays["earlier"] + np.uint64(1)


def short(arrays: dict[str, np.ndarray]) -> None:
    arrays["rival"] = arrays["rival"][:-1]


def emptied(arrays: dict[str, np.ndarray]) -> None:
    for name in ("earlier", "own", "bias", "rival"):
        arrays[name] = arrays[name][:0]


@pytest.mark.parametrize("change", [exchanged, unknown, short, emptied])
def test_machines_that_are_not_those_of_earlier_speakers_in_order_are_a_format_error(tmp_path, change):
    written(tmp_path / "s", 3)
    changed(tmp_path / "s", 7, change)
    with pytest.raises(StoreFormatError, match=r"speakers/.*(earlier speakers|no pair machine)"):
        Verifier(SpeakerStore.open(tmp_path / "s"), "hal", threshold=0.5)


@pytest.mark.parametrize("row", [[0, 0, 1], [0, 1, 99], [0, 1, 7], [0, 1, 2**32 - 1]])
def test_rivals_who_are_nobody_or_twice_the_same_are_a_format_error(tmp_path, row):
    written(tmp_path / "s", 3)
    name = SpeakerStore.open(tmp_path / "s").manifest.rivals.name
    arrays = load((tmp_path / "s" / name).read_bytes())
    arrays["nearest"] = arrays["nearest"].copy()
    arrays["nearest"][7] = row
    hostile.vouch_for(tmp_path / "s", name, save(arrays))
    store = SpeakerStore.open(tmp_path / "s")
    with pytest.raises(StoreFormatError, match=r"rivals-1\.safetensors: array 'nearest'"):
        Verifier(store, "hal", threshold=0.5)
    with pytest.raises(StoreFormatError, match=r"rivals-1\.safetensors: array 'nearest'"):
        store.population()


def test_a_store_without_its_table_of_rivals_is_a_format_error(tmp_path):
    written(tmp_path / "s", 3)
    (tmp_path / "s" / SpeakerStore.open(tmp_path / "s").manifest.rivals.name).unlink()
    with pytest.raises(StoreFormatError, match=r"rivals-1\.safetensors"):
        Verifier(SpeakerStore.open(tmp_path / "s"), "hal", threshold=0.5)


@pytest.mark.parametrize("system", ["boao", "pkpd", "wu_lin_weng", "hastie_tibshirani"])
def test_a_rule_that_wants_every_pair_is_unavailable_and_says_why(tmp_path, system):
    store = written(tmp_path / "s", 3)
    assert system not in store.systems
    with pytest.raises(SystemUnavailableError, match=r"3 hardest rivals \(machines\.rivals\).*worst_rival"):
        Verifier(store, "ada", system=system, threshold=0.5)
    with pytest.raises(SystemUnavailableError):
        assess(store, [], tmp_path, systems=[system])


def test_such_a_rule_as_the_default_is_refused_at_enrollment(tmp_path, recordings, tiny_with):
    with pytest.raises(ConfigError, match=r"machines\.rivals: .*'boao'"):
        enroll(tmp_path / "s", {"anna": recordings["anna"]}, tiny_with("scoring.system=boao", "machines.rivals=2"))
    assert not (tmp_path / "s").exists()


# A claim reads its panel


def damaged(path: Path, store: SpeakerStore, spared: set[int], how: str) -> Path:
    """A copy of the store with the files of all but the ``spared`` speakers gone or garbage."""
    other = Path(shutil.copytree(store.path, path))
    for number, speaker in enumerate(store.speakers):
        if number not in spared:
            (other / speaker.file.name).unlink()
            if how == "garbage":
                (other / speaker.file.name).write_bytes(b"garbage")
    return other


@pytest.mark.parametrize("how", ["gone", "garbage"])
def test_a_claim_reads_no_file_but_those_of_its_panel(tmp_path, how):
    store, frames = written(tmp_path / "s", 2), np.random.default_rng(0).normal(0.0, 0.7, (50, 3))
    for claim, name in enumerate(NAMES):
        panel = set(store.panels([claim]).members[0].tolist())
        assert len(panel) == 3
        other = SpeakerStore.open(damaged(tmp_path / f"{how} {name}", store, panel, how))
        for system in ("poao", "rpoao", "worst_rival", "refined_worst_rival"):
            found, expected = (
                Verifier(one, name, system=system, threshold=0.5)._scorer._margins(frames) for one in (other, store)
            )
            np.testing.assert_array_equal(found.pair, expected.pair)
        with pytest.raises(StoreFormatError):
            other.check_files()
        with pytest.raises(StoreFormatError):
            other.population()
        with pytest.raises(StoreFormatError):
            Verifier(
                SpeakerStore.open(damaged(tmp_path / f"{how} {name} less", store, panel - {min(panel - {claim})}, how)),
                name,
                threshold=0.5,
            )


# On recordings


@pytest.fixture(scope="module")
def voiced(tmp_path_factory, recordings, tiny_with) -> dict[str, SpeakerStore]:
    """Six voices with two rivals each, with as many as there are, and with all."""
    folder, speakers = tmp_path_factory.mktemp("rivals"), {name: recordings[name] for name in VOICES}
    return {
        str(most): enroll(folder / str(most), speakers, tiny_with(f"machines.rivals={most}")).store
        for most in (2, 5, "all")
    }


def test_with_as_many_rivals_as_there_are_scores_and_thresholds_are_those_of_all_rivals(voiced, heard):
    some, every = voiced["5"], voiced["all"]
    assert set(every.systems) - set(some.systems) == {"boao"}
    for name, scores in some.trials.scores.items():
        np.testing.assert_allclose(scores, every.trials.scores[name], atol=1e-12, err_msg=name)
    for claim in VOICES[:3]:
        for system in some.systems:
            ours, theirs = (Verifier(one, claim, system=system) for one in (some, every))
            assert ours.rivals == theirs.rivals == 5
            assert ours.threshold == pytest.approx(theirs.threshold, abs=1e-9)
            found, expected = (one.verify_file(heard("ivan")) for one in (ours, theirs))
            assert found.score == pytest.approx(expected.score, abs=1e-9)
            assert found.llr == pytest.approx(expected.llr, abs=1e-6)
            assert (found.decision, found.frames) == (expected.decision, expected.frames)


def test_voices_are_accepted_as_themselves_and_nobody_else_in_panels(voiced, heard):
    for claim in VOICES:
        verifier = Verifier(voiced["2"], claim, system="fused")
        assert verifier.rivals == 5
        assert Verifier(voiced["2"], claim, system="worst_rival").rivals == 2
        for voice in VOICES:
            assert (verifier.verify_file(heard(voice)).decision == "accepted") == (claim == voice)


def test_a_lists_scores_are_those_of_each_claim_alone(voiced, heard):
    store = voiced["2"]
    trials = [Trial(claim, str(heard(voice)), claim == voice) for claim in VOICES for voice in VOICES[:2]]
    found = {(row.system, row.speaker, row.path): row for row in assess(store, trials, Path()).rows}
    for system in store.systems:
        for trial in trials[::3]:
            alone = Verifier(store, trial.speaker, system=system).verify_file(trial.path)
            row = found[system, trial.speaker, trial.path]
            assert row.score == pytest.approx(alone.score, abs=1e-12)
            assert row.llr == pytest.approx(alone.llr, abs=1e-9)


def test_thresholds_and_calibrations_know_of_how_many_a_panel_is(voiced):
    store = voiced["2"]
    trials, settings = store.trials, store.config.threshold
    assert set(trials.population.tolist()) == {len(VOICES)}
    for system, speakers in (("poao", 3), ("rpoao", 3), ("worst_rival", 3), ("fused", 6), ("poar", 6)):
        expected = trials.in_panels(speakers).threshold(
            system, population=speakers, prior=settings.prior, outsiders=settings.outsiders
        )
        assert store.threshold(system) == expected
        assert store.calibration(system) is not None
    assert store.early_calibration("refined_worst_rival") is not None
    with pytest.raises(MetricError):
        store.early_calibration("poar")


@pytest.mark.parametrize("settings", [(), ("posterior.kind=implied", "posterior.machines=5")])
def test_enrolling_one_by_one_gives_the_machines_of_all_at_once(tmp_path, recordings, tiny_with, heard, settings):
    config = tiny_with("machines.rivals=2", 'machines.kinds=["one_vs_one","one_class"]', *settings)
    for name in VOICES:
        found = enroll(tmp_path / "s", {name: recordings[name]}, config)
    expected = enroll(tmp_path / "t", {name: recordings[name] for name in VOICES}, config)
    assert found.machines <= 1 + len(VOICES) - 1
    assert_same(machines_of(found.store.population()), machines_of(expected.store.population()))
    ours, theirs = (Verifier(one.store, "ivan", threshold=0.5).verify_file(heard("ivan")) for one in (found, expected))
    assert ours.score == theirs.score


def test_removal_and_export_leave_the_same_store(voiced, tmp_path, heard):
    path = Path(shutil.copytree(voiced["2"].path, tmp_path / "s"))
    kept = ("dexter", "lars", "greta", "hugo")
    export_speakers(path, tmp_path / "x", kept)
    for name in ("anna", "ivan"):
        left = remove_speaker(path, name)
    found = import_speakers(tmp_path / "new", tmp_path / "x").store
    assert_same(arrays_of(found), arrays_of(left))
    for system in left.systems:
        ours, theirs = (Verifier(one, "lars", system=system).verify_file(heard("lars")) for one in (found, left))
        assert ours == theirs


def test_trials_scored_among_other_rivals_do_not_come_along(voiced, tmp_path, recordings, tiny_with):
    export_speakers(voiced["all"].path, tmp_path / "x", ["anna", "dexter"])
    config = tiny_with("machines.rivals=1", 'machines.kinds=["one_vs_one","one_class"]')
    others = enroll(tmp_path / "s", {name: recordings[name] for name in ("ivan", "lars", "greta")}, config).store
    found = import_speakers(tmp_path / "s", tmp_path / "x")
    assert found.held_out_trials == 0
    assert len(found.store.trials) == len(others.trials)
    assert found.store.population().rivals.nearest.shape == (5, 1)


def test_one_speaker_alone_and_then_two_are_verified(tmp_path, recordings, tiny_with, heard):
    config = tiny_with("machines.rivals=3")
    alone = enroll(tmp_path / "s", {"anna": recordings["anna"]}, config).store
    alone.check_files()
    assert Verifier(alone, "anna").rivals == 0
    assert Verifier(alone, "anna").verify_file(heard("anna")).decision == "accepted"
    two = enroll(tmp_path / "s", {"dexter": recordings["dexter"]}).store
    assert Verifier(two, "anna").verify_file(heard("anna")).decision == "accepted"
    assert Verifier(two, "anna").verify_file(heard("dexter")).decision == "rejected"
    left = remove_speaker(tmp_path / "s", "anna")
    assert Verifier(left, "dexter").verify_file(heard("dexter")).decision == "accepted"
