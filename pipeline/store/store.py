"""The store: one SQLite file that holds a speaker model, and nothing else.

``Store.load`` gives the model as it stands, a snapshot that later changes do not touch; its arrays are read when they
are asked for. ``Store.writing`` lets one writer in at a time, and ``Transaction.save`` is the only commit: after a
crash or a loss of power there is the old model or the new one. Names of people are data in a row, never a path.

The file is in WAL mode with ``secure_delete``: readers never wait for a writer, and what is erased is overwritten as
soon as no reader needs it any more. While it is in use, SQLite keeps two files beside it (``-wal``, ``-shm``).
"""

from __future__ import annotations

import json
import os
import secrets
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.errors import (
    InputError,
    SpeakerExistsError,
    StoreBusyError,
    StoreError,
    StoreFormatError,
    StoreMissingError,
    StoreSealError,
    check_type,
)
from pipeline.files import obstacle
from pipeline.machines.memory import keep_freed
from pipeline.machines.pairs import PairMachine, Pairs, PairSource
from pipeline.names import check_new_names
from pipeline.store.arrays import Arrays, Changed, Renumbered, StoredArrays, StoredPairs
from pipeline.store.keys import Key, checked_key, key_in_use
from pipeline.store.model import SpeakerModel
from pipeline.store.reading import ABOUT, FORMAT, VERSION, about_of, read_model, store_digest
from pipeline.store.rows import SCHEMA, Rows, opened, status_of

if TYPE_CHECKING:
    from pipeline.scoring.decisions import Update
    from pipeline.verification.identification import Identification

Stamp = tuple[int, ...]
"""Attributes that differ from one state of a store's files to the next."""


def as_model(given: SpeakerModel | Store | Path | str) -> SpeakerModel:
    """Return a model, or that of a store or its path; raises InputError for anything else, and what ``load`` raises."""
    if isinstance(given, SpeakerModel):
        return given
    if not isinstance(given, Store | Path | str):
        raise InputError(f"model: a SpeakerModel, a Store or its path was expected, got {type(given).__name__}")
    return (given if isinstance(given, Store) else Store(given)).load()


