"""Sequential decisions: Wald's bounds, ratios at every length of speech, and streams that end on enough evidence."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st
from populations import SYSTEMS

from pipeline.enrollment.enroll import enroll
from pipeline.errors import InputError, MetricError
from pipeline.scoring.decisions import Decision, State
from pipeline.scoring.fitting import fit_system
from pipeline.scoring.rules import RULES
from pipeline.scoring.sequential import SequentialTest, check_frames
from pipeline.scoring.trials import HeldOutTrials
from pipeline.store.model import SpeakerModel
from pipeline.store.store import Store
from pipeline.verification.policies import Sequential
from pipeline.verification.verifier import Verifier

RATES = st.floats(0.001, 0.4)


@pytest.fixture(scope="module")
def fused_store(tmp_path_factory, recordings, voices, tiny_with) -> SpeakerModel:
    """Four voices, to be told apart by the default system, in two conditions."""
    path, kinds = tmp_path_factory.mktemp("early") / "s", 'augmentation.kinds=["codec", "coloured"]'
    return enroll(path, {name: recordings[name] for name in voices}, tiny_with("scoring.system=fused", kinds)).model


# The rule


@given(miss=RATES, false_accept=RATES)
def test_the_bounds_are_walds(miss, false_accept):
    rule = SequentialTest(miss, false_accept)
    assert math.exp(rule.accept_at) == pytest.approx((1 - miss) / false_accept)
    assert math.exp(rule.reject_at) == pytest.approx(miss / (1 - false_accept))
    assert rule.reject_at < 0 < rule.accept_at
    assert rule.verdict(rule.accept_at) is True
    assert rule.verdict(rule.reject_at) is False
    assert rule.verdict((rule.accept_at + rule.reject_at) / 2) is None


@pytest.mark.parametrize(
    "options",
    [
        {"miss": 0.0},
        {"miss": 5e-324},
        {"miss": 0.5},
        {"false_accept": -0.1},
        {"false_accept": math.nan},
        {"miss": "0.01"},
        {"at_end": "maybe"},
    ],
)
def test_rates_that_no_test_has_are_refused(options):
    with pytest.raises(InputError, match="sequential test"):
        SequentialTest(**options)


@pytest.mark.parametrize("miss, false_accept", [(0.1, 0.05), (0.05, 0.2)])
def test_on_independent_evidence_the_rule_keeps_its_error_rates(miss, false_accept):
    """Wald's theorem, on ratios that are the true ones: unit Gaussians half a deviation apart, checked one by one."""
    random, rule, runs = np.random.default_rng(5), SequentialTest(miss, false_accept), 4000
    for true_claim in (True, False):
        samples = random.normal(0.25 if true_claim else -0.25, 1.0, (runs, 600))
        ratios = np.cumsum(0.5 * samples, axis=1)
        ended = (ratios >= rule.accept_at) | (ratios <= rule.reject_at)
        assert ended.any(axis=1).all()
        accepted = ratios[np.arange(runs), ended.argmax(axis=1)] >= rule.accept_at
        rate, allowed = (1 - accepted.mean(), miss) if true_claim else (accepted.mean(), false_accept)
        assert 0.3 * allowed < rate < allowed + 3 * math.sqrt(allowed / runs)


@given(least=st.integers(1, 500), step=st.sampled_from([0.002, 0.01, 0.016, 0.1, 0.3]))
def test_checks_begin_where_there_is_enough_speech(least, step):
    first, every = check_frames(least, step)
    assert least <= first < least + every
    assert first % every == 0
    assert every * step >= 0.1 - step / 2


# Ratios over speech of any length


def made_trials(lengths: tuple[int, ...] = (50, 100)) -> HeldOutTrials:
    """Trials of four speakers whose scores are sums over independent frames: twice the speech tells twice as much."""
    random, whole = np.random.default_rng(3), 200
    claims, speakers = (np.tile(np.arange(4, dtype=np.uint64), 200), np.repeat(np.arange(4, dtype=np.uint64), 200))
    own = claims == speakers
    frames = random.normal(np.where(own, 0.05, -0.05)[:, None], 1.0, (len(claims), whole))
    means = {n: frames[:, :n].mean(axis=1) for n in (*lengths, whole)}
    return HeldOutTrials(
        claims, speakers, np.full(800, 4), {"supervector": means[whole]}, np.full(800, whole),
        np.zeros(800, dtype=bool), {n: {"supervector": means[n]} for n in lengths},
    )  # fmt: skip


