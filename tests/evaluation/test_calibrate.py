"""Calibration to own trials: what is kept of them, what is fitted to them, and how long they stay."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import hostile
import numpy as np
import populations
import pytest
import soundfile

from pipeline.audio.channels import telephone
from pipeline.enrollment import heldout_scoring, holdout
from pipeline.enrollment.enroll import enroll
from pipeline.enrollment.removal import remove_speaker
from pipeline.errors import InputError, StoreFormatError, StoreMissingError, UnknownSpeakerError
from pipeline.evaluation import Trial, trials_of_folder
from pipeline.evaluation.assess import assess
from pipeline.evaluation.calibrate import calibrate, reset_calibration
from pipeline.evaluation.measure import measure
from pipeline.metrics import equal_error_rate
from pipeline.scoring.rules import RULES
from pipeline.scoring.trials import CHANGED, NOBODY, OWN, RECORDED
from pipeline.store.export import export_speaker
from pipeline.store.model import SpeakerModel
from pipeline.store.store import Store
from pipeline.verification.audit import check_log
from pipeline.verification.policies import Sequential
from pipeline.verification.verifier import Verifier

SYSTEMS = tuple(name for name in populations.SYSTEMS if not RULES[name].parts)
STRANGERS = ("marta", "bruno", "clara")  # whom nobody enrolls


@pytest.fixture(scope="module")
def lists(tmp_path_factory, demo, voices) -> tuple[Path, list[Trial], list[Trial]]:
    """Telephone versions of files of four voices and three strangers: their folder, and two lists without a file in
    common."""
    root, trials = tmp_path_factory.mktemp("telephone"), ([], [])
    for name in (*voices, *STRANGERS):
        for number, file in enumerate(sorted((demo / "verify" / name).glob("*.flac"))):
            samples, rate = soundfile.read(file)
            path = f"{name}-{number}.wav"
            soundfile.write(root / path, telephone(samples, rate), rate)
            trials[number % 2].extend(Trial(claim, path, claim == name) for claim in voices)
    return root, *trials


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory, store, lists) -> SpeakerModel:
    """The session's store calibrated to the first list. Many tests read it."""
    path = Path(shutil.copy(store, tmp_path_factory.mktemp("calibrated") / "s"))
    return calibrate(path, lists[1], lists[0]).model


@pytest.fixture
def own(calibrated, tmp_path) -> Path:
    """A copy of the calibrated store, free to be changed."""
    return Path(shutil.copy(calibrated.where, tmp_path / "own.store"))


def costs(model: SpeakerModel, trials: list[Trial], root: Path, systems=SYSTEMS) -> dict[str, tuple[float, ...]]:
    """Equal error rate, the mean of both error rates at the store's threshold, and Cllr, of each system."""
    result = {}
    for system, scores in assess(model, trials, root, systems=systems).scores.items():
        metrics = measure(scores, threshold=model.threshold(system), seed=0)
        rates = metrics.at_store_threshold
        result[system] = metrics.eer.rate, (rates.false_accept + rates.false_reject) / 2, metrics.cllr
    return result


# What is fitted


def test_on_other_files_of_the_same_line_errors_and_ratios_cost_less_and_systems_rank_trials_as_before(
    opened, calibrated, lists
):
    root, _, others = lists
    before, after = costs(opened, others, root), costs(calibrated, others, root)
    assert {name: rates[0] for name, rates in after.items()} == {name: rates[0] for name, rates in before.items()}
    assert all(calibrated.threshold(name) != opened.threshold(name) for name in SYSTEMS)
    means = np.mean([before[name][1:] for name in SYSTEMS], 0), np.mean([after[name][1:] for name in SYSTEMS], 0)
    assert (means[1] < 0.9 * means[0]).all(), means


def test_a_sum_of_systems_is_weighed_for_the_line_in_use(tmp_path, recordings, voices, tiny_with, lists):
    root, fitted, others = lists
    settings = tiny_with("scoring.system=fused")
    model = enroll(tmp_path / "s", {name: recordings[name] for name in voices}, settings).model
    report = calibrate(tmp_path / "s", fitted, str(root))
    assert report.after.eer <= report.before.eer
    assert report.after.cllr < report.before.cllr
    (before,), (after,) = (costs(one, others, root, ["fused"]).values() for one in (model, report.model))
    assert after[0] <= before[0]
    assert after[2] < 0.8 * before[2]


