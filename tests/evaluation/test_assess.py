"""Trial lists scored on a store: each score is that of the file verified alone, and lost files are listed."""

from __future__ import annotations

import numpy as np
import pytest
from populations import SYSTEMS
from score_rows import rows_of

from pipeline.audio.corpus import read_corpus
from pipeline.errors import InputError, UnknownSpeakerError
from pipeline.evaluation import Trial
from pipeline.evaluation.assess import assess
from pipeline.metrics import Unscored
from pipeline.verification.verifier import Verifier


@pytest.fixture(scope="module")
def trial_list(trial_lines) -> list[Trial]:
    return [Trial(*line) for line in trial_lines]


@pytest.fixture(scope="module")
def assessed(opened, trial_list, demo):
    """The list under every system."""
    return assess(opened, trial_list, demo)


def test_every_score_of_a_list_is_that_of_the_file_verified_alone(opened, trial_list, assessed, demo):
    assert (assessed.failed, assessed.failed_trials) == ((), 0)
    assert tuple(assessed.scores) == SYSTEMS
    assert len(rows_of(assessed.scores)) == len(trial_list) * len(SYSTEMS)
    verifiers = {
        (system, claim): Verifier(opened, claim, system=system) for system in SYSTEMS for claim in opened.names
    }
    for row in rows_of(assessed.scores)[::3]:
        alone = verifiers[row.system, row.speaker].verify_file(demo / row.path)
        assert row.score == pytest.approx(alone.score, abs=1e-9), row
        assert row.llr == pytest.approx(alone.llr, abs=1e-6), row
    for system, scores in assessed.scores.items():
        assert [*zip(scores.speakers, scores.paths, scores.is_target, strict=True)] == [
            (trial.speaker, trial.path, trial.target) for trial in trial_list
        ]
        assert scores.scores.tolist() == [row.score for row in rows_of(assessed.scores) if row.system == system]


def test_scores_do_not_depend_on_threads_systems_or_the_other_trials(opened, trial_list, assessed, demo):
    again = assess(opened, trial_list[::-1], demo, systems=["rpoao", "boao"], jobs=2)
    assert tuple(again.scores) == ("rpoao", "boao")
    for system, scores in again.scores.items():
        np.testing.assert_allclose(scores.scores[::-1], assessed.scores[system].scores, rtol=0, atol=1e-12)
    twice = assess(opened, [trial_list[7]] * 2, demo, systems=["rpoao"]).scores["rpoao"].scores
    np.testing.assert_allclose(twice, [assessed.scores["rpoao"].scores[7]] * 2, rtol=0, atol=1e-12)


def test_a_store_a_folder_and_one_system_may_be_named_by_texts(store, trial_list, assessed, demo):
    (scores,) = assess(str(store), trial_list[:1], str(demo), systems="rpoao").scores.values()
    assert scores.scores == pytest.approx(assessed.scores["rpoao"].scores[:1], abs=1e-12)


def test_an_assessment_and_a_corpus_are_shown_in_a_line(assessed, trial_list, demo):
    assert repr(assessed) == f"<Assessment by {', '.join(assessed.scores)}: {len(trial_list)} trials scored, 0 not>"
    corpus = read_corpus(demo / "enroll")
    files = len([*(demo / "enroll").glob("*/*.flac")])
    assert (
        repr(corpus) == f"<Corpus of {demo / 'enroll'}: {len(corpus.speakers)} speakers, {files} utterances, 0 skipped>"
    )


@pytest.mark.parametrize("jobs", [0, 1.5, "2"])
def test_a_number_of_threads_that_is_none_is_refused(opened, trial_list, demo, jobs):
    with pytest.raises(InputError, match=f"jobs: a number of threads was expected.* got {jobs!r}"):
        assess(opened, trial_list[:1], demo, systems=["rpoao"], jobs=jobs)


def test_names_that_are_none_are_refused_and_one_name_may_be_a_text(opened, trial_list, demo):
    for given in ({"systems": 3}, {"systems": ["poar", 3]}, {"not_enrolled": None}, {"not_enrolled": [3]}):
        (parameter,) = given
        with pytest.raises(InputError, match=f"^{parameter}: .*was expected, got "):
            assess(opened, trial_list[:1], demo, **given)
    nobody = Trial("marta", trial_list[0].path, False)
    assert assess(opened, [nobody], demo, systems="poar", not_enrolled="marta").unscored.total == 1


def test_each_file_is_read_once_for_all_its_claims(opened, trial_list, demo):
    steps = []
    assess(opened, trial_list, demo, systems=["poar"], progress=lambda done, total: steps.append((done, total)))
    assert steps == [(1, 10)] * 10


def test_files_without_a_score_cost_their_trials_and_are_listed(opened, trial_list, assessed, demo, silence, garbage):
    lost = [
        Trial("anna", str(silence), False),
        Trial("ivan", str(silence), False),
        Trial("anna", str(garbage), True),
        Trial("lars", "nowhere/x.wav", False),
    ]
    result = assess(opened, [*lost[:2], *trial_list, *lost[2:]], demo, systems=["refined_worst_rival"])
    assert {file.path: file.trials for file in result.failed} == {
        str(silence): 2, str(garbage): 1, "nowhere/x.wav": 1,
    }  # fmt: skip
    assert (result.failed_trials, result.unscored) == (4, Unscored(target=1, nontarget=3))
    reasons = {file.path: file.reason for file in result.failed}
    assert "0.00 s of speech found, 0.50 s needed" in reasons[str(silence)]
    assert "no such file" in reasons["nowhere/x.wav"]
    clean = [row for row in rows_of(assessed.scores) if row.system == "refined_worst_rival"]
    assert [(row.speaker, row.path) for row in rows_of(result.scores)] == [(row.speaker, row.path) for row in clean]
    assert [row.score for row in rows_of(result.scores)] == pytest.approx([row.score for row in clean], abs=1e-12)


def test_claims_on_people_who_could_not_be_enrolled_count_as_failures_to_enroll(opened, trial_list, demo):
    more = [Trial("Jose\u0301", trial_list[0].path, True), Trial("Jos\u00e9", "nowhere/x.wav", False)]  # one name
    result = assess(opened, [*trial_list, *more], demo, systems=["poar"], not_enrolled=["Jos\u00e9"])
    assert result.unscored == Unscored(target_not_enrolled=1, nontarget_not_enrolled=1)
    assert (result.failed, len(result.scores["poar"].scores)) == ((), len(trial_list))


@pytest.mark.parametrize(("name", "rule"), [("anna", "'anna' is enrolled in"), ("99", "got none for '99'")])
def test_not_enrolled_takes_neither_enrolled_names_nor_names_that_nobody_claims(opened, trial_list, demo, name, rule):
    with pytest.raises(InputError, match=rf"^not enrolled: .*{rule}"):
        assess(opened, trial_list, demo, systems=["poar"], not_enrolled=[name])


def test_an_unknown_claim_is_refused_before_any_file_is_read(opened, trial_list, demo):
    steps = []
    trials = [*trial_list, Trial("marta", trial_list[0].path, True)]
    with pytest.raises(UnknownSpeakerError, match="marta"):
        assess(opened, trials, demo, progress=lambda *step: steps.append(step))
    assert steps == []
