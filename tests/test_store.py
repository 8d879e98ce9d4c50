"""The store on disk: what comes back, who may write, what a crash or damage leaves."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hostile import edit_manifest, manifest_of, put_manifest
from hypothesis import given, settings
from hypothesis import strategies as st
from populations import (
    NAMES,
    SMALL,
    SPACE,
    add,
    arrays_of,
    assert_same,
    codebooks,
    content,
    first,
    pool_of,
    stretches,
    trained,
)

from pipeline.enrollment import enroll, remove_speaker
from pipeline.errors import (
    MetricError,
    SpeakerExistsError,
    StoreBusyError,
    StoreError,
    StoreFormatError,
    StoreMissingError,
    UnknownSpeakerError,
    VoiceclaimError,
)
from pipeline.machines.assembly import train_population
from pipeline.machines.population import MarginScorer, Population
from pipeline.store import SpeakerStore
from pipeline.store_writer import store_writer
from pipeline.updates import Decision
from pipeline.verification import Verifier

KINDS = frozenset({"one_vs_one", "one_class", "one_vs_rest"})


def read_everything(path: Path) -> SpeakerStore:
    """Open a store and read all there is in it."""
    found = SpeakerStore.open(path)
    assert found.config
    assert found.scaling is None or found.scaling.mean.size
    assert found.trials is None or len(found.trials) >= 0
    if found.speakers:
        arrays_of(found.population())
        if found.manifest.segments is not None:
            assert len(found.stretches()) == len(found.speakers)
    for name in found.names:
        found.position(name)
    return found


@pytest.fixture(scope="module")
def five() -> Population:
    """Five speakers with every kind of machine, in memory."""
    return first(5)


# Round trip


@pytest.mark.parametrize("count", [1, 2, 5])
def test_machines_read_from_disk_have_the_margins_of_those_trained(tmp_path, count):
    population = first(count)
    add(tmp_path / "s", population, NAMES[:count])
    stored = SpeakerStore.open(tmp_path / "s").population()
    frames = np.random.default_rng(1).standard_normal((50, 3))
    for claims in ([0], [count - 1], list(range(count))):
        asked = np.array(claims)
        expected = MarginScorer(population, asked, KINDS)(frames)
        found = MarginScorer(stored, asked, KINDS)(frames)
        np.testing.assert_allclose(found.pair, expected.pair, rtol=0, atol=1e-12)
        np.testing.assert_allclose(found.one_class, expected.one_class, rtol=0, atol=1e-12)
        assert (found.one_vs_rest is None) == (expected.one_vs_rest is None) == (count == 1)
        if count > 1:
            np.testing.assert_allclose(found.one_vs_rest, expected.one_vs_rest, rtol=0, atol=1e-12)
            assert np.abs(expected.pair).max() > 0.1, "margins of nothing"
    heard = SPACE.statistics(frames, np.linspace(0.1, 1.0, len(frames)))
    found, expected = stored.segments.margins(heard), population.segments.margins(heard)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)
    assert count == 1 or np.abs(expected).max() > 0.01, "margins of nothing"


def test_machines_read_from_disk_are_those_trained_bit_for_bit(tmp_path, five):
    add(tmp_path / "s", five, NAMES)
    assert_same(SpeakerStore.open(tmp_path / "s").population(), five)


def test_stored_pair_biases_are_antisymmetric(tmp_path, five):
    add(tmp_path / "s", five, NAMES)
    bias = SpeakerStore.open(tmp_path / "s").population().pairs.bias(np.arange(5))
    np.testing.assert_array_equal(bias, -bias.T)
    assert np.count_nonzero(bias) == 20


def test_only_the_machines_that_a_system_needs_are_read(tmp_path, five):
    add(tmp_path / "s", five, NAMES)
    (one_vs_rest,) = (tmp_path / "s").glob("one_vs_rest-*")
    one_vs_rest.unlink()
    store = SpeakerStore.open(tmp_path / "s")
    assert store.population(("refined_worst_rival",)).one_vs_rest_coef is None
    with pytest.raises(StoreFormatError, match=one_vs_rest.name):
        store.population(("poar",))
    (segments,) = (tmp_path / "s").glob("segments-*")
    segments.unlink()
    store = SpeakerStore.open(tmp_path / "s")
    assert store.population(("refined_worst_rival",)).segments is None
    for system in ("segment", "segment_rival", "fused"):
        with pytest.raises(StoreFormatError, match=segments.name):
            store.population((system,))


def test_a_store_without_segment_machines_has_no_file_of_them_and_no_stretches(tmp_path):
    kinds = ("one_vs_one", "one_class", "one_vs_rest")
    config = SMALL.model_copy(update={"machines": SMALL.machines.model_copy(update={"kinds": kinds})})
    population = train_population(pool_of(codebooks(3)), config.machines)
    store = add(tmp_path / "s", population, NAMES[:3], config)
    assert store.manifest.segments is None
    assert not list((tmp_path / "s").glob("segments*"))
    assert {"segment", "segment_rival", "fused"}.isdisjoint(store.systems)
    assert store.population().segments is None
    assert not any(b'"stretches"' in file.read_bytes() for file in (tmp_path / "s" / "speakers").iterdir())
    left = remove_speaker(tmp_path / "s", "bea")
    assert left.manifest.segments is None
    assert_same(left.population(), train_population(pool_of(codebooks(3)[::2]), config.machines))


def test_stretches_come_back_as_they_went_in(tmp_path, five):
    store = add(tmp_path / "s", five, NAMES)
    for found, expected in zip(store.stretches(), stretches(5), strict=True):
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("count", [1, 2, 4])
def test_enrolling_in_two_steps_gives_the_machines_of_one_step(tmp_path, five, count):
    path = tmp_path / "s"
    add(path, first(count), NAMES[:count])
    add(path, first(5, SpeakerStore.open(path).population()), NAMES[count:])
    assert SpeakerStore.open(path).names == NAMES
    assert_same(SpeakerStore.open(path).population(), five)


def test_enrolling_more_leaves_the_files_of_earlier_speakers_alone(tmp_path):
    path = tmp_path / "s"
    add(path, first(2), NAMES[:2])
    before = {name: digest for name, digest in content(path).items() if name.startswith("speakers/")}
    add(path, first(3, SpeakerStore.open(path).population()), NAMES[2:3])
    after = content(path)
    assert before.items() <= after.items()
    assert sum(name.startswith("speakers/") for name in after) == 3


def test_every_file_has_the_checksum_that_the_manifest_gives_it(store):
    manifest = manifest_of(store)
    records = [speaker["file"] for speaker in manifest["speakers"]]
    records += [manifest["one_vs_rest"], manifest["segments"], manifest["calibration"]]
    assert {record["name"]: record["sha256"] for record in records} == {
        name: digest for name, digest in content(store).items() if name != "manifest.json"
    }


def test_every_array_file_is_named_numbers_behind_a_json_header_and_nothing_is_pickled(store):
    files = [store / name for name in content(store)]
    assert {file.suffix for file in files} == {".json", ".safetensors"}
    for file in files:
        data = file.read_bytes()
        if file.suffix == ".json":
            json.loads(data)
            continue
        size = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + size])
        header.pop("__metadata__", None)
        assert header
        assert {entry["dtype"] for entry in header.values()} <= {"F64", "F32", "F16", "I64", "U64", "U32", "BOOL"}
        assert max(entry["data_offsets"][1] for entry in header.values()) == len(data) - 8 - size


def test_a_store_can_be_copied_elsewhere(store, copied, heard):
    here = Verifier(SpeakerStore.open(store), "anna").verify_file(heard("anna"))
    shutil.move(copied, copied.with_name("moved.store"))
    there = Verifier(SpeakerStore.open(copied.with_name("moved.store")), "anna").verify_file(heard("anna"))
    assert there == here


# Removal


@pytest.mark.parametrize("gone", range(5))
def test_removing_a_speaker_leaves_the_machines_of_a_store_that_never_had_them(tmp_path, five, gone):
    add(tmp_path / "s", five, NAMES)
    left = remove_speaker(tmp_path / "s", NAMES[gone])
    books, parts = codebooks(5), stretches(5)
    del books[gone], parts[gone]
    names = NAMES[:gone] + NAMES[gone + 1 :]
    assert left.names == SpeakerStore.open(tmp_path / "s").names == names
    assert_same(SpeakerStore.open(tmp_path / "s").population(), trained(books, parts))
    for found, expected in zip(left.stretches(), parts, strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("gone", [0, 2, 4])
def test_nothing_of_a_removed_speaker_is_left_in_any_file(tmp_path, five, gone):
    path = tmp_path / "s"
    names = tuple("Zoë-" + name for name in NAMES)
    add(path, five, names)
    identity = SpeakerStore.open(path).speakers[gone].id
    rows = five.pool.rows(gone)
    numbers = [
        five.pool.codebook(gone),
        five.one_class_coef[rows],
        five.one_class_bias[gone],
        five.pairs.rows(gone),
        five.pairs.columns(np.array([gone])),
        five.pairs.bias(np.array([gone])),
        five.one_vs_rest_coef[rows],
        five.one_vs_rest_coef[:, gone],
        five.one_vs_rest_bias[gone],
        five.segments.mean,
    ]
    secrets = {abs(value) for array in numbers for value in np.ravel(array).tolist()}
    # What all machines share gives nobody away: zeros, and coefficients at the bound.
    secrets -= {0.0, SMALL.machines.C, *np.abs(five.one_class_coef[five.pool.owner != gone]).tolist()}
    assert len(secrets) > 20
    patterns = {np.float64(sign * value).tobytes() for value in secrets for sign in (1, -1)}
    # Numbers of two and four bytes turn up by chance: whole rows of them do not.
    rows = {row.tobytes() for row in stretches(5)[gone].astype(np.float16)}
    rows |= {row.tobytes() for row in five.segments.coef.astype(np.float32)}
    patterns |= rows

    def traces() -> set[bytes]:
        data = b"".join(file.read_bytes() for file in path.rglob("*") if file.is_file())
        wanted = {names[gone].encode(), json.dumps(names[gone]).encode(), str(identity).encode()}
        wanted |= {f"{identity:016x}".encode(), identity.to_bytes(8, "little"), *patterns}
        paths = "\n".join(map(str, path.rglob("*"))).encode()
        return {trace for trace in wanted if trace in data or trace in paths}

    before = traces()
    assert names[gone].encode() in before
    assert len(before & patterns) > 20
    assert rows <= before
    remove_speaker(path, names[gone])
    assert traces() == set()


def test_a_speaker_removed_from_real_audio_takes_their_held_out_trials_along(copied):
    before = SpeakerStore.open(copied)
    gone = before.speakers[1].id
    kept = (before.trials.claims != gone) & (before.trials.speakers != gone)
    after = remove_speaker(copied, before.speakers[1].name)
    assert gone not in {*after.trials.claims.tolist(), *after.trials.speakers.tolist()}
    np.testing.assert_array_equal(after.trials.scores["poar"], before.trials.scores["poar"][kept])


def test_removing_somebody_unknown_changes_nothing(copied):
    before = content(copied)
    with pytest.raises(UnknownSpeakerError, match=r"'annna'.*'anna'"):
        remove_speaker(copied, "annna")
    assert content(copied) == before


def test_removing_from_no_store_makes_none(tmp_path):
    with pytest.raises(StoreMissingError):
        remove_speaker(tmp_path / "a" / "b", "anna")
    assert list(tmp_path.iterdir()) == []


def test_a_removed_speaker_can_be_enrolled_again_with_the_same_machines(copied, recordings, heard):
    # The last one, so that the order stays: no other machine has been trained against them but theirs.
    before = SpeakerStore.open(copied).population()
    remove_speaker(copied, "lars")
    again = enroll(copied, {"lars": recordings["lars"]})
    assert_same(again.store.population(), before)


def test_everybody_can_be_removed_and_others_enrolled_after(copied, voices, recordings, heard):
    for name in voices:
        remove_speaker(copied, name)
    empty = SpeakerStore.open(copied)
    assert empty.speakers == ()
    with pytest.raises(UnknownSpeakerError, match="nobody is enrolled"):
        Verifier(empty, "anna")
    assert {name for name in content(copied) if name.startswith("speakers/")} == set()
    enroll(copied, {name: recordings[name] for name in ("greta", "hugo")})
    verdict = Verifier(SpeakerStore.open(copied), "greta").verify_file(heard("greta"))
    assert verdict.decision is Decision.ACCEPTED


# One writer at a time

HOLD = """
import sys
from pipeline.store_writer import store_writer
with store_writer(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextlib.contextmanager
def another_writer(path: Path):
    """A second process that holds the store's writer until the block ends."""
    words = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "held\n"
            yield process
        finally:
            process.kill()


def test_a_second_writer_is_told_that_the_store_is_busy_and_readers_are_not_disturbed(copied, recordings):
    before = content(copied)
    with another_writer(copied):
        with pytest.raises(StoreBusyError, match=re.escape(str(copied))):
            enroll(copied, {"hugo": recordings["hugo"]})
        with pytest.raises(StoreBusyError):
            remove_speaker(copied, "anna")
        read_everything(copied)
    assert content(copied) == before


def test_a_killed_writer_does_not_keep_the_store_busy(copied):
    with another_writer(copied) as process:
        process.kill()
        process.wait()
        assert remove_speaker(copied, "anna").names == ("dexter", "ivan", "lars")


def test_a_store_being_made_is_busy_for_a_second_writer_too(tmp_path, recordings, tiny):
    path = tmp_path / "new.store"
    with another_writer(path):
        with pytest.raises(StoreBusyError):
            enroll(path, {"hugo": recordings["hugo"]}, tiny)
        with pytest.raises(StoreMissingError):
            SpeakerStore.open(path)


def test_the_writer_of_this_process_shuts_out_its_other_threads(copied):
    with store_writer(copied), pytest.raises(StoreBusyError), store_writer(copied):
        pytest.fail("two writers at once")


# Crashes

ENROLL = """
import os, sys, tempfile
from pathlib import Path
from conftest import TINY
from pipeline.config import load_config
from pipeline.corpus import read_corpus
from pipeline.enrollment import enroll
audio, names, tiny = Path(sys.argv[1]), sys.argv[2].split(","), load_config(None, TINY)
speakers = read_corpus(audio).speakers
chosen = {name: speakers[name][:2] for name in names}
# Forked children start at once, with all that is imported and compiled; each order is a store to enroll into.
with tempfile.TemporaryDirectory() as folder:
    enroll(Path(folder) / "s", chosen, tiny)
print("ready", flush=True)
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        try:
            enroll(line.strip(), chosen, tiny)
        finally:
            os._exit(0)
    print(child, flush=True)
    os.waitpid(child, 0)
    print("ended", flush=True)
"""
NEWCOMERS = ("clara", "fergus")


@pytest.fixture(scope="module")
def starter(demo):
    """start(store): begin to enroll two more voices in a process of its own; gives its id and a wait for its end."""
    words = [sys.executable, "-c", ENROLL, str(demo / "enroll"), ",".join(NEWCOMERS)]
    found = os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": found}
    ) as process:

        def start(store: Path) -> tuple[int, object]:
            process.stdin.write(f"{store}\n")
            process.stdin.flush()
            child = int(process.stdout.readline())
            return child, process.stdout.readline

        assert process.stdout.readline() == "ready\n"
        yield start
        process.stdin.close()