def test_every_prefix_becomes_a_trial_of_its_own_length():
    trials = made_trials()
    every = trials.at_every_length("supervector")
    assert len(every) == 3 * len(trials)
    np.testing.assert_array_equal(np.unique(every.frames), [50, 100, 200])
    np.testing.assert_array_equal(every.scores["supervector"][:800], trials.prefixes[50]["supervector"])
    np.testing.assert_array_equal(every.scores["supervector"][1600:], trials.scores["supervector"])
    np.testing.assert_array_equal(every.claims, np.tile(trials.claims, 3))
    # A trial shorter than a prefix counts with what it has.
    short = replace(trials, frames=np.full(800, 70))
    np.testing.assert_array_equal(np.unique(short.at_every_length("supervector").frames), [50, 70])


def test_prefixes_follow_their_trials_and_those_that_one_part_lacks_are_left_out():
    trials = made_trials()
    left = trials.without(2)
    assert len(left.prefixes[50]["supervector"]) == len(left) < len(trials)
    again = HeldOutTrials.joined([left, trials])
    np.testing.assert_array_equal(again.prefixes[100]["supervector"][len(left) :], trials.prefixes[100]["supervector"])
    older = replace(trials, prefixes={100: trials.prefixes[100]})
    assert set(HeldOutTrials.joined([older, trials]).prefixes) == {100}
    none = HeldOutTrials.joined([trials, replace(trials, prefixes={})])
    assert none.prefixes == {}
    with pytest.raises(MetricError, match="no held-out scores of prefixes"):
        none.at_every_length("supervector")


def test_the_calibration_over_all_lengths_is_sound_where_that_of_whole_trials_is_not(fused_store):
    """On prefixes of real held-out trials the ratios lose less information than those meant for whole ones."""
    trials = fused_store.trials()
    every = trials.at_every_length("supervector_rival")
    own, short = every.claims == every.speakers, every.frames == every.frames.min()

    def cost(ratios: np.ndarray) -> float:
        """Cllr in bits (Brummer and du Preez 2006) of the shortest prefixes."""
        target, nontarget = ratios[short & own], ratios[short & ~own]
        return float(np.logaddexp(0, -target).mean() + np.logaddexp(0, nontarget).mean()) / (2 * math.log(2))

    lengths = every.frames.astype(float)
    early, whole = (
        fit_system("supervector_rival", (trials, 4), changed=None, at_every_length=at).llr(every.scores, lengths)
        for at in (True, False)
    )
    assert cost(early) < cost(whole)
    assert cost(early) < 1.0


# Held-out trials of a store


def test_a_store_keeps_the_prefixes_of_its_default_system_and_reads_them_back(store, tiny):
    trials, system = Store(store).load().trials(), tiny.scoring.system
    assert sorted(trials.prefixes) == [50, 75, 100, 150]
    for scores in trials.prefixes.values():
        assert set(scores) == {system}
        assert len(scores[system]) == len(trials) and np.isfinite(scores[system]).all()
    # More speech of the same trial: nearer to what all of it scores.
    gaps = [np.abs(trials.prefixes[frames][system] - trials.scores[system]).mean() for frames in (50, 150)]
    assert gaps[0] > gaps[1] > 0


# Streams


def verifier_of(model: SpeakerModel, miss: float, false_accept: float, *, claim: str = "anna", **how: str) -> Verifier:
    return Verifier(model, claim, decide_by=Sequential(SequentialTest(miss, false_accept, **how)))


def test_a_true_claim_is_settled_before_the_end_and_stays_settled(fused_store, said):
    samples, rate = said
    stream = verifier_of(fused_store, 0.1, 0.1).stream(rate)
    updates = [stream.push(part) for part in np.array_split(samples, 30)]
    final = stream.close()
    first = next(n for n, update in enumerate(updates) if update.settled)
    settled = updates[first]
    assert first < len(updates) - 1
    assert settled.decision is Decision.ACCEPTED
    assert settled.state is State.SCORING
    assert settled.sequential_llr >= math.log(9)
    for later in (*updates[first:], final):
        assert replace(later, audio_seconds=0, state=State.CLOSED) == replace(
            settled, audio_seconds=0, state=State.CLOSED, duplicate_suspected=later.duplicate_suspected
        )
    for earlier in updates[:first]:
        assert earlier.decision in {Decision.NOT_ENOUGH_SPEECH, Decision.UNDECIDED}
        assert not earlier.settled
    assert settled.speech_seconds < stream.front_end.samples / rate


