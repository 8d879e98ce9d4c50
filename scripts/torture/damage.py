"""Damaged audio and store files by the thousand: each is refused or sound, quickly and in little memory."""

from __future__ import annotations

import io
import json
import os
import random
import resource
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import hostile
import numpy as np
import soundfile
from populations import numbers_of

from pipeline.enrollment.enroll import enroll
from pipeline.errors import StoreError, VoiceclaimError
from pipeline.store.model import SpeakerModel
from pipeline.store.sealing import seal_store
from pipeline.store.store import Store
from pipeline.verification.policies import Threshold
from pipeline.verification.verifier import Verifier
from torture import DEMO, expect, forked, tiny, voices

KEY = b"the key of the sealed store"
PAGE = 4096
HANG = 2.0  # seconds of computing for one damaged file
GIVE_UP = 60.0  # seconds by the clock without a sign of life


def damaged(chance: random.Random, sound: bytes) -> bytes:
    """Return ``sound`` with bytes changed, sizes made absurd, parts cut out, doubled or inserted; never unchanged."""
    data = bytearray(sound)
    for _ in range(chance.randint(1, 4)):
        place = chance.randint(0, min(len(data), 200)) if chance.random() < 0.5 else chance.randint(0, len(data))
        change = chance.choice(["bit", "byte", "number", "cut", "double", "put in", "zeros", "end"])
        if change == "bit" and place < len(data):
            data[place] ^= 1 << chance.randrange(8)
        elif change == "byte":
            data[place : place + 1] = chance.randbytes(1)
        elif change == "number":
            width, order = chance.choice([2, 4, 8]), chance.choice(["little", "big"])
            value = chance.choice([0, 1, 2**15, 2**16 - 1, 2**31, 2**32 - 1, 2**40, 2**63, 2**64 - 1])
            data[place : place + width] = (value % 2 ** (8 * width)).to_bytes(width, order)
        elif change == "cut":
            del data[place : place + chance.randint(1, 300)]
        elif change == "double":
            data[place:place] = data[place : place + chance.randint(1, 300)]
        elif change == "put in":
            data[place:place] = chance.randbytes(chance.randint(1, 40))
        elif change == "zeros":
            data[place : place + 300] = bytes(len(data[place : place + 300]))
        elif change == "end":
            del data[place:]
    return bytes(data) if data != sound else bytes(data[:-1])


