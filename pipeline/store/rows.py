"""Rows of a store's SQLite file: arrays as checked blobs, pair machines, and their digests.

Every row carries a digest over its name and content, and the row of the store one over everything else: settings,
speakers and the digests of all arrays. Without a key digests are SHA-256 and show damage; under a key they are
HMAC-SHA-256, a seal, and show edits too. A pair machine never changes once it is trained, so its own digest suffices.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import sqlite3
import weakref
from collections.abc import Sequence
from pathlib import Path
from threading import RLock
from typing import Any

import numpy as np

from pipeline.errors import StoreBusyError, StoreError, StoreFormatError, StoreMissingError
from pipeline.machines.pairs import PairMachine
from pipeline.store.blobs import Entry, Row, decoded, encoded, entries_of, part_name
from pipeline.store.connection import connect, logs_of, status_of, store_errors
from pipeline.store.keys import key_in_use
from pipeline.store.layout import SHARED, SPEAKER, AnyArray, Lengths, check_array

SCHEMA = (
    """CREATE TABLE store (
 one INTEGER PRIMARY KEY CHECK (one = 1), format TEXT NOT NULL, version INTEGER NOT NULL, identity TEXT NOT NULL,
 revision INTEGER NOT NULL, config TEXT NOT NULL, calibrations TEXT NOT NULL, digest TEXT NOT NULL)""",
    """CREATE TABLE speaker (
 id INTEGER PRIMARY KEY, number INTEGER NOT NULL, name TEXT NOT NULL UNIQUE, role TEXT NOT NULL, seconds REAL NOT NULL,
 frames INTEGER NOT NULL, utterances INTEGER NOT NULL, centroids INTEGER NOT NULL)""",
    """CREATE TABLE array (
 owner INTEGER REFERENCES speaker (id) ON DELETE CASCADE, name TEXT NOT NULL, dtype TEXT NOT NULL, shape TEXT NOT NULL,
 digest BLOB NOT NULL, data BLOB NOT NULL)""",
    """CREATE TABLE pair (
 later INTEGER NOT NULL REFERENCES speaker (id) ON DELETE CASCADE,
 earlier INTEGER NOT NULL REFERENCES speaker (id) ON DELETE CASCADE,
 bias REAL NOT NULL, own BLOB NOT NULL, rival BLOB NOT NULL, digest BLOB NOT NULL, UNIQUE (later, earlier))""",
    "CREATE UNIQUE INDEX array_listing ON array (owner, name, dtype, shape, digest)",
    "CREATE INDEX pair_earlier ON pair (earlier)",
)
_PRAGMAS = (
    "foreign_keys = ON",
    "secure_delete = ON",
    "synchronous = FULL",
    "trusted_schema = OFF",
    "cell_size_check = ON",
)
LISTING = dict[int | None, dict[str, Entry]]
"""Entries of all arrays, by owner and name; arrays of the whole population have the owner None."""

_INHERITED: list[sqlite3.Connection] = []  # connections of the parent process, which must not be closed after a fork
_PAIR_ROW = tuple[int, int, float, bytes, bytes, bytes]
_UPDATE_ARRAY = "UPDATE array SET dtype = ?, shape = ?, digest = ?, data = ? WHERE owner IS ? AND name = ?"
_SELECT_PAIR = "SELECT later, earlier, bias, own, rival, digest FROM pair WHERE"


def digest_of(key: bytes | None, *parts: bytes) -> bytes:
    """Return the digest of ``parts``, each with its length: HMAC-SHA-256 under ``key``, else SHA-256."""
    content = hashlib.sha256() if key is None else hmac.new(key, digestmod="sha256")
    for part in parts:
        content.update(len(part).to_bytes(8, "little"))
        content.update(part)
    return content.digest()


class Rows:
    """One connection to a store's file, used by one thread at a time.

    ``identity`` is the store's own; ``key`` is the key of its seal, None for a store without one. Every method raises a
    typed StoreError.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection, key: bytes | None) -> None:
        self.path = path
        self.key = key
        self.identity = ""
        self._absolute = path.absolute()
        self._use(connection)

    def _use(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._lock = RLock()
        self._process = os.getpid()
        self._closing = weakref.finalize(self, connection.close)

    def __reduce__(self) -> tuple[object, ...]:
        # Another process opens the file anew, and compares what it reads with the digests that were read here.
        return _reopened, (self._absolute, self.identity, self.key is not None)

    def run(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        """Run one statement and return all its rows."""
        if self._process != os.getpid():  # SQLite's connections and locks do not survive a fork
            self._closing.detach()
            _INHERITED.append(self._connection)
            self._use(open_rows(self._absolute, self.key).take_connection())
        with self._lock, store_errors(self.path):
            return self._connection.execute(sql, values).fetchall()

    def take_connection(self) -> sqlite3.Connection:
        """Return the connection, which this object no longer closes."""
        self._closing.detach()
        return self._connection

    @property
    def is_open(self) -> bool:
        """Return True until the rows are closed or their connection is taken."""
        return self._closing.alive

    def close(self) -> None:
        """Close the connection; a snapshot that it held is released."""
        with self._lock:
            self._closing()

    def check_schema(self) -> bool:
        """Return True if the file has a store's tables, False if it has none; raises StoreFormatError for others."""
        schema = [sql for (sql,) in self.run("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid")]
        if schema and schema != list(SCHEMA):
            raise StoreFormatError(f"{self.path}: not a speaker store, or made by a later program: it has other tables")
        return bool(schema)

    # Arrays

    def listing(self) -> LISTING:
        """Return the entries of all arrays, without reading the arrays."""
        found: dict[int | None, dict[str, Row]] = {}
        damage = StoreFormatError(f"{self.path}: the list of arrays is damaged, or was changed by hand")
        for owner, name, *row in self.run("SELECT owner, name, dtype, shape, digest FROM array"):
            parts = found.setdefault(owner, {})
            types = (type(owner), type(name), *map(type, row))
            if types[0] not in (int, type(None)) or types[1:] != (str, str, str, bytes) or name in parts:
                raise damage
            parts[name] = (row[0], row[1], row[2])
        try:
            return {owner: entries_of(parts) for owner, parts in found.items()}
        except ValueError:
            raise damage from None

    def read_array(self, owner: int | None, name: str, entry: Entry, lengths: Lengths) -> AnyArray:
        """Return one array, checked against its ``entry`` in the listing and against ``lengths``."""
        parts = [
            self._read_part(owner, part_name(name, number), entry.dtype, *part)
            for number, part in enumerate(entry.parts)
        ]
        try:
            array = decoded(entry.dtype, entry.shape, parts[0] if len(parts) == 1 else b"".join(parts))
        except (ValueError, TypeError, RecursionError) as error:
            raise StoreFormatError(f"{self.path}: array {name!r} is damaged ({str(error)[:200]})") from None
        check_array(str(self.path), SHARED if owner is None else SPEAKER, name, array, lengths)
        return array

    def _read_part(self, owner: int | None, name: str, dtype: str, shape: str, digest: bytes) -> bytes:
        rows = self.run("SELECT data FROM array WHERE owner IS ? AND name = ?", (owner, name))
        if len(rows) != 1 or not isinstance(rows[0][0], bytes):
            raise StoreFormatError(f"{self.path}: array {name!r} is missing or damaged")
        data = rows[0][0]
        if not hmac.compare_digest(digest, self._array_digest(owner, name, dtype, shape, data)):
            raise self._digest_error(f"array {name!r}")
        return data

    def write_array(self, owner: int | None, name: str, array: AnyArray, before: Entry | None) -> None:
        """Write one array in place of the one listed as ``before``; parts that have not changed are left alone."""
        dtype, parts = encoded(array, in_parts=owner is None)
        there, number = () if before is None else before.parts, 0
        for number, (shape, data) in enumerate(parts):
            part = part_name(name, number)
            digest = self._array_digest(owner, part, dtype, shape, data)
            if number >= len(there):
                self.run("INSERT INTO array VALUES (?, ?, ?, ?, ?, ?)", (owner, part, dtype, shape, digest, data))
            elif there[number] != (shape, digest):
                self.run(_UPDATE_ARRAY, (dtype, shape, digest, data, owner, part))
        self.delete_parts(owner, name, range(number + 1, len(there)))

    def delete_parts(self, owner: int | None, name: str, numbers: range) -> None:
        """Delete the parts of an array that have these ``numbers``."""
        for number in numbers:
            self.run("DELETE FROM array WHERE owner IS ? AND name = ?", (owner, part_name(name, number)))

    def _array_digest(self, owner: int | None, name: str, dtype: str, shape: str, data: bytes) -> bytes:
        title = f"array {self.identity} {owner} {name} {dtype} {shape}"
        return digest_of(self.key, title.encode("utf-8", "surrogatepass"), data)

    # Pair machines

    def pairs_of(self, speaker: int) -> dict[int, PairMachine]:
        """Return the pair machines of a speaker by the other one's id; positive margins are for the speaker."""
        later = self.run(f"{_SELECT_PAIR} later = ?", (speaker,))
        earlier = self.run(f"{_SELECT_PAIR} earlier = ?", (speaker,))
        return {row[1]: self._pair(row) for row in later} | {row[0]: self._pair(row).flipped() for row in earlier}

    def write_pair(self, later: int, earlier: int, machine: PairMachine) -> None:
        """Write the machine of two speakers, by their ids, from the later one's side."""
        bias, own, rival = float(machine.bias), *(side.astype("<f8").tobytes() for side in (machine.own, machine.rival))
        digest = self._pair_digest(later, earlier, bias, own, rival)
        self.run("INSERT INTO pair VALUES (?, ?, ?, ?, ?, ?)", (later, earlier, bias, own, rival, digest))

    def _pair(self, row: _PAIR_ROW) -> PairMachine:
        later, earlier, bias, own, rival, digest = row
        if [type(value) for value in row] != [int, int, float, bytes, bytes, bytes] or len(own) % 8 or len(rival) % 8:
            raise StoreFormatError(f"{self.path}: a pair machine is damaged, or was changed by hand")
        if not hmac.compare_digest(digest, self._pair_digest(later, earlier, bias, own, rival)):
            raise self._digest_error("a pair machine")
        machine = PairMachine(np.frombuffer(own, "<f8"), np.frombuffer(rival, "<f8"), bias)
        if not (np.isfinite(bias) and np.isfinite(machine.own).all() and np.isfinite(machine.rival).all()):
            raise StoreFormatError(f"{self.path}: a pair machine must hold finite numbers; damaged?")
        return machine

    def _pair_digest(self, later: int, earlier: int, bias: float, own: bytes, rival: bytes) -> bytes:
        title = f"pair {self.identity} {later} {earlier} {bias!r}"
        return digest_of(self.key, title.encode(), own, rival)

    def reseal(self, key: bytes) -> None:
        """Compare every array and pair machine with its digest, and make all digests anew under ``key``."""
        old = self.key
        for owner, entries in self.listing().items():
            for name, entry in entries.items():
                self.key = old
                array = self.read_array(owner, name, entry, {})
                self.key = key
                self.write_array(owner, name, array, entry)
        for (rowid,) in self.run("SELECT rowid FROM pair"):
            self.key = old
            (row,) = self.run(f"{_SELECT_PAIR} rowid = ?", (rowid,))
            self._pair(row)
            self.key = key
            self.run("UPDATE pair SET digest = ? WHERE rowid = ?", (self._pair_digest(*row[:5]), rowid))
        self.key = key

    def _digest_error(self, what: str) -> StoreError:
        why = "it was damaged, or changed by hand" if self.key is None else "it was changed by somebody without the key"
        return StoreFormatError(f"{self.path}: the digest of {what} does not hold: {why}")


def open_rows(path: Path, key: bytes | None, *, writable: bool = False) -> Rows:
    """Open the store's file: a snapshot for reading, or the only writer. Raises a typed StoreError.

    The writer of an empty file keeps it locked until it closes: nobody may read the file before it is in WAL mode.
    """
    status = status_of(path)
    for other in (*logs_of(path), path.with_name(f"{path.name}-shm")):  # SQLite would wait for the other end of a pipe
        status_of(other)
    if status is None and not writable:
        raise StoreMissingError(path)
    with store_errors(path):
        rows = Rows(path, connect(path, writable=writable), key)
    try:
        for pragma in _PRAGMAS if writable else (*_PRAGMAS, "query_only = ON"):
            rows.run(f"PRAGMA {pragma}")
        if not writable:
            rows.run("BEGIN")
        has_schema = rows.check_schema()
        if not has_schema and not writable:
            raise StoreMissingError(path)
        if writable:
            rows.run("PRAGMA journal_mode = WAL" if has_schema else "PRAGMA locking_mode = EXCLUSIVE")
            rows.run("PRAGMA busy_timeout = 0")
            rows.run("BEGIN IMMEDIATE")
            if rows.check_schema() != has_schema:
                raise StoreBusyError(f"{path}: another process has just made this store; try again")
    except BaseException:
        rows.close()
        raise
    return rows


def _reopened(path: Path, identity: str, sealed: bool) -> Rows:
    """Open a store in another process, with that process's own key."""
    rows = open_rows(path, key_in_use() if sealed else None)
    rows.identity = identity
    return rows
