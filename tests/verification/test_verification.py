"""Verification: a stream is its file however it is cut, its states, and decisions by every policy."""

from __future__ import annotations

import itertools
import json
import math
import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import soundfile
import soxr
from hypothesis import example, given, settings
from hypothesis import strategies as st
from populations import SYSTEMS

from pipeline.audio.corpus import Utterance
from pipeline.enrollment.enroll import enroll
from pipeline.errors import (
    AudioError,
    InputError,
    StoreMissingError,
    StreamClosedError,
    UnknownSpeakerError,
)
from pipeline.features.frontend import features_of, read_features
from pipeline.metrics import OperatingPoint
from pipeline.scoring.decisions import Decision, State, Update, as_json
from pipeline.scoring.rules import RULES
from pipeline.scoring.sequential import SequentialTest
from pipeline.verification.identifier import Identifier
from pipeline.verification.policies import BayesCost, Sequential, Threshold
from pipeline.verification.stream import VerificationStream
from pipeline.verification.verifier import Verifier

POINT = OperatingPoint(0.2, cost_miss=3.0, cost_false_accept=2.0)


@pytest.fixture(scope="module")
def verifiers(opened) -> dict[str, Verifier]:
    """Anna's claim under every system."""
    return {system: Verifier(opened, "anna", system=system) for system in SYSTEMS}


@pytest.fixture(scope="module")
def inputs(heard, tmp_path_factory) -> dict[int, tuple[Path, np.ndarray]]:
    """One utterance as an audio file and as samples, at its own rate and at that of a compact disc."""
    samples, rate = soundfile.read(heard("anna"))
    folder, made = tmp_path_factory.mktemp("audio"), {}
    for to in (rate, 44_100):
        path = folder / f"{to}.wav"
        soundfile.write(path, soxr.resample(samples, rate, to) if to != rate else samples, to, subtype="DOUBLE")
        made[to] = (path, soundfile.read(path)[0])
    return made


def pushed(verifier: Verifier, samples: np.ndarray, rate: int, sizes) -> tuple[Update, list[Update]]:
    """Push ``samples`` in pieces of the given sizes, in turn; the final update and those before it."""
    stream, updates, at = verifier.stream(rate), [], 0
    sizes = itertools.cycle(sizes)
    while at < len(samples):
        size = next(sizes)
        updates.append(stream.push(samples[at : at + size]))
        at += size
    return stream.close(), updates


def assert_same(result: Update, expected: Update) -> None:
    """Equal but for the last bits of the score, and of the log-odds computed from it."""
    assert result.score == pytest.approx(expected.score, abs=1e-9, rel=0)
    assert result.llr == pytest.approx(expected.llr, abs=1e-6)
    assert result.probability == pytest.approx(expected.probability, abs=1e-6)
    blank = {"score": None, "llr": None, "probability": None}
    assert replace(result, **blank) == replace(expected, **blank)


# A file is a stream


@pytest.mark.parametrize("system", SYSTEMS)
@settings(deadline=None, max_examples=6)
@given(
    rate=st.sampled_from([8000, 44_100]),
    sizes=st.lists(st.integers(0, 9000) | st.sampled_from([79, 80, 81, 10**6]), min_size=1, max_size=12),
    single=st.integers(0, 400),
)
@example(rate=44_100, sizes=[0, 81, 0, 0, 1, 4096, 79, 80], single=0)
def test_pushes_of_any_size_give_the_score_of_the_file_under_every_system(
    verifiers, inputs, system, rate, sizes, single
):
    path, samples = inputs[rate]
    result, _ = pushed(verifiers[system], samples, rate, [*[1] * single, *sizes, 5000])
    assert_same(result, verifiers[system].verify_file(path))


