"""Log lines of the service: one JSON object per line on the error output, never with a name, an address or a score."""

from __future__ import annotations

import json
import logging
import sys
import time
import traceback
from typing import Any

_LOGGER = logging.getLogger("voiceclaim.service")


class _Lines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        fields = {"time": f"{moment}.{int(record.msecs):03d}Z", "level": record.levelname.lower()}
        return json.dumps({**fields, "event": record.getMessage(), **getattr(record, "fields", {})})


def configure(level: str) -> None:
    """Write events of ``level`` and above: "error", "warning", "info" or "debug"."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Lines())
    _LOGGER.handlers[:] = [handler]
    _LOGGER.propagate = False
    _LOGGER.setLevel(level.upper())


def place_of(error: BaseException) -> str:
    """Return the kind of ``error`` and its place in the code, without its text, which may name people."""
    last = traceback.extract_tb(error.__traceback__, limit=-1)
    return " at ".join((type(error).__name__, *(f"{frame.filename}:{frame.lineno}" for frame in last)))


def log_event(event: str, *, level: int = logging.INFO, **fields: Any) -> None:
    """Log an ``event`` with its ``fields``, none of which may name anybody; seconds are rounded."""
    rounded = {key: round(value, 4) if isinstance(value, float) else value for key, value in fields.items()}
    _LOGGER.log(level, event, extra={"fields": rounded})
