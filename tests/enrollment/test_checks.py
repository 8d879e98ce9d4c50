"""Enrollment checks: detection on degraded recordings, refusals, and their effect on the other speakers."""

from __future__ import annotations

import io
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from populations import TINY, assert_same, content

from pipeline.audio.corpus import Utterance
from pipeline.audio.files import read_samples
from pipeline.cli.enroll import enroll as command
from pipeline.cli.options import IN_PART
from pipeline.config import CHECKS, NO_CHECKS, ChecksConfig, ThresholdConfig, load_config
from pipeline.enrollment.checks import MIN_OTHERS, check_trials, held_out_seconds, strengths_of
from pipeline.enrollment.duplicates import MOST_LATE, copies, duplicates
from pipeline.enrollment.enroll import enroll
from pipeline.enrollment.new_speakers import NewSpeaker, Speech
from pipeline.enrollment.quality import Clipping, RecordingMeter, clipped_share, median_snr
from pipeline.errors import ConfigError, EnrollmentRefusedError
from pipeline.scoring.trials import HeldOutTrials
from pipeline.verification.audio_warnings import WARNINGS
from pipeline.verification.verifier import Verifier

EVERY = ("clipping", "noise", "channels", "narrow_band", "duplicates", "consistency", "matches")
RATE = 8000
SYSTEM = "supervector_rival"


def quality(action: str = "off", **changes: object) -> ChecksConfig:
    """Settings with every check at ``action``, but for ``changes``."""
    return ChecksConfig(**{**dict.fromkeys(EVERY, action), **changes})


def test_every_check_is_listed_once_and_can_be_off(inside):
    assert (EVERY, quality("off")) == (CHECKS, NO_CHECKS)
    words = inside("enroll", "--help").out
    assert all(name in words for name in CHECKS)


@pytest.fixture(scope="module")
def measured(tiny):
    """measured(samples or utterance, block=n): the recording's measurements, taken in blocks."""

    def measure(audio: np.ndarray | Utterance, block: int = 4096):
        samples, rate = read_samples(audio) if isinstance(audio, Utterance) else (audio, RATE)
        meter = RecordingMeter(Path("x.wav"), tiny.features)
        for start in range(0, len(samples), block):
            meter.push(samples[start : start + block], rate)
        return meter.finish()

    return measure


def saved(path: Path, samples: np.ndarray) -> Utterance:
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, samples, RATE, subtype="PCM_16")
    return Utterance(path.parent.name, path)


# Clipping


def runs_at_the_top(samples: np.ndarray) -> int:
    """Count samples in runs of three or more of one sign within 1e-4 of the largest magnitude, by a plain loop."""
    top, count, start = np.abs(samples).max(), 0, 0
    while start < len(samples):
        end = start
        while end < len(samples) and samples[end] * np.sign(samples[start]) >= (1.0 - 1e-4) * top:
            end += 1
        if top > 0 and end - start >= 3:
            count += end - start
        start = max(end, start + 1)
    return count


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32 - 1), st.floats(0.05, 5.0), st.floats(0.01, 1.0), st.integers(0, 400))
def test_clipped_samples_are_those_in_runs_at_the_maximum_at_any_level(seed, level, gain, length):
    random = np.random.default_rng(seed)
    smooth = np.convolve(random.standard_normal(length + 20), np.ones(8) / 8, "valid")[:length]
    samples = gain * np.clip(level * smooth, -1.0, 1.0)
    counter = Clipping()
    counter.push(samples)
    assert counter.samples == len(samples)
    assert counter.clipped == (runs_at_the_top(samples) if len(samples) else 0)


def test_a_louder_block_resets_the_count():
    counter = Clipping()
    counter.push(np.full(50, 0.2))
    assert counter.clipped == 50
    counter.push(np.array([0.1, 0.9, 0.3]))
    assert (counter.samples, counter.clipped) == (53, 0)


@pytest.mark.parametrize("steps", [1, 3, 8, 16])
def test_speech_that_is_far_too_quiet_is_not_clipped(recordings, steps):
    samples = read_samples(recordings["ivan"][0])[0]
    counter = Clipping()
    counter.push(np.round(steps * samples / np.abs(samples).max()) / 2**15)
    assert counter.clipped == 0


