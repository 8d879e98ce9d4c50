"""Stores with pair machines against each speaker's cohort alone: what is stored, what a claim reads, who may go."""

from __future__ import annotations

import shutil
from pathlib import Path

import hostile
import numpy as np
import pytest
from populations import add, assert_same, cohorts_of, model_of

from pipeline.enrollment.enroll import enroll
from pipeline.enrollment.removal import remove_speaker
from pipeline.errors import ConfigError, InputError, MetricError, StoreFormatError
from pipeline.evaluation import Trial
from pipeline.evaluation.assess import assess
from pipeline.store.model import SpeakerModel
from pipeline.store.store import Store
from pipeline.verification.policies import Threshold
from pipeline.verification.verifier import Verifier

NAMES = ("ada", "bea", "cyd", "dov", "eli", "fay", "gus", "hal")
VOICES = ("anna", "dexter", "ivan", "lars", "greta", "hugo")


def claim(model: SpeakerModel, name: str, system: str | None = None) -> Verifier:
    return Verifier(model, name, system=system, decide_by=Threshold(0.5))


@pytest.mark.parametrize("most", [1, 3, 7, 20])
def test_what_is_read_back_is_what_was_trained_bit_for_bit(tmp_path, most):
    add(tmp_path / "s", NAMES, cohorts_of(most))
    assert_same(Store(tmp_path / "s").check(), model_of(NAMES, cohorts_of(most)))


def test_the_machines_that_there_are_and_no_more_are_stored(tmp_path):
    for most in (2, "all"):
        add(tmp_path / str(most), NAMES, cohorts_of(most))
    some, every = (hostile.query(tmp_path / which, "SELECT count(*) FROM pair")[0][0] for which in ("2", "all"))
    assert every == 28
    assert 8 <= some <= 2 * 2 * len(NAMES)
    assert some < every


@pytest.mark.parametrize("most", [1, 2, 5])
@pytest.mark.parametrize("count", [1, 2, 6])
def test_enrolling_in_steps_stores_the_numbers_of_one_step(tmp_path, most, count):
    for names in (NAMES[:count], NAMES[count : count + 1], NAMES[count + 1 :]):
        model = add(tmp_path / "s", names, cohorts_of(most))
    assert_same(model, model_of(NAMES, cohorts_of(most)))


@pytest.mark.parametrize("most", [1, 2, 4, 20])
@pytest.mark.parametrize("gone", ["ada", "dov", "hal"])
def test_removing_a_speaker_leaves_the_numbers_of_a_store_that_never_had_them(tmp_path, most, gone):
    add(tmp_path / "s", NAMES, cohorts_of(most))
    remove_speaker(tmp_path / "s", gone)
    expected = model_of(tuple(name for name in NAMES if name != gone), cohorts_of(most))
    assert_same(Store(tmp_path / "s").check(), expected)


def test_everybody_can_be_removed_one_by_one_and_others_enrolled_after(tmp_path):
    add(tmp_path / "s", NAMES, cohorts_of(3))
    for number, name in enumerate(NAMES[:-1], start=1):
        assert_same(remove_speaker(tmp_path / "s", name), model_of(NAMES[number:], cohorts_of(3)))
    assert remove_speaker(tmp_path / "s", NAMES[-1]).speakers == ()
    assert_same(add(tmp_path / "s", NAMES[:4], cohorts_of(3)), model_of(NAMES[:4], cohorts_of(3)))


# What is refused

BENT = {
    "sides exchanged": "UPDATE pair SET own = rival, rival = own",
    "a coefficient short": "UPDATE pair SET own = substr(own, 9)",
    "a coefficient long": "UPDATE pair SET rival = CAST(rival || x'2020202020202020' AS BLOB)",
    "half a coefficient": "UPDATE pair SET rival = substr(rival, 5)",
    "no coefficients": "UPDATE pair SET rival = x''",
    "not finite": "UPDATE pair SET own = CAST(x'000000000000f07f' || substr(own, 9) AS BLOB)",
    "an infinite bias": "UPDATE pair SET bias = 9e999",
    "a bias of text": "UPDATE pair SET bias = 'a'",
    "coefficients of text": "UPDATE pair SET own = 'a'",
    "gone": "DELETE FROM pair",
}


