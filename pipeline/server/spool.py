"""The spool of voices between their arrival and their enrollment: one folder per service, in memory where possible.

The folder holds a lock for as long as its service lives. The folder of a killed service is deleted by the next one.
"""

from __future__ import annotations

import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from filelock import FileLock, Timeout

from pipeline.errors import ServiceError

_PREFIX, _LOCK = "voiceclaim-", "lock"
_MEMORY = Path("/dev/shm")  # noqa: S108  # files in memory, on Linux; folders in it are made by mkdtemp
_SHARE = 0.4  # of the room that is free: an upload lies there twice while it is copied


class Spool:
    """A new folder in ``parent`` (None: in memory, or among the system's temporary files), readable by this user only.

    ``most`` bytes are wanted; there is room for ``bytes``. Raises ServiceError if no folder can be made.
    """

    def __init__(self, parent: Path | None, most: int) -> None:
        parent = parent or (_MEMORY if _MEMORY.is_dir() else Path(tempfile.gettempdir()))
        try:
            _sweep(parent)
            self.folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
            self._lock = FileLock(self.folder / _LOCK, thread_local=False)
            self._lock.acquire()
            self._done = set[Path]()
            self.bytes = min(most, int(_SHARE * shutil.disk_usage(parent).free))
        except OSError as error:
            reason = error.strerror or error
            raise ServiceError(0, f"{parent}: no folder for uploads can be made here: {reason}") from None

    def private_folder(self) -> Path:
        """Make a folder for the recordings of one request."""
        return Path(tempfile.mkdtemp(dir=self.folder))

    def erase(self, folder: Path) -> None:
        """Delete the folder of a request, with those that could not be deleted before (no file could be opened)."""
        self._done.add(folder)
        for each in tuple(self._done):
            shutil.rmtree(each, ignore_errors=True)
            if not each.exists():
                self._done.discard(each)

    def close(self) -> None:
        """Delete everything."""
        self._lock.release()
        shutil.rmtree(self.folder, ignore_errors=True)


def _sweep(parent: Path) -> None:
    """Delete the folders of services that have ended without doing so."""
    for lock in parent.glob(f"{_PREFIX}*/{_LOCK}"):
        with suppress(Timeout, OSError), FileLock(lock, timeout=0):
            shutil.rmtree(lock.parent, ignore_errors=True)