def test_a_resampled_stream_scores_nearly_as_the_original(verifiers, inputs):
    verifier = verifiers["refined_worst_rival"]
    there, here = verifier.verify_file(inputs[44_100][0]), verifier.verify_file(inputs[8000][0])
    assert there.score == pytest.approx(here.score, abs=0.02)
    assert there.decision == here.decision == Decision.ACCEPTED


def test_a_running_score_is_the_score_of_the_frames_so_far(verifiers, inputs, tiny):
    """Scored again from scratch, from features read by enrollment's own path."""
    path, samples = inputs[8000]
    verifier = verifiers["refined_worst_rival"]
    speech = read_features(Utterance("", path), tiny.features)
    _, updates = pushed(verifier, samples, 8000, [1600])
    scored = [update for update in updates if update.score is not None]
    assert len({update.score for update in scored}) > 5
    for update in scored:
        again = verifier.scores()
        again.push(speech.part(slice(update.frames)))
        assert update.score == pytest.approx(again.scores()["refined_worst_rival"][0], abs=1e-9)


def test_streams_of_one_verifier_are_separate_and_a_pushed_buffer_may_be_used_again(opened, inputs, heard):
    verifier = Verifier(opened, "anna")
    recordings = inputs[8000][1], soundfile.read(heard("ivan"))[0]
    streams = verifier.stream(), verifier.stream()
    buffer = np.empty(500)
    for at in range(0, max(map(len, recordings)), 500):
        for stream, samples in zip(streams, recordings, strict=True):
            part = samples[at : at + 500]
            buffer[: len(part)] = part
            stream.push(buffer[: len(part)])
            buffer[:] = 1e6
    for stream, path in zip(streams, (inputs[8000][0], heard("ivan")), strict=True):
        assert_same(stream.close(), verifier.verify_file(path))


# States


def test_a_stream_goes_from_too_little_speech_to_scoring_to_closed(opened, inputs):
    stream = VerificationStream(opened, "anna")
    states, samples = [], inputs[8000][1]
    for at in range(0, len(samples), 400):
        update = stream.push(samples[at : at + 400])
        states.append(update.state)
        # 0.5 s of speech are needed: 50 frames of 10 ms.
        assert (update.state is State.SCORING) == (update.frames >= 50) == (update.score is not None)
        assert (update.decision is Decision.NOT_ENOUGH_SPEECH) == (update.score is None)
        assert update.speech_seconds == pytest.approx(update.frames * 0.01)
        assert update.audio_seconds == pytest.approx(min(at + 400, len(samples)) / 8000)
    assert states == sorted(states, key=[State.NOT_ENOUGH_SPEECH, State.SCORING].index)
    assert set(states) == {State.NOT_ENOUGH_SPEECH, State.SCORING}
    last = stream.close()
    assert last.state is State.CLOSED
    for more in (samples, np.empty(0)):
        with pytest.raises(StreamClosedError, match="'anna'"):
            stream.push(more)
    assert stream.close() == last


@pytest.mark.parametrize(
    "made",
    [lambda model: VerificationStream(model, "anna"), lambda m: Identifier(m).stream()],
    ids=["claim", "identification"],
)
def test_a_with_block_closes_its_stream_unless_an_exception_ends_it(opened, inputs, made):
    samples = inputs[8000][1]
    expected = made(opened)
    expected.push(samples)
    with made(opened) as stream:
        stream.push(samples)
    with pytest.raises(StreamClosedError):
        stream.push(samples)
    assert stream.close() == expected.close()
    with pytest.raises(KeyError), made(opened) as failed:
        raise KeyError
    failed.push(samples)
    assert failed.close() == stream.close()


def test_silence_is_too_little_speech_and_never_a_score(verifiers, opened, silence):
    nothing = Update(State.CLOSED, Decision.NOT_ENOUGH_SPEECH, None, None, None, 0, 0.0, 2.0, True, None, False)
    for verifier in verifiers.values():
        assert verifier.verify_file(silence) == nothing
    assert VerificationStream(opened, "anna", rate=44_100).close() == replace(nothing, audio_seconds=0.0)


