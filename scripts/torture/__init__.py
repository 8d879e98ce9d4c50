"""Ways to break speaker stores: see ``scripts/break_store.py``."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from pathlib import Path

from populations import TINY

from pipeline.audio.corpus import Utterance, read_corpus
from pipeline.config import Config, load_config

DEMO = Path(__file__).resolve().parents[2] / "data" / "demo"


class BrokenError(Exception):
    """A condition that must hold does not."""


def expect(holds: object, what: str) -> None:
    """Raise BrokenError, saying ``what``, unless it ``holds``."""
    if not holds:
        raise BrokenError(what)


def voices(*names: str) -> dict[str, tuple[Utterance, ...]]:
    """Return a few recordings of some of the demo's voices: enough to enroll them in a fraction of a second."""
    speakers = read_corpus(DEMO / "enroll").speakers
    return {name: speakers[name][:3] for name in names}


def tiny(*overrides: str) -> Config:
    """Return settings that enroll in a fraction of a second."""
    return load_config(None, [*TINY, *overrides])


def forked(work: Callable[[], object]) -> int:
    """Do ``work`` in a process of its own; return its id."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return child