class DamagedAudio:
    """Mutations of healthy files of every format that this libsndfile writes, scored as a claim."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "damaged"
        self.verifier = Verifier(enroll(folder / "store", voices("anna", "ivan"), tiny()).model, "anna")
        heard = sorted((DEMO / "verify" / "anna").glob("*.flac"))[0]
        self.spoken = [heard.read_bytes(), *(spoken(heard, kind) for kind in ("WAV", "AIFF", "OGG", "MP3", "CAF"))]
        self.sound = [hostile.encoded(*coding) for coding in hostile.codings()]
        self.sound += list(hostile.lying_headers().values())

    def one(self, chance: random.Random) -> str:
        """Damage a file and return the outcome; raises any error that must not occur."""
        self.path.write_bytes(damaged(chance, chance.choice(self.spoken if chance.random() < 0.5 else self.sound)))
        try:
            update = self.verifier.verify_file(self.path)
        except VoiceclaimError as error:
            expect(str(self.path) in str(error), f"an error that does not name the file: {error}")
            return type(error).__name__
        expect(update.score is None or np.isfinite(update.score), f"a score of {update.score}")
        return str(update.decision)


def spoken(path: Path, kind: str) -> bytes:
    """Return a recording in another format."""
    samples, rate = soundfile.read(path)
    buffer = io.BytesIO()
    soundfile.write(buffer, samples, rate, format=kind)
    return buffer.getvalue()


class DamagedStores:
    """Mutations of a plain store, one with cohorts, and a sealed one: of bytes and of rows."""

    def __init__(self, folder: Path) -> None:
        chosen = voices("anna", "ivan", "hugo")
        self.path, self.models, self.sound = folder / "s", {}, {}
        for name, settings in (("plain", tiny()), ("cohorts", tiny("machines.cohort=1")), ("sealed", tiny())):
            path = folder / name
            enroll(path, chosen, settings)
            if name == "sealed":
                seal_store(path, KEY)
            self.models[name] = what_is_read(Store(path, key=KEY if name == "sealed" else None).check())
            self.sound[name] = path.read_bytes()
        self.heard = sorted((DEMO / "verify" / "anna").glob("*.flac"))[0]

    def one(self, chance: random.Random) -> str:
        """Damage a file and return the outcome; raises any error that must not occur."""
        which = chance.choice(sorted(self.models))
        self.path.write_bytes(self.sound[which])
        try:
            how = self.damage(chance, self.path, which)
            return f"{which}, {how}: {self.read(which, how)}"
        finally:
            for path in self.path.parent.glob("s*"):
                if path.name in {"s", "s-wal", "s-shm", "s-journal"}:
                    remove(path)

    def damage(self, chance: random.Random, path: Path, which: str) -> str:
        """Change the store at ``path``, or put something else in its place; return how.

        A forgery with a correct digest that needs no key cannot be told from a true row.
        """
        how = chance.choice(["bytes", "bytes", "bytes", "page", "row", "forged row", "log", "thing"])
        if how == "page":
            data = bytearray(path.read_bytes())
            one, other = (PAGE * chance.randrange(len(data) // PAGE) for _ in range(2))
            data[one : one + PAGE] = data[other : other + PAGE]
            path.write_bytes(data)
        elif how in {"row", "forged row"}:
            edited(chance, path)
            if how == "forged row":
                hostile.vouch_for(path, b"a key that somebody guessed" if chance.random() < 0.3 else None)
        elif how == "log":
            source = chance.choice(sorted(self.sound))
            path.with_name("s-wal").write_bytes(damaged(chance, self.sound[source]))
        elif how == "thing":
            remove(path)
            {
                "nothing": lambda: None, "folder": path.mkdir, "pipe": lambda: os.mkfifo(path),
                "loop": lambda: path.symlink_to(path), "endless": lambda: path.symlink_to("/dev/zero"),
                "sparse": lambda: hostile.sparse(path, damaged(chance, self.sound[which]), 2**31),
            }[chance.choice(["nothing", "folder", "pipe", "loop", "endless", "sparse"])]()  # fmt: skip
        else:
            path.write_bytes(damaged(chance, path.read_bytes()))
        return how

    def read(self, which: str, how: str) -> str:
        """Use all of a store that was tampered with; return the error, or that there was none."""
        may_pass = how == "forged row" and which != "sealed"
        try:
            model = Store(self.path, key=KEY if which == "sealed" else None).load()
            is_same = what_is_read(model) == self.models[which]
            for system in model.systems:
                verifier = Verifier(model, "anna", system=system, decide_by=Threshold(0.0))
                score = verifier.verify_file(self.heard).score
                expect(score is not None and np.isfinite(score), f"a score of {score}")
        except StoreError as error:
            expect(str(self.path) in str(error), f"an error that does not name the file: {error}")
            return type(error).__name__
        except VoiceclaimError as error:
            expect(may_pass, f"{type(error).__name__}: {error}")
            return type(error).__name__
        if is_same:
            return "the same model"
        return "read, as nothing can tell" if may_pass else "ACCEPTED"


def what_is_read(model: SpeakerModel) -> dict[str, object]:
    """Return all that a model holds, to be compared."""
    numbers = {name: (array.dtype.str, array.shape, array.tobytes()) for name, array in numbers_of(model).items()}
    return numbers | {
        "": (model.config, model.speakers, model.calibrations.as_json(), model.identity, model.revision, model.sealed)
    }


def remove(path: Path) -> None:
    """Take away whatever is at ``path``."""
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    else:
        path.unlink(missing_ok=True)


def edited(chance: random.Random, path: Path) -> None:
    """Change a value of a row, or take out or exchange rows."""
    with closing(sqlite3.connect(path, isolation_level=None)) as rows:
        table = chance.choice(["store", "speaker", "array", "array", "pair"])
        columns = [name for _, name, *_ in rows.execute(f"PRAGMA table_info({table})")]
        (row,) = chance.choice(rows.execute(f"SELECT rowid FROM {table}").fetchall())  # noqa: S608
        column = chance.choice(columns)
        value = chance.choice([0, 1, -1, 2**62, 0.5, "", "anna", None, "[]", "{}", b"", b"\xff", chance.randbytes(64)])
        with suppress(sqlite3.IntegrityError):  # such a row cannot be
            if table != "store" and chance.random() < 0.2:
                rows.execute(f"DELETE FROM {table} WHERE rowid = ?", (row,))  # noqa: S608
            elif chance.random() < 0.3:
                other = f"(SELECT {column} FROM {table} ORDER BY random() LIMIT 1)"  # noqa: S608
                rows.execute(f"UPDATE {table} SET {column} = {other} WHERE rowid = ?", (row,))  # noqa: S608
            else:
                rows.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (value, row))  # noqa: S608


def steady_memory() -> float:
    """Return the MiB that this process holds now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