@pytest.fixture(scope="module")
def pair(tmp_path_factory, recordings, tiny) -> Path:
    """A store of two voices, to be copied and extended under fire."""
    path = tmp_path_factory.mktemp("pair") / "s"
    enroll(path, {name: recordings[name][:2] for name in ("anna", "lars")}, tiny)
    return path


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="the crash is made with fork and SIGKILL")


def check_after_crash(path: Path, before: dict[str, str], old: SpeakerStore, recordings) -> bool:
    """The store is the old one, or the new one whole; tell whether it is the old one. Then the next writer cleans."""
    found = read_everything(path)
    names = old.names if found.manifest.revision == old.manifest.revision else (*old.names, *NEWCOMERS)
    assert found.names == names
    assert {record.file.name for record in found.speakers} <= content(path).keys()
    if found.names == old.names:
        assert before.items() <= content(path).items(), "files of the old store changed"
        assert_same(found.population(), old.population())
    remove_speaker(path, "lars")
    clean = read_everything(path)
    assert content(path).keys() == clean.manifest.files() | {"manifest.json"}
    return found.names == old.names


@needs_fork
def test_a_writer_killed_at_any_moment_leaves_the_old_store_or_the_new_one(pair, starter, tmp_path, recordings):
    old, before = SpeakerStore.open(pair), content(pair)
    started = time.perf_counter()
    _, wait = starter(shutil.copytree(pair, tmp_path / "timed"))
    wait()
    whole = time.perf_counter() - started
    assert SpeakerStore.open(tmp_path / "timed").names == (*old.names, *NEWCOMERS)
    moments, survived = np.random.default_rng(0).random(10), []
    for n, moment in enumerate(moments):
        path = shutil.copytree(pair, tmp_path / f"killed {n}")
        child, wait = starter(path)
        time.sleep(whole * (n + moment) / len(moments))
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, 9)
        wait()
        survived.append(check_after_crash(path, before, old, recordings))
    assert any(survived), "no kill came before the end"


