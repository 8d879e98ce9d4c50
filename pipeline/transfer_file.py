"""Files of exported speakers: one safetensors file, its header plain JSON. docs/privacy.md says what they carry.

    metadata "voiceclaim"          JSON: format, version, the settings of the store, its scaling, the speakers with what
                                   the manifest says of them, and a checksum of every array (``_checksum``)
    metadata "sha256"              of that JSON
    speaker.<n>.centroids (k, d)   of the n-th speaker, and where the store has them .stretches (S, D) and
                                   .stranger.<m> (S, D), .shifts (K, d) of the model, .fingerprints (F,), the
                                   .<kind>_map (1, P) of single machines, the .pair_map (n, P) against the speakers
                                   before, .<kind>_own_sample and .<kind>_others_sample (64,)
    mixture.<name>                 centre, scale (d,), means, variances (K, d), weights (K,): what stretches are made in
    trials.<name> (T,)             held-out trials of the exported speakers among themselves

Machines are not carried: they follow from the centroids and the stretches. Checksums show damage, not forgery: who can
write the file can write them. Nothing in a file is believed without a check.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from pipeline.arrays import AnyArray
from pipeline.config import Config, parse_config
from pipeline.errors import ConfigError, TransferError
from pipeline.files import open_regular, sync_folder
from pipeline.manifest import Role, Scaling
from pipeline.store_layout import CALIBRATION, SEGMENTS, SPEAKER, Expected, Layout, Lengths, are_maps, expected_of, fits

FORMAT = "voiceclaim-speakers"
VERSION = 1
SHIFTS = "shifts"
"""Name of the array that is a speaker's row of those of all, in a store."""
_KEY, _DIGEST = "voiceclaim", "sha256"
_MIXTURE: Layout = {name: SEGMENTS[name] for name in ("centre", "scale", "means", "variances", "weights")}
_OWN: Layout = {
    name: expected
    for name, expected in SPEAKER.items()
    if name not in {"one_class", "one_class_bias", "earlier", "own", "rival", "bias"}
} | {SHIFTS: Expected("f", ("K", "d"), needed=False)}
_LARGEST = 1e15  # as in a store's own files
_SMALLEST = 1e-15
_MOST_HEADER = 2**26
_MOST_BYTES = 2**36

Name = Annotated[str, Field(min_length=1, max_length=1000)]
Count = Annotated[int, Field(ge=0, lt=2**53)]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class ExportedSpeaker(_Record):
    """What the manifest said of a speaker; the ``id`` is random, 16 hexadecimal digits."""

    id: Annotated[str, Field(pattern="^[0-9a-f]{16}$")]
    name: Name
    role: Role
    seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    frames: Count
    utterances: Count
    centroids: Annotated[int, Field(ge=1, lt=2**31)]

    @property
    def number(self) -> int:
        """The id as a number."""
        return int(self.id, 16)


class _Header(_Record):
    format: Literal["voiceclaim-speakers"] = "voiceclaim-speakers"
    version: Literal[1] = 1
    config: dict[str, Any]
    scaling: Scaling | None
    speakers: Annotated[list[ExportedSpeaker], Field(min_length=1)]
    checksums: dict[str, str]


@dataclass(frozen=True)
class Export:
    """Speakers with their arrays, one mapping each, the ``mixture`` of their stretches and their ``trials``."""

    config: Config
    scaling: Scaling | None
    speakers: Sequence[ExportedSpeaker]
    arrays: Sequence[Mapping[str, AnyArray]]
    mixture: Mapping[str, AnyArray]
    trials: Mapping[str, AnyArray]


def is_carried(name: str) -> bool:
    """Whether an export carries the array ``name`` of a speaker's file."""
    return expected_of(_OWN, name) is not None


