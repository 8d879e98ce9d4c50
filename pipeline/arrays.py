"""Files of named arrays (safetensors), read by memory map, their damage turned into typed errors."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from pipeline.errors import StoreFormatError
from pipeline.manifest import FileRecord, write_durably

AnyArray = NDArray[Any]


class ArrayFile:
    """An open file of arrays, its bytes checked against the manifest; only the parts asked for become arrays."""

    def __init__(self, store: Path, record: FileRecord) -> None:
        self.path = store / record.name
        try:
            with self.path.open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
            if found != record.sha256:
                raise StoreFormatError(
                    f"{self.path}: its checksum is not the manifest's (SHA-256 {found[:12]}... for"
                    f" {record.sha256[:12]}...); the file was damaged, or changed by hand"
                )
            self._file: Any = safe_open(self.path, "numpy")
        except FileNotFoundError:
            raise StoreFormatError(
                f"{self.path}: a file of the store is gone; the store was changed since it was opened (open it"
                " again), or by hand"
            ) from None
        except (OSError, SafetensorError) as error:
            raise StoreFormatError(f"{self.path}: a file of the store cannot be read ({error})") from None

    def names(self) -> list[str]:
        """Names of the arrays in the file."""
        return list(self._file.keys())

    def read(self, name: str, part: int | slice | None = None) -> AnyArray:
        """The array ``name``, or ``part`` of it along its first axis."""
        try:
            if part is None:
                return np.asarray(self._file.get_tensor(name))
            return np.asarray(self._file.get_slice(name)[part])
        except (SafetensorError, IndexError) as error:
            raise StoreFormatError(f"{self.path}: array {name!r} is missing or damaged ({error})") from None


def write_arrays(store: Path, name: str, arrays: Mapping[str, AnyArray]) -> FileRecord:
    """Write ``arrays`` to the new file ``name`` of ``store`` and wait until the disk has them."""
    data = save({key: np.ascontiguousarray(array) for key, array in arrays.items()})
    path = store / name
    path.parent.mkdir(parents=True, exist_ok=True)
    write_durably(path, data)
    return FileRecord(name=name, sha256=hashlib.sha256(data).hexdigest())
