"""Changes to a store in processes of their own, which are killed before a system call or find no room.

    python store_process.py < orders        one order a line, JSON: {"change", "store", "kill_before"}

Each order is carried out by a forked child, so that it starts at once; it ends in one line, ["end", how], "done" with
the number of statements that were run.
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

from populations import NAMES, add, content, model_of

from pipeline.enrollment.removal import remove_speaker
from pipeline.errors import StoreError
from pipeline.store.rows import Rows
from pipeline.store.store import Store

PAGE = 4096
CLONE_NEWNS = 0x20000
BASE, MORE = 3, 4
WORDS = ("full", "disk I/O error", "Read-only", "read-only", "unable to open", "too large")
model_of(NAMES[:2])  # compiled and imported before the forks


def enroll(path: Path) -> None:
    add(path, NAMES[:BASE])


def extend(path: Path) -> None:
    add(path, NAMES[BASE:MORE])


def remove(path: Path) -> None:
    remove_speaker(path, NAMES[1])


def limit_files(size: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def refused(path: Path, size: int = resource.RLIM_INFINITY) -> bool:
    """Return whether the store could not be extended with files of ``size`` bytes at most, and was left as it was."""
    before = content(path)
    limit_files(size)
    try:
        extend(path)
    except StoreError as error:
        limit_files(resource.RLIM_INFINITY)
        assert str(path) in str(error), error
        assert any(words in str(error) for words in WORDS), error
        assert content(path) == before
        Store(path).check()
        return True
    limit_files(resource.RLIM_INFINITY)
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
    mount("-t", "tmpfs", "-o", "size=1024k", "tmpfs", mounted)
    on_disk, filler = Path(shutil.copy(path, mounted / "s")), mounted / "filler"
    failed = 0
    for left in range(8, 100, 4):  # SQLite needs eight pages to read at all
        filler.touch()
        with filler.open("ab", buffering=0) as file:
            try:
                while file.write(bytes(PAGE)):
                    pass
            except OSError:
                pass
            file.truncate(max(0, file.tell() // PAGE - left) * PAGE)
        if not refused(on_disk):
            break
        failed += 1
    assert 2 <= failed < 20, f"{failed} times there was no room"


def read_only(path: Path) -> None:
    """Try to write to a store on a disk that can only be read."""
    before = path.read_bytes()
    mount("--bind", path.parent, path.parent)
    subprocess.run(["mount", "-o", "remount,bind,ro", path.parent], check=True)
    assert Store(path).check().names == NAMES[:BASE]
    for change in (extend, remove, lambda path: enroll(path.with_name("new"))):
        try:
            change(path)
        except StoreError as error:
            assert str(path.parent) in str(error)
            assert any(words in str(error) for words in WORDS), error
        else:
            raise AssertionError("it was written to")
    assert path.read_bytes() == before


def limited(path: Path) -> None:
    """Extend the store where no file may grow beyond so many bytes; at last it may."""
    size = path.stat().st_size
    failed = [limit for limit in (0, 1, size // 8, size // 4, size // 2, size - 1) if refused(path, limit)]
    assert len(failed) >= 4, f"there was room in files of {failed} bytes"
    if Store(path).load().names == NAMES[:BASE]:
        extend(path)


CHANGES = {
    "enroll": enroll, "extend": extend, "remove": remove,
    "fill": fill, "read_only": read_only, "limited": limited,
}  # fmt: skip


def kill_before(number: int | None) -> list[str]:
    """Die before statement ``number`` that the writer runs; return the list of those that were run."""
    run, statements = Rows.run, []

    def counted(self: Rows, sql: str, *values: object) -> object:
        if len(statements) == number:
            os.kill(os.getpid(), 9)
        statements.append(sql)
        return run(self, sql, *values)

    Rows.run = counted
    return statements


def main() -> None:
    """Carry out orders until there are no more."""
    os.write(1, b'["ready"]\n')
    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if child == 0:
            ended = "failed"
            try:
                statements = kill_before(order["kill_before"])
                CHANGES[order["change"]](Path(order["store"]))
                ended = f"done {len(statements)}"
            except (StoreError, AssertionError, OSError) as error:
                ended = str(error) or ended
            finally:
                os.write(1, json.dumps(["end", ended]).encode() + b"\n")
                os._exit(0)
        if os.waitpid(child, 0)[1]:
            os.write(1, b'["end", "killed"]\n')


if __name__ == "__main__":
    main()
