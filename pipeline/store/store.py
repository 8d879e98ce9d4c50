"""The store: one SQLite file that holds a speaker model, and nothing else.

``Store.load`` gives the model as it stands, a snapshot that later changes do not touch; its arrays are read when they
are asked for. ``Store.writing`` lets one writer in at a time, and ``Transaction.save`` is the only commit: after a
crash or a loss of power there is the old model or the new one. Names of people are data in a row, never a path.

The file is in WAL mode with ``secure_delete``: readers never wait for a writer, and what is erased is overwritten as
soon as no reader needs it any more. While it is in use, SQLite keeps two files beside it (``-wal``, ``-shm``).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
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
    check_callable,
    check_options,
    check_type,
)
from pipeline.machines.memory import keep_freed
from pipeline.names import check_new_names, normal
from pipeline.store.connection import find_or_make, inode_of, logs_of
from pipeline.store.keys import Key, key_in_use
from pipeline.store.model import SpeakerModel
from pipeline.store.reading import about_of, read_model
from pipeline.store.rows import open_rows
from pipeline.store.writing import Transaction

if TYPE_CHECKING:
    from pipeline.scoring.decisions import Update
    from pipeline.verification.identification import Identification

Stamp = tuple[int, ...]
"""File attributes; each commit changes some of them."""


def as_store(given: Store | Path | str) -> Store:
    """Return a store, or that at a path; raises InputError for anything else."""
    return given if isinstance(given, Store) else Store(given)


def as_model(given: SpeakerModel | Store | Path | str) -> SpeakerModel:
    """Return a model as it is, or load it from a store or a path; raises InputError for others, and as ``load``."""
    if isinstance(given, SpeakerModel):
        return given
    if not isinstance(given, Store | Path | str):
        raise InputError(f"model: a SpeakerModel, a Store or its path was expected, got {type(given).__name__}")
    return as_store(given).load()


class Store:
    """The speaker store at ``path``, which need not exist yet; one that is sealed needs its ``key``.

    Without a ``key`` the one in the environment variable VOICECLAIM_STORE_KEY is used, if there is one.

    Parameters
    ----------
    path : path
        The file. A relative one is looked for from the current folder, also after ``os.chdir``.
    key : bytes, optional
        Key of the seal.
    before_commit : callable, optional
        Called before each commit; an exception from it undoes the change.

    Raises
    ------
    InputError
        For a ``path`` of another type, and a ``before_commit`` that cannot be called.
    StoreSealError
        For a key of less than 16 bytes.

    Examples
    --------
    >>> import pipeline
    >>> store = pipeline.Store("speakers.store")
    >>> store.load().names
    ('anna', 'dexter', 'ivan', 'lars')
    >>> str(store.verify("anna", "call.wav").decision), store.identify("call.wav").name
    ('accepted', 'anna')
    >>> store.rename("lars", "lars o.").names
    ('anna', 'dexter', 'ivan', 'lars o.')
    >>> store.load(unknown_impostors=0.1).unknown  # of this model, not of the store
    0.1
    """

    def __init__(self, path: Path | str, *, key: Key = None, before_commit: Callable[[], None] | None = None) -> None:
        check_type("store", path, os.PathLike | str, "the path of a store")
        self.path = Path(path)
        self.key = key_in_use(key)
        check_callable("before_commit", before_commit)
        self.before_commit = before_commit

    def __contains__(self, name: object) -> bool:
        return name in self.load()

    def __repr__(self) -> str:
        return f"Store({str(self.path)!r})"

    def _repr_html_(self) -> str:
        return self.load()._repr_html_()

    def verify(self, name: str, file: Path | str, *, channel: int | None = None, **options: Any) -> Update:
        """Verify that ``name`` speaks in an audio file; for several files, a ``Verifier`` reads the store once.

        Parameters
        ----------
        name : str
            Name of an enrolled speaker.
        file, channel
            As ``Verifier.verify_file``.
        options
            Options of ``Verifier``, such as ``decide_by``.

        Returns
        -------
        Update
            The final one.

        Raises
        ------
        VoiceclaimError
            What ``load``, ``Verifier`` and ``Verifier.verify_file`` raise.
        """
        import pipeline

        check_options(pipeline.Verifier, options)
        model = self.load()
        if isinstance(file, str) and file in model.names and name not in model.names:
            raise InputError(f"verify: a name and then a file were expected, got {str(name)!r} and the name {file!r}")
        return pipeline.Verifier(model, name, **options).verify_file(file, channel=channel)

    def identify(self, file: Path | str, *, channel: int | None = None, **options: Any) -> Identification:
        """Find which enrolled speaker speaks in a file; for several files, an ``Identifier`` reads the store once.

        ``file`` and ``channel`` are as for ``Verifier.verify_file``, ``options`` those of ``Identifier``. Raises
        VoiceclaimError: what ``load``, ``Identifier`` and ``Identifier.identify_file`` raise.
        """
        import pipeline

        check_options(pipeline.Identifier, options)
        return pipeline.Identifier(self, **options).identify_file(file, channel=channel)

    def load(self, *, unknown_impostors: float | None = None) -> SpeakerModel:
        """Return the present model, which later changes of the store do not affect.

        Parameters
        ----------
        unknown_impostors : float, optional
            Share of impostors who are not enrolled, from 0 to 1, in place of the settings' own
            (``threshold.unknown_impostors``). Log-likelihood ratios and thresholds depend on it.

        Returns
        -------
        SpeakerModel

        Raises
        ------
        InputError
            For a share out of range.
        StoreError
            StoreMissingError where there is none, StoreFormatError for a damaged one, StoreSealError for a seal that
            does not fit the key.
        """
        check_type("unknown_impostors", unknown_impostors, Real | None, "a share from 0 to 1")
        if unknown_impostors is not None and not 0.0 <= unknown_impostors <= 1.0:
            raise InputError(f"unknown impostors: a share lies between 0 and 1, got {float(unknown_impostors):g}")
        keep_freed()  # claims on the model take and free much memory
        rows = open_rows(self.path, self.key)
        try:
            model = read_model(rows)
        except BaseException:
            rows.close()
            raise
        return replace(model, unknown_share=unknown_impostors)

    def state(self) -> tuple[str, int] | None:
        """Return the identity of the store, 32 hexadecimal digits, and its revision, from 1; None where there is none.

        The identity never changes, the revision rises by 1 with every commit. Raises as ``load``.
        """
        try:
            rows = open_rows(self.path, self.key)
        except StoreMissingError:
            return None
        with closing(rows):
            about, _ = about_of(rows)
        return about["identity"], about["revision"]

    def stamp(self) -> Stamp | None:
        """Return numbers that change with the file or its logs, without opening any; None if there is no store.

        It is cheaper than ``state``, and may change although the model does not.
        """
        stamp: list[int] = []
        for path in (self.path, *logs_of(self.path)):
            try:
                status = path.stat()
            except (OSError, ValueError):
                continue
            stamp += [status.st_ino, status.st_size, status.st_mtime_ns]
        return tuple(stamp) or None

    @contextmanager
    def writing(self) -> Iterator[Transaction]:
        """Be the only writer of the store, which is made if it is not there.

        An exception before ``Transaction.save`` leaves the store as it was.

        Yields
        ------
        Transaction
            Its ``model`` is the stored one, None before the first speaker.

        Raises
        ------
        StoreBusyError, StoreError
            While another process writes, and where nothing can be written.
        StoreFormatError, StoreSealError
            As ``load``.
        """
        file, is_new = find_or_make(self.path)
        rows = open_rows(self.path, self.key, writable=True)
        try:
            if inode_of(self.path) != file:
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
                with suppress(StoreError):  # after a commit there is nothing to undo
                    rows.run("ROLLBACK")
                with suppress(StoreError):
                    rows.run("PRAGMA wal_checkpoint(TRUNCATE)")  # erased data leaves the log too, unless somebody reads
                rows.close()

    def rename(self, name: str, new_name: str) -> SpeakerModel:
        """Give a speaker or a background speaker another name; nothing is trained again.

        Parameters
        ----------
        name : str
            Name that the speaker has.
        new_name : str
            Name from now on, kept in Unicode's normal form C.

        Returns
        -------
        SpeakerModel
            As stored.

        Raises
        ------
        UnknownSpeakerError, SpeakerExistsError
            For a ``name`` that nobody has, and a ``new_name`` that somebody has.
        InputError
            For a ``new_name`` that is not a valid name, such as an empty text.
        StoreError
            As ``load`` and ``writing``.
        """
        self.load().speaker(name)  # a wrong name is an error before anything is locked
        check_type("new_name", new_name, str, "a name")
        new_name = normal(new_name)
        with self.writing() as transaction:
            model = transaction.existing
            renamed, names = model.speaker(name), {speaker.name for speaker in model.speakers}
            if new_name in names:
                raise SpeakerExistsError(f"{self.path}: speaker {new_name!r} is enrolled already")
            check_new_names([new_name], names - {renamed.name})
            speakers = tuple(replace(one, name=new_name) if one is renamed else one for one in model.speakers)
            return transaction.save(replace(model, speakers=speakers))

    def check(self) -> SpeakerModel:
        """Read and check every row, and return the model.

        Raises StoreFormatError for the first row that is wrong, StoreMissingError, and StoreSealError for a seal that
        does not fit the key.
        """
        rows = open_rows(self.path, self.key)
        model = read_model(rows)
        for arrays in (*model.arrays, model.shared):
            for name in arrays:
                arrays[name]
        problems = rows.run("PRAGMA integrity_check(1)")
        if problems != [("ok",)] or rows.run("PRAGMA foreign_key_check"):
            raise StoreFormatError(f"{self.path}: the file is damaged ({str(problems)[:200]})")
        if model.pairs is not None and len(model):
            _ = model.cohort_table  # checked as it is read
            for number in range(len(model)):
                model.pairs.against(number)
        return model