def test_a_nontarget_claim_is_rejected_by_the_other_bound(fused_store, heard):
    update = verifier_of(fused_store, 0.1, 0.1, claim="lars").verify_file(heard("anna"))
    assert update.decision is Decision.REJECTED
    assert update.sequential_llr <= -math.log(9)


@settings(deadline=None, max_examples=10)
@given(sizes=st.lists(st.integers(0, 5000), min_size=1, max_size=8).filter(any))
def test_however_the_audio_is_cut_it_is_settled_at_the_same_frame(fused_store, said, sizes):
    samples, rate = said
    verifier = verifier_of(fused_store, 0.05, 0.05)
    whole = verifier.stream(rate)
    whole.push(samples)
    expected = whole.close()
    stream, at, n = verifier.stream(rate), 0, 0
    while at < len(samples):
        stream.push(samples[at : at + sizes[n % len(sizes)]])
        at, n = at + sizes[n % len(sizes)], n + 1
    final = stream.close()
    assert (final.frames, final.decision, final.settled) == (expected.frames, expected.decision, True)
    assert final.sequential_llr == pytest.approx(expected.sequential_llr, abs=1e-9)
    assert final.score == pytest.approx(expected.score, abs=1e-9)


def test_the_ratio_of_the_rule_is_the_stores_calibration_of_what_was_heard(fused_store, said):
    samples, rate = said
    verifier = verifier_of(fused_store, 1e-9, 1e-9)
    stream, parts = verifier.stream(rate), RULES["fused"].parts_among(SYSTEMS)
    stream.push(samples)
    running = verifier.scores()
    front_end = verifier.stream(rate).front_end
    heard = front_end.push(samples)
    frames = len(heard.vectors) // 10 * 10
    running.push(heard.part(slice(frames)))
    scores, calibration = {name: running.scores()[name] for name in parts}, fused_store.sequential_calibration("fused")
    expected = calibration.llr(scores | running.side_information, frames)
    assert stream.push(np.empty(0)).sequential_llr == pytest.approx(float(expected[0]), abs=1e-9)
    assert float(expected[0]) != pytest.approx(float(calibration.llr(scores, frames)[0]), abs=1e-3)


def test_a_stream_that_is_not_settled_at_its_end_is_undecided_or_decided_as_without_the_test(fused_store, heard, said):
    path = heard("anna")
    undecided = verifier_of(fused_store, 1e-9, 1e-9).verify_file(path)
    later = verifier_of(fused_store, 1e-9, 1e-9, at_end="fixed")
    fixed, without = later.verify_file(path), Verifier(fused_store, "anna").verify_file(path)
    assert undecided.decision is Decision.UNDECIDED
    assert undecided.settled
    assert fixed.decision is without.decision is Decision.ACCEPTED
    assert without.sequential_llr is None
    assert fixed.score == undecided.score == pytest.approx(without.score, abs=1e-9)
    assert later.stream(said[1]).push(said[0]).decision is Decision.UNDECIDED


def test_a_file_is_not_read_further_than_the_decision(fused_store, said, tmp_path):
    samples, rate = said
    path = tmp_path / "long.wav"
    soundfile.write(path, np.tile(samples, 20), rate)
    update = verifier_of(fused_store, 0.1, 0.1).verify_file(path)
    assert update.decision is Decision.ACCEPTED
    assert update.audio_seconds < 5 < 20 * len(samples) / rate


def test_a_system_without_prefixes_cannot_decide_early(store):
    with pytest.raises(MetricError, match="the system of the settings"):
        Verifier(Store(store).load(), "anna", system="poar", decide_by=Sequential(SequentialTest()))


def test_a_speaker_alone_cannot_be_decided_early(tmp_path, recordings, tiny_with):
    alone = enroll(tmp_path / "s", {"anna": recordings["anna"]}, tiny_with()).model
    with pytest.raises(MetricError, match="of other speakers"):
        Verifier(alone, "anna", decide_by=Sequential(SequentialTest()))


# The command


def test_the_command_ends_with_the_decision_and_the_bounds(fused_store, heard, run):
    done = run("verify", fused_store.where, "--claim", "anna", "--sequential", "0.1:0.1", "--json", str(heard("anna")))
    assert done.code == 0
    table = json.loads(done.out)
    assert table["settled"]
    assert table["sequential_bounds"] == pytest.approx([-math.log(9), math.log(9)])
    assert table["sequential_llr"] >= math.log(9)
    undecided = run("verify", fused_store.where, "--claim", "anna", "--sequential", "1e-9:1e-9", str(heard("anna")))
    assert (undecided.code, "undecided" in undecided.out) == (3, True)