def test_own_trials_are_of_one_condition_and_no_other_is_weighed(tmp_path, recordings, voices, tiny_with, lists):
    settings = tiny_with("scoring.system=fused", 'augmentation.kinds=["telephone"]')
    enroll(tmp_path / "s", {name: recordings[name] for name in voices[:3]}, settings)
    fitted = [trial for of in lists[1:] for trial in of if trial.speaker in voices[:3]]
    before = Store(tmp_path / "s").load()
    assert before.calibrations.whole["fused"].changed is not None
    model = calibrate(tmp_path / "s", fitted + fitted, lists[0]).model
    assert model.calibrations.whole["fused"].changed is None
    assert len(model.trials(kind=CHANGED)) == len(before.trials(kind=CHANGED))
    file = lists[0] / "anna-1.wav"
    own_trials = model.trials(kind=OWN)
    own_scores = model.calibration("fused").llr(own_trials.scores, own_trials.frames.astype(float))
    row = np.flatnonzero(own_trials.claims == model.speakers[0].id)[0]
    assert Verifier(model, "anna").verify_file(lists[0] / "anna-0.wav").score == pytest.approx(own_scores[row])
    assert reset_calibration(tmp_path / "s").calibrations.as_json() == before.calibrations.as_json()
    assert Verifier(Store(tmp_path / "s").load(), "anna").verify_file(file).score == pytest.approx(
        Verifier(before, "anna").verify_file(file).score
    )


def test_a_sequential_test_counts_on_the_same_trials(calibrated, opened, lists):
    assert calibrated.calibrations.sequential.keys() == {"refined_worst_rival"}
    frames = np.array([60.0, 150.0])
    scores = {"refined_worst_rival": np.array([0.4, 0.6])}
    before, after = (model.sequential_calibration("refined_worst_rival") for model in (opened, calibrated))
    assert not np.allclose(before.llr(scores, frames), after.llr(scores, frames), atol=0.1)
    assert Verifier(calibrated, "anna", decide_by=Sequential()).decider.test is not None


# What is kept


def test_trials_are_kept_as_the_scores_of_listed_claims_by_who_spoke_or_nobody(calibrated, opened, lists, voices):
    root, fitted, _ = lists
    trials, held_out = calibrated.trials(kind=OWN), calibrated.trials()
    ids = {speaker.name: speaker.id for speaker in calibrated.speakers}
    spoken = [trial.path.partition("-")[0] for trial in fitted]
    assert trials.claims.tolist() == [ids[trial.speaker] for trial in fitted]
    assert trials.speakers.tolist() == [ids.get(name, NOBODY) for name in spoken]
    assert trials.unknown.tolist() == [name in STRANGERS for name in spoken]
    assert set(trials.population.tolist()) == {4}
    assert set(trials.scores) == {*SYSTEMS, "alone.mean", "alone.log"}
    for number in (0, 7, len(fitted) - 1):
        trial = fitted[number]
        for system in ("rpoao", "boar", "supervector_rival"):
            update = Verifier(opened, trial.speaker, system=system).verify_file(root / trial.path)
            assert trials.scores[system][number] == pytest.approx(update.score, abs=1e-6)
            assert trials.frames[number] == update.frames
    for system, scores in opened.trials().scores.items():
        np.testing.assert_array_equal(held_out.scores[system], scores)
    assert not any(trial.path.encode() in Path(calibrated.where).read_bytes() for trial in fitted)


def test_all_listed_trials_are_kept_where_enrollment_would_draw_some(tmp_path, store, lists, monkeypatch):
    monkeypatch.setattr(holdout, "MOST_OTHERS", 1)
    monkeypatch.setattr(heldout_scoring, "SPEAKERS_A_DRAW", 1)
    path = Path(shutil.copy(store, tmp_path / "s"))
    assert len(calibrate(path, lists[1], lists[0]).model.trials(kind=OWN)) == len(lists[1])


def test_calibrating_again_and_resetting_leave_nothing_of_the_trials_before(own, opened, lists):
    root, _, others = lists
    again = calibrate(own, others, root, jobs=2).model
    assert len(again.trials(kind=OWN)) == len(others)
    model = reset_calibration(own)
    assert model.trials(kind=OWN) is None
    assert not any(name.startswith(OWN) for name in model.shared)
    assert model.calibrations.as_json() == opened.calibrations.as_json()
    assert [model.threshold(name) for name in SYSTEMS] == [opened.threshold(name) for name in SYSTEMS]
    Store(own).check()


def test_trials_stay_when_others_are_enrolled_and_go_with_a_speaker_who_is_removed(own, recordings, opened):
    kept = Store(own).load().trials(kind=OWN)
    model = enroll(own, {"greta": recordings["greta"]}).model
    np.testing.assert_array_equal(model.trials(kind=OWN).claims, kept.claims)
    assert model.fitted_to == OWN
    gone = opened.speakers[1].id
    model = remove_speaker(own, "dexter")
    trials = model.trials(kind=OWN)
    rows = (kept.claims != gone) & (kept.speakers != gone)
    np.testing.assert_array_equal(trials.scores["poar"], kept.scores["poar"][rows])
    assert 0 < rows.sum() < len(rows)
    assert model.fitted_to == OWN


