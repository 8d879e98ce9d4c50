"""Files of named arrays (safetensors), read by memory map, their damage turned into typed errors."""

from __future__ import annotations

import hashlib
import os
import weakref
from collections.abc import Iterable, Mapping
from io import BufferedReader
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from pipeline.errors import StoreFormatError
from pipeline.files import open_regular, write_durably
from pipeline.manifest import FileRecord
from pipeline.store_layout import Layout, Lengths, are_maps, expected_of, fits

AnyArray = NDArray[Any]

_KINDS = {
    **dict.fromkeys(("F16", "F32", "F64"), "f"),
    **dict.fromkeys(("I8", "I16", "I32", "I64"), "i"),
    **dict.fromkeys(("U8", "U16", "U32", "U64"), "u"),
    "BOOL": "b",
}
_LARGEST = 1e15  # squares and products of such numbers are still numbers
_SMALLEST = 1e-15
_MAY_LACK_NUMBERS = ("_map", "_sample")  # of fitted posteriors: NaN stands where there was too little to fit
_MOST_HEADER = 2**20  # a store's own have some hundred bytes an array
_MOST_BYTES = 2**36
_MOST_HELD = 256  # descriptors of one store: a process may have some hundreds of them, and wants them for other things
_DESCRIPTORS = Path("/dev/fd")


class HeldFiles:
    """The files of one revision, open: each can be read though a writer deletes it, until it is taken.

    Holds the first 256 of ``records``. Raises FileNotFoundError where one of them is not there; whatever else is wrong
    with a file is left for ``ArrayFile`` to tell.
    """

    def __init__(self, store: Path, records: Iterable[FileRecord] = ()) -> None:
        self._descriptors: dict[str, int] = {}
        self._release = weakref.finalize(self, _close_all, self._descriptors)
        for record in records:
            if len(self._descriptors) == _MOST_HELD:
                break
            try:
                _check_place(store, record.name)
                with open_regular(store / record.name) as file:
                    self._descriptors[record.name] = os.dup(file.fileno())
            except FileNotFoundError:
                self._release()
                raise
            except (OSError, StoreFormatError):
                continue

    def take(self, name: str) -> int | None:
        """The descriptor of the file ``name``, which the caller closes; None if it is not held (any more)."""
        return self._descriptors.pop(name, None)


def _close_all(descriptors: dict[str, int]) -> None:
    while descriptors:
        os.close(descriptors.popitem()[1])