@needs_fork
@pytest.mark.parametrize(
    "sight", ["speakers/*-2.safetensors", "one_vs_rest-2.*", "segments-2.*", "calibration-2.*", "*.partial"]
)
def test_a_writer_killed_among_its_files_leaves_the_old_store_or_the_new_one(
    pair, starter, tmp_path, recordings, sight
):
    old, before = SpeakerStore.open(pair), content(pair)
    path = Path(shutil.copytree(pair, tmp_path / "s"))
    child, wait = starter(path)
    deadline = time.monotonic() + 120
    while not any(path.glob(sight)) and not any(path.glob("calibration-2.*")) and time.monotonic() < deadline:
        pass
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, 9)
    wait()
    assert len(content(path)) > len(before) or SpeakerStore.open(path).names != old.names, "killed before any file"
    check_after_crash(path, before, old, recordings)


@needs_fork
def test_a_first_enrollment_that_was_killed_can_be_made_again(starter, tmp_path, recordings, tiny, heard):
    path = tmp_path / "new.store"
    child, wait = starter(path)
    while not any(path.glob("speakers/*")):
        pass
    os.kill(child, 9)
    wait()
    if (path / "manifest.json").exists():  # the kill came late
        (path / "manifest.json").unlink()
    with pytest.raises(StoreMissingError):
        SpeakerStore.open(path)
    enroll(path, {name: recordings[name] for name in ("greta", "hugo")}, tiny)
    assert content(path).keys() == SpeakerStore.open(path).manifest.files() | {"manifest.json"}


