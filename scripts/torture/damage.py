"""Damaged audio and store files by the thousand: each is refused or sound, soon and in little memory."""

from __future__ import annotations

import io
import json
import os
import random
import resource
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import hostile
import numpy as np
import soundfile
from populations import content

from pipeline.enrollment import enroll
from pipeline.errors import StoreError, VoiceclaimError
from pipeline.sealing import seal_store
from pipeline.store import SpeakerStore
from pipeline.verification import Verifier
from torture import DEMO, expect, forked, tiny, voices

KEY = b"the key of the sealed store"
HANG = 2.0  # seconds of computing for one damaged file
GIVE_UP = 60.0  # seconds by the clock without a sign of life


def damaged(chance: random.Random, sound: bytes) -> bytes:
    """``sound`` with some bytes changed, sizes made absurd, parts cut out, doubled or put in; never what it was."""
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
        store = enroll(folder / "store", voices("anna", "ivan"), tiny()).store
        self.verifier = Verifier(store, "anna")
        heard = sorted((DEMO / "verify" / "anna").glob("*.flac"))[0]
        self.spoken = [heard.read_bytes(), *(spoken(heard, kind) for kind in ("WAV", "AIFF", "OGG", "MP3", "CAF"))]
        self.sound = [hostile.encoded(*coding) for coding in hostile.codings()]
        self.sound += list(hostile.lying_headers().values())

    def one(self, chance: random.Random) -> str:
        """Damage something and tell what came of it; raises whatever should not have come."""
        self.path.write_bytes(damaged(chance, chance.choice(self.spoken if chance.random() < 0.5 else self.sound)))
        try:
            update = self.verifier.verify_file(self.path)
        except VoiceclaimError as error:
            expect(str(self.path) in str(error), f"an error that does not name the file: {error}")
            return type(error).__name__
        expect(update.score is None or np.isfinite(update.score), f"a score of {update.score}")
        return str(update.decision)


def spoken(path: Path, kind: str) -> bytes:
    """A recording in another format."""
    samples, rate = soundfile.read(path)
    buffer = io.BytesIO()
    soundfile.write(buffer, samples, rate, format=kind)
    return buffer.getvalue()


