"""Identification in an open set: the probabilities by Bayes' rule, streams and files, and the command."""

from __future__ import annotations

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

import pipeline
from pipeline.enrollment.enroll import enroll
from pipeline.errors import AudioError, InputError, MetricError, StreamClosedError, VoiceclaimError
from pipeline.store.store import Store
from pipeline.verification.identification import IdentificationDecision
from pipeline.verification.identifier import Identifier
from pipeline.verification.verifier import Verifier

RATIOS = st.lists(st.floats(-60, 60), min_size=4, max_size=4).map(np.array)


@pytest.fixture(scope="module")
def identifier(opened) -> Identifier:
    return Identifier(opened)


@given(RATIOS, st.floats(0, 0.99))
def test_probabilities_sum_to_one_and_rise_with_the_ratio(opened, ratios, nobody):
    shares, rest = Identifier(opened, nobody=nobody).probabilities(ratios)
    assert shares.sum() + rest == pytest.approx(1.0)
    assert shares.min() >= 0.0 and rest >= 0.0
    assert np.all(np.diff(shares[np.argsort(ratios)]) >= 0.0)


@pytest.mark.parametrize(
    "ratios", [[-60.0, -50.0, -55.0, -60.0], [0.1, -1.0, 0.0, -3.0], [60.0, 50.0, 1.0, 0.0], [900.0, 0.0, -900.0, 0.0]]
)
def test_nobody_has_no_share_where_somebody_enrolled_speaks_for_certain(opened, ratios):
    shares, rest = Identifier(opened, nobody=0.0).probabilities(np.array(ratios))
    assert (rest, shares.sum()) == (0.0, pytest.approx(1.0))
    assert shares.argmax() == np.argmax(ratios)


@pytest.mark.parametrize(
    ("ratios", "problem"),
    [([1.0, 2.0], "one for each of 4 speakers expected, got 2"), ([1.0, np.nan, 0.0, 0.0], "finite, got nan")],
)
def test_ratios_that_are_not_those_of_all_speakers_are_refused(identifier, ratios, problem):
    with pytest.raises(VoiceclaimError, match=f"log-likelihood ratios.*{problem}"):
        identifier.probabilities(ratios)


def test_the_ratios_of_known_classes_give_their_posteriors(opened):
    """Four Gaussian speakers and a wide one for everybody else: the ratios are exact, and so is Bayes' rule."""
    nobody, means = 0.3, np.array([-3.0, -1.0, 1.0, 3.0])
    priors = np.array([*([(1 - nobody) / 4] * 4), nobody])
    for x in np.linspace(-6, 6, 25):
        joint = priors * np.array([*norm.pdf(x, means, 0.7), norm.pdf(x, 0.0, 4.0)])
        posterior = joint / joint.sum()
        others = (joint.sum() - joint[:4]) / (1 - priors[:4])
        ratios = np.log(joint[:4] / priors[:4]) - np.log(others)
        shares, rest = Identifier(opened, nobody=nobody).probabilities(ratios)
        np.testing.assert_allclose([*shares, rest], posterior, atol=1e-12)


def test_each_voice_is_found_by_the_ratios_of_its_claims(identifier, opened, voices, heard):
    for voice in voices:
        found = identifier.identify_file(heard(voice))
        assert (found.decision, found.name, found.closed) == ("identified", voice, True)
        assert {one.name for one in found.candidates} == set(voices)
        assert [one.probability for one in found.candidates] == sorted(
            (one.probability for one in found.candidates), reverse=True
        )
        for one in found.candidates:
            update = Verifier(opened, one.name).verify_file(heard(voice))
            assert (one.score, one.llr) == pytest.approx((update.score, update.llr), abs=1e-6)
        assert found.speech_seconds == pytest.approx(update.speech_seconds)
        assert found.audio_seconds == pytest.approx(update.audio_seconds)


def test_a_voice_that_is_not_enrolled_and_one_taken_out_are_nobodys(opened, heard, silence):
    for voice in ("bruno", "clara", "edith"):
        assert Identifier(opened, nobody=0.9).identify_file(heard(voice)).name is None
    found = Identifier(opened, threshold=1e9).identify_file(heard("anna"))
    assert (found.decision, found.name, found.candidates[0].name) == ("nobody", None, "anna")
    assert Identifier(opened, threshold=-1e9).identify_file(heard("clara")).decision == "identified"
    mute = Identifier(opened).identify_file(silence)
    assert (mute.decision, mute.name, mute.candidates, mute.nobody) == ("not_enough_speech", None, (), None)


def test_whoever_is_at_the_threshold_is_identified_and_below_it_nobody(opened, heard):
    best = Identifier(opened).identify_file(heard("anna")).candidates[0].llr
    for threshold, name in ((best, "anna"), (np.nextafter(best, np.inf), None)):
        assert Identifier(opened, threshold=float(threshold)).identify_file(heard("anna")).name == name


def test_the_likeliest_outcome_is_taken_though_it_has_less_than_half(opened, heard):
    (first, rate), (second, _) = map(soundfile.read, (heard("bruno"), heard("lars")))
    count = min(len(first), len(second))
    found = Identifier(opened, nobody=0.0).identify(first[:count] + second[:count], rate)
    assert found.nobody < found.candidates[0].probability < 0.5
    assert found.name == found.candidates[0].name


