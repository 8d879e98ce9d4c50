"""The store's manifest: what is in a store, as one small JSON file whose replacement is the only commit point."""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pipeline.config import Config, parse_config
from pipeline.errors import ConfigError, StoreFormatError, StoreMissingError
from pipeline.files import read_bounded

FORMAT = "voiceclaim-store"
VERSION = 1
NAME = "manifest.json"
PARTIAL = "manifest.json.partial"
MOST_BYTES = 2**28  # of a manifest: half a million speakers

Role = Literal["speaker", "background"]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class FileRecord(_Record):
    """A file of arrays: its ``name`` inside the store and the SHA-256 of its bytes."""

    name: str
    sha256: str


class Speaker(_Record):
    """One enrolled speaker; ``background`` speakers are rivals only and nobody can claim to be them.

    ``seconds`` of speech in ``frames`` feature vectors of ``utterances`` recordings made ``centroids`` centroids.
    """

    id: Annotated[int, Field(ge=0, lt=2**64)]
    name: str
    role: Role = "speaker"
    seconds: float
    frames: int
    utterances: int
    centroids: int
    file: FileRecord


class Scaling(_Record):
    """Global standardisation, one number a feature."""

    mean: tuple[float, ...]
    scale: tuple[float, ...]


class Manifest(_Record):
    """All that a store holds, speakers in the order of their enrollment."""

    format: Literal["voiceclaim-store"] = "voiceclaim-store"
    version: int = VERSION
    revision: int = 0
    config: dict[str, Any]
    scaling: Scaling | None = None
    speakers: tuple[Speaker, ...] = ()
    one_vs_rest: FileRecord | None = None
    segments: FileRecord | None = None
    calibration: FileRecord | None = None
    posteriors: FileRecord | None = None

    def settings(self, store: Path) -> Config:
        """The settings that the store was enrolled with."""
        try:
            return parse_config(self.config, source=f"{store / NAME}: config")
        except ConfigError as error:
            raise StoreFormatError(str(error)) from None

    def files(self) -> frozenset[str]:
        """Names of every file that the manifest vouches for."""
        shared = [self.one_vs_rest, self.segments, self.calibration, self.posteriors]
        records = [*(speaker.file for speaker in self.speakers), *shared]
        return frozenset(record.name for record in records if record is not None)


def new_id() -> int:
    """A random 64-bit id for a speaker: it says nothing of the name."""
    return secrets.randbits(64)


def read_manifest(store: Path) -> Manifest:
    """Read the manifest of ``store``; raises StoreMissingError or StoreFormatError."""
    path = store / NAME
    try:
        text = read_bounded(path, MOST_BYTES).decode("utf-8")
    except FileNotFoundError:
        raise StoreMissingError(f"{store}: no speaker store here ({NAME} is missing); enroll somebody first") from None
    except (OSError, UnicodeDecodeError) as error:
        raise StoreFormatError(f"{path}: the manifest cannot be read: {error}") from None
    try:
        table = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise StoreFormatError(f"{path}: the manifest is not JSON: {error}") from None
    if not isinstance(table, dict) or table.get("format") != FORMAT:
        raise StoreFormatError(f"{path}: not the manifest of a speaker store")
    if table.get("version") != VERSION:
        raise StoreFormatError(
            f"{path}: format version {table.get('version')!r}, this program reads version {VERSION};"
            " a newer program made the store"
        )
    try:
        return Manifest.model_validate(table)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise StoreFormatError(f"{path}: {where}: {first['msg']}, got {first['input']!r}") from None


def write_manifest(store: Path, manifest: Manifest) -> None:
    """Put ``manifest`` in place of the one there: written aside, flushed to disk, renamed."""
    partial = store / PARTIAL
    write_durably(partial, manifest.model_dump_json(indent=1).encode())
    partial.replace(store / NAME)
    sync_folder(store)


def write_durably(path: Path, data: bytes) -> None:
    """Write ``data`` to ``path`` and wait until the disk has it."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Wait until the disk has the names in ``folder`` (where the system can: not on Windows)."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