class DamagedStores:
    """Mutations of every file of a plain store, one with fitted posteriors, and a sealed one; edits of manifests."""

    def __init__(self, folder: Path) -> None:
        chosen = voices("anna", "ivan", "hugo")
        self.stores = {name: folder / name for name in ("plain", "fitted", "sealed")}
        enroll(self.stores["plain"], chosen, tiny())
        enroll(self.stores["fitted"], chosen, tiny("posterior.kind=isotonic"))
        shutil.copytree(self.stores["plain"], self.stores["sealed"])
        seal_store(self.stores["sealed"], KEY)
        self.other = enroll(folder / "other", chosen, tiny()).store.path
        seal_store(self.other, KEY)
        self.heard = sorted((DEMO / "verify" / "anna").glob("*.flac"))[0]

    def one(self, chance: random.Random) -> str:
        """Damage something and tell what came of it; raises whatever should not have come."""
        which = chance.choice(sorted(self.stores))
        path = self.stores[which]
        files = sorted(content(path).keys() - {"manifest.json"})
        victim = path / (chance.choice(files) if chance.random() < 0.7 else "manifest.json")
        sound, manifest, known = victim.read_bytes(), (path / "manifest.json").read_bytes(), hostile.manifest_of(path)
        try:
            how = self.damage(chance, path, victim, sound)
            if victim.name == "manifest.json" and how != "thing" and self.same(path, known):
                return "the same manifest, laid out otherwise"
            return f"{which}, {how}: {self.read(path, which == 'sealed', how)}"
        finally:
            remove(victim)
            victim.write_bytes(sound)
            (path / "manifest.json").write_bytes(manifest)

    def same(self, path: Path, known: dict) -> bool:
        """Whether the manifest still says what it said."""
        try:
            return hostile.manifest_of(path) == known
        except (ValueError, RecursionError):
            return False

    def damage(self, chance: random.Random, path: Path, victim: Path, sound: bytes) -> str:
        """Change the file ``victim`` of the store at ``path``, or put something else in its place; how.

        What is made with a right digest that needs no key is for nobody to tell from the real thing.
        """
        how = chance.choice(["bytes", "bytes", "bytes", "another file", "forged", "thing"])
        if how == "another file":
            others = [file for store in (path, self.other) for file in sorted(store.rglob("*-*.safetensors"))]
            data = chance.choice(others).read_bytes()
            victim.write_bytes(data if data != sound else sound[:-1])
        elif how == "forged" and victim.suffix == ".safetensors":
            hostile.vouch_for(path, victim.relative_to(path).as_posix(), damaged(chance, sound))
        elif how == "forged":
            key = b"a key that somebody guessed" if chance.random() < 0.3 else None
            table = edited(chance, hostile.manifest_of(path))
            if chance.random() < 0.5:
                table["digest"] = hostile.digest_of(table, key)
                how = "forged, with a digest"
            victim.write_text(json.dumps(table), encoding="utf-8")
        elif how == "thing":
            remove(victim)
            {
                "nothing": lambda: None, "folder": victim.mkdir, "pipe": lambda: os.mkfifo(victim),
                "loop": lambda: victim.symlink_to(victim), "endless": lambda: victim.symlink_to("/dev/zero"),
                "sparse": lambda: hostile.sparse(victim, sound, 2**35),
            }[chance.choice(["nothing", "folder", "pipe", "loop", "endless", "sparse"])]()  # fmt: skip
        else:
            victim.write_bytes(damaged(chance, sound))
        return how

    def read(self, path: Path, sealed: bool, how: str) -> str:
        """Use all of a store that was tampered with: the error, or that there was none."""
        may_pass = how.startswith("forged") and not sealed
        try:
            store = SpeakerStore.open(path, key=KEY if sealed else None)
            store.check_files()
            for system in store.systems:
                update = Verifier(store, "anna", system=system, threshold=0.0).verify_file(self.heard)
                expect(update.score is not None and np.isfinite(update.score), f"a score of {update.score}")
        except StoreError as error:
            expect(str(path) in str(error), f"an error that does not name the file: {error}")
            return type(error).__name__
        except VoiceclaimError as error:
            expect(may_pass, f"{type(error).__name__}: {error}")
            return type(error).__name__
        return "read, as nothing can tell" if may_pass else "ACCEPTED"


def remove(path: Path) -> None:
    """Take away whatever is at ``path``."""
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    else:
        path.unlink(missing_ok=True)


def edited(chance: random.Random, table: dict) -> dict:
    """``table`` with one value in it changed, put in or taken out."""
    places: list[tuple[dict | list, object]] = []

    def walk(inside: object) -> None:
        for key, value in inside.items() if isinstance(inside, dict) else enumerate(inside):
            if (inside, key) != (table, "digest"):
                places.append((inside, key))
            if isinstance(value, dict | list):
                walk(value)

    walk(table)
    inside, key = chance.choice(places)
    how = chance.choice(["changed", "changed", "taken out", "put in"])
    if how == "taken out":
        del inside[key]
    elif how == "put in" and isinstance(inside, list):
        inside.insert(0, inside[key])
    elif how == "put in":
        inside["more"] = 1
    else:
        old = inside[key]
        inside[key] = chance.choice(
            [new for new in (0, 1, -1, 2**64, 0.5, "", "anna", None, [], {}, True) if new != old]
        )
    return table


def steady_memory() -> float:
    """MiB that this process holds now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


def mutate(
    folder: Path, make: Callable[[Path], DamagedAudio | DamagedStores], count: int, seed: int
) -> dict[str, object]:
    """``count`` mutations in a process of its own, started again behind the one that brought it down."""
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
    """Wait for the process; "died" or "hung" for one that did not come to its end."""
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
    """Take in what was written since ``start``; the last mutation that was begun."""
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
    """Damaged audio and damaged stores."""
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
