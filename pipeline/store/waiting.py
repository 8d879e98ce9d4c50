"""Waiting for another process that writes to a store."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from pipeline.errors import StoreBusyError

_STEP_SECONDS = 0.2
T = TypeVar("T")


def when_free(write: Callable[[], T], seconds: float, *, on_wait: Callable[[], None] = lambda: None) -> T:
    """Call ``write``, again for up to ``seconds`` while another process writes to the store; then raise StoreBusyError.

    ``on_wait`` is called once, before the first wait.
    """
    until: float | None = None
    while True:
        try:
            return write()
        except StoreBusyError:
            now = time.monotonic()
            if now >= (now + seconds if until is None else until):
                raise
        if until is None:
            until = now + seconds
            on_wait()
        time.sleep(min(_STEP_SECONDS, until - now))