class Store:
    """The speaker store at ``path``, which need not exist yet; one that is sealed needs its ``key``.

    Without a ``key`` the one in the environment variable VOICECLAIM_STORE_KEY is used, if there is one.

    Parameters
    ----------
    path : path
        The file.
    key : bytes, optional
        Key of the seal.
    before_commit : callable, optional
        Called before each commit; what it raises undoes the change.

    Examples
    --------
    >>> import pipeline
    >>> store = pipeline.Store("speakers.store")
    >>> store.load().names
    ('anna', 'dexter', 'ivan', 'lars')
    >>> str(store.verify("anna", "call.wav").decision), store.identify("call.wav").name
    ('accepted', 'anna')
    """

    def __init__(self, path: Path | str, *, key: Key = None, before_commit: Callable[[], None] = lambda: None) -> None:
        check_type("store", path, os.PathLike | str, "the path of a store")
        self.path = Path(path)
        self.key = key_in_use(key)
        self.before_commit = before_commit

    def __repr__(self) -> str:
        return f"Store({str(self.path)!r})"

    def _repr_html_(self) -> str:
        return self.load()._repr_html_()

    def verify(self, name: str, file: Path | str, *, channel: int | None = None, **options: Any) -> Update:
        """Verify that ``name`` speaks in an audio file; for several files, a ``Verifier`` reads the store once.

        ``channel``, from 1, is the one to score; by default the mean of all. ``options`` are those of ``Verifier``.
        """
        import pipeline

        return pipeline.Verifier(self, name, **options).verify_file(file, channel=channel)

    def identify(self, file: Path | str, *, channel: int | None = None, **options: Any) -> Identification:
        """Find who of the enrolled speaks in an audio file; for several files, an ``Identifier`` reads the store once.

        ``channel``, from 1, is the one to score; by default the mean of all. ``options`` are those of ``Identifier``.
        """
        import pipeline

        return pipeline.Identifier(self, **options).identify_file(file, channel=channel)

    def load(self, *, unknown_impostors: float | None = None) -> SpeakerModel:
        """Return the model as it stands; it stays as it is, whatever is written meanwhile.

        ``unknown_impostors`` stands in for the settings' share of impostors who are not enrolled, from 0 to 1:
        log-likelihood ratios and thresholds depend on it. Raises InputError, StoreMissingError, StoreFormatError or
        StoreSealError.
        """
        check_type("unknown_impostors", unknown_impostors, Real | None, "a share from 0 to 1")
        if unknown_impostors is not None and not 0.0 <= unknown_impostors <= 1.0:
            raise InputError(f"unknown impostors: a share lies between 0 and 1, got {float(unknown_impostors):g}")
        keep_freed()  # for the claims on it
        rows = opened(self.path, self.key)
        try:
            model = read_model(rows)
        except BaseException:
            rows.close()
            raise
        return replace(model, unknown_share=unknown_impostors)

    def state(self) -> tuple[str, int] | None:
        """Return the identity and the revision of the store as it stands; None where there is none."""
        try:
            rows = opened(self.path, self.key)
        except StoreMissingError:
            return None
        try:
            about, _ = about_of(rows)
            return about["identity"], about["revision"]
        finally:
            rows.close()

    def stamp(self) -> Stamp | None:
        """Return what changes with the file or its log, without opening either; None where there is no store."""
        stamp: list[int] = []
        for path in (self.path, self.path.with_name(f"{self.path.name}-wal")):
            try:
                status = path.stat()
            except (OSError, ValueError):
                continue
            stamp += [status.st_ino, status.st_size, status.st_mtime_ns]
        return tuple(stamp) or None

    @contextmanager
    def writing(self) -> Iterator[Transaction]:
        """Hold the only writer of the store, which is made if it is not there.

        Raises StoreBusyError while another process writes, StoreError where nothing can be written, and as ``load``.
        Whatever is raised before ``Transaction.save``, the store is as it was.
        """
        file, is_new = _file_at(self.path)
        rows = opened(self.path, self.key, writable=True)
        try:
            if _inode(self.path) != file:
                raise StoreBusyError(f"{self.path}: another process was making this store; try again")
            has_model = rows.check_schema()
            transaction = Transaction(self, rows, read_model(rows) if has_model else None)
            try:
                yield transaction
            finally:
                if is_new and not has_model and not transaction.saved:
                    self.path.resolve().unlink(missing_ok=True)  # while nobody else can write to it
        finally:
            if rows.is_open:  # an error would hold the callers' frames, and models in them, until garbage is collected
                with suppress(StoreError):
                    rows.roll_back()
                with suppress(StoreError):
                    rows.run("PRAGMA wal_checkpoint(TRUNCATE)")  # erased data leaves the log too, unless somebody reads
                rows.close()

    def rename(self, name: str, new_name: str) -> SpeakerModel:
        """Give a speaker, a background speaker too, another name, and return the model.

        Raises UnknownSpeakerError, and SpeakerExistsError for a name that is taken.
        """
        self.load().speaker(name)  # a wrong name is an error before anything is locked
        check_type("new_name", new_name, str, "a name")
        new_name = unicodedata.normalize("NFC", new_name)
        with self.writing() as transaction:
            model = transaction.model
            if model is None:
                raise StoreMissingError(self.path)
            renamed, names = model.speaker(name), {speaker.name for speaker in model.speakers}
            if new_name in names:
                raise SpeakerExistsError(f"{self.path}: speaker {new_name!r} is enrolled already")
            check_new_names([new_name], names - {renamed.name})
            speakers = tuple(replace(one, name=new_name) if one is renamed else one for one in model.speakers)
            return transaction.save(replace(model, speakers=speakers))

    def check(self) -> SpeakerModel:
        """Read and check every row, and return the model; raises StoreFormatError for the first that is wrong."""
        rows = opened(self.path, self.key)
        model = read_model(rows)
        for arrays in (*model.arrays, model.shared):
            for name in arrays:
                arrays[name]
        problems = rows.run("PRAGMA integrity_check(1)")
        if problems != [("ok",)] or rows.run("PRAGMA foreign_key_check"):
            raise StoreFormatError(f"{self.path}: the file is damaged ({str(problems)[:200]})")
        if model.pairs is not None and len(model):
            _ = model.cohort_table  # names others, each once
            for number in range(len(model)):
                model.pairs.against(number)
        return model

    def seal(self, key: bytes) -> SpeakerModel:
        """Check every row and write all digests anew, sealed under ``key``, of 16 bytes or more, from now on."""
        key = checked_key(key, "key", StoreSealError)
        self.check()
        with self.writing() as transaction:
            if transaction.model is None:
                raise StoreMissingError(self.path)
            transaction.reseal(key)
        self.key = key
        return self.load()