@pytest.mark.parametrize("what", BENT)
def test_a_pair_machine_that_cannot_be_is_refused_though_its_digest_holds(tmp_path, what):
    path = tmp_path / "s"
    add(path, NAMES, cohorts_of(3))
    hostile.edit(path, BENT[what])
    for attempt in (lambda: claim(Store(path).load(), "hal"), Store(path).check):
        with pytest.raises(StoreFormatError, match=rf"{path}: a pair machine"):
            attempt()


@pytest.mark.parametrize("row", [[0, 0, 1], [0, 1, 99], [0, 1, 7], [0, 1, 2**32 - 1]])
def test_a_cohort_of_nobody_or_of_one_twice_is_refused_though_its_digest_holds(tmp_path, row):
    path = tmp_path / "s"
    add(path, NAMES, cohorts_of(3))
    ((number, array),) = [(n, array) for n, name, array in hostile.arrays_in(path) if name == "cohort.nearest"]
    array = array.copy()
    array[7] = row
    hostile.put_array(path, number, array)
    for attempt in (
        lambda: claim(Store(path).load(), "hal"),
        Store(path).check,
        lambda: Store(path).load().population(),
    ):
        with pytest.raises(StoreFormatError, match=rf"{path}: (array 'cohort\.nearest'|a pair machine)"):
            attempt()


def test_a_rule_that_wants_every_pair_is_unavailable_and_refused_as_the_default(tmp_path, recordings, tiny_with):
    model = add(tmp_path / "s", NAMES, cohorts_of(3))
    assert "boao" not in model.systems
    with pytest.raises(InputError, match=r"cohort of 3 \(machines\.cohort\).*worst_rival"):
        claim(model, "ada", "boao")
    with pytest.raises(InputError):
        assess(model, [], tmp_path, systems=["boao"])
    with pytest.raises(ConfigError, match=r"machines\.cohort: .*'boao'"):
        enroll(tmp_path / "t", {"anna": recordings["anna"]}, tiny_with("scoring.system=boao", "machines.cohort=2"))
    assert not (tmp_path / "t").exists()


def test_a_claim_needs_no_sound_row_but_those_of_its_cohort(tmp_path):
    path = tmp_path / "s"
    sound, frames = add(path, NAMES, cohorts_of(2)), np.random.default_rng(0).normal(0.0, 0.7, (50, 3))
    for number, name in enumerate(NAMES):
        cohort = {number, *sound.cohort_table.nearest[number].tolist()}
        assert len(cohort) == 3
        for spared in (cohort, cohort - {min(cohort - {number})}):
            bent = Path(shutil.copy(path, tmp_path / "bent"))
            for other in set(range(len(NAMES))) - spared:
                identity = sound.speakers[other].id
                hostile.edit(bent, "UPDATE array SET data = x'00' WHERE owner = ?", identity, vouch=False)
            if spared == cohort:
                for system in ("poao", "rpoao", "worst_rival", "refined_worst_rival"):
                    ours, theirs = (
                        claim(model, name, system)._scorer._margins(frames) for model in (Store(bent).load(), sound)
                    )
                    np.testing.assert_array_equal(ours.pair, theirs.pair)
            else:
                with pytest.raises(StoreFormatError):
                    claim(Store(bent).load(), name)
            with pytest.raises(StoreFormatError):
                Store(bent).check()
            with pytest.raises(StoreFormatError):
                Store(bent).load().population()


# On recordings


@pytest.fixture(scope="module")
def voiced(tmp_path_factory, recordings, tiny_with) -> dict[str, SpeakerModel]:
    """Six voices with cohorts of two, of as many as there are, and with everybody."""
    folder, speakers = tmp_path_factory.mktemp("cohorts"), {name: recordings[name] for name in VOICES}
    return {
        str(most): enroll(folder / str(most), speakers, tiny_with(f"machines.cohort={most}")).model
        for most in (2, 5, "all")
    }