def test_any_chunks_of_the_same_samples_give_the_same_outcome(identifier, said):
    samples, rate = said
    whole = identifier.identify(samples, rate)
    for size in (400, 3_333, 10**6):
        stream = identifier.stream(rate)
        decisions = [stream.push(samples[at : at + size]).decision for at in range(0, len(samples), size)]
        closed = stream.close()
        assert decisions[0] in {"not_enough_speech", whole.decision}
        assert closed.name == whole.name == "anna"
        np.testing.assert_allclose(
            [one.llr for one in closed.candidates], [one.llr for one in whole.candidates], atol=1e-6
        )
        assert stream.close() is closed
        with pytest.raises(StreamClosedError):
            stream.push(samples)
    with pytest.raises(AudioError, match="shape"):
        identifier.identify(samples[None], rate)
    with pytest.raises(AudioError, match="sampling rate"):
        identifier.identify(samples, 16)


def test_channels_that_cancel_each_other_are_no_silence(identifier, said):
    samples, rate = said
    stream = identifier.stream(rate)
    stream.push(np.stack([samples, -samples], axis=1))
    with pytest.raises(AudioError, match="identification: the channels cancel each other"):
        stream.close()


def test_whoever_cannot_be_claimed_is_no_candidate(copied, recordings, heard):
    enroll(copied, {"edith": recordings["edith"]}, role="background")
    found = Identifier(Store(copied).load(), best=99, nobody=0.1).identify_file(heard("edith"))
    assert "edith" not in {one.name for one in found.candidates}
    assert found.decision == IdentificationDecision.NOBODY


def test_what_cannot_be_identified_with_is_refused(opened, tmp_path, recordings, tiny):
    for options in ({"best": 0}, {"nobody": 1.0}, {"nobody": -0.1}, {"threshold": float("nan")}, {"system": "oracle"}):
        with pytest.raises(InputError):
            Identifier(opened, **options)
    alone = enroll(tmp_path / "s", {"anna": recordings["anna"]}, tiny).model
    with pytest.raises(MetricError, match="enroll more speakers"):
        Identifier(alone)


def test_among_background_speakers_alone_nobody_can_be_identified(tmp_path, recordings, tiny, inside, heard):
    others = {name: recordings[name] for name in ("dexter", "lars", "ivan")}
    model = enroll(tmp_path / "s", others, tiny, role="background").model
    with pytest.raises(InputError, match=r"s: nobody can be identified: .* background speakers"):
        Identifier(model)
    assert inside("identify", tmp_path / "s", heard("ivan")).code == 2


def test_the_store_answers_in_one_line_what_the_parts_do(store, opened, heard, tmp_path):
    door, file = pipeline.Store(store), heard("anna")
    assert door.identify(file, best=1) == Identifier(opened, best=1).identify_file(file)
    assert door.verify("ivan", str(file)) == Verifier(opened, "ivan").verify_file(file)
    samples, rate = soundfile.read(file, dtype="int16")
    verifier = Verifier(opened, "anna")
    assert verifier.verify(np.stack([samples, samples], axis=1), rate).score == pytest.approx(
        verifier.verify_file(file).score, abs=1e-9
    )
    with pytest.raises(InputError, match="nearest enrolled"):
        door.verify("amna", file)


def test_what_a_notebook_shows_is_short_and_escaped(opened, store, recordings, tiny, tmp_path, heard):
    model = enroll(tmp_path / "s", {"<b>": recordings["anna"], "c": recordings["ivan"]}, tiny).model
    assert "2 speakers ('<b>', 'c')" in repr(model) and len(repr(model)) < 300
    assert "<td>&lt;b&gt;</td>" in model._repr_html_() and "<b>" not in model._repr_html_()
    assert repr(Store(store)) == f"Store({str(store)!r})"
    assert "anna" in Store(store)._repr_html_()
    assert repr(Verifier(opened, "anna")).startswith("<Verifier of 'anna'")
    assert "4 speakers" in repr(Identifier(opened))
    assert "accepted" in Verifier(opened, "anna").verify_file(heard("anna"))._repr_html_()
    assert "nobody enrolled" in Identifier(opened).identify_file(heard("anna"))._repr_html_()


# The command


def test_identify_prints_who_speaks_and_its_exit_code_is_the_outcome(inside, store, heard, silence, garbage):
    anna = heard("anna")
    for words, code in [
        ((anna,), 0),
        ((heard("clara"), "--threshold", 1e9), 1),
        ((silence,), 3),
        ((garbage,), 2),
        ((anna, silence), 3),
        ((silence, garbage, anna), 2),
    ]:
        assert inside("identify", store, *words).code == code
    line = inside("identify", store, "-n", 2, anna).out
    assert line.startswith(f"{anna}: 'anna' 0.9") or line.startswith(f"{anna}: 'anna' 1.0")
    assert line.count("'") == 4 and "nobody enrolled" in line
    assert inside("identify", store, silence).out == f"{silence}: not enough speech, 0.00 s\n"


def test_identify_prints_json_of_files_and_of_a_pipe(inside, store, heard, voices):
    first, second = inside("identify", store, "--json", "--best", 9, heard("ivan"), "missing.wav").lines
    assert (first["name"], first["decision"], first["system"]) == ("ivan", "identified", "refined_worst_rival")
    assert first["candidates"][0]["name"] == "ivan"
    assert sum(one["probability"] for one in first["candidates"]) + first["nobody"] == pytest.approx(1.0)
    assert second.keys() == {"file", "decision", "error"}
    samples, rate = soundfile.read(heard("ivan"), dtype="int16")
    piped = inside("identify", store, "--raw", rate, "--json", "--best", 9, "-", data=samples.tobytes())
    assert piped.code == 0
    (live,) = piped.lines
    assert (live["file"], live["name"], live["frames"]) == ("-", "ivan", first["frames"])
    assert live["candidates"][0]["llr"] == pytest.approx(first["candidates"][0]["llr"], abs=1e-6)
