"""Seals: who has not got the key changes nothing, puts nobody in and takes nothing back unseen."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import hostile
import pytest
from populations import NAMES, add, assert_same, content, first

from pipeline.enrollment import remove_speaker
from pipeline.errors import SpeakerExistsError, StoreError, StoreFormatError, StoreMissingError, StoreSealError
from pipeline.manifest import KEY_VARIABLE, NoKey, new_id
from pipeline.sealing import check_store, read_store_key, seal_store
from pipeline.store import SpeakerStore
from pipeline.store_writer import store_writer

KEY = b"a key of sixteen bytes or more"
OTHER = b"another key of some length"


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> Path:
    """Three speakers without a seal."""
    path = tmp_path_factory.mktemp("plain") / "s"
    add(path, first(3), NAMES[:3])
    return path


@pytest.fixture(scope="module")
def made(plain, tmp_path_factory) -> Path:
    """The same three, sealed."""
    path = Path(shutil.copytree(plain, tmp_path_factory.mktemp("sealed") / "s"))
    seal_store(path, KEY)
    return path


@pytest.fixture
def sealed(made, tmp_path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "sealed"))


def read_all(path: Path, key: bytes | None = KEY) -> SpeakerStore:
    store = SpeakerStore.open(path, key=key)
    store.check_files()
    store.population()
    return store


def test_a_sealed_store_is_what_it_was(plain, sealed):
    before, after = SpeakerStore.open(plain), read_all(sealed)
    assert (before.sealed, after.sealed) == (False, True)
    assert after.manifest == before.manifest.model_copy(update={"revision": 2})
    assert_same(after.population(), before.population())
    assert hostile.manifest_of(sealed)["digest"] == hostile.digest_of(hostile.manifest_of(sealed), KEY)
    assert hostile.manifest_of(plain)["digest"] == hostile.digest_of(hostile.manifest_of(plain))


@pytest.mark.parametrize(("key", "words"), [(None, f"is sealed; give its key.*{KEY_VARIABLE}"), (OTHER, "another key")])
def test_a_sealed_store_opens_for_nobody_without_its_key(sealed, key, words):
    before = content(sealed)
    with pytest.raises(StoreSealError, match=rf"manifest\.json: .*{words}"):
        SpeakerStore.open(sealed, key=key)
    with pytest.raises(StoreSealError), store_writer(sealed, key=key):
        pytest.fail("a writer without the key")
    with pytest.raises(StoreSealError):
        check_store(sealed, key=key)
    if key is None:
        with pytest.raises(StoreSealError):
            remove_speaker(sealed, NAMES[0])
    assert content(sealed) == before


def test_a_store_that_is_not_sealed_opens_for_nobody_with_a_key(plain, tmp_path, monkeypatch):
    path = Path(shutil.copytree(plain, tmp_path / "s"))
    before = content(path)
    monkeypatch.setenv(KEY_VARIABLE, KEY.decode())
    for attempt in (lambda: SpeakerStore.open(path), lambda: remove_speaker(path, NAMES[0])):
        with pytest.raises(StoreSealError, match="is not sealed: its seal was taken off, or it never had one"):
            attempt()
    assert content(path) == before
    assert SpeakerStore.open(path, key=NoKey.UNSEALED).names == NAMES[:3]
    seal_store(path, KEY)
    assert SpeakerStore.open(path).sealed
    with pytest.raises(StoreSealError, match="is sealed"):
        SpeakerStore.open(path, key=NoKey.UNSEALED)


def test_every_change_under_the_key_is_sealed(tmp_path, monkeypatch):
    path = tmp_path / "s"
    monkeypatch.setenv(KEY_VARIABLE, KEY.decode())
    add(path, first(3), NAMES[:3])  # a new store is sealed from the start
    add(path, first(4), NAMES[3:4])
    assert remove_speaker(path, NAMES[0]).sealed
    monkeypatch.delenv(KEY_VARIABLE)
    assert read_all(path).names == NAMES[1:4]
    with pytest.raises(StoreSealError):
        read_all(path, None)


# What somebody without the key can try


def edits(table: dict) -> dict[str, dict]:
    """A manifest changed in each of its parts."""
    speakers = table["speakers"]
    someone = {**speakers[-1], "id": new_id(), "name": "mallory"}
    return {
        "a speaker put in": {**table, "speakers": [*speakers, someone]},
        "a speaker taken out": {**table, "speakers": speakers[:-1]},
        "speakers exchanged": {**table, "speakers": [speakers[1], speakers[0], speakers[2]]},
        "another name": {**table, "speakers": [{**speakers[0], "name": "mallory"}, *speakers[1:]]},
        "names exchanged": {
            **table,
            "speakers": [
                {**speakers[0], "name": speakers[1]["name"]}, {**speakers[1], "name": speakers[0]["name"]}, speakers[2],
            ],
        },
        "a background speaker": {**table, "speakers": [{**speakers[0], "role": "background"}, *speakers[1:]]},
        "another system": {
            **table, "config": {**table["config"], "scoring": {**table["config"]["scoring"], "system": "boar"}},
        },
        "no held-out trials": {**table, "calibration": None},
        "another revision": {**table, "revision": 9},
        "another identity": {**table, "identity": "0" * 32},
        "an older version": {**table, "version": 1},
        "a newer version": {**table, "version": 3},
        "no version": {key: value for key, value in table.items() if key != "version"},
        "one key more": {**table, "extra": 1},
        "one key less": {key: value for key, value in table.items() if key != "scaling"},
    }  # fmt: skip


@pytest.mark.parametrize("digest", ["kept", "plain", "another key's", "taken off", "of nothing"])
def test_a_manifest_edited_without_the_key_is_refused(sealed, digest):
    table = hostile.manifest_of(sealed)
    for what, edited in edits(table).items():
        forged = {
            "kept": edited,
            "plain": {**edited, "digest": hostile.digest_of(edited)},
            "another key's": {**edited, "digest": hostile.digest_of(edited, OTHER)},
            "taken off": {key: value for key, value in edited.items() if key != "digest"},
            "of nothing": {**edited, "digest": "hmac-sha256:"},
        }[digest]
        (sealed / "manifest.json").write_text(json.dumps(forged))
        with pytest.raises(StoreError, match=r"manifest\.json: ") as caught:
            SpeakerStore.open(sealed, key=KEY)
        assert isinstance(caught.value, StoreSealError | StoreFormatError), what
    (sealed / "manifest.json").write_text(json.dumps(table))  # laid out otherwise, and the same
    assert read_all(sealed).names == NAMES[:3]


def test_a_speaker_slipped_in_with_files_of_their_own_is_refused(sealed, tmp_path):
    """Enrolled by this very program, into a copy that the seal was taken off."""
    table = hostile.manifest_of(sealed)
    hostile.put_manifest(sealed, table)
    add(sealed, first(4), ("mallory",))
    for key in (None, OTHER):
        hostile.put_manifest(sealed, hostile.manifest_of(sealed), key)
        with pytest.raises(StoreSealError, match=r"not sealed|does not hold"):
            SpeakerStore.open(sealed, key=KEY)
    (sealed / "manifest.json").write_text(json.dumps({**hostile.manifest_of(sealed), "digest": table["digest"]}))
    with pytest.raises(StoreSealError, match="does not hold"):
        SpeakerStore.open(sealed, key=KEY)


def test_a_file_of_a_sealed_store_that_is_not_the_one_that_was_sealed_is_refused_by_name(sealed, tmp_path):
    other = tmp_path / "other"
    add(other, first(3), NAMES[:3])
    manifest = (sealed / "manifest.json").read_bytes()
    for path in sorted(sealed.rglob("*.safetensors")):
        sound = path.read_bytes()
        name = path.relative_to(sealed)
        others = [file.read_bytes() for store in (sealed, other) for file in sorted(store.rglob("*-*.safetensors"))]
        for data in (*(data for data in others if data != sound), sound[:-1], sound + b"\0", b""):
            path.write_bytes(data)
            with pytest.raises(StoreFormatError, match=re.escape(str(name))):
                read_all(sealed)
        hostile.vouch_for(sealed, str(name), others[0] if others[0] != sound else others[1])
        with pytest.raises(StoreSealError):
            read_all(sealed)
        (sealed / "manifest.json").write_bytes(manifest)
        path.write_bytes(sound)
    assert read_all(sealed).names == NAMES[:3]


def test_the_manifest_of_another_store_under_the_same_key_does_not_fit(sealed, tmp_path):
    other = tmp_path / "other"
    add(other, first(3), NAMES[:3])
    seal_store(other, KEY)
    noted = check_store(sealed, key=KEY).anchor
    shutil.copy(other / "manifest.json", sealed / "manifest.json")
    with pytest.raises(StoreFormatError, match=r"\.safetensors"):
        read_all(sealed)
    # All of the other store in its place is that other store, which only an anchor tells.
    shutil.rmtree(sealed)
    shutil.copytree(other, sealed)
    assert read_all(sealed).names == NAMES[:3]
    with pytest.raises(StoreSealError, match="not the anchor's"):
        check_store(sealed, key=KEY, anchor=noted)


def test_an_older_state_put_back_is_seen_by_its_anchor_alone(sealed, tmp_path, monkeypatch):
    monkeypatch.setenv(KEY_VARIABLE, KEY.decode())
    shutil.copytree(sealed, tmp_path / "older")
    remove_speaker(sealed, NAMES[0])
    noted = check_store(sealed).anchor
    assert check_store(sealed, anchor=noted).revision == 3
    shutil.rmtree(sealed)
    shutil.move(tmp_path / "older", sealed)
    assert SpeakerStore.open(sealed).names == NAMES[:3]  # nothing in it says that it is old
    with pytest.raises(StoreSealError, match=r"at revision 2, and was at 3.*older state"):
        check_store(sealed, anchor=noted)
    add(sealed, first(4), NAMES[3:4])
    assert check_store(sealed, anchor=noted).revision == 3, "an anchor says no more than this"


@pytest.mark.parametrize("anchor", ["", "12", "x" * 32 + ":1", "0" * 32, "0" * 32 + ":-1", "0" * 32 + ":" + "9" * 30])
def test_an_anchor_that_is_none_is_an_error(sealed, anchor):
    with pytest.raises(StoreError, match="must be IDENTITY:REVISION"):
        check_store(sealed, key=KEY, anchor=anchor)


# Sealing


def test_a_damaged_store_is_not_sealed(plain, tmp_path):
    path = Path(shutil.copytree(plain, tmp_path / "s"))
    victim = next(path.glob("calibration-*"))
    victim.write_bytes(victim.read_bytes()[:-1] + b"\xff")
    before = content(path)
    with pytest.raises(StoreFormatError, match=victim.name):
        seal_store(path, KEY)
    assert content(path) == before
    with pytest.raises(StoreMissingError):
        seal_store(tmp_path / "nowhere", KEY)
    assert not (tmp_path / "nowhere").exists()


def test_the_key_can_be_changed_by_who_has_the_old_one(sealed):
    with pytest.raises(StoreSealError, match="sealed already; to change its key, give the old one"):
        seal_store(sealed, OTHER)
    with pytest.raises(StoreSealError, match="does not hold"):
        seal_store(sealed, OTHER, old_key=OTHER)
    assert read_all(sealed).manifest.revision == 2
    assert seal_store(sealed, OTHER, old_key=KEY).revision == 3
    assert read_all(sealed, OTHER).names == NAMES[:3]
    with pytest.raises(StoreSealError):
        read_all(sealed)


def test_keys_come_from_a_file_or_the_environment_and_are_no_words(tmp_path, monkeypatch, sealed):
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    assert read_store_key() is None
    (tmp_path / "key").write_bytes(KEY + b"\r\n")
    assert read_store_key(tmp_path / "key") == KEY
    monkeypatch.setenv(KEY_VARIABLE, KEY.decode())
    assert read_store_key() == KEY
    for short in ("", "short"):
        monkeypatch.setenv(KEY_VARIABLE, short)
        with pytest.raises(
            StoreSealError, match=f"{KEY_VARIABLE}: a key must have at least 16 bytes, got {len(short)}"
        ):
            SpeakerStore.open(sealed)
    with pytest.raises(StoreSealError, match="at least 16 bytes, got 0"):
        SpeakerStore.open(sealed, key=b"")
    with pytest.raises(StoreSealError, match="nokey: the key cannot be read"):
        read_store_key(tmp_path / "nokey")


# The command


@pytest.mark.slow
def test_the_command_seals_and_every_other_command_keeps_to_it(run, copied, heard, tmp_path, monkeypatch):
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    key = tmp_path / "store.key"
    key.write_bytes(KEY + b"\n")
    verify = ("verify", copied, "--claim", "anna", heard("anna"))
    done = run("seal", copied, "--key", key)
    assert done.code == 0
    assert "sealed, 7 files of 4 speakers hold" in done.out
    anchor = done.out.split("anchor ")[1].strip()
    refused = run(*verify)
    assert (refused.code, refused.out) == (2, "")
    assert KEY_VARIABLE in refused.err
    monkeypatch.setenv(KEY_VARIABLE, KEY.decode())
    assert run(*verify).code == 0
    assert run("speakers", copied, "remove", "dexter").code == 0
    told = run("seal", copied, "--check", "--anchor", anchor, "--json").out
    assert json.loads(told) | {"sealed": True, "speakers": 3, "revision": 3} == json.loads(told)
    assert run("seal", copied, "--check", "--anchor", f"{'0' * 32}:1").code == 2
    hostile.put_manifest(copied, hostile.manifest_of(copied))
    refused = run(*verify)
    assert (refused.code, refused.out) == (2, "")
    assert "not sealed" in refused.err
    assert KEY.decode() not in done.out + told + refused.err


@pytest.mark.parametrize("words", [("--anchor", "x:1"), ("--check", "--old-key", "k"), ()])
def test_options_of_the_command_that_say_nothing_together_are_refused(monkeypatch, sealed, words):
    from typer.testing import CliRunner

    from pipeline.cli import app

    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    before = content(sealed)
    assert CliRunner().invoke(app, ["seal", str(sealed), *words]).exit_code == 2
    assert content(sealed) == before


def test_a_name_that_is_taken_is_found_in_a_sealed_store_too(sealed, monkeypatch):
    monkeypatch.setenv(KEY_VARIABLE, KEY.decode())
    before = content(sealed)
    with pytest.raises(SpeakerExistsError):
        add(sealed, first(4), NAMES[:1])
    assert content(sealed) == before