def mutate(
    folder: Path, make: Callable[[Path], DamagedAudio | DamagedStores], count: int, seed: int
) -> dict[str, object]:
    """Run ``count`` mutations in a process of its own, restarted after any mutation that killed it."""
    folder.mkdir()
    log, found = folder / "log", {"outcomes": Counter[str](), "crashes": [], "hangs": [], "slowest": 0.0, "peak": 0.0}
    number = 0
    while number < count:
        start, log_at = number, log.stat().st_size if log.exists() else 0
        child = forked(lambda start=start: _mutations(folder / f"from {start}", make, range(start, count), seed, log))
        died = watch(child, log)
        number = max(number, read_log(log, log_at, found)) + 1
        if died and number <= count:
            found["crashes" if died == "died" else "hangs"].append(f"mutation {number - 1}: {died}")
    return found


def _mutations(
    folder: Path, make: Callable[[Path], DamagedAudio | DamagedStores], numbers: range, seed: int, log: Path
) -> None:
    folder.mkdir()
    victim = make(folder)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # what decoders print
    os.dup2(2, 1)
    victim.one(random.Random("warm"))  # noqa: S311
    rest = steady_memory()
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins here
    with log.open("a", buffering=1) as out:
        for number in numbers:
            out.write(f"{number}\n")
            started, chance = time.process_time(), random.Random(f"{seed} {number}")  # noqa: S311
            try:
                outcome = victim.one(chance)
            except Exception as error:
                outcome = f"CRASH {type(error).__name__}: {error}"
            status = Path("/proc/self/status").read_text()
            peak = int(status.split("VmHWM:")[1].split()[0]) / 1024 - rest
            out.write(json.dumps([number, outcome, time.process_time() - started, peak]) + "\n")


def watch(child: int, log: Path) -> str:
    """Wait for the process; return "died" or "hung" if it did not finish."""
    last, since = -1, time.monotonic()
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return "died" if status else ""
        size = log.stat().st_size if log.exists() else 0
        if size != last:
            last, since = size, time.monotonic()
        elif time.monotonic() - since > GIVE_UP:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return "hung"
        time.sleep(0.05)


def read_log(log: Path, start: int, found: dict) -> int:
    """Read the log from ``start`` on; return the last mutation that was begun."""
    last = -1
    for line in log.read_text()[start:].splitlines() if log.exists() else ():
        if not line.startswith("["):
            last = int(line)
            continue
        number, outcome, seconds, peak = json.loads(line)
        last = number
        found["slowest"] = max(found["slowest"], seconds)
        found["peak"] = max(found["peak"], peak)
        if seconds > HANG:
            found["hangs"].append(f"mutation {number}: {seconds:.1f} s")
        if outcome.startswith("CRASH"):
            found["crashes"].append(f"mutation {number}: {outcome}")
        else:
            found["outcomes"][outcome] += 1
    return last


def mutations(folder: Path, audio: int, stores: int, seed: int) -> dict[str, object]:
    """Run damaged audio and damaged stores."""
    parts = {
        "audio": mutate(folder / "audio", DamagedAudio, audio, seed),
        "store": mutate(folder / "stores", DamagedStores, stores, seed),
    }
    accepted = sum(count for outcome, count in parts["store"]["outcomes"].items() if "ACCEPTED" in outcome)
    return {
        "mutations": audio + stores,
        "mutations_audio": audio,
        "mutations_store": stores,
        "crashes": sum(len(part["crashes"]) for part in parts.values()),
        "hangs": sum(len(part["hangs"]) for part in parts.values()),
        "accepted_tampered": accepted,
        "peak_mib_over_baseline": round(max(part["peak"] for part in parts.values()), 1),
        "slowest_seconds": round(max(part["slowest"] for part in parts.values()), 3),
        "outcomes": {name: dict(part["outcomes"].most_common()) for name, part in parts.items()},
        "wrong": [line for part in parts.values() for line in [*part["crashes"], *part["hangs"]]][:50],
    }