def test_channels_that_cancel_each_other_are_no_silence(verifiers, inputs):
    samples, verifier = inputs[8000][1], verifiers["fused"]
    silent, half = np.zeros_like(samples), len(samples) // 2
    with pytest.raises(AudioError, match="the channels cancel each other"):
        verifier.verify(np.stack([samples, -samples], axis=1), 8000)
    stream = verifier.stream(8000)
    # A part that cancels, and one with a silent channel, say nothing about the whole.
    stream.push(np.stack([samples, -samples], axis=1)[: half // 8])
    stream.push(np.stack([samples, silent], axis=1))
    assert stream.close().score is not None


def test_silence_before_and_after_does_not_change_the_decision(opened, inputs):
    samples, pause = inputs[8000][1], np.zeros(8000)
    stream = VerificationStream(opened, "anna")
    stream.push(np.concatenate((pause, samples, pause)))
    update = stream.close()
    assert update.decision is Decision.ACCEPTED
    assert update.speech_seconds < len(samples) / 8000


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e300])
def test_a_sample_that_is_no_number_is_refused_with_its_time_and_leaves_the_stream_as_it_was(opened, inputs, bad):
    path, samples = inputs[8000]
    stream = VerificationStream(opened, "anna", update_ms=1000)
    stream.push(samples[:800])
    broken = samples[800:1600].copy()
    broken[400] = bad
    with pytest.raises(AudioError, match=r"'anna'.* at 0\.150000 s \(frame 1200\)"):
        stream.push(broken)
    stream.push(samples[800:])
    assert_same(stream.close(), Verifier(opened, "anna").verify_file(path))


def test_the_delay_is_that_of_a_frame_the_look_ahead_and_the_resampler(opened, tiny):
    features = tiny.features
    own = features.frame_ms + features.delta_width * features.step_ms
    assert VerificationStream(opened, "anna", update_ms=0).delay_ms == pytest.approx(own)
    assert VerificationStream(opened, "anna").delay_ms == pytest.approx(own + 200)
    assert VerificationStream(opened, "anna", rate=44_100, update_ms=0).delay_ms > own


@pytest.mark.parametrize("update_ms", [0.0, 37.5, 200.0, 1000.0])
def test_audio_is_scored_together_longer_in_long_streams_and_scores_are_of_all_their_frames(opened, inputs, update_ms):
    samples = np.tile(inputs[8000][1], 10)
    stream, verifier = VerificationStream(opened, "anna", update_ms=update_ms), Verifier(opened, "anna")
    speech = features_of(samples, 8000, opened.config.features)
    scores, at, scored_at, together = verifier.scores(), 0, 0.0, []
    for start in range(0, len(samples), 80):
        update = stream.push(samples[start : start + 80])
        assert update.audio_seconds == pytest.approx(min(start + 80, len(samples)) / 8000)
        if update.frames > at:
            together.append((update.audio_seconds - scored_at, at / 100))
            scored_at = update.audio_seconds
            scores.push(speech.part(slice(at, update.frames)))
            at = update.frames
            if update.score is not None:
                assert update.score == pytest.approx(float(scores.scores()[verifier.system][0]), abs=1e-9)
    assert stream.close().frames == len(speech.vectors) > 2000
    least = [max(update_ms, 10.0, min(update_ms * before / 5.0, 2000.0)) / 1000 for _, before in together]
    longer = [audio / shortest for (audio, _), shortest in zip(together, least, strict=True)]
    assert min(longer) > 1.0 - 1e-9
    assert np.median(longer) < 1.1  # more of them have a pause


