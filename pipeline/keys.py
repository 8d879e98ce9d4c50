"""Secret keys: from a file, or from an environment variable."""

from __future__ import annotations

import os
from pathlib import Path

from pipeline.errors import VoiceclaimError
from pipeline.files import read_bounded

LEAST_KEY = 16  # bytes
_MOST_FILE = 2**16


def read_key(path: Path | None, *, variable: str, error: type[VoiceclaimError]) -> bytes | None:
    """The key in the file ``path``, else in the environment ``variable``; None without either.

    Line ends around it do not count. Raises ``error`` for a file that cannot be read, or a key under 16 bytes.
    """
    if path is None and variable not in os.environ:
        return None
    where = variable if path is None else str(path)
    try:
        key = os.fsencode(os.environ[variable]) if path is None else read_bounded(path, _MOST_FILE)
    except OSError as failure:
        raise error(f"{where}: the key cannot be read: {failure.strerror or failure}") from None
    return checked_key(key.strip(b"\r\n"), where, error)


def checked_key(key: bytes, where: str, error: type[VoiceclaimError]) -> bytes:
    """``key`` itself, if it is long enough; ``where`` it came from is said in the ``error`` raised otherwise."""
    if len(key) < LEAST_KEY:
        raise error(f"{where}: a key must have at least {LEAST_KEY} bytes, got {len(key)}; is it cut off?")
    return key