def test_a_writer_without_a_manifest_to_go_by_deletes_nothing_before_its_commit(copied, recordings, tiny):
    """The manifest was lost, and may yet be found again."""
    manifest = (copied / "manifest.json").read_bytes()
    (copied / "manifest.json").unlink()
    before = content(copied)
    with pytest.raises(VoiceclaimError):
        enroll(copied, {"hugo": recordings["hugo"][:1]}, tiny)
    assert content(copied) == before
    (copied / "manifest.json").write_bytes(manifest)
    read_everything(copied)


def test_leftovers_are_swept_by_the_next_writer(copied):
    for name in ("speakers/00000000feedbeef", "one_vs_rest", "segments", "calibration"):
        (copied / f"{name}-7.safetensors").write_bytes(b"half a file")
    (copied / "manifest.json.partial").write_bytes(b'{"format": "voicecl')
    read_everything(copied)
    left = remove_speaker(copied, "anna")
    assert content(copied).keys() == left.manifest.files() | {"manifest.json"}


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="permissions do not bind this user")
def test_a_store_that_cannot_be_written_is_a_store_error(copied):
    (copied / "speakers").chmod(0o500)
    try:
        with pytest.raises(StoreError, match="cannot be written"):
            remove_speaker(copied, "anna")
        read_everything(copied)
    finally:
        (copied / "speakers").chmod(0o700)


