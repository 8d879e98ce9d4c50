"""Writing of a speaker model to a store's rows: only the differences, in one commit."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pipeline.errors import SpeakerExistsError, StoreError, StoreMissingError, TracesLeftError
from pipeline.machines.pairs import PairMachine, Pairs, PairSource
from pipeline.store.arrays import Arrays, RenumberedPairs, StoredArrays, StoredPairs, UpdatedArrays
from pipeline.store.blobs import Entry
from pipeline.store.model import SpeakerModel
from pipeline.store.reading import ABOUT, FORMAT, VERSION, about_of, store_digest
from pipeline.store.rows import SCHEMA, Rows

if TYPE_CHECKING:
    from pipeline.store.store import Store


class Transaction:
    """The only writer of a store while it lasts; ``model`` is the stored one, None before the first speaker."""

    def __init__(self, store: Store, rows: Rows, model: SpeakerModel | None) -> None:
        self.model = model
        self.saved = False
        self._is_new = model is None
        self._has_removed = False
        self._store = store
        self._rows = rows

    @property
    def existing(self) -> SpeakerModel:
        """Return ``model``; raises StoreMissingError before the first speaker."""
        if self.model is None:
            raise StoreMissingError(self._store.path)
        return self.model

    def save(self, model: SpeakerModel) -> SpeakerModel:
        """Write the differences of ``model`` from the stored one, commit, and return the model as stored.

        Raises TracesLeftError after a commit if the rest cannot be erased.
        """
        rows = self._rows
        if self.model is None:
            for statement in SCHEMA:
                rows.run(statement)
            rows.identity, revision = secrets.token_hex(16), 0
        else:
            revision = self.model.revision
        self._write_speakers(model)
        _write_arrays(rows, None, model.shared)
        for later, earlier, machine in _new_pairs(rows, model.pairs, {n: s.id for n, s in enumerate(model.speakers)}):
            rows.write_pair(later, earlier, machine)
        about = {
            "format": FORMAT,
            "version": VERSION,
            "identity": rows.identity,
            "revision": revision + 1,
            "config": json.dumps(model.config.model_dump(mode="json"), sort_keys=True),
            "calibrations": json.dumps(model.calibrations.as_json(), sort_keys=True),
        }
        left = None
        try:
            self._commit(about)
        except StoreError as error:
            if not self.saved:
                raise
            left = error
        stored = self._store.load(unknown_impostors=model.unknown_share)
        if left is not None:
            raise TracesLeftError(left, stored)
        return stored

    def reseal(self, key: bytes) -> None:
        """Write every digest anew under ``key``, and commit."""
        rows, revision = self._rows, self.existing.revision + 1
        rows.reseal(key)
        about, _ = about_of(rows)
        self._commit(about | {"version": VERSION, "revision": revision})

    def _write_speakers(self, model: SpeakerModel) -> None:
        rows = self._rows
        known = {} if self.model is None else {speaker.id: speaker for speaker in self.model.speakers}
        taken = {speaker.name for speaker in known.values()}
        for gone in known.keys() - {speaker.id for speaker in model.speakers}:
            rows.run("DELETE FROM speaker WHERE id = ?", (gone,))
            self._has_removed = True
            taken.discard(known[gone].name)
        for number, speaker in enumerate(model.speakers):
            if speaker.id in known:
                rows.run("UPDATE speaker SET number = ?, name = ? WHERE id = ?", (number, speaker.name, speaker.id))
                self._has_removed |= speaker.name != known[speaker.id].name
            elif speaker.name in taken:
                raise SpeakerExistsError(f"{rows.path}: speaker {speaker.name!r} is enrolled already")
            else:
                taken.add(speaker.name)
                fields = (speaker.id, number, speaker.name, speaker.role, float(speaker.seconds))
                counts = (speaker.frames, speaker.utterances, speaker.centroids)
                rows.run("INSERT INTO speaker VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (*fields, *counts))
            _write_arrays(rows, speaker.id, model.arrays[number])

    def _commit(self, about: Mapping[str, Any]) -> None:
        rows = self._rows
        digest = store_digest(rows, about, rows.listing())
        rows.run("DELETE FROM store")
        rows.run("INSERT INTO store VALUES (1, ?, ?, ?, ?, ?, ?, ?)", (*(about[column] for column in ABOUT), digest))
        if self._store.before_commit is not None:
            self._store.before_commit()
        rows.run("COMMIT")
        self.saved = True
        self.model = None
        if self._is_new:
            with suppress(StoreError):
                rows.run("PRAGMA journal_mode = WAL")
            rows.close()  # the exclusive use of a new file ends
            return
        if self._has_removed:
            self._rewrite()
        with suppress(StoreError):
            rows.run("PRAGMA wal_checkpoint(TRUNCATE)")

    def _rewrite(self) -> None:
        """Rewrite the whole file, so that no byte of a removed speaker is left in it.

        ``secure_delete`` overwrites deleted rows, but not copies of them that SQLite left in gaps when it split or
        merged pages (``tests/store/test_removal.py`` has such removals).
        """
        try:
            self._rows.run("PRAGMA busy_timeout = 60000")
            self._rows.run("VACUUM")
        finally:
            self._rows.run("PRAGMA busy_timeout = 0")  # a checkpoint must not wait for readers


def _new_pairs(rows: Rows, source: PairSource | None, ids: Mapping[int, int]) -> Iterator[tuple[int, int, PairMachine]]:
    """Yield the machines of ``source`` that ``rows`` lack, with the speakers' ids (``ids`` by number)."""
    if isinstance(source, Pairs):
        for (later, earlier), machine in source.trained.items():
            if later in ids and earlier in ids:
                yield ids[later], ids[earlier], machine
        yield from _new_pairs(rows, source.known, ids)
    elif isinstance(source, RenumberedPairs):
        yield from _new_pairs(
            rows, source.source, {number: ids[place] for place, number in enumerate(source.numbers) if place in ids}
        )
    elif isinstance(source, StoredPairs) and source.rows is not rows:
        for later in ids:
            for earlier, machine in source.against(later).items():
                if earlier < later and earlier in ids:
                    yield ids[later], ids[earlier], machine


def _write_arrays(rows: Rows, owner: int | None, arrays: Arrays) -> None:
    """Write the ``arrays`` that are new; delete stored arrays that are not among them."""
    before: Mapping[str, Entry] = {}
    if isinstance(arrays, StoredArrays) and arrays.rows is rows:
        return
    if isinstance(arrays, UpdatedArrays) and isinstance(arrays.base, StoredArrays) and arrays.base.rows is rows:
        before = arrays.base.entries
        for name in arrays.removed & before.keys():
            rows.delete_parts(owner, name, range(len(before[name].parts)))
        arrays = arrays.new
    else:
        rows.run("DELETE FROM array WHERE owner IS ?", (owner,))
    for name in arrays:
        rows.write_array(owner, name, arrays[name], before.get(name))
