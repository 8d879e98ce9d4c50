"""Stores with pair machines against each speaker's cohort alone: what is stored, what a claim reads, who may go."""

from __future__ import annotations

import shutil
from pathlib import Path

import hostile
import numpy as np
import pytest
from populations import add, cohorts_of
from score_rows import rows_of

from pipeline.enrollment.enroll import enroll
from pipeline.errors import ConfigError, InputError, MetricError, StoreFormatError
from pipeline.evaluation import Trial
from pipeline.evaluation.assess import assess
from pipeline.scoring.fitting import fit_threshold
from pipeline.store.model import SpeakerModel
from pipeline.store.store import Store
from pipeline.verification.policies import Threshold
from pipeline.verification.verifier import Verifier

NAMES = ("ada", "bea", "cyd", "dov", "eli", "fay", "gus", "hal")
VOICES = ("anna", "dexter", "ivan", "lars", "greta")


def claim(model: SpeakerModel, name: str, system: str | None = None) -> Verifier:
    return Verifier(model, name, system=system, decide_by=Threshold(0.5))


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A store of eight speakers with cohorts of three."""
    path = tmp_path_factory.mktemp("eight") / "s"
    add(path, NAMES, cohorts_of(3))
    return path


@pytest.fixture
def eight(made, tmp_path) -> Path:
    return Path(shutil.copy(made, tmp_path / "s"))


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
def test_a_pair_machine_that_cannot_be_is_refused_though_its_digest_holds(eight, what):
    hostile.edit(eight, BENT[what])
    for attempt in (lambda: claim(Store(eight).load(), "hal"), Store(eight).check):
        with pytest.raises(StoreFormatError, match=rf"{eight}: a pair machine"):
            attempt()


@pytest.mark.parametrize("row", [[0, 0, 1], [0, 1, 99], [0, 1, 7], [0, 1, 2**32 - 1]])
def test_a_cohort_of_nobody_or_of_one_twice_is_refused_though_its_digest_holds(eight, row):
    ((number, array),) = [(n, array) for n, name, array in hostile.arrays_in(eight) if name == "cohort.nearest"]
    hostile.put_array(eight, number, np.concatenate([array[:7], np.array([row], dtype=array.dtype)]))
    for attempt in (
        lambda: claim(Store(eight).load(), "hal"),
        Store(eight).check,
        lambda: Store(eight).load().population(),
    ):
        with pytest.raises(StoreFormatError, match=rf"{eight}: (array 'cohort\.nearest'|a pair machine)"):
            attempt()


def test_a_rule_over_every_pair_is_unavailable_and_refused_as_the_default(eight, tmp_path, recordings, tiny_with):
    model = Store(eight).load()
    assert "boao" not in model.systems
    with pytest.raises(InputError, match=r"cohort of 3 \(machines\.cohort\).*worst_rival"):
        claim(model, "ada", "boao")
    with pytest.raises(InputError):
        assess(model, [], tmp_path, systems=["boao"])
    with pytest.raises(ConfigError, match=r"'boao' needs .* cohort of 2 \(machines\.cohort\)"):
        enroll(tmp_path / "t", {"anna": recordings["anna"]}, tiny_with("scoring.system=boao", "machines.cohort=2"))
    assert not (tmp_path / "t").exists()


def test_a_claim_on_a_view_without_cohorts_is_refused_with_the_cause(eight):
    with pytest.raises(StoreFormatError, match=r"no pair machine of speakers .* a view \(view_without\)"):
        claim(Store(eight).load().view_without("ada"), "hal", "rpoao")


def test_a_claim_reads_the_rows_of_its_cohort_alone(tmp_path):
    path, bent = tmp_path / "s", tmp_path / "bent"
    sound, frames = add(path, NAMES, cohorts_of(2)), np.random.default_rng(0).normal(0.0, 0.7, (50, 3))
    for number, name in enumerate(NAMES[:3]):
        cohort = {number, *sound.cohort_table.nearest[number].tolist()}
        assert len(cohort) == 3
        for spared in (cohort, cohort - {min(cohort - {number})}):
            shutil.copy(path, bent)
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
            for attempt in (Store(bent).check, lambda: Store(bent).load().population()):
                with pytest.raises(StoreFormatError):
                    attempt()


# On recordings


@pytest.fixture(scope="module")
def voiced(tmp_path_factory, recordings, tiny_with) -> SpeakerModel:
    """Five voices with cohorts of two."""
    speakers = {name: recordings[name] for name in VOICES}
    return enroll(tmp_path_factory.mktemp("cohorts") / "s", speakers, tiny_with("machines.cohort=2")).model


def test_voices_are_accepted_as_themselves_and_nobody_else_in_cohorts(voiced, heard):
    for name in VOICES:
        verifier = Verifier(voiced, name, system="fused")
        assert verifier.competing == 4
        assert Verifier(voiced, name, system="worst_rival").competing == 2
        for voice in VOICES:
            assert (verifier.verify_file(heard(voice)).decision == "accepted") == (name == voice)


def test_the_scores_of_a_list_are_those_of_each_claim_alone(voiced, heard):
    trials = [Trial(name, str(heard(voice)), name == voice) for name in VOICES for voice in VOICES[:2]]
    rows = {(row.system, row.speaker, row.path): row for row in rows_of(assess(voiced, trials, Path()).scores)}
    for system in voiced.systems:
        for trial in trials[::3]:
            alone = Verifier(voiced, trial.speaker, system=system).verify_file(trial.path)
            row = rows[system, trial.speaker, trial.path]
            assert row.score == pytest.approx(alone.score, abs=1e-12)
            assert row.llr == pytest.approx(alone.llr, abs=1e-9)


def test_thresholds_and_calibrations_count_the_cohort_where_the_rule_does(voiced):
    model, trials = voiced, voiced.trials()
    assert set(trials.population.tolist()) == {len(VOICES)}
    for system, speakers in (("poao", 3), ("rpoao", 3), ("worst_rival", 3), ("supervector", 5), ("poar", 5)):
        expected = fit_threshold(trials.in_cohorts(speakers), system, population=speakers, unknown_share=model.unknown)
        assert model.threshold(system) == expected
        assert model.calibration(system) is not None
    assert model.sequential_calibration("refined_worst_rival") is not None
    with pytest.raises(MetricError):
        model.sequential_calibration("poar")
