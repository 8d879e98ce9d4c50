"""The store's manifest: what is in a store, as one small JSON file whose replacement is the only commit point.

Its last key is a digest over all the others, and they hold the SHA-256 of every array file: one number vouches for the
whole store. Without a key the digest is a SHA-256 and shows damage. With one it is an HMAC-SHA-256, a seal, and shows
edits too: whoever changes the manifest cannot make it again. What neither shows is an older state of the same store,
put back whole (``Manifest.identity`` and ``revision`` are there to be noted down and compared).
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
)

from pipeline.config import Config, parse_config
from pipeline.errors import ConfigError, StoreFormatError, StoreMissingError, StoreSealError
from pipeline.files import read_bounded, sync_folder, write_durably
from pipeline.keys import checked_key, read_key
from pipeline.migration import DIGEST, VERSION, migrated

FORMAT = "voiceclaim-store"
KEY_VARIABLE = "VOICECLAIM_STORE_KEY"
NAME = "manifest.json"
PARTIAL = "manifest.json.partial"
MOST_BYTES = 2**24  # of a manifest: some forty thousand speakers

_PLAIN, _SEALED = "sha256", "hmac-sha256"

Role = Literal["speaker", "background"]


class NoKey(Enum):
    """What is given for a key where a store must not be sealed, whatever the environment says."""

    UNSEALED = "unsealed"


Key = bytes | NoKey | None


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class FileRecord(_Record):
    """A file of arrays: its ``name`` inside the store, the SHA-256 of its bytes, and how many those are.

    Stores of version 1 do not say how many.
    """

    name: str
    sha256: str
    size: int | None = None


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
    """All that a store holds, speakers in the order of their enrollment.

    ``identity`` is random and the store's own, whatever its path; empty in a store of version 1 until the next commit.
    ``revision`` counts commits.
    """

    format: Literal["voiceclaim-store"] = "voiceclaim-store"
    version: int = VERSION
    identity: str = ""
    revision: int = 0
    config: dict[str, Any]
    scaling: Scaling | None = None
    speakers: tuple[Speaker, ...] = ()
    one_vs_rest: FileRecord | None = None
    segments: FileRecord | None = None
    calibration: FileRecord | None = None
    posteriors: FileRecord | None = None
    rivals: FileRecord | None = None

    @model_serializer(mode="wrap")
    def _as_before_there_were_rivals(self, as_table: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without ``rivals`` where there are none, so that programs from before read such stores."""
        table: dict[str, Any] = as_table(self)
        if table.get("rivals") is None:
            table.pop("rivals", None)
        return table

    def settings(self, store: Path) -> Config:
        """The settings that the store was enrolled with."""
        try:
            return parse_config(self.config, source=f"{store / NAME}: config")
        except ConfigError as error:
            raise StoreFormatError(str(error)) from None

    def records(self) -> list[FileRecord]:
        """Every file that the manifest vouches for: those of all speakers together first, then the latest speakers'."""
        shared = [self.one_vs_rest, self.segments, self.calibration, self.posteriors, self.rivals]
        return [*(record for record in shared if record), *(speaker.file for speaker in reversed(self.speakers))]

    def files(self) -> frozenset[str]:
        """Names of ``records``."""
        return frozenset(record.name for record in self.records())


def new_id() -> int:
    """A random 64-bit id for a speaker: it says nothing of the name."""
    return secrets.randbits(64)


def new_identity() -> str:
    """A random identity for a store, 32 hexadecimal digits."""
    return secrets.token_hex(16)


def key_in_use(key: Key = None) -> bytes | None:
    """``key``, or for None the one in the environment variable VOICECLAIM_STORE_KEY if there is one.

    Raises StoreSealError for a key under 16 bytes.
    """
    if key is None:
        return read_key(None, variable=KEY_VARIABLE, error=StoreSealError)
    return None if isinstance(key, NoKey) else checked_key(key, "key", StoreSealError)