def test_a_sequential_test_that_goes_on_has_audio_scored_as_often_in_long_streams(opened, inputs):
    samples, undecided = np.tile(inputs[8000][1], 10), Sequential(SequentialTest(1e-9, 1e-9))
    stream = VerificationStream(opened, "anna", decide_by=undecided)
    late = [stream.push(part) for part in np.split(samples, range(80, len(samples), 80))][-1000:]  # ten seconds
    assert not late[-1].settled
    assert late[0].speech_seconds > 10.0
    assert len({update.frames for update in late}) > 25  # every 200 ms, but for pauses; of two seconds there were five


@pytest.mark.parametrize("update_ms", [-1.0, float("nan"), float("inf"), 1e308])
def test_updates_that_come_before_their_audio_or_never_are_refused(opened, update_ms):
    for made in (partial(Verifier, claim="anna"), Identifier):
        with pytest.raises(InputError, match=re.escape(f"got {update_ms:g}")):
            made(opened, update_ms=update_ms)


# Claims and systems


def test_an_unknown_claim_is_refused_with_the_nearest_names_if_there_are_any(opened):
    with pytest.raises(UnknownSpeakerError, match=r"'Ana'.*'anna'") as caught:
        Verifier(opened, "Ana")
    assert caught.value.nearest[0] == "anna"
    with pytest.raises(UnknownSpeakerError, match=r"^'Xqzw': no such speaker is enrolled$") as caught:
        Verifier(opened, "Xqzw")
    assert caught.value.nearest == ()
    full = tuple(replace(one, name=f"{one.name} van der Meulen") for one in opened.speakers)
    with pytest.raises(UnknownSpeakerError, match=r"nearest enrolled: 'ivan van der Meulen'$"):
        replace(opened, speakers=full).position("Ivan")
    with pytest.raises(UnknownSpeakerError, match=r"nobody is enrolled$"):
        replace(opened, speakers=(), arrays=()).position("anna")


def test_the_nearest_names_of_many_are_not_looked_for(opened):
    many = tuple(replace(opened.speakers[0], name=f"anna {number}") for number in range(3000))
    with pytest.raises(UnknownSpeakerError, match=r"anna': no such speaker is enrolled$") as caught:
        replace(opened, speakers=many).position("anna" * 10)
    assert caught.value.nearest is None


def test_a_system_without_machines_is_refused_with_the_kinds_there_are(tmp_path, recordings, tiny_with):
    config = tiny_with('machines.kinds=["one_class", "one_vs_rest"]', "scoring.system=poar")
    store = enroll(tmp_path / "s", {name: recordings[name][:3] for name in ("anna", "ivan")}, config).model
    assert store.systems == ("boar", "poar")
    with pytest.raises(InputError, match=r"'rpoao'.*boar, poar.*one_vs_rest"):
        Verifier(store, "anna", system="rpoao")
    assert Verifier(store, "anna", system="poar").system == "poar"


def test_a_stream_opens_a_store_by_its_path(store, inputs, opened, tmp_path):
    stream = VerificationStream(str(store), "anna", system="poao", decide_by=Threshold(-2.0))
    stream.push(inputs[8000][1])
    expected = Verifier(opened, "anna", system="poao", decide_by=Threshold(-2.0)).verify_file(inputs[8000][0])
    assert_same(stream.close(), expected)
    with pytest.raises(StoreMissingError):
        VerificationStream(tmp_path / "none", "anna")


def test_voices_that_nobody_enrolled_score_below_the_true_speaker(opened, voices, heard):
    for claim in voices:
        verifier = Verifier(opened, claim)
        own = [verifier.verify_file(heard(claim, n)).score for n in range(4)]
        strange = [verifier.verify_file(heard(stranger, n)).score for stranger in ("marta", "niels") for n in range(4)]
        assert min(own) > max(strange), claim


# Policies