def test_where_removals_leave_one_class_the_held_out_trials_count_again(own, lists, tmp_path, store):
    root, *both = lists
    spoken = [trial for of in both for trial in of if trial.path.startswith(("anna", "ivan")) or trial.target]
    known = [trial for trial in spoken if trial.target or trial.speaker in ("anna", "ivan")]
    calibrate(own, known, root)
    plain = Path(shutil.copy(store, tmp_path / "plain.store"))
    for name in ("ivan", "anna"):
        model, other = remove_speaker(own, name), remove_speaker(plain, name)
    assert len(model.trials(kind=OWN)) == 12
    assert model.fitted_to == RECORDED
    assert [model.threshold(name) for name in SYSTEMS] == [other.threshold(name) for name in SYSTEMS]
    for name in ("dexter", "lars"):
        model = remove_speaker(own, name)
    assert len(model) == len(model.trials(kind=OWN)) == 0
    Store(own).check()


def test_the_only_speaker_left_is_judged_by_own_trials_of_strangers(own):
    for name in ("ivan", "dexter", "lars"):
        model = remove_speaker(own, name)
    trials = model.trials(kind=OWN)
    assert model.fitted_to == OWN
    scores, is_target = trials.scores["alone.log"], trials.claims == trials.speakers
    assert trials.unknown.tolist() == (~is_target).tolist()
    assert model.threshold("rpoao") == equal_error_rate(scores[is_target], scores[~is_target]).threshold


def test_an_export_has_the_own_trials_of_the_speaker_too(calibrated, tmp_path):
    export_speaker(calibrated, "dexter", tmp_path / "x.json")
    table = json.loads((tmp_path / "x.json").read_text())
    identity, trials = calibrated.speakers[1].id, calibrated.trials(kind=OWN)
    rows = (trials.claims == identity) | (trials.speakers == identity)
    assert table["own_trials"]["score.rpoao"] == trials.scores["rpoao"][rows].tolist()
    assert table["changed_trials"] == {}


# What is refused


def test_a_list_that_says_too_little_or_contradicts_itself_is_refused_before_anything_is_read(copied, tmp_path, voices):
    every = [Trial(claim, f"{name}-{n}.wav", claim == name) for name in voices for n in range(6) for claim in voices]
    targets, wrong = [trial for trial in every if trial.target], Trial("anna", "lars-0.wav", True)
    of_anna = [trial for trial in every if trial.target <= (trial.speaker == "anna")][:40]
    before = copied.read_bytes()
    for trials, words in [
        ([], r"got 0 target trials \(speakers: 0\) and 0 nontarget"),
        (targets, r"10 nontarget trials, got 24 target trials \(speakers: 4\) and 0 nontarget"),
        (of_anna, r"10 target trials of 2 speakers .*, got 6 target trials \(speakers: 1\)"),
        (every[:24], r"got 6 target trials \(speakers: 1\) and 18 nontarget"),
        ([*every, wrong], "'anna' is both target and nontarget"),
        ([*targets, wrong], "target trial of one speaker, got 'lars', 'anna'"),
    ]:
        with pytest.raises(InputError, match=words):
            calibrate(copied, trials, tmp_path / "nowhere")
    assert copied.read_bytes() == before


def test_files_without_a_score_are_reported_and_leave_the_store_alone_where_too_few_are_left(
    copied, lists, silence, garbage
):
    root, fitted, _ = lists
    lost = [Trial("anna", str(silence), False), Trial("ivan", str(silence), False), Trial("lars", str(garbage), True)]
    report = calibrate(copied, [*lost, *fitted], root)
    assert [(file.path, file.trials) for file in report.failed] == [(str(silence), 2), (str(garbage), 1)]
    assert (report.target_trials, report.nontarget_trials, report.speakers) == (12, 72, 4)
    assert report.unknown_trials == 36
    assert len(report.trials) == len(fitted)
    before, missing = copied.read_bytes(), [Trial("anna", f"no/{n}.wav", True) for n in range(9)]
    few = [trial for trial in fitted if not trial.target or trial.speaker in ("anna", "ivan")]
    with pytest.raises(InputError, match=r"got 6 target trials .*9 files could not be scored, the first: .*no/0\.wav"):
        calibrate(copied, [*few, *missing], root)
    strangers = [Trial(name, "marta-0.wav", name == "marta") for name in ("marta", "otto")]
    count = len(fitted) + 2
    with pytest.raises(UnknownSpeakerError, match=rf"'marta'.*; 2 of {count} trials .*\(names: 2\); leave these"):
        calibrate(copied, [*fitted, *strangers], root)
    assert copied.read_bytes() == before


