"""The errors that enrollment says to expect, against counts over the held-out trials themselves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binomtest

from pipeline.enrollment.enroll import enroll
from pipeline.enrollment.expected import expected_errors
from pipeline.errors import MetricError
from pipeline.metrics import rates_at
from pipeline.scoring.trials import HeldOutTrials
from pipeline.store.model import SpeakerModel
from pipeline.verification.verifier import Verifier


@pytest.fixture(scope="module", params=["fused", "rpoao"])
def model(request, tmp_path_factory, recordings, voices, tiny_with) -> SpeakerModel:
    speakers = {name: recordings[name] for name in voices}
    settings = tiny_with(f"scoring.system={request.param}")
    return enroll(tmp_path_factory.mktemp("expected") / "s", speakers, settings).model


def test_expected_errors_are_those_of_the_held_out_trials_at_the_threshold(model):
    expected, trials, system = expected_errors(model), model.trials(), model.config.scoring.system
    scores = trials.scores.get(system, model.calibration(system).llr(trials.scores, trials.frames.astype(float)))
    own = trials.claims == trials.speakers
    enrolled = ~own & ~trials.unknown
    assert (expected.system, expected.threshold) == (system, model.threshold(system))
    for impostors, share in ((enrolled, expected.false_accept), (trials.unknown, expected.false_accept_unknown)):
        rates = rates_at(scores[own], scores[impostors], expected.threshold)
        assert (expected.false_reject.rate, share.rate) == (rates.false_reject, rates.false_accept)
        assert (expected.false_reject.trials, share.trials) == (own.sum(), impostors.sum())
        interval = binomtest(share.errors, share.trials).proportion_ci(0.95, "wilson")
        # Trials of one voice are not independent: the interval is no narrower than that of as many independent ones.
        assert share.low <= interval.low + 1e-12
        assert share.high >= interval.high - 1e-12


@pytest.mark.parametrize("model", ["rpoao"], indirect=True)
def test_a_speaker_whose_held_out_claims_fail_is_named(model):
    trials = model.trials()
    fails = (trials.claims == trials.speakers) & (trials.claims == model.speakers[1].id)
    scores = {**trials.scores, "rpoao": np.where(fails, -1e9, trials.scores["rpoao"])}
    spoilt = model.changed([{} for _ in model.speakers], replace(trials, scores=scores).as_arrays())
    assert expected_errors(spoilt).often_rejected == (model.names[1],)
    assert expected_errors(model).often_rejected == ()
    many = HeldOutTrials.joined([replace(trials, scores=scores), *[trials] * 9])  # a tenth of the claims fails
    rarely = model.changed([{} for _ in model.speakers], many.as_arrays())
    assert expected_errors(rarely).often_rejected == ()


def test_the_probability_never_contradicts_the_decision(model, heard):
    for claim in model.names:
        update = Verifier(model, claim).verify_file(heard(model.names[0]))
        if model.config.scoring.system == "fused":
            assert (update.decision == "accepted") == (update.probability >= 0.5)
        else:
            assert update.probability is None


def test_a_store_that_grew_expects_and_calibrates_about_what_one_enrolled_at_once_does(tmp_path, recordings, tiny_with):
    speakers, settings = dict(list(recordings.items())[:10]), tiny_with("scoring.system=poao", "machines.cohort=all")
    enroll(tmp_path / "grown", dict(list(speakers.items())[:6]), settings)
    grown = enroll(tmp_path / "grown", dict(list(speakers.items())[6:]), settings).model
    at_once = enroll(tmp_path / "once", speakers, settings).model
    rates = [expected_errors(one).false_accept.rate for one in (grown, at_once)]
    assert max(rates) < 0.1
    calibrated = [
        one.calibration("poao").llr({"poao": np.array([-1.0])}, np.array([200.0]))[0] for one in (grown, at_once)
    ]
    assert calibrated[0] == pytest.approx(calibrated[1], abs=0.5 * abs(calibrated[1]))


def test_a_speaker_alone_has_nobody_to_be_mistaken_for(tmp_path, recordings, voices, tiny):
    alone = enroll(tmp_path / "s", {voices[0]: recordings[voices[0]]}, tiny)
    assert alone.expected is None
    with pytest.raises(MetricError, match="enroll more speakers"):
        alone.model.threshold("rpoao")