class Transaction:
    """The only writer of a store while it lasts: ``model`` is what stands there, None before the first speaker."""

    def __init__(self, store: Store, rows: Rows, model: SpeakerModel | None) -> None:
        self.model = model
        self.saved = False
        self._is_new = model is None
        self._has_removed = False
        self._store = store
        self._rows = rows

    def save(self, model: SpeakerModel) -> SpeakerModel:
        """Write what ``model`` has more or less than what stands there, commit, and return the model as stored."""
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
        self._commit(about)
        return self._store.load(unknown_impostors=model.unknown_share)

    def reseal(self, key: bytes) -> None:
        """Write every digest anew under ``key``, and commit."""
        rows = self._rows
        rows.reseal(rows.listing(), key)
        about, _ = about_of(rows)
        self._commit(about | {"revision": about["revision"] + 1})

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
        """Write the whole file anew, so that no byte of a removed speaker is left in it.

        ``secure_delete`` is not enough: it overwrites a row that is deleted, and not the copies of it that SQLite left
        in the gaps of pages when it divided or joined them (``tests/store/test_removal.py`` has such removals).
        """
        try:
            self._rows.run("PRAGMA busy_timeout = 60000")
            self._rows.run("VACUUM")
        except StoreError as error:
            raise StoreError(f"the speaker was removed, and traces may be left until the next one: {error}") from None
        finally:
            self._rows.run("PRAGMA busy_timeout = 0")  # a checkpoint must not wait for readers


def _file_at(path: Path) -> tuple[tuple[int, int] | None, bool]:
    """Return the inode of the file at ``path``, an empty one where there was none, and whether it was made."""
    if (inode := _inode(path)) is not None:
        if not (os.access(path, os.W_OK) and os.access(path.resolve().parent, os.W_OK)):  # SQLite would leave files
            raise StoreError(f"{path}: the store or its folder is read-only, for this user or on this disk")
        return inode, False
    try:
        os.close(os.open(path.resolve(), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        return _inode(path), False
    except (OSError, ValueError, RuntimeError) as error:
        raise StoreError(f"{path}: no store can be made here: {obstacle(path, error)}") from None
    return _inode(path), True


def _inode(path: Path) -> tuple[int, int] | None:
    status = status_of(path)
    return None if status is None else (status.st_dev, status.st_ino)


def _new_pairs(rows: Rows, source: PairSource | None, ids: Mapping[int, int]) -> Iterator[tuple[int, int, PairMachine]]:
    """Yield the machines of ``source`` that ``rows`` do not hold yet, by the speakers' ``ids``."""
    if isinstance(source, Pairs):
        for (later, earlier), machine in source.trained.items():
            if later in ids and earlier in ids:
                yield ids[later], ids[earlier], machine
        yield from _new_pairs(rows, source.known, ids)
    elif isinstance(source, Renumbered):
        yield from _new_pairs(
            rows, source.source, {number: ids[place] for place, number in enumerate(source.numbers) if place in ids}
        )
    elif isinstance(source, StoredPairs) and source.rows is not rows:
        for later in ids:
            for earlier, machine in source.against(later).items():
                if earlier < later and earlier in ids:
                    yield ids[later], ids[earlier], machine


def _write_arrays(rows: Rows, owner: int | None, arrays: Arrays) -> None:
    """Write the arrays that are not read from the store itself; those that are not among ``arrays`` go."""
    if isinstance(arrays, StoredArrays) and arrays.rows is rows:
        return
    if isinstance(arrays, Changed) and isinstance(arrays.base, StoredArrays) and arrays.base.rows is rows:
        for name in arrays.removed:
            rows.run("DELETE FROM array WHERE owner IS ? AND name = ?", (owner, name))
        arrays = arrays.new
    else:
        rows.run("DELETE FROM array WHERE owner IS ?", (owner,))
    for name in arrays:
        rows.write_array(owner, name, arrays[name])
