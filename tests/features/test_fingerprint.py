"""Duplicate audio: copies of known recordings are detected whatever they went through, and other takes are not."""

from __future__ import annotations

import base64
import io
import json
import sqlite3
import stat
from contextlib import closing
from itertools import pairwise

import numpy as np
import pytest
import soundfile
import soxr
from hypothesis import given, settings
from hypothesis import strategies as st
from librosa.effects import pitch_shift, time_stretch
from scipy.signal import lfilter
from sounds import cut

from pipeline.audio.files import read_samples
from pipeline.enrollment.enroll import enroll
from pipeline.enrollment.removal import remove_speaker
from pipeline.errors import AuditError
from pipeline.features.copies import DuplicateDetector
from pipeline.features.fingerprints import RATE, SCALES, FingerprintStream, joined
from pipeline.scoring.decisions import Decision
from pipeline.store.model import SpeakerModel
from pipeline.store.sealing import seal_store
from pipeline.store.store import Store
from pipeline.verification.audit_events import duplicate_memory
from pipeline.verification.duplicate_audio import DuplicateMemory
from pipeline.verification.verifier import Verifier


def take(seed: int, seconds: float = 1.2, rate: int = 16_000) -> np.ndarray:
    """A take like no other: syllables of 20 to 160 ms, pulses at a pitch of their own or noise, through resonances."""
    random, parts = np.random.default_rng(seed), []
    while sum(map(len, parts)) < seconds * rate:
        time = np.arange(round(random.uniform(0.02, 0.16) * rate)) / rate
        pitch, glide = random.uniform((90, -300), (220, 300))
        pulses = np.diff(np.floor(pitch * time + glide * time**2 / 2), prepend=0.0) > 0
        ringing = (pulses if random.random() < 0.7 else 0.0) + 0.01 * random.standard_normal(len(time))
        for centre in random.uniform((300, 900, 2000), (800, 1800, 3200)):
            r, angle = 0.97, 2 * np.pi * centre / rate
            ringing = lfilter([1.0], [1.0, -2 * r * np.cos(angle), r * r], ringing)
        parts.append(random.uniform(0.3, 1) * ringing / np.abs(ringing).max())
    return 0.5 * np.concatenate(parts)[: round(seconds * rate)]


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
    "turned down": lambda x, rate: (0.05 * x, rate),
    "upside down": lambda x, rate: (-x, rate),
    "late": lambda x, rate: (np.concatenate([np.zeros(4321), x, np.zeros(999)]), rate),
    "between others": lambda x, rate: (np.concatenate([take(901), x, take(902)]), rate),
    "its first quarter of a second": lambda x, rate: (x[: rate * 27 // 100], rate),
    "its middle": lambda x, rate: (x[len(x) // 6 : -len(x) // 6], rate),
}


def fingerprint_of(samples: np.ndarray, rate: int = 16_000, sizes: tuple[int, ...] = ()) -> np.ndarray:
    stream = FingerprintStream(rate)
    return joined(prints[:, 0] for prints, _ in (*map(stream.push, cut(samples, list(sizes))), stream.flush()))


def suspected(known: list[np.ndarray], samples: np.ndarray, rate: int = 16_000) -> bool:
    detector = DuplicateDetector(known, rate)
    detector.push(samples)
    return detector.close()


# Fingerprints


SIZES = st.lists(st.integers(0, 6000), max_size=8)


@settings(deadline=None, max_examples=20)
@given(SIZES)
def test_any_cutting_gives_the_same_fingerprints(sizes):
    differing = np.bitwise_count(fingerprint_of(take(2), sizes=sizes) ^ fingerprint_of(take(2)))
    assert differing.sum() <= 2  # of some thousands: a level on the edge may round either way


@pytest.mark.parametrize("scale", range(len(SCALES)))
def test_the_bits_are_the_slopes_of_the_spectrum_in_time(scale):
    """Against the definition, written out with loops over frames and bands."""
    samples = take(3, 0.3, rate=RATE)
    edges = np.round(SCALES[scale] * np.geomspace(300, 3300, 34) / RATE * 512).astype(int)
    levels = []
    for start in range(0, len(samples) - 512 + 1, 80):
        power = np.abs(np.fft.rfft(samples[start : start + 512] * np.hanning(512))) ** 2
        levels.append([np.log(power[low:high].sum()) for low, high in pairwise(edges)])
    expected = []
    for now, before in zip(levels[3:], levels[:-3], strict=True):
        bits = [(now[b + 1] - now[b]) > (before[b + 1] - before[b]) for b in range(32)]
        expected.append(sum(1 << b for b, bit in enumerate(bits) if bit))
    assert len(expected) > 10
    stream = FingerprintStream(RATE, SCALES)
    result = np.concatenate([stream.push(samples)[0], stream.flush()[0]])
    np.testing.assert_array_equal(result[:, scale], np.array(expected, dtype=np.uint32))
    np.testing.assert_array_equal(result[:, 0], fingerprint_of(samples, RATE))


def test_digital_silence_has_no_fingerprint_and_is_no_copy_of_silence():
    silent = fingerprint_of(np.zeros(16_000))
    assert not silent.any()
    assert not suspected([silent], np.zeros(16_000))
    after_sound = fingerprint_of(np.append(take(2, 0.5, RATE), np.zeros(RATE)), RATE)
    assert after_sound[:47].any()
    assert not after_sound[47:].any()  # frames that begin after half a second, three of 10 ms later


# Copies and others


def test_audio_too_short_for_a_frame_and_anything_where_nothing_is_known_are_no_copies():
    for samples in (np.empty(0), np.zeros(1), take(4)[:700]):
        assert not suspected([fingerprint_of(take(4))], samples)
    for known in ([], [np.empty(0, dtype=np.uint32)]):
        assert not suspected(known, take(20))


@pytest.mark.parametrize("kind", COPIES)
def test_a_copy_is_detected_whatever_it_went_through(kind):
    known = [fingerprint_of(take(seed)) for seed in range(20, 23)]
    for seed in range(20, 23):
        assert suspected(known, *COPIES[kind](take(seed), 16_000)), seed


@pytest.mark.parametrize("late", range(0, 3200, 320))
def test_a_recording_shorter_than_the_window_is_detected_between_silence_and_at_the_end(late):
    known, before = [fingerprint_of(take(20, 0.4))], np.zeros(8000 + late)
    assert suspected(known, np.concatenate((before, take(20, 0.4), np.zeros(16_000))))
    assert suspected(known, np.concatenate((before, take(20, 0.4))))


def test_pauses_are_not_compared():
    def phrase(seed: int) -> np.ndarray:
        """Words 60 dB above a noise that is another each time, which lasts five times as long."""
        words = [np.append(np.zeros(16_000), take(number, 0.2)) for number in range(20, 24)]
        return np.concatenate(words) + 1e-4 * np.random.default_rng(seed).standard_normal(4 * 19_200)

    assert suspected([fingerprint_of(phrase(1))], phrase(2))


CHANGES = {
    **{f"speed {by}": lambda x, by=by: soxr.resample(x, 16_000 * by, 16_000) for by in (0.9, 0.93, 0.988, 1.037, 1.1)},
    **{
        f"{step} semitones": lambda x, step=step: pitch_shift(x, sr=16_000, n_steps=step, n_fft=512)
        for step in (-1.5, 0.8, 1.6)
    },
    **{f"tempo {by}": lambda x, by=by: time_stretch(x, rate=by, n_fft=512) for by in (0.92, 1.08)},
}


@pytest.mark.filterwarnings("ignore:The `(hop_length|n_fft)` parameter:FutureWarning")  # librosa 1.0 by its own call
@pytest.mark.parametrize("change", CHANGES)
def test_a_phrase_is_detected_at_another_speed_pitch_or_tempo(change):
    known = [fingerprint_of(take(seed, 3.0)) for seed in range(20, 24)]
    for seed in range(20, 24):
        assert suspected(known, CHANGES[change](take(seed, 3.0))), seed
        assert not suspected(known, CHANGES[change](take(seed + 20, 3.0))), seed


def test_a_changed_phrase_is_detected_within_more_audio_however_it_is_cut():
    known = [fingerprint_of(take(20, 4.0))]
    samples = np.concatenate([take(30, 2.0), soxr.resample(take(20, 4.0), 15_000, 16_000), take(31, 2.0)])
    for sizes in ([160] * 700, [16_000] * 8, []):
        detector = DuplicateDetector(known, 16_000)
        flags = [detector.push(part) for part in cut(samples, sizes)]
        assert detector.close()
        assert not sizes or (flags.index(True) + 1) * sizes[0] < 6.5 * 16_000


@pytest.mark.parametrize("speed", [1.037, 1.07])
def test_words_said_again_as_a_synthesiser_does_with_other_pauses_are_no_changed_phrase(speed):
    words = [take(seed, 0.5) for seed in range(20, 25)]

    def phrase(*order: int, pause: float) -> np.ndarray:
        return np.concatenate([np.append(words[number], np.zeros(round(pause * 16_000))) for number in order])

    known = [fingerprint_of(phrase(0, 1, 2, 3, 4, pause=0.1))]
    assert suspected(known, soxr.resample(phrase(0, 1, 2, 3, 4, pause=0.1), 16_000 * speed, 16_000))
    assert not suspected(known, soxr.resample(phrase(0, 1, 2, 3, 4, pause=0.3), 16_000 * speed, 16_000))
    assert not suspected(known, soxr.resample(phrase(4, 2, 0, 3, 1, pause=0.1), 16_000 * speed, 16_000))


@pytest.mark.parametrize("seconds", [1.2, 3.0])
def test_other_takes_are_no_copies(seconds):
    known = [fingerprint_of(take(seed, seconds)) for seed in range(20, 60)]
    assert not any(suspected(known, take(seed, seconds)) for seed in range(60, 90))


def test_a_copy_is_suspected_while_it_plays_and_stays_so():
    detector = DuplicateDetector([fingerprint_of(take(20, 3.0))], 16_000)
    flags = [detector.push(part) for part in np.array_split(take(20, 3.0), 30)]
    assert flags.index(True) < 15
    assert all(flags[flags.index(True) :])


@pytest.mark.parametrize("keep", [0, 1, 57])
def test_only_the_beginning_of_a_long_stream_is_kept(keep):
    everything, some = DuplicateDetector([], 16_000, keep=10_000), DuplicateDetector([], 16_000, keep=keep)
    for part in np.array_split(take(1, 2.0), 37):
        everything.push(part)
        some.push(part)
    everything.close()
    whole = fingerprint_of(take(1, 2.0))
    assert everything.prints.shape == whole.shape
    assert np.bitwise_count(everything.prints ^ whole).sum() <= 2
    np.testing.assert_array_equal(some.prints, everything.prints[:keep])


# The store


def test_the_store_keeps_fingerprints_of_each_speakers_own_recordings(opened, recordings, voices):
    for name in voices:
        expected = joined(fingerprint_of(*read_samples(utterance)) for utterance in recordings[name])
        assert len(expected) == len(opened.fingerprints(name))
        assert np.bitwise_count(expected ^ opened.fingerprints(name)).sum() <= 2


def test_an_enrollment_recording_is_suspected_and_decided_as_ever(store, recordings, tmp_path):
    verifier, path = Verifier(Store(store).load(), "anna"), recordings["anna"][0].path
    result = verifier.verify_file(path)
    assert result.duplicate_suspected is True
    assert result.decision is Decision.ACCEPTED
    soundfile.write(tmp_path / "copy.mp3", *soundfile.read(path))
    assert verifier.verify_file(tmp_path / "copy.mp3").duplicate_suspected is True
    ivan = Verifier(Store(store).load(), "ivan").verify_file(path)
    assert ivan.duplicate_suspected is False


def test_a_store_or_a_verifier_told_not_to_compares_nothing(forgetful, store, recordings):
    path = recordings["anna"][0].path
    assert forgetful.fingerprints("anna") is None
    assert Verifier(forgetful, "anna").verify_file(path).duplicate_suspected is None
    assert Verifier(Store(store).load(), "anna", duplicates=False).verify_file(path).duplicate_suspected is None


# What was accepted before


@pytest.fixture
def memory(tmp_path) -> DuplicateMemory:
    return DuplicateMemory(tmp_path / "f")


def test_fingerprints_are_kept_by_speaker_newest_first_and_readable_by_the_owner_only(memory, opened):
    first, second = fingerprint_of(take(1)), fingerprint_of(take(2))
    memory.add(opened, "anna", np.zeros(100, dtype=np.uint32))  # of silence
    assert memory.known(opened, "anna") == []
    memory.add(opened, "anna", first)
    memory.add(opened, "ivan", second)
    memory.add(opened, "anna", second)
    for result, expected in zip(memory.known(opened, "anna"), (second, first), strict=True):
        np.testing.assert_array_equal(result, expected)
    assert len(memory.known(opened, "ivan")) == 1
    assert stat.S_IMODE(memory.path.stat().st_mode) == 0o600
    assert b"anna" not in memory.path.read_bytes()


def test_nothing_of_a_removed_speaker_is_left_or_added(memory, copied):
    before, prints = Store(copied).load(), fingerprint_of(take(1))
    assert memory.keep_enrolled(before) == 0
    assert not memory.path.exists()
    memory.add(before, "anna", prints)
    memory.add(before, "ivan", fingerprint_of(take(2)))
    rest = remove_speaker(copied, "anna")
    assert memory.keep_enrolled(rest) == 1
    memory.add(before, "anna", prints)  # by a stream that began before
    assert memory.known(before, "anna") == []
    assert prints.astype("<u4").tobytes()[:64] not in memory.path.read_bytes()
    assert len(memory.known(rest, "ivan")) == 1


def test_the_memory_is_locked_between_checking_the_speaker_and_adding(memory):
    with (
        memory._opened(create=True),
        closing(sqlite3.connect(memory.path, timeout=0)) as another,
        pytest.raises(sqlite3.OperationalError, match="locked"),
    ):
        another.execute("BEGIN IMMEDIATE")


def test_a_minute_of_a_recording_and_ten_of_a_speaker_are_kept_for_a_year(memory, opened, monkeypatch):
    for number in range(1, 14):
        memory.add(opened, "anna", np.full(7000, number, dtype=np.uint32))
    result = memory.known(opened, "anna")
    assert [int(prints[0]) for prints in result] == list(range(13, 3, -1))
    assert {len(prints) for prints in result} == {6000}
    with closing(sqlite3.connect(memory.path)) as database, database:
        database.execute("UPDATE recording SET time = '2001-01-01T00:00:00Z' WHERE number < 13")
        (stored,) = database.execute("SELECT count(*) FROM recording").fetchone()
    assert stored == 10
    memory.add(opened, "ivan", np.ones(100, dtype=np.uint32))
    assert [int(prints[0]) for prints in memory.known(opened, "anna")] == [13]
    for _ in range(11):
        memory.add(opened, "anna", np.ones(7000, dtype=np.uint32))
    assert len(memory.known(opened, "ivan")) == 1  # whose are counted apart


def test_a_hello_reads_no_recording_of_others(memory, opened):
    memory.add(opened, "anna", np.ones(100, dtype=np.uint32))
    with closing(sqlite3.connect(memory.path)) as database:
        plan = str(
            database.execute(
                "EXPLAIN QUERY PLAN SELECT prints FROM recording WHERE store = ? AND speaker = ? ORDER BY number DESC",
                ("", 1),
            ).fetchall()
        )
        with pytest.raises(sqlite3.IntegrityError):
            database.execute("UPDATE recording SET prints = x'aabb'")
    assert "USING INDEX recording_speaker" in plan
    assert "TEMP B-TREE" not in plan


def test_the_key_of_a_sealed_store_is_needed_to_add(memory, copied):
    key, prints = b"a key of sixteen bytes or more", fingerprint_of(take(1))
    seal_store(copied, key)
    model = Store(copied, key=key).load()
    with pytest.raises(AuditError, match=r"cannot find out whether 'anna' is still enrolled: .*seal"):
        memory.add(model, "anna", prints)
    assert memory.known(model, "anna") == []
    DuplicateMemory(memory.path, key=key).add(model, "anna", prints)
    assert len(memory.known(model, "anna")) == 1


@pytest.mark.parametrize("content", [b"{}", b"SQLite format 3\0", bytes(range(256)) * 40, None])
def test_a_damaged_file_or_a_folder_in_its_place_is_named(memory, content, opened):
    if content is None:
        memory.path.mkdir()
    else:
        memory.path.write_bytes(content)
    for action in (lambda: memory.known(opened, "anna"), lambda: memory.add(opened, "anna", np.ones(9, np.uint32))):
        with pytest.raises(AuditError, match=r"f: "):
            action()


@pytest.fixture(scope="module")
def forgetful(tmp_path_factory, recordings, tiny_with) -> SpeakerModel:
    """A store without fingerprints: a synthesiser repeats itself to the bit, and what is enrolled is not meant here."""
    chosen = {name: recordings[name] for name in ("anna", "ivan", "lars")}
    return enroll(tmp_path_factory.mktemp("forgetful") / "s", chosen, tiny_with("duplicate_audio.keep=false")).model


def test_accepted_audio_is_suspected_the_second_time_and_kept_once(forgetful, heard, memory):
    verifier, path = Verifier(forgetful, "anna", memory=memory), heard("anna")
    result = [verifier.verify_file(path) for _ in range(3)]
    assert [update.duplicate_suspected for update in result] == [False, True, True]
    assert all(update.decision is Decision.ACCEPTED for update in result)
    assert len(memory.known(forgetful, "anna")) == 1
    false = Verifier(forgetful, "ivan", memory=memory).verify_file(path)
    assert (false.decision, false.duplicate_suspected, memory.known(forgetful, "ivan")) == (
        Decision.REJECTED,
        False,
        [],
    )


def test_the_command_flags_a_second_playing_and_the_log_holds_no_fingerprint(forgetful, heard, run, tmp_path):
    words = ("verify", forgetful.where, "--claim", "anna", "--log", "calls.jsonl")
    first, second = (json.loads(run(*words, "--json", heard("anna")).out) for _ in range(2))
    assert first["decision"] == second["decision"] == "accepted"
    assert [first["duplicate_suspected"], second["duplicate_suspected"]] == [False, True]
    assert "duplicate suspected" in run(*words, heard("anna")).out
    log = (tmp_path / "calls.jsonl").read_text(encoding="utf-8")
    lines = [table for table in map(json.loads, log.splitlines()) if table["event"] == "verify"]
    assert [table["duplicate_suspected"] for table in lines] == [False, True, True]
    assert duplicate_memory(None) is None
    (kept,) = duplicate_memory(tmp_path / "calls.jsonl").known(forgetful, "anna")
    assert base64.b64encode(kept[:30].tobytes()).decode() not in log
    assert kept[:30].tobytes().hex() not in log