def test_equality_accepts_by_score_or_by_llr_whatever_the_score(opened):
    for value in (0.5, np.float32(0.5)):
        by_score = Threshold(value).decider(opened, "poar")
        assert by_score.accepts(0.5, None)
        assert not by_score.accepts(np.nextafter(0.5, 0).item(), None)
    by_cost = BayesCost(POINT).decider(opened, "poar")
    assert by_cost.llr_threshold == pytest.approx(math.log(2.0 * 0.8) - math.log(3.0 * 0.2), abs=1e-15)
    for score in (-1e9, 1e9):
        assert by_cost.accepts(score, by_cost.llr_threshold)
        assert not by_cost.accepts(score, np.nextafter(by_cost.llr_threshold, -np.inf))


@settings(deadline=None, max_examples=30)
@given(
    prior=st.floats(1e-4, 1 - 1e-4),
    cost_miss=st.floats(1e-3, 1e3),
    cost_false_accept=st.floats(1e-3, 1e3),
    voice=st.sampled_from(["anna", "ivan"]),
)
def test_the_decision_by_cost_is_the_one_expected_to_cost_less(
    opened, heard, prior, cost_miss, cost_false_accept, voice
):
    verifier = Verifier(opened, "anna", decide_by=BayesCost(OperatingPoint(prior, cost_miss, cost_false_accept)))
    update = verifier.verify_file(heard(voice))
    accepting, rejecting = cost_false_accept * (1 - update.probability), cost_miss * update.probability
    if accepting != pytest.approx(rejecting, rel=1e-9):
        assert update.decision is (Decision.ACCEPTED if accepting < rejecting else Decision.REJECTED)


# Log-likelihood ratios


def log_odds(share: float) -> float:
    return math.log(share / (1.0 - share))


def calibrated(fits, scores: dict[str, float], frames: int) -> float:
    """A calibration against each origin of impostors, added up by hand."""
    against = 0.0
    for (_, kind), share in zip(fits, (0.5, 0.5), strict=True):
        total = kind.offset + kind.duration * math.log(frames / kind.usual_frames)
        for name, weight in zip(kind.systems, kind.weights, strict=True):
            top = RULES[name].top
            total += weight * (scores[name] if top is None else log_odds(min(max(scores[name] / top, 1e-4), 1 - 1e-4)))
        against += share * math.exp(-total)
    return -math.log(against)


@pytest.mark.parametrize("system", [name for name in SYSTEMS if not RULES[name].parts])
def test_the_llr_of_a_stream_is_the_stores_calibration_of_its_score(verifiers, opened, inputs, system):
    _, updates = pushed(verifiers[system], inputs[8000][1], 8000, [1600])
    scored = [update for update in updates if update.score is not None]
    assert len({update.frames for update in scored}) > 5
    calibration = opened.calibration(system)
    for update in scored:
        assert update.llr == pytest.approx(calibrated(calibration.ratio, {system: update.score}, update.frames))
    assert all((update.llr, update.probability) == (None, None) for update in updates if update.score is None)


def test_the_score_of_the_fused_system_is_its_llr_and_the_calibrated_sum_of_its_parts(verifiers, opened, inputs):
    running = {
        system: pushed(verifiers[system], inputs[8000][1], 8000, [1600])[1]
        for system in ("fused", *RULES["fused"].parts_among(SYSTEMS))
    }
    scored = [n for n, update in enumerate(running["fused"]) if update.score is not None]
    assert len(scored) > 5
    calibration = opened.calibration("fused")
    for n in scored:
        fused = running["fused"][n]
        assert fused.llr == fused.score
        parts = {name: running[name][n].score for name in RULES["fused"].parts_among(SYSTEMS)}
        total = calibrated(calibration.weights, parts, fused.frames)
        shift = calibration.shifts.get(opened.speakers[opened.position("anna")].id, 0.0)
        assert fused.score == pytest.approx(calibrated(calibration.ratio, {"fused": total}, fused.frames) - shift)


def test_a_threshold_without_bounds_is_null_in_json(opened):
    terms = Verifier(opened, "anna", decide_by=Threshold(-math.inf)).terms
    assert json.loads(json.dumps(as_json(terms), allow_nan=False))["threshold"] is None