def test_cohorts_of_as_many_as_there_are_score_and_decide_like_everybody(voiced, heard):
    some, every = voiced["5"], voiced["all"]
    assert set(every.systems) - set(some.systems) == {"boao"}
    for name, scores in some.trials().scores.items():
        np.testing.assert_allclose(scores, every.trials().scores[name], atol=1e-12, err_msg=name)
    for name in VOICES[:3]:
        for system in some.systems:
            ours, theirs = (Verifier(model, name, system=system) for model in (some, every))
            assert ours.competing == theirs.competing == 5
            assert some.threshold(system) == pytest.approx(every.threshold(system), abs=1e-9)
            found, expected = (one.verify_file(heard("ivan")) for one in (ours, theirs))
            assert found.score == pytest.approx(expected.score, abs=1e-9)
            assert found.llr == pytest.approx(expected.llr, abs=1e-6)
            assert (found.decision, found.frames) == (expected.decision, expected.frames)


def test_voices_are_accepted_as_themselves_and_nobody_else_in_cohorts(voiced, heard):
    for name in VOICES:
        verifier = Verifier(voiced["2"], name, system="fused")
        assert verifier.competing == 5
        assert Verifier(voiced["2"], name, system="worst_rival").competing == 2
        for voice in VOICES:
            assert (verifier.verify_file(heard(voice)).decision == "accepted") == (name == voice)


def test_the_scores_of_a_list_are_those_of_each_claim_alone(voiced, heard):
    model = voiced["2"]
    trials = [Trial(name, str(heard(voice)), name == voice) for name in VOICES for voice in VOICES[:2]]
    rows = {(row.system, row.speaker, row.path): row for row in assess(model, trials, Path()).rows}
    for system in model.systems:
        for trial in trials[::3]:
            alone = Verifier(model, trial.speaker, system=system).verify_file(trial.path)
            row = rows[system, trial.speaker, trial.path]
            assert row.score == pytest.approx(alone.score, abs=1e-12)
            assert row.llr == pytest.approx(alone.llr, abs=1e-9)


def test_thresholds_and_calibrations_count_the_cohort_where_the_rule_does(voiced):
    model = voiced["2"]
    trials = model.trials()
    assert set(trials.population.tolist()) == {len(VOICES)}
    for system, speakers in (("poao", 3), ("rpoao", 3), ("worst_rival", 3), ("fused", 6), ("poar", 6)):
        expected = trials.in_cohorts(speakers).threshold(
            system,
            population=speakers,
            calibration=model.calibration(system) if system == "fused" else None,
            unknown_share=model.unknown,
        )
        assert model.threshold(system) == expected
        assert model.calibration(system) is not None
    assert model.sequential_calibration("refined_worst_rival") is not None
    with pytest.raises(MetricError):
        model.sequential_calibration("poar")


def test_enrolling_voices_one_by_one_trains_the_machines_of_all_at_once(tmp_path, recordings, tiny_with, heard):
    config = tiny_with("machines.cohort=2", 'machines.kinds=["one_vs_one","one_class"]')
    for name in VOICES:
        report = enroll(tmp_path / "s", {name: recordings[name]}, config)
    expected = enroll(tmp_path / "t", {name: recordings[name] for name in VOICES}, config).model
    assert report.machines <= 1 + len(VOICES) - 1
    ours, theirs = ({**model.population().pairs.against(2)} for model in (report.model, expected))
    assert ours.keys() == theirs.keys()
    np.testing.assert_array_equal(report.model.cohort_table.nearest, expected.cohort_table.nearest)
    assert claim(report.model, "ivan").verify_file(heard("ivan")).score == (
        claim(expected, "ivan").verify_file(heard("ivan")).score
    )


def test_one_speaker_alone_and_then_two_are_verified(tmp_path, recordings, tiny_with, heard):
    path = tmp_path / "s"
    alone = enroll(path, {"anna": recordings["anna"]}, tiny_with("machines.cohort=3")).model
    Store(path).check()
    assert Verifier(alone, "anna").competing == 0
    assert Verifier(alone, "anna").verify_file(heard("anna")).decision == "accepted"
    two = enroll(path, {"dexter": recordings["dexter"]}).model
    assert Verifier(two, "anna").verify_file(heard("anna")).decision == "accepted"
    assert Verifier(two, "anna").verify_file(heard("dexter")).decision == "rejected"
    left = remove_speaker(path, "anna")
    assert Verifier(left, "dexter").verify_file(heard("dexter")).decision == "accepted"