def test_a_store_at_the_path_of_a_file_is_a_store_error(tmp_path, recordings, tiny):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(StoreError):
        enroll(tmp_path / "file", {"anna": recordings["anna"]}, tiny)
    assert (tmp_path / "file").read_text() == "mine"


# Damage


def truncated(data: bytes) -> bytes:
    return data[: len(data) // 2]


def header_only(data: bytes) -> bytes:
    return data[: 8 + int.from_bytes(data[:8], "little")]


def one_bit_flipped(data: bytes) -> bytes:
    place = len(data) - 3  # in the last number of the last array
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


def absurd_header(data: bytes) -> bytes:
    return (2**60).to_bytes(8, "little") + data[8:]


DAMAGES = {
    "truncated": truncated,
    "no arrays after its header": header_only,
    "one byte short": lambda data: data[:-1],
    "one byte long": lambda data: data + b"\0",
    "empty": lambda _: b"",
    "text": lambda _: b"not an array file at all",
    "another header size": absurd_header,
    "one bit flipped in a number": one_bit_flipped,
}


@pytest.mark.parametrize("kind", ["speakers/*", "one_vs_rest-*", "segments-*", "calibration-*"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_array_file_is_a_format_error_that_names_it(copied, kind, damage):
    file = sorted(copied.glob(kind))[-1]
    file.write_bytes(DAMAGES[damage](file.read_bytes()))
    with pytest.raises(StoreFormatError, match=re.escape(file.name)):
        read_everything(copied)


@pytest.mark.parametrize("kind", ["speakers/*", "one_vs_rest-*", "segments-*", "calibration-*"])
@pytest.mark.parametrize("instead", ["nothing", "a folder"])
def test_a_missing_array_file_is_a_format_error_that_names_it(copied, kind, instead):
    file = sorted(copied.glob(kind))[0]
    file.unlink()
    if instead == "a folder":
        file.mkdir()
    with pytest.raises(StoreFormatError, match=re.escape(file.name)):
        read_everything(copied)


def test_files_exchanged_between_speakers_are_a_format_error(copied):
    first, second = (copied / speaker["file"]["name"] for speaker in manifest_of(copied)["speakers"][1:3])
    one, other = first.read_bytes(), second.read_bytes()
    first.write_bytes(other)
    second.write_bytes(one)
    with pytest.raises(StoreFormatError):
        read_everything(copied)


def test_speakers_in_another_order_than_their_files_are_a_format_error(copied):
    edit_manifest(copied, speakers=manifest_of(copied)["speakers"][::-1])
    with pytest.raises(StoreFormatError):
        read_everything(copied)


@pytest.mark.parametrize(
    "content_", [b"", b"{", b"[]", b"null", b"\xff\xfe{}", b"{}", b'{"format": "zip"}', b"[" * 9999]
)
def test_a_manifest_that_is_none_is_a_format_error_that_names_it(copied, content_):
    (copied / "manifest.json").write_bytes(content_)
    with pytest.raises(StoreFormatError, match=r"manifest\.json"):
        SpeakerStore.open(copied)


def test_a_folder_in_the_manifests_place_is_a_format_error(copied):
    (copied / "manifest.json").unlink()
    (copied / "manifest.json").mkdir()
    with pytest.raises(StoreFormatError, match=r"manifest\.json"):
        SpeakerStore.open(copied)


@pytest.mark.parametrize("key", ["config", "format", "version"])
def test_a_manifest_without_a_needed_key_is_a_format_error(copied, key):
    table = manifest_of(copied)
    del table[key]
    put_manifest(copied, table)
    with pytest.raises(StoreFormatError, match=r"manifest\.json"):
        read_everything(copied)


@pytest.mark.parametrize("identity", [-1, 2**64, 10**30, "x", None, 1.5])
def test_an_id_that_is_no_64_bit_number_is_a_format_error(copied, identity):
    speakers = manifest_of(copied)["speakers"]
    speakers[0]["id"] = identity
    edit_manifest(copied, speakers=speakers)
    with pytest.raises(StoreFormatError, match=r"manifest\.json"):
        read_everything(copied)


@pytest.mark.parametrize(
    ("section", "key", "value"), [("machines", "sigma", -1.0), ("scoring", "system", "oracle"), ("more", "x", 1)]
)
def test_settings_in_a_manifest_that_break_a_rule_are_a_format_error_that_names_the_key(copied, section, key, value):
    config = manifest_of(copied)["config"]
    config.setdefault(section, {})[key] = value
    edit_manifest(copied, config=config)
    with pytest.raises(StoreFormatError, match=rf"manifest\.json.*{section}"):
        read_everything(copied)


@pytest.mark.parametrize(("key", "words"), [("one_vs_rest", "one-vs-rest"), ("segments", "segment machines")])
def test_a_manifest_without_the_machines_that_its_settings_promise_is_a_format_error(copied, key, words):
    edit_manifest(copied, **{key: None})
    with pytest.raises(StoreFormatError, match=words):
        read_everything(copied)


def test_a_store_without_trials_asks_for_the_threshold(copied, heard):
    edit_manifest(copied, calibration=None)
    store = SpeakerStore.open(copied)
    with pytest.raises(MetricError, match="give the threshold"):
        Verifier(store, "anna")
    assert Verifier(store, "anna", threshold=0.0).verify_file(heard("anna")).decision is Decision.ACCEPTED


def test_a_store_of_a_newer_format_is_refused_with_both_versions(copied, recordings):
    edit_manifest(copied, version=3)
    before = content(copied)
    with pytest.raises(StoreFormatError, match=r"version 3.*versions up to 2.*newer"):
        SpeakerStore.open(copied)
    with pytest.raises(StoreFormatError, match="version 3"):
        enroll(copied, {"hugo": recordings["hugo"]})
    assert content(copied) == before


@pytest.fixture(scope="module")
def victim(store, tmp_path_factory):
    """A copy of the store for damage, and its sound manifest."""
    path = Path(shutil.copytree(store, tmp_path_factory.mktemp("damage") / "s"))
    return path, (path / "manifest.json").read_bytes()


def opens_or_tells(path: Path) -> None:
    """Reading everything works or raises StoreFormatError: any other exception fails the test."""
    try:
        read_everything(path)
    except StoreFormatError as error:
        assert str(path) in str(error)


@settings(deadline=None, max_examples=250)
@given(st.data())
def test_a_manifest_with_changed_bytes_opens_or_is_a_format_error(victim, data):
    path, sound = victim
    damaged = bytearray(sound)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(sound) - 1))] = data.draw(st.integers(0, 255) | st.sampled_from(b'0-9.,"'))
    (path / "manifest.json").write_bytes(damaged)
    opens_or_tells(path)