def write_export(path: Path, export: Export) -> None:
    """Write ``export`` to the new file ``path``, for its owner's eyes only, and wait until the disk has it.

    Raises TransferError, where there is something already or it cannot be written; then nothing of it stays.
    """
    parts = [(f"speaker.{n}.", arrays) for n, arrays in enumerate(export.arrays)]
    parts += [("mixture.", export.mixture), ("trials.", export.trials)]
    arrays = {
        f"{prefix}{name}": np.ascontiguousarray(array) for prefix, found in parts for name, array in found.items()
    }
    header = _Header(
        config=export.config.model_dump(mode="json"),
        scaling=export.scaling,
        speakers=list(export.speakers),
        checksums={name: _checksum(array) for name, array in arrays.items()},
    )
    text = header.model_dump_json()
    data = save(arrays, metadata={_KEY: text, _DIGEST: _digest(text)})
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600)
    except FileExistsError:
        raise TransferError(f"{path}: there is something already; name a new file") from None
    except (OSError, ValueError) as error:
        raise TransferError(f"{path}: cannot be written: {getattr(error, 'strerror', None) or error}") from None
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        sync_folder(path.parent)
    except BaseException as error:
        path.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise TransferError(f"{path}: cannot be written: {error.strerror or error}") from None
        raise


def read_export(path: Path) -> Export:
    """Read and check the file ``path``; raises TransferError."""
    with _opened(path) as file:
        header = _header(path, file)
        config = _settings(path, header)
        names = set(file.names)
        if undeclared := sorted(names ^ header.checksums.keys()):
            raise TransferError(f"{path}: array {undeclared[0]!r} is not both there and in the header; damaged?")
        lengths: Lengths = {"d": config.features.dimension, "n": 0}
        mixture = file.section("mixture.", _MIXTURE, lengths, whole=False)
        if mixture:
            lengths["D"] = len(mixture["means"]) * config.features.dimension
        arrays = []
        for n, speaker in enumerate(header.speakers):
            own: Lengths = {**lengths, "k": speaker.centroids, "n": n}
            arrays.append(file.section(f"speaker.{n}.", _OWN, own, whole=True))
            if not mixture and arrays[-1].keys() & {"stretches", SHIFTS}:
                raise TransferError(f"{path}: speaker {speaker.name!r} has stretches, and there is no mixture to them")
        trials = file.section("trials.", CALIBRATION, {}, whole=False)
        if file.unread:
            raise TransferError(f"{path}: nothing is known of array {sorted(file.unread)[0]!r}; of a newer program?")
    return Export(config, header.scaling, header.speakers, arrays, mixture, trials)