def test_only_clipped_recordings_have_clipped_samples(recordings, measured):
    spoken = [read_samples(one)[0] for one in recordings["ivan"][:3]]
    assert clipped_share(list(map(measured, spoken))) == 0.0
    loud = [0.3 * np.clip(samples / np.abs(samples).max() * 4, -1, 1) for samples in spoken]
    assert clipped_share(list(map(measured, loud))) > 0.01
    assert clipped_share([]) == 0.0


# Noise


def test_the_estimate_follows_the_noise_that_was_added(recordings, measured):
    random, estimates = np.random.default_rng(0), {}
    for snr in (5, 10, 15, 20, 25):
        noisy = []
        for one in recordings["ivan"][:4]:
            samples, _ = read_samples(one)
            speech = np.mean(samples[np.abs(samples) > 0.1 * np.abs(samples).max()] ** 2)
            noise = np.sqrt(speech / 10 ** (snr / 10)) * random.standard_normal(len(samples))
            noisy.append(measured(samples + noise))
        estimates[snr] = median_snr(noisy)
    assert list(estimates.values()) == sorted(estimates.values())
    # Speech is loud samples here and speech frames there, which include its quieter half.
    assert all(snr - 6 < estimate < snr + 2 for snr, estimate in estimates.items() if snr >= 10), estimates
    assert estimates[5] < 5
    assert np.isfinite(measured(2.0**30 * samples).snr_db)  # far above full scale


def test_silence_has_no_signal_to_noise_ratio_and_no_duplicates(measured):
    hum = np.sin(2 * np.pi * 400 * np.arange(100) / RATE)
    quiet = [measured(np.zeros(RATE)), measured(np.empty(0)), measured(hum)]
    assert [quiet[0].snr_db, quiet[1].snr_db, median_snr(quiet[:2])] == [None] * 3
    assert duplicates(list(enumerate(quiet))) == []
    assert duplicates([]) == []


def test_measurements_do_not_depend_on_the_block_size(recordings, measured):
    whole, cut = (measured(recordings["anna"][0], block=block) for block in (10**9, 777))
    assert whole.snr_db == cut.snr_db
    np.testing.assert_array_equal(whole.prints, cut.prints)
    np.testing.assert_array_equal(whole.loud, cut.loud)


# Duplicates


def test_different_recordings_are_no_duplicates(recordings, measured):
    spoken = [(number, one) for number, name in enumerate(sorted(recordings)) for one in recordings[name]]
    assert len(spoken) == 144
    heard = [(number, measured(one)) for number, one in spoken]
    assert duplicates(heard) == []
    assert [copies([one for owner, one in heard if owner == number]) for number in range(len(recordings))] == [[]] * 12


def coded(samples: np.ndarray, **how: object) -> np.ndarray:
    file = io.BytesIO()
    soundfile.write(file, samples, RATE, **how)
    file.seek(0)
    return soundfile.read(file)[0]


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x,
        lambda x: 0.2 * x,
        lambda x: x[400:],
        lambda x: np.concatenate((np.zeros(3001), x)),
        lambda x: coded(x, format="WAV", subtype="ULAW"),
        lambda x: coded(x, format="MP3", subtype="MPEG_LAYER_III"),
        lambda x: x + 1e-3 * np.random.default_rng(0).standard_normal(len(x)),
    ],
    ids=["again", "quiet", "cut", "late", "mu-law", "MP3", "noise"],
)
def test_a_duplicate_is_detected_after_any_coding(recordings, measured, change):
    others = [(0, measured(one)) for one in recordings["lars"][:5]]
    copy = measured(change(read_samples(recordings["lars"][2])[0]))
    assert duplicates([*others, (1, copy)]) == [(2, 5)]
    assert duplicates([(1, copy), *others]) == [(0, 3)]
    assert duplicates([*others, (0, copy)]) == []  # of the same speaker
    are_whole = abs(len(copy.prints) - len(others[2][1].prints)) <= MOST_LATE
    assert copies([*(one for _, one in others), copy]) == ([(2, 5)] if are_whole else [])
    twice = [(0, others[2][1]), (0, others[2][1]), (1, copy)]
    assert duplicates(twice) == [(0, 2), (1, 2)]


