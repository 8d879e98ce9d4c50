"""Audit logs that tests write, and what they read of them."""

from __future__ import annotations

import hashlib
import hmac
import json
from pathlib import Path

from hypothesis import HealthCheck, settings

from pipeline.verification.audit import AuditLog

KEY = b"sixteen bytes or more"
ABOUT_LINE = {"n", "time", "event", "previous", "hash"}
SETTINGS = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def written(path: Path, count: int = 4, key: bytes | None = None) -> list[bytes]:
    """Write a log of an opening line and ``count`` more, and return its lines."""
    log = AuditLog(path, key=key)
    for number in range(count):
        log.append("verify", {"claim": f"anna {number}", "decision": "accepted", "score": number / 3})
    return path.read_bytes().splitlines(keepends=True)


def tables_in(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def hash_of(text: bytes, key: bytes | None) -> str:
    return (hashlib.sha256(text) if key is None else hmac.new(key, text, "sha256")).hexdigest()
