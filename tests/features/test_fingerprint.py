"""Replays: copies of known recordings are found whatever they went through, and nobody else is taken for one."""

from __future__ import annotations

import base64
import io
import json
import stat
from itertools import pairwise

import numpy as np
import pytest
import soundfile
import soxr
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.signal import lfilter

from pipeline.enrollment.enroll import enroll
from pipeline.enrollment.removal import remove_speaker
from pipeline.errors import AuditError
from pipeline.features.fingerprints import (
    RATE,
    STEP,
    STEP_SECONDS,
    DuplicateDetector,
    FingerprintStream,
    fingerprint_file,
    fingerprint_of,
    joined,
    most_differing,
)
from pipeline.scoring.decisions import Decision
from pipeline.store.model import SpeakerModel
from pipeline.store.store import Store
from pipeline.verification.audit_events import duplicate_memory
from pipeline.verification.duplicate_audio import DuplicateMemory
from pipeline.verification.verifier import Verifier


def take(seed: int, seconds: float = 1.2, rate: int = 16_000) -> np.ndarray:
    """A take like no other: pulses at a gliding pitch through resonances that jump every 60 ms, some noise."""
    random, n = np.random.default_rng(seed), round(seconds * rate)
    time = np.arange(n) / rate
    pitch = random.uniform(90, 220) * (
        1 + 0.2 * np.sin(2 * np.pi * random.uniform(0.5, 2) * time + random.uniform(0, 6))
    )
    pulses = (np.diff(np.floor(np.cumsum(pitch) / rate), prepend=0.0) > 0).astype(float)
    voiced = pulses + 0.01 * random.standard_normal(n)
    parts = []
    for syllable in np.array_split(voiced, 20):
        ringing = syllable
        for centre in (random.uniform(300, 800), random.uniform(900, 1800), random.uniform(2000, 3200)):
            r, angle = 0.97, 2 * np.pi * centre / rate
            ringing = lfilter([1.0], [1.0, -2 * r * np.cos(angle), r * r], ringing)
        parts.append(ringing)
    samples = np.concatenate(parts) * (0.6 + 0.4 * np.sin(2 * np.pi * 4 * time))
    return 0.5 * samples / np.abs(samples).max()


def coded(samples: np.ndarray, rate: int, **how: object) -> tuple[np.ndarray, int]:
    file = io.BytesIO()
    with soundfile.SoundFile(file, "w", rate, 1, **how) as sound:
        sound.write(samples)
    file.seek(0)
    return soundfile.read(file)


def mp3(samples: np.ndarray, rate: int) -> tuple[np.ndarray, int]:
    """At 128 of 8 to 160 kbit/s."""
    how = {"format": "MP3", "subtype": "MPEG_LAYER_III", "bitrate_mode": "CONSTANT"}
    return coded(samples, rate, compression_level=(160 - 128) / (160 - 8), **how)