@settings(deadline=None, max_examples=100)
@given(st.data())
def test_a_manifest_with_bytes_put_in_or_cut_out_opens_or_is_a_format_error(victim, data):
    path, sound = victim
    place = data.draw(st.integers(0, len(sound)))
    more = data.draw(st.binary(max_size=4) | st.text("0123456789-eE.", max_size=25).map(str.encode))
    (path / "manifest.json").write_bytes(sound[:place] + more + sound[place + data.draw(st.integers(0, 30)) :])
    opens_or_tells(path)


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_a_truncated_manifest_is_always_a_format_error(victim, data):
    path, sound = victim
    (path / "manifest.json").write_bytes(sound[: data.draw(st.integers(0, len(sound) - 1))])
    with pytest.raises(StoreFormatError, match=r"manifest\.json"):
        SpeakerStore.open(path)


# Folders that are no stores


@pytest.mark.parametrize(
    "strange",
    ["notes.txt", "photos/cat.jpg", "model.safetensors", "calibration-photos/cat.jpg", "speakers/model.safetensors"],
)
def test_a_folder_of_other_things_is_refused_and_untouched(tmp_path, recordings, tiny, strange):
    folder = tmp_path / "mine"
    (folder / strange).parent.mkdir(parents=True, exist_ok=True)
    (folder / strange).write_bytes(b"precious")
    before = sorted(folder.rglob("*"))
    with pytest.raises(StoreError, match=re.escape(str(folder))):
        enroll(folder, {"anna": recordings["anna"]}, tiny)
    assert sorted(folder.rglob("*")) == before
    assert (folder / strange).read_bytes() == b"precious"


