"""Stores of older format versions: read as they are, written anew by the next commit, refused where they cannot be."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import hostile
import pytest
from populations import NAMES, add, assert_same, content, first

from pipeline.enrollment import enroll, remove_speaker
from pipeline.errors import StoreFormatError, StoreSealError
from pipeline.migration import STEPS, VERSION, migrated
from pipeline.sealing import check_store, seal_store
from pipeline.store import SpeakerStore
from pipeline.verification import Verifier

KEY = b"a key of sixteen bytes or more"


@pytest.fixture
def old(store, tmp_path) -> Path:
    """The session's store as version 1 wrote it."""
    path = Path(shutil.copytree(store, tmp_path / "old.store"))
    hostile.make_version_1(path)
    return path


def test_every_older_version_has_a_step():
    assert set(STEPS) == set(range(1, VERSION))


def test_a_store_of_version_1_scores_as_the_same_store_of_today(store, old, heard):
    assert hostile.manifest_of(old)["version"] == 1
    assert {"digest", "identity"}.isdisjoint(hostile.manifest_of(old))
    before = content(old)
    ours, theirs = SpeakerStore.open(old), SpeakerStore.open(store)
    assert ours.names == theirs.names
    assert ours.config == theirs.config
    assert_same(ours.population(), theirs.population())
    ours.check_files()
    for system in ours.systems:
        expected = Verifier(theirs, "anna", system=system).verify_file(heard("anna"))
        assert Verifier(ours, "anna", system=system).verify_file(heard("anna")) == expected
    assert content(old) == before, "reading changed the store"


def test_the_next_commit_writes_the_present_version(old, recordings):
    enroll(old, {"greta": recordings["greta"][:4]})
    table = hostile.manifest_of(old)
    assert (table["version"], table["revision"]) == (VERSION, 2)
    assert table["digest"] == hostile.digest_of(table)
    assert len(table["identity"]) == 32
    assert SpeakerStore.open(old).names[-1] == "greta"
    # Files that were there already have no size, those written now have one.
    sizes = [speaker["file"].get("size") for speaker in table["speakers"]]
    assert sizes[:-1] == [None] * 4
    assert sizes[-1] == (old / table["speakers"][-1]["file"]["name"]).stat().st_size
    identity = table["identity"]
    remove_speaker(old, "anna")
    assert hostile.manifest_of(old)["identity"] == identity
    check_store(old)


def test_two_stores_have_two_identities(tmp_path):
    population = first(2)
    for name in ("a", "b"):
        add(tmp_path / name, population, NAMES[:2])
    assert len({check_store(tmp_path / name).identity for name in ("a", "b")} - {""}) == 2


def test_a_store_of_version_1_is_not_sealed_and_can_be(old):
    with pytest.raises(StoreSealError, match=r"manifest\.json: .*version 1\) is not sealed"):
        SpeakerStore.open(old, key=KEY)
    assert seal_store(old, KEY).sealed
    table = hostile.manifest_of(old)
    assert table["version"] == VERSION
    check_store(old, key=KEY)


@pytest.mark.parametrize("version", [0, -1, 1.0, 2.0, True, "1", "2", None, [], {}, 10**30, "x" * 5000])
def test_a_version_that_is_none_is_a_format_error(old, version):
    hostile.put_manifest(old, {**hostile.manifest_of(old), "version": version})
    with pytest.raises(StoreFormatError, match=r"manifest\.json: .*format version") as caught:
        SpeakerStore.open(old)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("key", ["digest", "identity"])
def test_a_version_line_set_back_is_seen_by_what_that_version_did_not_have(copied, key):
    table = {**hostile.manifest_of(copied), "version": 1}
    del table["digest" if key == "identity" else "identity"]
    hostile.put_manifest(copied, table)
    with pytest.raises(StoreFormatError, match=f"version 1 has no '{key}'"):
        SpeakerStore.open(copied)


def test_migration_leaves_what_it_is_given_alone():
    table = {"format": "voiceclaim-store", "version": 1, "speakers": []}
    assert migrated(table, "here") == {**table, "version": VERSION}
    assert table["version"] == 1


def test_a_version_2_manifest_must_carry_its_digest(copied):
    table = hostile.manifest_of(copied)
    for wrong in (None, "", 5, "sha256:", "sha256:" + "0" * 64, "md5:1", hostile.digest_of(table).upper(), "\ud800"):
        hostile_table = {**table, "digest": wrong}
        (copied / "manifest.json").write_text(json.dumps(hostile_table))
        with pytest.raises(StoreFormatError, match=r"manifest\.json: .*digest"):
            SpeakerStore.open(copied)