@pytest.fixture(scope="module")
def loudest(recordings) -> np.ndarray:
    """Three tenths of a second from the loudest sample of a recording on."""
    samples = read_samples(recordings["lars"][2])[0]
    return samples[np.argmax(np.abs(samples)) :][: 3 * RATE // 10]


def test_pauses_tell_nothing_of_a_duplicate(loudest, measured):
    def noisy(seed: int):
        words = np.tile(np.append(loudest, np.zeros(RATE // 2)), 2)
        return measured(words + 1e-4 * np.random.default_rng(seed).standard_normal(len(words)))

    assert duplicates([(0, noisy(1)), (1, noisy(2))]) == [(0, 1)]


def test_very_short_recordings_are_duplicates_where_they_are_the_same_throughout(loudest, measured):
    def of(frames: int, noise: float = 0.0):
        samples = loudest[: 512 + 80 * (frames + 2)]  # the first fingerprint is that of the fourth frame
        made = measured(samples + noise * np.random.default_rng(0).standard_normal(len(samples)))
        assert made.loud.tolist() == [True] * frames
        return made

    for one, other, found in (
        (of(9), of(9), []),
        (of(10), of(10), [(0, 1)]),
        (of(12), of(14), []),
        (of(12), of(12, 1e-3), []),
        (of(18), of(18, 1e-3), [(0, 1)]),
    ):
        assert duplicates([(0, one), (1, other)]) == found


@pytest.mark.parametrize("seconds", [0.3, 0.5])
def test_copies_of_short_clips_are_found_and_other_clips_are_not(recordings, measured, seconds):
    samples = np.concatenate([read_samples(one)[0] for one in recordings["lars"]])
    clips = [
        measured(clip) for clip in samples[: len(samples) // RATE * RATE].reshape(-1, RATE)[:, : int(seconds * RATE)]
    ]
    assert copies(clips) == []
    assert copies([*clips, *clips]) == [(n, n + len(clips)) for n, clip in enumerate(clips) if clip.loud.sum() >= 10]


def test_a_copy_in_a_speakers_own_folder_warns_and_changes_nothing(tmp_path, recordings, tiny):
    speakers = {name: recordings[name][:5] for name in ("anna", "ivan")}
    samples = read_samples(speakers["ivan"][1])[0]
    speakers["ivan"] += (saved(tmp_path / "ivan" / "once more.wav", samples),)
    report = enroll(tmp_path / "s", speakers, tiny, quality=quality(duplicates="refuse"))
    (warned,) = report.findings
    assert (warned.speaker, warned.check, warned.refused) == ("ivan", "duplicates", False)
    assert f"1 of 6 recordings are copies of others by the same speaker, the first of them {tmp_path}" in warned.reason
    assert f"once more.wav, of {speakers['ivan'][1].path}" in warned.reason
    silent = enroll(tmp_path / "off", speakers, tiny, quality=quality())
    assert silent.findings == ()
    assert_same(silent.model, report.model)


def test_recordings_far_from_full_scale_warn_at_enrollment_as_at_verification(tmp_path, recordings, tiny):
    speakers = {name: recordings[name][:4] for name in ("anna", "ivan")}
    wrong = tmp_path / "wrong.wav"
    soundfile.write(wrong, 32768 * read_samples(recordings["ivan"][4])[0], RATE, subtype="FLOAT")
    speakers["ivan"] += (Utterance("ivan", wrong),)
    report = enroll(tmp_path / "s", speakers, tiny)
    (warned,) = report.findings
    assert (warned.speaker, warned.check, warned.refused) == ("ivan", "scale", False)
    assert f"speaker 'ivan': 1 of 5 recordings, the first of them {wrong}: {WARNINGS['scale']}" == warned.reason
    assert f"scale: {WARNINGS['scale']}" in Verifier(report.model, "ivan").verify_file(wrong).warnings


# Refusals and warnings


def test_a_recording_under_two_names_refuses_both_and_leaves_no_trace_in_the_others(tmp_path, recordings, tiny):
    rest = {name: recordings[name] for name in ("anna", "dexter")}
    copy = Utterance("zoe", recordings["ivan"][3].path)
    speakers = rest | {"ivan": recordings["ivan"], "zoe": (*recordings["lars"][:5], copy)}
    report = enroll(tmp_path / "s", speakers, tiny)
    assert [name for name, _ in report.refused] == ["ivan", "zoe"]
    assert "1 of 12 recordings are duplicates of recordings of speaker 'zoe'" in dict(report.refused)["ivan"]
    assert (
        f"1 of 6 recordings are duplicates of recordings of speaker 'ivan', the first of them {copy.path}"
        in dict(report.refused)["zoe"]
    )
    assert {(finding.check, finding.refused) for finding in report.findings} == {("duplicates", True)}
    assert report.warnings == ()
    assert_same(report.model, enroll(tmp_path / "without", rest, tiny).model)


def test_an_announcement_before_two_calls_is_named_as_a_cause(tmp_path, recordings, tiny):
    announcement = read_samples(recordings["hugo"][0])[0]
    speakers = {name: recordings[name][:4] for name in ("ivan", "lars")}
    for name in speakers:
        call = np.concatenate([announcement, read_samples(recordings[name][4])[0]])
        speakers[name] += (saved(tmp_path / name / "call.wav", call),)
    report = enroll(tmp_path / "s", speakers, tiny, quality=quality(duplicates="warn"))
    assert [finding.speaker for finding in report.findings] == ["ivan", "lars"]
    cause = "call.wav. Wrong folder, or tones, music or an announcement in both, to be cut off?"
    assert all("1 of 5 recordings" in one.reason and one.reason.endswith(cause) for one in report.findings)


def test_a_check_can_warn_or_be_off(tmp_path, recordings, tiny):
    speakers = {"ivan": recordings["ivan"][:8], "zoe": recordings["ivan"][:6]}
    warned = enroll(tmp_path / "warn", speakers, tiny, quality=quality(duplicates="warn"))
    assert [(one.speaker, one.check) for one in warned.warnings] == [("ivan", "duplicates"), ("zoe", "duplicates")]
    assert warned.refused == ()
    assert warned.model.names == ("ivan", "zoe")
    assert warned.model.config.checks == tiny.checks  # for one enrollment only
    silent = enroll(tmp_path / "off", speakers, tiny, quality=quality())
    assert silent.findings == ()
    assert_same(silent.model, warned.model)
    with pytest.raises(EnrollmentRefusedError, match=r"nobody was enrolled: speaker 'ivan': .*\(and 1 more speakers\)"):
        enroll(tmp_path / "none", speakers, tiny)
    assert not (tmp_path / "none").exists()


def test_a_duplicate_of_an_enrolled_recording_is_refused_and_the_store_stays_as_it_was(tmp_path, recordings, tiny):
    path, some = tmp_path / "s", {name: recordings[name][:6] for name in ("anna", "ivan", "lars")}
    enroll(path, {name: some[name] for name in ("anna", "ivan")}, tiny)
    before = content(path)
    words = r"speaker 'zoe': .* duplicates of .* enrolled speaker 'ivan'"
    with pytest.raises(EnrollmentRefusedError, match=words) as caught:
        enroll(path, {"zoe": some["ivan"]})
    assert caught.value.findings == {"zoe": "duplicates"}
    assert content(path) == before
    later = enroll(path, {"zoe": some["ivan"], "lars": some["lars"]})
    assert [name for name, _ in later.refused] == ["zoe"]
    assert later.model.names == ("anna", "ivan", "lars")


def test_one_duplicate_among_others_is_detected_by_stored_fingerprints(copied, recordings):
    mixed = (*recordings["hugo"][:4], Utterance("hugo", recordings["lars"][7].path))
    report = enroll(copied, {"hugo": mixed}, quality=quality("warn"))
    (duplicate,) = [finding for finding in report.warnings if finding.check == "duplicates"]
    assert "1 of 5 recordings are duplicates of recordings of enrolled speaker 'lars'" in duplicate.reason


def test_clipped_and_noisy_recordings_warn_or_are_refused(tmp_path, recordings, tiny):
    rest, random = {name: recordings[name][:4] for name in ("anna", "lars")}, np.random.default_rng(1)
    speakers = dict(rest)
    for name, change in (
        ("loud", lambda x: 0.5 * np.clip(8 * x / np.abs(x).max(), -1, 1)),
        ("noisy", lambda x: x + np.sqrt(np.mean(x**2)) * random.standard_normal(len(x))),
    ):
        speakers[name] = tuple(
            saved(tmp_path / name / f"{n}.wav", change(read_samples(one)[0]))
            for n, one in enumerate(recordings["dexter" if name == "loud" else "ivan"][:6])
        )
    warned = enroll(tmp_path / "warned", speakers, tiny)
    assert [(one.speaker, one.check) for one in warned.warnings] == [("loud", "clipping"), ("noisy", "noise")]
    assert "% of the samples are clipped (at most 0.10% expected)" in warned.warnings[0].reason
    assert "dB (at least 10 expected)" in warned.warnings[1].reason
    strict = enroll(tmp_path / "strict", speakers, tiny, quality=quality("refuse"))
    assert [name for name, _ in strict.refused] == ["loud", "noisy"]
    assert_same(strict.model, enroll(tmp_path / "alone", rest, tiny).model)


def test_two_voices_in_a_folder_are_refused_without_a_trace_and_one_voice_under_two_names_is_named(
    tmp_path, recordings, tiny_with
):
    """Speakers refused by held-out trials were in the hold-out pass, which is repeated without them."""
    settings_ = tiny_with("threshold.holdout=0.4", "scoring.system=supervector_rival")
    names, path = ("anna", "bruno", "clara", "dexter", "edith"), tmp_path / "s"
    enroll(path, {name: recordings[name] for name in names} | {"ivan": recordings["ivan"][::2]}, settings_)
    shutil.copy(path, tmp_path / "without")
    mixed = (*recordings["fergus"][:7], *recordings["karla"][:5])
    again = {"ivan again": recordings["ivan"][1::2]}
    steps: list[str] = []
    report = enroll(
        path, {"mixed": mixed} | again,
        quality=quality(consistency="refuse", matches="warn"),
        progress=lambda stage, _done, _total: steps.append(stage),
    )  # fmt: skip
    assert [(finding.speaker, finding.check, finding.refused) for finding in report.findings] == [
        ("mixed", "consistency", True), ("ivan again", "matches", False),
    ]  # fmt: skip
    assert "match speaker 'ivan' " in report.warnings[0].reason
    assert "Second voice in the folder, a day or line unlike the others" in report.findings[0].reason
    assert report.model.names == (*names, "ivan", "ivan again")
    assert {"thresholds: machines", "again, thresholds: machines"} <= set(steps)
    assert_same(report.model, enroll(tmp_path / "without", again, quality=quality()).model)


def test_who_cannot_be_judged_is_enrolled_with_a_warning_where_the_check_was_to_refuse(tmp_path, recordings, tiny):
    speakers = {name: recordings[name][:4] for name in ("anna", "ivan")}
    report = enroll(tmp_path / "s", speakers, tiny, quality=quality(matches="refuse", consistency="warn"))
    assert [(one.speaker, one.check, one.refused) for one in report.findings] == [
        (name, "matches", False) for name in speakers
    ]
    assert "'anna': not checked (matches): " in report.warnings[0].reason
    assert enroll(tmp_path / "warn", speakers, tiny, quality=quality(matches="warn")).findings == ()


# Held-out trials


def trials_of(own: dict[int, float], twin: tuple[int, int] | None = None) -> HeldOutTrials:
    """Make two utterances per speaker, claimed for everyone: target scores near ``own``, nontarget ones near -4.

    Utterances of the first of ``twin`` score on the second like the second's own.
    """
    random = np.random.default_rng(0)
    rows = [
        (claim, speaker, unknown)
        for speaker in own
        for _ in range(2)
        for claim in own
        for unknown in (False, True)
        if not (unknown and claim == speaker)
    ]
    claims, speakers, unknown = (np.array(column) for column in zip(*rows, strict=True))
    scores = random.normal(-4.0, 1.0, len(rows))
    for n, (claim, speaker) in enumerate(zip(claims, speakers, strict=True)):
        if claim == speaker or (speaker, claim) == twin:
            scores[n] = own[claim] + random.normal(0.0, 0.2)
    return HeldOutTrials(
        claims.astype(np.uint64), speakers.astype(np.uint64), np.full(len(rows), len(own)),
        {SYSTEM: scores}, np.full(len(rows), 200), unknown,
    )  # fmt: skip


def test_strengths_are_relative_to_the_other_speakers():
    own = dict.fromkeys(range(1, 10), 4.0) | {7: -1.0}
    strengths = strengths_of(list(own), trials_of(own, twin=(3, 5)), SYSTEM, ThresholdConfig(), population=9)
    assert set(strengths) == set(own)
    assert strengths[7].own < 0.6 < min(strengths[n].own for n in own if n != 7)
    assert strengths[3].claim == 5
    assert strengths[3].other > 0.8
    assert max(strengths[n].other for n in own if n != 3) < 0.3


def test_strengths_need_enough_other_speakers():
    def strengths(judged: list[int], count: int):
        trials = trials_of(dict.fromkeys(range(1, 1 + count), 4.0))
        return strengths_of(judged, trials, SYSTEM, ThresholdConfig(), population=count)

    assert strengths([1], MIN_OTHERS + 1)[1].own == pytest.approx(1.0, abs=0.2)
    assert strengths([1], MIN_OTHERS) == strengths([], MIN_OTHERS + 1) == {}


def test_speakers_are_judged_by_three_seconds_or_more():
    own = dict.fromkeys(range(1, 10), 4.0) | {7: -1.0}
    trials, names = trials_of(own, twin=(3, 5)), {number: f"v{number}" for number in own}
    voices = [NewSpeaker(name, Speech([[]], []), id=number) for number, name in names.items()]
    settings_ = load_config(None, [f"scoring.system={SYSTEM}"])
    for frames, expected in ((150, [("v3", "matches"), ("v7", "consistency")]), (149, [])):
        some = replace(trials, frames=np.full(len(trials), frames))  # of each of two utterances
        findings = check_trials(quality("warn"), voices, some, names, settings_)
        assert [(finding.speaker, finding.check) for finding in findings] == expected


def test_held_out_seconds_count_each_utterance_once():
    trials = trials_of(dict.fromkeys(range(1, 4), 1.0))
    assert held_out_seconds(trials, 0.01) == {1: 4.0, 2: 4.0, 3: 4.0}
    assert held_out_seconds(replace(trials, frames=np.full(len(trials), 50)), 0.01)[2] == 1.0


# The command


def test_the_command_warns_refuses_and_logs_both_without_file_names(corpus_of, tmp_path, capsys):
    root = corpus_of(anna=5, ivan=5, lars=5)
    (root / "zoe").mkdir()
    shutil.copy(sorted((root / "ivan").iterdir())[0], root / "zoe" / "copy.flac")
    shutil.copy(sorted((root / "lars").iterdir())[1], root / "zoe" / "more.flac")
    words = [*TINY, "codebook.min_seconds=1", "codebook.centroids=20"]
    log = tmp_path / "changes.jsonl"
    with pytest.raises(typer.Exit) as told:
        command(root, tmp_path / "s", override=words, log=log, as_json=True)
    assert told.value.exit_code == IN_PART
    shown = capsys.readouterr()
    result = json.loads(shown.out)
    assert shown.err == "voiceclaim: not everything was enrolled: 3 speakers refused, 0 files or folders not read\n"
    assert [speaker["name"] for speaker in result["enrolled"]] == ["anna"]
    assert [entry["name"] for entry in result["refused"]] == ["ivan", "lars", "zoe"]
    assert result["warnings"] == []
    command(root, tmp_path / "t", override=words, check=["duplicates=warn"], log=log)
    shown = capsys.readouterr()
    assert shown.err.count("warning: speaker") == 4  # two of them about zoe
    assert "4 enrolled, 0 refused" in shown.out
    lines = [json.loads(line) for line in log.read_bytes().splitlines()[1:]]
    assert [(line["speaker"], line["decision"], line.get("checks"), line.get("warnings")) for line in lines] == [
        ("anna", "enrolled", None, ""), *((name, "refused", "duplicates", None) for name in ("ivan", "lars", "zoe")),
        ("anna", "enrolled", None, ""),
        *((name, "enrolled", None, "duplicates") for name in ("ivan", "lars", "zoe")),
    ]  # fmt: skip
    assert ".flac" not in log.read_text()


@pytest.mark.parametrize("wrong", ["noise", "hiss=warn", "noise=maybe", "=warn"])
def test_an_unknown_check_is_an_error_of_the_command(demo, copied, wrong):
    before = content(copied)
    with pytest.raises((typer.BadParameter, ConfigError), match="--check"):
        command(demo / "enroll", copied, only=["hugo"], check=[wrong])
    assert content(copied) == before
