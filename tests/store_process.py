"""Changes to a store in processes of their own: they tell each step of theirs, die before one, or find no room.

    python store_process.py < orders        one order a line, JSON: {"change", "store", "kill_before"}

Each order is carried out by a forked child, so that it starts at once. It prints its steps as JSON lines and how it
ended: ["create", path], ["rename", from, to], ["unlink", path], ["mkdir", path], ["rmdir", path], ["sync", path].
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

from populations import NAMES, add, content, first

from pipeline.enrollment import remove_speaker
from pipeline.errors import StoreError
from pipeline.store import SpeakerStore

PAGE = 4096
CLONE_NEWNS = 0x20000
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
BASE, MORE = 3, 4
POPULATIONS = {count: first(count) for count in (BASE, MORE)}


def enroll(path: Path) -> None:
    add(path, POPULATIONS[BASE], NAMES[:BASE])


def extend(path: Path) -> None:
    add(path, POPULATIONS[MORE], NAMES[BASE:MORE])


def remove(path: Path) -> None:
    remove_speaker(path, NAMES[1])


def refused(path: Path, words: str) -> bool:
    """Whether there was no way to extend the store at ``path``, and it was left as it was."""
    before = content(path)
    try:
        extend(path)
    except StoreError as error:
        assert str(path) in str(error), error
        assert words in str(error), error
        assert content(path) == before
        SpeakerStore.open(path).check_files()
        return True
    return False


def mount(*words: object) -> None:
    """Mount something in a name space of this process alone."""
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNS):
        raise StoreError("skip: this user may not mount anything")
    for command in (["--make-rprivate", "/"], words):
        done = subprocess.run(["mount", *map(str, command)], capture_output=True, text=True, check=False)
        if done.returncode:
            raise StoreError(f"skip: {done.stderr}")


def fill(path: Path) -> None:
    """Extend the store on disks with less and less room to spare, until there is enough."""
    mounted = path.with_name("mounted")
    mounted.mkdir()
    mount("-t", "tmpfs", "-o", "size=256k", "tmpfs", mounted)
    on_disk, filler = Path(shutil.copytree(path, mounted / "s")), mounted / "filler"
    failed = 0
    for left in range(16):
        filler.touch()
        with filler.open("ab", buffering=0) as file:
            try:
                while file.write(bytes(PAGE)):
                    pass
            except OSError:
                pass
            file.truncate(max(0, file.tell() // PAGE - left) * PAGE)
        if not refused(on_disk, "No space left"):
            break
        failed += 1
    assert 2 <= failed < 15, f"{failed} times there was no room"


def read_only(path: Path) -> None:
    """Try to write to a store on a disk that can only be read."""
    mount("--bind", path, path)
    subprocess.run(["mount", "-o", "remount,bind,ro", path], check=True)
    assert refused(path, "Read-only file system")
    for change in (lambda: remove(path), lambda: enroll(path / "new")):
        try:
            change()
        except StoreError as error:
            assert "Read-only file system" in str(error), error
        else:
            raise AssertionError("it was written to")


def limited(path: Path) -> None:
    """Extend the store where no file may grow beyond so many bytes; at last it may."""
    sizes = sorted({file.stat().st_size for file in path.rglob("*") if file.is_file()} - {0})
    for size in (0, 1, *sizes):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
        assert refused(path, "File too large"), f"files of {size} bytes were enough"
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    extend(path)


CHANGES = {
    "enroll": enroll, "extend": extend, "remove": remove,
    "fill": fill, "read_only": read_only, "limited": limited,
}  # fmt: skip


class Steps:
    """What the process is about to do to files, told as it goes; before step number ``kill_before`` it dies."""

    def __init__(self, kill_before: int | None) -> None:
        self._left = -1 if kill_before is None else kill_before
        self._sync = os.fsync
        os.fsync = self._synced
        sys.addaudithook(self._heard)

    def _synced(self, descriptor: int) -> None:
        self._tell("sync", str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        self._sync(descriptor)

    def _heard(self, event: str, arguments: tuple) -> None:
        if (
            event == "open"
            and isinstance(arguments[2], int)
            and arguments[2] & WRITES
            and "/dev/" not in str(arguments[0])
        ):
            self._tell("create", arguments[0])
        elif event in {"os.rename", "os.remove", "os.mkdir", "os.rmdir"}:
            kind = {"os.rename": "rename", "os.remove": "unlink", "os.mkdir": "mkdir", "os.rmdir": "rmdir"}[event]
            self._tell(kind, *arguments[: 2 if kind == "rename" else 1])

    def _tell(self, kind: str, *paths: object) -> None:
        if self._left == 0:
            os.kill(os.getpid(), 9)
        self._left -= 1
        os.write(1, json.dumps([kind, *map(str, paths)]).encode() + b"\n")


def main() -> None:
    """Carry out orders until there are no more."""
    os.write(1, b'["ready"]\n')
    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if child == 0:
            ended = "failed"
            try:
                Steps(order["kill_before"])
                CHANGES[order["change"]](Path(order["store"]))
                ended = "done"
            except (StoreError, AssertionError, OSError) as error:
                ended = str(error) or ended
            finally:
                os.write(1, json.dumps(["end", ended]).encode() + b"\n")
                os._exit(0)
        if os.waitpid(child, 0)[1]:
            os.write(1, b'["end", "killed"]\n')


if __name__ == "__main__":
    main()