class ArrayFile:
    """An open file of arrays, its bytes checked against the manifest; only the parts asked for become arrays.

    Nothing in the file is believed: not its header, not what the arrays are made of. Raises StoreFormatError.
    """

    def __init__(self, store: Path, record: FileRecord, held: int | None = None) -> None:
        """Open the file that ``record`` names, or the one at the descriptor ``held``, which is closed."""
        self.path = store / record.name
        self._layout: Layout = {}
        try:
            with self._opened(store, record.name, held) as file:
                _check_size(self.path, file, record)
                found = hashlib.file_digest(file, "sha256").hexdigest()
                if found != record.sha256:
                    raise StoreFormatError(
                        f"{self.path}: its checksum is not the manifest's (SHA-256 {found[:12]}... for"
                        f" {record.sha256[:12]}...); the file was damaged, or changed by hand"
                    )
                self._file: Any = safe_open(self._name_of(file), "numpy")
        except FileNotFoundError:
            raise StoreFormatError(
                f"{self.path}: a file of the store is gone; the store was changed since it was opened (open it"
                " again), or by hand"
            ) from None
        except (OSError, SafetensorError) as error:
            reason = getattr(error, "strerror", None) or error
            raise StoreFormatError(f"{self.path}: a file of the store cannot be read ({reason})") from None

    def _opened(self, store: Path, name: str, held: int | None) -> BufferedReader:
        _check_place(store, name)
        return open_regular(self.path) if held is None else os.fdopen(held, "rb")

    def _name_of(self, file: BufferedReader) -> Path:
        """A path to the very file that was checked, whatever stands at its own by now."""
        return _DESCRIPTORS / str(file.fileno()) if _DESCRIPTORS.is_dir() else self.path

    def names(self) -> list[str]:
        """Names of the arrays in the file."""
        return list(self._file.keys())

    def expect(self, layout: Layout, **lengths: int) -> Self:
        """The file itself, if its arrays are those of ``layout`` with these ``lengths``; read values are held to it.

        Only the header is read for this. Raises StoreFormatError.
        """
        bound: Lengths = dict(lengths)
        names = self.names()
        missing = [name for name, array in layout.items() if array.needed and name not in names and "*" not in name]
        if missing:
            raise StoreFormatError(f"{self.path}: array {missing[0]!r} is missing; a file of another kind?")
        order = list(layout)
        for name in sorted(names, key=lambda name: order.index(name) if name in layout else len(order)):
            if (array := expected_of(layout, name)) is not None:
                kind, shape = self._described(name)
                if kind != array.kind or not fits(shape, array.shape, bound):
                    raise StoreFormatError(
                        f"{self.path}: array {name!r} must have the shape {_shown(array.shape, bound)} of kind"
                        f" {array.kind!r}, got {shape} of kind {kind!r}; files of two stores mixed?"
                    )
        self._layout = layout
        return self

    def read(self, name: str, part: int | slice | None = None) -> AnyArray:
        """The array ``name``, or ``part`` of it along its first axis.

        Raises StoreFormatError for an array that is missing or not made of plain numbers, and for values that no store
        holds: NaN, infinite or absurdly large ones, zeros where ``expect`` was told that there are none.
        """
        try:
            self._described(name)
            array = np.asarray(self._file.get_tensor(name) if part is None else self._file.get_slice(name)[part])
        except (SafetensorError, IndexError, ValueError, TypeError, OverflowError, MemoryError) as error:
            raise StoreFormatError(f"{self.path}: array {name!r} is missing or damaged ({error})") from None
        self._check_values(name, array)
        return array

    def _described(self, name: str) -> tuple[str, tuple[int, ...]]:
        """Kind of the numbers, as numpy's letter, and the shape."""
        view = self._file.get_slice(name)
        dtype = view.get_dtype()
        if dtype not in _KINDS:
            raise StoreFormatError(f"{self.path}: array {name!r} must hold plain numbers, got {dtype}")
        return _KINDS[dtype], tuple(view.get_shape())

    def _check_values(self, name: str, array: AnyArray) -> None:
        expected = expected_of(self._layout, name)
        least = _SMALLEST if expected is not None and expected.positive else -_LARGEST
        gaps = name.endswith(_MAY_LACK_NUMBERS) if expected is None else expected.gaps
        values = array[~np.isnan(array)] if gaps and array.dtype.kind == "f" else array
        if values.size == 0:
            return
        if values.dtype.kind == "f" and not (
            float(values.min()) >= least and float(values.max()) <= _LARGEST
        ):  # or NaN
            raise StoreFormatError(
                f"{self.path}: array {name!r} must hold numbers from {least:g} to {_LARGEST:g}, got {values.min()} to"
                f" {values.max()}"
            )
        if values.dtype.kind == "i" and least > 0 and values.min() < 1:
            raise StoreFormatError(f"{self.path}: array {name!r} must hold numbers from 1 on, got {values.min()}")
        if expected is not None and expected.maps and not are_maps(array):
            raise StoreFormatError(f"{self.path}: array {name!r} must hold maps from margins to log-odds; damaged?")


def _shown(shape: tuple[str | int, ...], lengths: Lengths) -> str:
    return (
        "("
        + ", ".join(
            f"{want} = {lengths[want]}" if isinstance(want, str) and want in lengths else str(want) for want in shape
        )
        + ")"
    )


def _check_place(store: Path, name: str) -> None:
    """Raise StoreFormatError for a file that is not inside the store."""
    parts = name.replace("\\", "/").split("/")
    if "\0" in name or ":" in name or any(part in ("", ".", "..") for part in parts):
        raise StoreFormatError(f"{store}: the manifest names {name!r}, which is no file of a store; changed by hand?")


def _check_size(path: Path, file: BufferedReader, record: FileRecord) -> None:
    """Raise StoreFormatError for sizes that no store has, before anything that takes long is done with them."""
    size = os.fstat(file.fileno()).st_size
    if record.size not in (None, size):
        raise StoreFormatError(
            f"{path}: a file of the store must have {record.size:,} bytes, got {size:,}; cut off, or changed by hand"
        )
    header = int.from_bytes(file.read(8), "little")
    file.seek(0)
    if not 8 + header <= size <= _MOST_BYTES or header > _MOST_HEADER:
        raise StoreFormatError(
            f"{path}: a file of the store cannot be read: {size:,} bytes with a header of {header:,}; at most"
            f" {_MOST_BYTES:,} with {_MOST_HEADER:,} are; damaged, or no file of arrays"
        )


def write_arrays(store: Path, name: str, arrays: Mapping[str, AnyArray]) -> FileRecord:
    """Write ``arrays`` to the new file ``name`` of ``store`` and wait until the disk has them."""
    data = save({key: np.ascontiguousarray(array) for key, array in arrays.items()})
    path = store / name
    path.parent.mkdir(parents=True, exist_ok=True)
    write_durably(path, data)
    return FileRecord(name=name, sha256=hashlib.sha256(data).hexdigest(), size=len(data))