def stamp_of(store: Path) -> tuple[int, ...] | None:
    """What differs from one manifest of ``store`` to the next, cheap to get; None where there is none."""
    try:
        status = (store / NAME).stat()
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def read_manifest(store: Path, key: Key = None) -> Manifest:
    """Read the manifest of ``store``, which must be sealed under the ``key_in_use``, or without one must not be sealed.

    Raises StoreMissingError, StoreFormatError or StoreSealError.
    """
    path, secret = store / NAME, key_in_use(key)
    try:
        content = read_bounded(path, MOST_BYTES)
    except FileNotFoundError:
        raise StoreMissingError(f"{store}: no speaker store here ({NAME} is missing); enroll somebody first") from None
    except OSError as error:
        raise StoreFormatError(f"{path}: the manifest cannot be read: {error.strerror or error}") from None
    try:
        table = json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise StoreFormatError(f"{path}: the manifest is not JSON: {error}") from None
    if not isinstance(table, dict) or table.get("format") != FORMAT:
        raise StoreFormatError(f"{path}: not the manifest of a speaker store")
    try:
        return Manifest.model_validate(_vouched_for(table, migrated(table, str(path)), str(path), secret))
    except RecursionError:
        raise StoreFormatError(f"{path}: the manifest is nested too deep for one") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise StoreFormatError(f"{path}: {where}: {first['msg']}, got {str(first['input'])[:80]!r}") from None


def _vouched_for(found: Mapping[str, Any], table: dict[str, Any], where: str, key: bytes | None) -> dict[str, Any]:
    """``table``, migrated from ``found``, without its digest, if that is the right one."""
    given = table.pop(DIGEST, None)
    is_sealed = isinstance(given, str) and given.startswith(f"{_SEALED}:")
    if key is not None and not is_sealed:
        raise StoreSealError(
            f"{where}: a key was given, and the store (format version {found['version']}) is not sealed: its seal was"
            " taken off, or it never had one (`voiceclaim seal` puts one on a store that you trust)"
        )
    if key is None and is_sealed:
        raise StoreSealError(f"{where}: the store is sealed; give its key, in the variable {KEY_VARIABLE}")
    if found["version"] == 1:
        return table
    if not hmac.compare_digest(str(given).encode("utf-8", "replace"), _digest(table, key).encode()):
        if is_sealed:
            raise StoreSealError(
                f"{where}: the seal does not hold: the manifest was edited, or sealed under another key"
            )
        raise StoreFormatError(f"{where}: the manifest is not what its digest says; damaged, or changed by hand")
    return table


def _digest(table: Mapping[str, Any], key: bytes | None) -> str:
    """Digest over the canonical form of ``table``: JSON with sorted keys, no blanks and ASCII only."""
    data = f"{FORMAT}\n{json.dumps(table, sort_keys=True, separators=(',', ':'))}".encode("ascii")
    if key is None:
        return f"{_PLAIN}:{hashlib.sha256(data).hexdigest()}"
    return f"{_SEALED}:{hmac.new(key, data, 'sha256').hexdigest()}"


def write_manifest(store: Path, manifest: Manifest, key: Key = None) -> None:
    """Put ``manifest``, sealed under the ``key_in_use`` if there is one, in place of the one there.

    It is written aside and flushed, and so are the names of all new files, before it is renamed: after a loss of power
    there is the old manifest or the new one, and every file that it names.
    """
    table = manifest.model_dump(mode="json")
    text = json.dumps({**table, DIGEST: _digest(table, key_in_use(key))}, indent=1, ensure_ascii=False)
    partial = store / PARTIAL
    # Names from folders may hold what is no text; the form that this gives it is JSON's own, too.
    write_durably(partial, text.encode("utf-8", "backslashreplace"))
    sync_folder(store)
    partial.replace(store / NAME)
    sync_folder(store)