class _File:
    """An open safetensors file, its arrays checked one by one as they are read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            length = int.from_bytes(file.read(8), "little")
        if not 8 + length <= size <= _MOST_BYTES or length > _MOST_HEADER:
            raise TransferError(f"{path}: not a file of exported speakers, or cut short: {size:,} bytes")
        self._file = _untyped(safe_open(path, "numpy"))
        self.names: list[str] = list(self._file.keys())
        self.metadata: dict[str, str] = self._file.metadata() or {}
        self.checksums: Mapping[str, str] = {}
        self.unread = set(self.names)

    def section(self, prefix: str, layout: Layout, lengths: Lengths, *, whole: bool) -> dict[str, AnyArray]:
        """The arrays whose names begin with ``prefix``, under the rest of their names; none if not ``whole``."""
        names = [name.removeprefix(prefix) for name in self.names if name.startswith(prefix)]
        wanted = [name for name, array in layout.items() if array.needed and "*" not in name]
        if (names or whole) and (missing := [name for name in wanted if name not in names]):
            raise TransferError(f"{self._path}: array '{prefix}{missing[0]}' is missing; damaged?")
        order = list(layout)
        names.sort(key=lambda name: order.index(name) if name in layout else len(order))
        return {name: self._read(prefix, name, layout, lengths) for name in names}

    def _read(self, prefix: str, name: str, layout: Layout, lengths: Lengths) -> AnyArray:
        full, expected = prefix + name, expected_of(layout, name)
        if expected is None:
            raise TransferError(f"{self._path}: nothing is known of array {full!r}; of a newer program?")
        array: AnyArray = np.asarray(self._file.get_tensor(full))
        if array.dtype.kind != expected.kind or not fits(array.shape, expected.shape, lengths):
            raise TransferError(
                f"{self._path}: array {full!r} must be {expected.shape} of kind {expected.kind!r} for the settings and"
                f" the speakers beside it, got {array.shape} of kind {array.dtype.kind!r}; damaged, or made by hand"
            )
        if _checksum(array) != self.checksums[full]:
            raise TransferError(f"{self._path}: array {full!r} has not the checksum in the header; damaged")
        self._check_values(full, array, positive=expected.positive, gaps=expected.gaps)
        if expected.maps and not are_maps(array):
            raise TransferError(f"{self._path}: array {full!r} must hold maps from margins to log-odds; made by hand?")
        self.unread.discard(full)
        return array

    def _check_values(self, name: str, array: AnyArray, *, positive: bool, gaps: bool) -> None:
        if array.size == 0 or array.dtype.kind not in "fi":
            return
        values = array[~np.isnan(array)] if gaps else array
        least = (_SMALLEST if array.dtype.kind == "f" else 1) if positive else -_LARGEST
        if values.size and not (float(values.min()) >= least and float(values.max()) <= _LARGEST):  # or NaN
            raise TransferError(f"{self._path}: array {name!r} must hold numbers from {least:g} to {_LARGEST:g}")


def _untyped(file: Any) -> Any:  # safetensors ships half of its types
    return file


@contextmanager
def _opened(path: Path) -> Iterator[_File]:
    try:
        yield _File(path)
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or error
        raise TransferError(f"{path}: exported speakers cannot be read from it: {reason}") from None
    except (ValueError, TypeError, OverflowError, MemoryError) as error:
        raise TransferError(f"{path}: not a file of exported speakers, or damaged: {error}") from None


def _header(path: Path, file: _File) -> _Header:
    try:
        table = json.loads(file.metadata[_KEY])
    except (KeyError, ValueError, RecursionError):
        raise TransferError(f"{path}: an array file, but not one of exported speakers") from None
    if not hmac.compare_digest(file.metadata.get(_DIGEST, "").encode(), _digest(file.metadata[_KEY]).encode()):
        raise TransferError(f"{path}: its header has not the checksum beside it; damaged, or changed by hand")
    version = table.get("version") if isinstance(table, dict) and table.get("format") == FORMAT else None
    if isinstance(version, int) and version > VERSION:
        raise TransferError(
            f"{path}: format version {version}, this program reads {VERSION}; a newer one made the file"
        )
    try:
        header = _Header.model_validate_json(file.metadata[_KEY])
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise TransferError(f"{path}: {where}: {first['msg']}, got {str(first['input'])[:80]!r}") from None
    for what in ("name", "id"):
        values = [getattr(speaker, what) for speaker in header.speakers]
        if doubles := {value for value in values if values.count(value) > 1} if len(set(values)) < len(values) else ():
            raise TransferError(f"{path}: {what} {min(doubles)!r} is there twice; made by hand?")
    file.checksums = header.checksums
    return header


def _settings(path: Path, header: _Header) -> Config:
    try:
        config = parse_config(header.config, source=str(path))
    except ConfigError as error:
        raise TransferError(str(error).splitlines()[0]) from None
    scaling, size = header.scaling, config.features.dimension
    if config.features.standardize != (scaling is not None):
        raise TransferError(f"{path}: features.standardize and the scaling beside it disagree; made by hand?")
    if scaling is not None and not (
        len(scaling.mean) == len(scaling.scale) == size
        and np.isfinite([*scaling.mean, *scaling.scale]).all()
        and min(scaling.scale) > 0
    ):
        raise TransferError(f"{path}: the scaling must have {size} finite means and positive scales; made by hand?")
    return config


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _checksum(array: AnyArray) -> str:
    """SHA-256 of "<f8 (200, 40)" and the like in ASCII, then of the bytes, row by row."""
    return hashlib.sha256(f"{array.dtype.str} {array.shape}".encode() + array.tobytes()).hexdigest()