def test_where_there_is_no_store_none_is_made(tmp_path, lists):
    for attempt in (lambda: calibrate(tmp_path / "s", lists[1], lists[0]), lambda: reset_calibration(tmp_path / "s")):
        with pytest.raises(StoreMissingError):
            attempt()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["claims", "speakers", "population", "frames", "unknown", "score.rpoao"])
@pytest.mark.parametrize("how", ["left out", "shorter", "another kind"])
def test_own_trials_that_do_not_fit_each_other_are_refused_though_digests_hold(own, name, how):
    ((row, array),) = [(row, array) for row, key, array in hostile.arrays_in(own) if key == f"own.trials.{name}"]
    if how == "left out":
        hostile.edit(own, "DELETE FROM array WHERE rowid = ?", row)
    else:
        hostile.put_array(own, row, array[:-1] if how == "shorter" else array.astype(np.complex128))
    if how == "left out" and name in ("claims", "score.rpoao"):
        # Without claims there are no own trials; of a system without scores there is no threshold.
        model = Store(own).load()
        assert (name == "claims") == (model.fitted_to == RECORDED)
        return
    with pytest.raises(StoreFormatError, match=re.escape(str(own))):
        Store(own).check()


# The command


def write_list(path: Path, trials: list[Trial]) -> None:
    labels = {True: "target", False: "nontarget"}
    path.write_text("".join(f"{one.speaker} {one.path} {labels[one.target]}\n" for one in trials))


def test_the_command_prints_the_threshold_before_and_after_and_resets(inside, copied, lists):
    root, fitted, _ = lists
    write_list(root / "list.txt", fitted)
    before = Store(copied).load().threshold("refined_worst_rival")
    result = inside("calibrate", copied, root / "list.txt", "--jobs", 1)
    assert result.code == 0
    after = Store(copied).load().threshold("refined_worst_rival")
    header, first, second, counts = result.out.splitlines()
    assert header.split()[0] == "refined_worst_rival"
    assert first.split()[:2] == ["before", f"{before:.4g}"]
    assert second.split()[:2] == ["after", f"{after:.4g}"]
    assert counts == "12 target trials of 4 speakers, 72 nontarget trials (36 by people who are not enrolled)"
    (table,) = inside("calibrate", copied, root / "list.txt", "--jobs", 1, "--json").lines
    assert table["before"] == table["after"], "the second time nothing changes"
    assert table["after"]["threshold"] == after
    assert {"eer", "false_accept", "false_reject", "cllr"} < table["after"].keys()
    assert (table["target_trials"], table["nontarget_trials"], table["failed"]) == (12, 72, [])
    assert inside("calibrate", copied, "--reset").code == 0
    assert Store(copied).load().threshold("refined_worst_rival") == before
    assert inside("calibrate", copied, "--reset", "--json").lines[0]["revision"] == 5


def test_a_folder_of_speakers_stands_for_the_list_of_its_trials(inside, store, tmp_path, demo, voices):
    for name in (*voices[:3], "marta"):
        (tmp_path / "own" / name).mkdir(parents=True)
        for file in sorted((demo / "verify" / name).glob("*.flac"))[:4]:
            shutil.copy(file, tmp_path / "own" / name)
    tables = []
    write_list(tmp_path / "list", trials_of_folder(tmp_path / "own", voices).trials)
    for number, given in enumerate(("own", "list")):
        copied = shutil.copy(store, tmp_path / f"{number}.store")
        result = inside("calibrate", copied, tmp_path / given, "--jobs", 1, "--json")
        assert (result.code, "those of impostors: marta" in result.err) == (0, given == "own")
        tables.append({**result.lines[0], "store": ""})
    assert tables[0] == tables[1]
    assert (tables[0]["target_trials"], tables[0]["unknown_trials"]) == (12, 16)


def test_the_audit_log_has_a_line_for_each_calibration(inside, copied, lists, tmp_path):
    root, trials, _ = lists
    log, targets = tmp_path / "log", sum(trial.target for trial in trials)
    write_list(root / "logged.txt", trials)
    assert inside("calibrate", copied, root / "logged.txt", "--jobs", 1, "--log", log).code == 0
    assert inside("calibrate", copied, "--reset", "--log", log).code == 0
    made, reset = map(json.loads, log.read_text().splitlines()[-2:])
    assert (made["event"], made["decision"], reset["decision"]) == ("calibrate", "calibrated", "reset")
    assert (made["target_trials"], made["nontarget_trials"]) == (targets, len(trials) - targets)
    assert reset["store_revision"] == made["store_revision"] + 1
    assert check_log(log).lines == 3  # the first opens the log


@pytest.mark.parametrize("words", [(), ("list.txt", "--reset"), ("--reset", "--root", ".")])
def test_the_command_takes_a_list_or_resets(refused, copied, words):
    assert "TRIALS, or --reset alone" in " ".join(refused("calibrate", copied, *words).split())
