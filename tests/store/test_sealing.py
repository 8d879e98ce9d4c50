"""Seals: nobody without the key changes a store, adds a speaker or takes one out unseen."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import hostile
import pytest
from populations import NAMES, add, assert_same, cohorts_of, content, left_over, model_of

from pipeline.enrollment.removal import remove_speaker
from pipeline.errors import SpeakerExistsError, StoreError, StoreFormatError, StoreMissingError, StoreSealError
from pipeline.store.keys import KEY_VARIABLE, NoKey, read_store_key
from pipeline.store.sealing import check_store, seal_store
from pipeline.store.store import Store
from pipeline.verification.policies import Threshold
from pipeline.verification.verifier import Verifier

KEY = b"a key of sixteen bytes or more"
OTHER = b"another key of some length"


@pytest.fixture(scope="module")
def made(stored, tmp_path_factory) -> Path:
    """The store of three speakers, sealed."""
    path = Path(shutil.copy(stored[3], tmp_path_factory.mktemp("sealed") / "s"))
    seal_store(path, KEY)
    return path


@pytest.fixture
def sealed(made, tmp_path) -> Path:
    (tmp_path / "in").mkdir()
    return Path(shutil.copy(made, tmp_path / "in" / "s"))


def test_what_lacks_a_pair_machine_is_not_sealed_though_every_digest_is_right(three):
    with closing(sqlite3.connect(three)) as database, database:
        database.execute("DELETE FROM pair WHERE rowid = (SELECT min(rowid) FROM pair)")
    hostile.vouch_for(three, None)
    before = content(three)
    with pytest.raises(StoreFormatError, match="a pair machine of speaker number"):
        seal_store(three, KEY)
    assert content(three) == before


def test_a_sealed_store_holds_what_it_held(three, sealed):
    before, after = Store(three).load(), Store(sealed, key=KEY).check()
    assert (before.sealed, after.sealed) == (False, True)
    assert (after.identity, after.revision, after.speakers) == (before.identity, 2, before.speakers)
    assert_same(after, before)
    for path, key in ((three, None), (sealed, KEY)):
        digests = content(path)
        hostile.vouch_for(path, key)  # written independently
        assert content(path) == digests


@pytest.mark.parametrize(("key", "words"), [(None, f"is sealed; give its key.*{KEY_VARIABLE}"), (OTHER, "another key")])
def test_a_sealed_store_opens_for_nobody_without_its_key(sealed, key, words):
    before, store = content(sealed), Store(sealed, key=key)
    for attempt in (store.load, store.check, lambda: remove_speaker(store, NAMES[0])):
        with pytest.raises(StoreSealError, match=rf"{re.escape(str(sealed))}: .*{words}"):
            attempt()
    assert content(sealed) == before
    assert left_over(sealed) == set()


def test_a_store_that_is_not_sealed_opens_for_nobody_with_a_key(three, monkeypatch):
    before = content(three)
    monkeypatch.setenv(KEY_VARIABLE, KEY.decode())
    for attempt in (Store(three).load, lambda: remove_speaker(three, NAMES[0])):
        with pytest.raises(StoreSealError, match="is not sealed: its seal was taken off, or it never had one"):
            attempt()
    assert content(three) == before
    assert Store(three, key=NoKey.UNSEALED).load().names == NAMES[:3]
    seal_store(three, KEY)
    assert Store(three).load().sealed
    with pytest.raises(StoreSealError, match="is sealed"):
        Store(three, key=NoKey.UNSEALED).load()


def test_every_change_under_the_key_is_sealed(tmp_path, monkeypatch):
    path = tmp_path / "s"
    monkeypatch.setenv(KEY_VARIABLE, KEY.decode())
    add(path, NAMES[:3])  # a new store is sealed from the start
    add(path, NAMES[3:4])
    assert remove_speaker(path, NAMES[0]).sealed
    with pytest.raises(SpeakerExistsError):
        add(path, NAMES[1:2])
    monkeypatch.delenv(KEY_VARIABLE)
    assert_same(Store(path, key=KEY).check(), model_of(NAMES[1:4]))
    with pytest.raises(StoreSealError):
        Store(path).check()


# What somebody without the key can try

EDITS = {
    "a speaker put in": "INSERT INTO speaker SELECT 5, 3, 'mallory', role, 1.0, 1, 1, 5 FROM speaker LIMIT 1",
    "a speaker taken out": "DELETE FROM speaker WHERE number = 2",
    "speakers exchanged": "UPDATE speaker SET number = 1 - number WHERE number < 2",
    "another name": "UPDATE speaker SET name = 'mallory' WHERE number = 0",
    "two other names": "UPDATE speaker SET name = CASE number WHEN 0 THEN 'mallory' ELSE 'bob' END WHERE number < 2",
    "a background speaker": "UPDATE speaker SET role = 'background' WHERE number = 0",
    "another id": "UPDATE speaker SET id = 5 WHERE number = 0",
    "another count": "UPDATE speaker SET frames = frames + 1 WHERE number = 0",
    "another system": "UPDATE store SET config = replace(config, 'refined_worst_rival', 'boar')",
    "another share of impostors": (
        "UPDATE store SET config = replace(config, '\"unknown_impostors\": 0', '\"unknown_impostors\": 1')"
    ),
    "other calibrations": 'UPDATE store SET calibrations = \'{"sequential": {}, "whole":  {}}\'',
    "another revision": "UPDATE store SET revision = 9",
    "another identity": "UPDATE store SET identity = '00000000000000000000000000000000'",
    "another version": "UPDATE store SET version = 3",
    "another array": "UPDATE array SET data = zeroblob(length(data)) WHERE name = 'centroids'",
    "an array's owner exchanged": "UPDATE array SET owner = NULL WHERE name = 'centroids'",
    "an array of nobody": "UPDATE array SET owner = 5 WHERE name = 'fingerprints'",
    "an array hidden by its owner": "UPDATE array SET owner = 'None' WHERE owner IS NULL",
    "an array hidden by its name": "UPDATE array SET name = CAST(name AS BLOB) WHERE name = 'fingerprints'",
    "an array taken out": "DELETE FROM array WHERE name = 'fingerprints'",
    "arrays of others": "UPDATE array SET data = (SELECT data FROM array AS a WHERE a.name = array.name AND"
    " a.rowid != array.rowid AND length(a.data) = length(array.data)) WHERE name = 'fingerprints'",
    "another shape": "UPDATE array SET shape = '[1, 20]' WHERE name = 'fingerprints'",
    "another type": "UPDATE array SET dtype = '<f4' WHERE name = 'fingerprints'",
    "an array twice": "INSERT INTO array SELECT owner, name, dtype, '[1]', digest, data FROM array WHERE name = 'gmm'",
    "another bias": "UPDATE pair SET bias = bias + 1",
    "other coefficients": "UPDATE pair SET own = zeroblob(length(own))",
    "sides exchanged": "UPDATE pair SET own = rival, rival = own",
    "a machine of others": "UPDATE pair SET earlier = later, later = earlier",
    "a machine taken out": "DELETE FROM pair",
}
FORGERS = {"digests kept": None, "plain digests": None, "another key's": OTHER}


@pytest.mark.parametrize("forger", FORGERS)
@pytest.mark.parametrize("what", EDITS)
def test_an_edit_without_the_key_is_refused_by_what_it_changes(sealed, what, forger):
    before = content(sealed)
    with closing(sqlite3.connect(sealed, isolation_level=None)) as rows:
        rows.execute("PRAGMA ignore_check_constraints = ON")
        rows.execute(EDITS[what])
    assert content(sealed) != before
    if forger != "digests kept":
        hostile.vouch_for(sealed, FORGERS[forger])
    with pytest.raises((StoreSealError, StoreFormatError), match=re.escape(str(sealed))):
        Store(sealed, key=KEY).check()
    with pytest.raises((StoreSealError, StoreFormatError)):
        for name in NAMES[:3]:
            model = Store(sealed, key=KEY).load()
            for system in ("rpoao", "refined_worst_rival", "poar"):
                Verifier(model, name, system=system, decide_by=Threshold(0.0))
            model.fingerprints(name)


def test_rows_of_an_older_state_or_of_another_store_under_the_same_key_do_not_fit(sealed, tmp_path):
    older, other = Path(shutil.copy(sealed, tmp_path / "older")), tmp_path / "other"
    remove_speaker(Store(sealed, key=KEY), "ada")
    add(other, NAMES[1:3], key=KEY)
    noted, before = check_store(sealed, key=KEY).anchor, sealed.read_bytes()
    ids = [dict(hostile.query(path, "SELECT name, id FROM speaker")) for path in (sealed, other)]
    for donor, name in ((older, "one_vs_rest"), (older, "supervector.mean"), (other, "centroids"), (other, None)):
        with closing(sqlite3.connect(sealed, isolation_level=None)) as rows:
            rows.execute("ATTACH ? AS donor", (str(donor),))
            if name is None:  # the pair machine, with the ids of this store
                (pair,) = rows.execute("SELECT bias, own, rival, digest FROM donor.pair").fetchall()
                rows.execute("UPDATE pair SET bias = ?, own = ?, rival = ?, digest = ?", pair)
            else:
                for speaker in NAMES[1:3]:
                    there = ids[donor == other][speaker]
                    row = rows.execute(
                        "SELECT shape, digest, data FROM donor.array WHERE name = ? AND (owner IS NULL OR owner = ?)",
                        (name, there),
                    ).fetchone()
                    rows.execute(
                        "UPDATE array SET shape = ?, digest = ?, data = ? WHERE name = ? AND ifnull(owner, ?) = ?",
                        (*row, name, *[ids[0][speaker]] * 2),
                    )
        with pytest.raises((StoreSealError, StoreFormatError)):
            Store(sealed, key=KEY).check()
        sealed.write_bytes(before)
    # All of another store in its place is that other store, which only an anchor shows.
    shutil.copy(other, sealed)
    assert Store(sealed, key=KEY).check().names == NAMES[1:3]
    with pytest.raises(StoreSealError, match="not the anchor's"):
        check_store(sealed, key=KEY, anchor=noted)


def test_a_speaker_slipped_in_by_this_very_program_is_refused(sealed):
    digest = hostile.query(sealed, "SELECT digest FROM store")[0][0]
    hostile.vouch_for(sealed)
    add(sealed, ("mallory",))
    for forged in (hostile.query(sealed, "SELECT digest FROM store")[0][0], digest, "hmac-sha256:", "", digest.upper()):
        hostile.edit(sealed, "UPDATE store SET digest = ?", forged, vouch=False)
        with pytest.raises(StoreSealError, match=r"not sealed|does not hold"):
            Store(sealed, key=KEY).load()


@pytest.mark.parametrize("most", [2, "all"])
def test_a_pair_machine_that_is_missing_is_seen_by_the_claim_that_needs_it(tmp_path, most):
    path = tmp_path / "s"
    model = add(path, NAMES[:3], cohorts_of(most), key=KEY)
    hostile.edit(path, "DELETE FROM pair WHERE later = ?", model.speakers[2].id, vouch=False)
    with pytest.raises(StoreSealError, match="does not hold"):
        Store(path, key=KEY).load()
    hostile.vouch_for(path, KEY)
    model = Store(path, key=KEY).load()
    with pytest.raises(StoreFormatError, match=re.escape(str(path))):
        Verifier(model, "cyd", decide_by=Threshold(0.5))
    with pytest.raises(StoreFormatError, match=re.escape(str(path))):
        check_store(path, key=KEY)


SCHEMAS = (
    "CREATE TABLE more (x)", "CREATE VIEW more AS SELECT * FROM pair", "CREATE INDEX more ON pair (bias)",
    "CREATE TRIGGER more AFTER INSERT ON speaker BEGIN UPDATE speaker SET role = 'speaker'; END",
    "DROP INDEX pair_earlier", "ALTER TABLE pair ADD COLUMN more", "DROP TABLE pair",
)  # fmt: skip


@pytest.mark.parametrize("sql", SCHEMAS)
def test_other_tables_views_or_triggers_are_refused_even_of_a_plain_store(three, sql):
    hostile.edit(three, sql, vouch=False)
    before = three.read_bytes()
    for attempt in (Store(three).load, lambda: add(three, NAMES[3:4]), lambda: seal_store(three, KEY)):
        with pytest.raises(StoreFormatError, match=rf"{re.escape(str(three))}: not a speaker store"):
            attempt()
    assert three.read_bytes() == before


def test_an_older_state_put_back_is_seen_by_its_anchor_alone(sealed, tmp_path, monkeypatch):
    monkeypatch.setenv(KEY_VARIABLE, KEY.decode())
    shutil.copy(sealed, tmp_path / "older")
    remove_speaker(sealed, NAMES[0])
    noted = check_store(sealed).anchor
    assert check_store(sealed, anchor=noted).revision == 3
    shutil.move(tmp_path / "older", sealed)
    assert Store(sealed).load().names == NAMES[:3]  # nothing in it says that it is old
    with pytest.raises(StoreSealError, match=r"at revision 2, and was at 3.*older state"):
        check_store(sealed, anchor=noted)
    add(sealed, NAMES[3:4])
    assert check_store(sealed, anchor=noted).revision == 3, "an anchor says no more than this"


@pytest.mark.parametrize("anchor", ["", "12", "x" * 32 + ":1", "0" * 32, "0" * 32 + ":-1", "0" * 32 + ":" + "9" * 30])
def test_an_anchor_that_is_none_is_an_error(sealed, anchor):
    with pytest.raises(StoreError, match="must be IDENTITY:REVISION"):
        check_store(sealed, key=KEY, anchor=anchor)


# Sealing and keys


def test_a_damaged_store_is_not_sealed(three, tmp_path):
    hostile.edit(
        three, "UPDATE array SET data = zeroblob(length(data)) WHERE name = 'supervector.ubm.means'", vouch=False
    )
    before = content(three)
    with pytest.raises(StoreFormatError, match=r"'supervector\.ubm\.means'"):
        seal_store(three, KEY)
    assert content(three) == before
    with pytest.raises(StoreMissingError):
        seal_store(tmp_path / "nowhere", KEY)
    assert not (tmp_path / "nowhere").exists()


def test_the_key_can_be_changed_by_whoever_has_the_old_one(sealed):
    with pytest.raises(StoreSealError, match="sealed already; to change its key, give the old one"):
        seal_store(sealed, OTHER)
    with pytest.raises(StoreSealError, match="does not hold"):
        seal_store(sealed, OTHER, old_key=OTHER)
    assert seal_store(sealed, OTHER, old_key=KEY).revision == 3
    assert_same(Store(sealed, key=OTHER).check(), model_of(NAMES[:3]))
    with pytest.raises(StoreSealError):
        Store(sealed, key=KEY).load()


def test_keys_come_from_a_file_or_the_environment_and_are_no_words(tmp_path, monkeypatch, sealed):
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    assert read_store_key() is None
    (tmp_path / "key").write_bytes(KEY + b"\r\n")
    assert read_store_key(tmp_path / "key") == KEY
    monkeypatch.setenv(KEY_VARIABLE, KEY.decode())
    assert read_store_key() == KEY
    for short in ("", "short"):
        monkeypatch.setenv(KEY_VARIABLE, short)
        with pytest.raises(StoreSealError, match=f"{KEY_VARIABLE}: a key must have at least 16 .* got {len(short)}"):
            Store(sealed)
    monkeypatch.setenv(KEY_VARIABLE, str(tmp_path / "key"))
    with pytest.raises(StoreSealError, match=f"{KEY_VARIABLE}: the key itself was expected, got the path of a file"):
        Store(sealed)
    with pytest.raises(StoreSealError, match="at least 16 bytes, got 0"):
        Store(sealed, key=b"")
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
    assert done.code == 0, done.err
    anchor = done.out.split("anchor ")[1].strip()
    refused = run(*verify)
    assert (refused.code, refused.out) == (2, "")
    assert KEY_VARIABLE in refused.err
    monkeypatch.setenv(KEY_VARIABLE, KEY.decode())
    assert run(*verify).code == 0
    assert run("speakers", "remove", copied, "dexter").code == 0
    report = run("seal", copied, "--check", "--anchor", anchor, "--json").out
    assert json.loads(report) | {"sealed": True, "speakers": 3, "revision": 3} == json.loads(report)
    assert run("seal", copied, "--check", "--anchor", f"{'0' * 32}:1").code == 2
    hostile.vouch_for(copied)
    refused = run(*verify)
    assert (refused.code, refused.out) == (2, "")
    assert "not sealed" in refused.err
    assert KEY.decode() not in done.out + report + refused.err


@pytest.mark.parametrize("words", [("--anchor", "x:1"), ("--check", "--old-key", "k"), ()])
def test_options_of_the_command_that_do_not_go_together_are_refused(monkeypatch, sealed, words):
    from typer.testing import CliRunner

    from pipeline.cli.app import app

    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    before = content(sealed)
    assert CliRunner().invoke(app, ["seal", str(sealed), *words]).exit_code == 2
    assert content(sealed) == before