def test_an_empty_folder_may_become_a_store(tmp_path, recordings, tiny):
    (tmp_path / "empty").mkdir()
    assert enroll(tmp_path / "empty", {"anna": recordings["anna"]}, tiny).store.names == ("anna",)


def test_no_store_is_said_so(tmp_path):
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(StoreMissingError, match=re.escape(str(path))):
            SpeakerStore.open(path)


# Names are data

STRANGE = (
    "../x",
    "a/b",
    "/etc/passwd",
    "C:\\con",
    "🎤🧑‍🚀",
    "n" * 300,
    "Anna",
    "anna",
    "ANNA",
    "a\nb",
    "a\0b",
    " ",
    ".",
)


def test_any_name_can_be_enrolled_and_no_path_is_made_of_it(tmp_path, recordings, tiny_with):
    folder = tmp_path / "inner"
    folder.mkdir()
    sources = list(recordings)
    speakers = {name: recordings[sources[n % len(sources)]][:4] for n, name in enumerate(STRANGE)}
    enroll(folder / "s", speakers, tiny_with("quality.duplicates=off"))  # some are of one voice
    found = read_everything(folder / "s")
    assert found.names == STRANGE
    assert [found.position(name) for name in STRANGE] == list(range(len(STRANGE)))
    assert sorted(tmp_path.rglob("*"))[:2] == [folder, folder / "s"]
    assert [entry.name for entry in folder.iterdir()] == ["s"]
    assert {entry.name for entry in (folder / "s").iterdir()} == {
        ".lock", "manifest.json", "speakers", "one_vs_rest-1.safetensors", "segments-1.safetensors",
        "calibration-1.safetensors",
    }  # fmt: skip
    assert all(re.fullmatch(r"[0-9a-f]{16}-1\.safetensors", file.name) for file in (folder / "s/speakers").iterdir())


def test_a_strange_name_can_be_claimed_and_removed(tmp_path, recordings, tiny, heard):
    enroll(tmp_path / "s", {"../anna": recordings["anna"], "../Anna": recordings["ivan"]}, tiny)
    store = SpeakerStore.open(tmp_path / "s")
    assert Verifier(store, "../anna").verify_file(heard("anna")).decision is Decision.ACCEPTED
    assert Verifier(store, "../Anna").verify_file(heard("anna")).decision is Decision.REJECTED
    assert remove_speaker(tmp_path / "s", "../Anna").names == ("../anna",)


def test_the_writer_refuses_a_name_that_is_taken(tmp_path, five):
    add(tmp_path / "s", five, NAMES)
    before = content(tmp_path / "s")
    with pytest.raises(SpeakerExistsError, match="'ada'"):
        add(tmp_path / "s", first(6), ("ada",))
    with pytest.raises(SpeakerExistsError, match="'fay'"):
        add(tmp_path / "s", first(7), ("fay", "fay"))
    assert SpeakerStore.open(tmp_path / "s").names == NAMES
    assert before["manifest.json"] == content(tmp_path / "s")["manifest.json"]