COPIES = {
    "the same samples": lambda x, rate: (x, rate),
    "mp3": mp3,
    "mu-law": lambda x, rate: coded(x, rate, format="WAV", subtype="ULAW"),
    "telephone": lambda x, rate: coded(soxr.resample(x, rate, 8000), 8000, format="WAV", subtype="ULAW"),
    "48 kHz": lambda x, rate: (soxr.resample(x, rate, 48_000), 48_000),
    "44.1 kHz": lambda x, rate: (soxr.resample(x, rate, 44_100), 44_100),
    "turned down": lambda x, rate: (0.05 * x, rate),
    "upside down": lambda x, rate: (-x, rate),
    "late": lambda x, rate: (np.concatenate([np.zeros(4321), x, np.zeros(999)]), rate),
    "between others": lambda x, rate: (np.concatenate([take(901), x, take(902)]), rate),
    "its middle": lambda x, rate: (x[len(x) // 6 : -len(x) // 6], rate),
}


def suspected(known: list[np.ndarray], samples: np.ndarray, rate: int) -> bool:
    detector = DuplicateDetector(known, rate)
    detector.push(samples)
    return detector.close()


# Fingerprints


def test_there_is_one_number_for_every_step_once_the_window_and_the_step_back_are_full():
    result = fingerprint_of(take(1), 16_000)
    assert result.dtype == np.uint32
    assert len(result) == (len(take(1)) // 2 - 512) // STEP + 1 - 3
    assert STEP / RATE == STEP_SECONDS


@settings(deadline=None, max_examples=20)
@given(sizes=st.lists(st.integers(0, 6000), min_size=1, max_size=8).filter(any))
def test_any_cutting_gives_the_same_fingerprints(sizes):
    samples, stream, at, n, result = take(2), FingerprintStream(16_000), 0, 0, []
    while at < len(samples):
        result.append(stream.push(samples[at : at + sizes[n % len(sizes)]])[0])
        at, n = at + sizes[n % len(sizes)], n + 1
    result.append(stream.flush()[0])
    differing = np.bitwise_count(np.concatenate(result) ^ fingerprint_of(samples, 16_000))
    assert differing.sum() <= 2  # of some thousands: a level on the edge may round either way


def test_the_bits_are_the_slopes_of_the_spectrum_in_time():
    """Against the definition, written out with scipy-free loops over frames and bands."""
    samples = take(3, 0.3, rate=RATE)
    edges = np.round(np.geomspace(300, 3300, 34) / RATE * 512).astype(int)
    levels = []
    for start in range(0, len(samples) - 512 + 1, 80):
        power = np.abs(np.fft.rfft(samples[start : start + 512] * np.hanning(512))) ** 2
        levels.append([np.log(power[low:high].sum()) for low, high in pairwise(edges)])
    expected = []
    for now, before in zip(levels[3:], levels[:-3], strict=True):
        bits = [(now[b + 1] - now[b]) > (before[b + 1] - before[b]) for b in range(32)]
        expected.append(sum(1 << b for b, bit in enumerate(bits) if bit))
    assert len(expected) > 10
    np.testing.assert_array_equal(fingerprint_of(samples, RATE), np.array(expected, dtype=np.uint32))


def test_digital_silence_has_no_fingerprint_and_is_no_copy_of_silence():
    silent = fingerprint_of(np.zeros(16_000), 16_000)
    assert not silent.any()
    assert not suspected([silent], np.zeros(16_000), 16_000)


@pytest.mark.parametrize("samples", [np.empty(0), np.zeros(1), take(4)[:700]])
def test_audio_too_short_for_a_frame_is_no_copy_of_anything(samples):
    assert not suspected([fingerprint_of(take(4), 16_000)], samples, 16_000)


# Copies and others


@pytest.mark.parametrize("kind", COPIES)
def test_a_copy_is_found_whatever_it_went_through(kind):
    known = [fingerprint_of(take(seed), 16_000) for seed in range(20, 24)]
    for seed in range(20, 24):
        assert suspected(known, *COPIES[kind](take(seed), 16_000)), seed


def test_other_takes_are_no_copies():
    known = [fingerprint_of(take(seed), 16_000) for seed in range(20, 60)]
    assert not any(suspected(known, take(seed), 16_000) for seed in range(60, 90))


def test_nothing_is_a_copy_where_nothing_is_known():
    assert not suspected([], take(20), 16_000)
    assert not suspected([np.empty(0, dtype=np.uint32)], take(20), 16_000)


@settings(deadline=None, max_examples=15)
@given(sizes=st.lists(st.integers(0, 6000), min_size=1, max_size=8).filter(any), copy=st.booleans())
def test_what_is_suspected_does_not_depend_on_how_the_audio_is_cut(sizes, copy):
    known, samples = [fingerprint_of(take(20), 16_000)], take(20 if copy else 21)
    detector, at, n = DuplicateDetector(known, 16_000), 0, 0
    while at < len(samples):
        detector.push(samples[at : at + sizes[n % len(sizes)]])
        at, n = at + sizes[n % len(sizes)], n + 1
    assert detector.close() is copy


def test_a_copy_is_suspected_while_it_plays_and_stays_so():
    detector = DuplicateDetector([fingerprint_of(take(20, 3.0), 16_000)], 16_000)
    flags = [detector.push(part) for part in np.array_split(take(20, 3.0), 30)]
    assert flags.index(True) < 15
    assert all(flags[flags.index(True) :])


def test_few_frames_must_agree_better_than_many():
    allowed = [most_differing(loud) for loud in range(16, 65)]
    assert all(a < b for a, b in pairwise(allowed))
    assert 0 < allowed[0] < allowed[-1] < 0.3


# The store


def test_the_store_keeps_fingerprints_of_each_speakers_own_recordings(store, recordings, voices):
    opened = Store(store).load()
    for name in voices:
        expected = joined(fingerprint_file(utterance.path) for utterance in recordings[name])
        np.testing.assert_array_equal(opened.fingerprints(name), expected)


def test_an_enrollment_recording_is_suspected_and_decided_as_ever(store, recordings, tmp_path):
    verifier, path = Verifier(Store(store).load(), "anna"), recordings["anna"][0].path
    result = verifier.verify_file(path)
    assert result.duplicate_suspected is True
    assert result.decision is Decision.ACCEPTED
    soundfile.write(tmp_path / "copy.mp3", *soundfile.read(path))
    assert verifier.verify_file(tmp_path / "copy.mp3").duplicate_suspected is True
    ivan = Verifier(Store(store).load(), "ivan").verify_file(path)
    assert ivan.duplicate_suspected is False


def test_a_store_told_not_to_keeps_none_and_compares_nothing(forgetful, recordings):
    assert forgetful.fingerprints("anna") is None
    assert Verifier(forgetful, "anna").verify_file(recordings["anna"][0].path).duplicate_suspected is None


def test_a_verifier_told_not_to_compares_nothing(store, recordings):
    verifier = Verifier(Store(store).load(), "anna", replays=False)
    assert verifier.verify_file(recordings["anna"][0].path).duplicate_suspected is None


def test_fingerprints_go_with_their_speaker(copied):
    prints = Store(copied).load().fingerprints("ivan").tobytes()
    pieces = [prints[at : at + 64] for at in range(0, len(prints) - 64, 64)]  # SQLite cuts blobs into pages
    assert sum(piece in copied.read_bytes() for piece in pieces) > len(pieces) / 2
    remove_speaker(copied, "ivan")
    assert not any(piece in copied.read_bytes() for piece in pieces)
    assert Store(copied).load().fingerprints("lars") is not None


# What was accepted before


def test_what_was_added_is_known_for_its_claim_newest_first(tmp_path):
    memory, first, second = (
        DuplicateMemory(tmp_path / "f"),
        fingerprint_of(take(1), 16_000),
        fingerprint_of(take(2), 16_000),
    )
    assert memory.known("anna") == []
    memory.add("anna", first)
    memory.add("ivan", second)
    memory.add("anna", second)
    result = memory.known("anna")
    np.testing.assert_array_equal(result[0], second)
    np.testing.assert_array_equal(result[1], first)
    assert len(result) == 2
    assert len(memory.known("ivan")) == 1


def test_the_file_is_for_its_owner_alone(tmp_path):
    memory = DuplicateMemory(tmp_path / "f")
    memory.add("anna", fingerprint_of(take(1), 16_000))
    assert stat.S_IMODE((tmp_path / "f").stat().st_mode) == 0o600
    memory.add("ivan", fingerprint_of(take(1), 16_000))
    assert memory.forget("anna") == 1
    assert stat.S_IMODE((tmp_path / "f").stat().st_mode) == 0o600


def test_a_minute_of_a_recording_and_ten_of_a_claim_are_remembered(tmp_path):
    memory = DuplicateMemory(tmp_path / "f")
    for number in range(1, 14):
        memory.add("anna", np.full(7000, number, dtype=np.uint32))
    result = memory.known("anna")
    assert [int(prints[0]) for prints in result] == list(range(13, 3, -1))
    assert {len(prints) for prints in result} == {6000}


def test_what_is_forgotten_leaves_no_trace(tmp_path):
    memory = DuplicateMemory(tmp_path / "f")
    memory.add("anna", fingerprint_of(take(1), 16_000))
    memory.add("ivan", fingerprint_of(take(2), 16_000))
    assert memory.forget("anna") == 1
    assert memory.known("anna") == []
    assert b"anna" not in (tmp_path / "f").read_bytes()
    assert len(memory.known("ivan")) == 1
    assert DuplicateMemory(tmp_path / "none").forget("anna") == 0
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("content", [b"{}", b"SQLite format 3\0", bytes(range(256)) * 40])
def test_a_damaged_file_is_named(tmp_path, content):
    (tmp_path / "f").write_bytes(content)
    with pytest.raises(AuditError, match=r"f: "):
        DuplicateMemory(tmp_path / "f").known("anna")


def test_a_folder_in_its_place_is_an_error_that_names_it(tmp_path):
    (tmp_path / "f").mkdir()
    for action in (lambda m: m.known("anna"), lambda m: m.add("anna", np.ones(9, np.uint32))):
        with pytest.raises(AuditError, match=r"f: "):
            action(DuplicateMemory(tmp_path / "f"))


@pytest.fixture(scope="module")
def forgetful(tmp_path_factory, recordings, tiny_with) -> SpeakerModel:
    """A store without fingerprints: a synthesiser repeats itself to the bit, and what is enrolled is not meant here."""
    chosen = {name: recordings[name] for name in ("anna", "ivan", "lars")}
    return enroll(tmp_path_factory.mktemp("forgetful") / "s", chosen, tiny_with("duplicate_audio.keep=false")).model


def test_accepted_audio_is_suspected_the_second_time_and_kept_once(forgetful, heard, tmp_path):
    memory = DuplicateMemory(tmp_path / "f")
    verifier, path = Verifier(forgetful, "anna", memory=memory), heard("anna")
    result = [verifier.verify_file(path) for _ in range(3)]
    assert [update.duplicate_suspected for update in result] == [False, True, True]
    assert all(update.decision is Decision.ACCEPTED for update in result)
    assert len(memory.known("anna")) == 1
    false = Verifier(forgetful, "ivan", memory=memory).verify_file(path)
    assert (false.decision, false.duplicate_suspected, memory.known("ivan")) == (Decision.REJECTED, False, [])


def test_the_command_flags_a_second_playing_and_the_log_holds_no_fingerprint(forgetful, heard, run, tmp_path):
    words = ("verify", forgetful.where, "--claim", "anna", "--log", "calls.jsonl")
    first, second = (json.loads(run(*words, "--json", heard("anna")).out) for _ in range(2))
    assert first["decision"] == second["decision"] == "accepted"
    assert [first["duplicate_suspected"], second["duplicate_suspected"]] == [False, True]
    assert "duplicate suspected" in run(*words, heard("anna")).out
    log = (tmp_path / "calls.jsonl").read_text(encoding="utf-8")
    lines = [table for table in map(json.loads, log.splitlines()) if table["event"] == "verify"]
    assert [table["duplicate_suspected"] for table in lines] == [False, True, True]
    (kept,) = DuplicateMemory(tmp_path / "calls.jsonl.fingerprints").known("anna")
    assert base64.b64encode(kept[:30].tobytes()).decode() not in log
    assert kept[:30].tobytes().hex() not in log


def test_the_memory_of_a_log_stands_beside_it(tmp_path):
    assert duplicate_memory(None) is None
    assert duplicate_memory(tmp_path / "calls.jsonl").path == tmp_path / "calls.jsonl.fingerprints"


@pytest.mark.parametrize("keep", [0, 1, 57, 10_000])
def test_only_the_beginning_of_a_long_stream_is_kept(keep):
    samples = np.random.default_rng(0).normal(0, 0.1, 16_000)
    everything, some = DuplicateDetector([], RATE), DuplicateDetector([], RATE, keep=keep)
    for part in np.array_split(samples, 37):
        everything.push(part)
        some.push(part)
    assert len(everything.prints) > 150
    np.testing.assert_array_equal(some.prints, everything.prints[:keep])
