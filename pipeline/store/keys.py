"""Secret keys, from a file or an environment variable: the key of a store's seal, and that of an audit log."""

from __future__ import annotations

import os
from enum import Enum
from pathlib import Path

from pipeline.errors import StoreSealError, VoiceclaimError
from pipeline.files import read_bounded

MIN_KEY = 16  # bytes
KEY_VARIABLE = "VOICECLAIM_STORE_KEY"
_MAX_FILE = 2**16


class NoKey(Enum):
    """Marker in place of a key: the store must not be sealed, and the environment variable is ignored."""

    UNSEALED = "unsealed"


Key = bytes | NoKey | None


def key_in_use(key: Key = None) -> bytes | None:
    """Return ``key``, or for None the one in the environment variable VOICECLAIM_STORE_KEY if there is one.

    Raises StoreSealError for a key under 16 bytes.
    """
    if key is None:
        return read_store_key()
    return None if isinstance(key, NoKey) else checked_key(key, "key", StoreSealError)


def read_store_key(path: Path | None = None) -> bytes | None:
    """Return the key in the file ``path``, else in VOICECLAIM_STORE_KEY; None without either. Raises StoreSealError."""
    return read_key(path, variable=KEY_VARIABLE, error=StoreSealError)


def read_key(path: Path | None, *, variable: str, error: type[VoiceclaimError]) -> bytes | None:
    """Return the key in the file ``path``, else in the environment ``variable``; None without either.

    Line ends around it are stripped. Raises ``error`` for a file that cannot be read, a key under 16 bytes, and a
    variable with the path of a file: whoever knows the path would know the key.
    """
    if path is None and variable not in os.environ:
        return None
    if path is None and os.path.isfile(os.environ[variable]):  # noqa: PTH113  # False for what no path can be
        raise error(f'{variable}: the key itself was expected, got the path of a file; give "$(cat FILE)"')
    where = variable if path is None else str(path)
    try:
        key = os.fsencode(os.environ[variable]) if path is None else read_bounded(path, _MAX_FILE)
    except OSError as failure:
        raise error(f"{where}: the key cannot be read: {failure.strerror or failure}") from None
    return checked_key(key.strip(b"\r\n"), where, error)


def checked_key(key: bytes, where: str, error: type[VoiceclaimError]) -> bytes:
    """Return ``key`` if it is bytes and long enough; raises ``error``, which names ``where`` the key is from."""
    if not isinstance(key, bytes):
        raise error(f"{where}: a key of bytes was expected, got {type(key).__name__}; text.encode() makes bytes")
    if len(key) < MIN_KEY:
        raise error(f"{where}: a key must have at least {MIN_KEY} bytes, got {len(key)}; is it cut off?")
    return key
