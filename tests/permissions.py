"""Checks as a user whom permissions stop, which root is not."""

from __future__ import annotations

import os
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_NOBODY = 65_534


@contextmanager
def open_folder() -> Iterator[Path]:
    """A folder that every user may read and write; pytest's own are their owner's alone."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(os.path.realpath(name))
        folder.chmod(0o777)
        yield folder


def as_another_user(check: Callable[[], None]) -> None:
    """Run ``check``, by root in a process of its own as the user nobody; what it imports must be imported already."""
    if os.geteuid() != 0:
        check()
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads
        child = os.fork()
    if child == 0:
        try:
            os.setuid(_NOBODY)
            check()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
