"""Files that promise more than they hold, made by hand: what libraries do not write; and how they are damaged."""

from __future__ import annotations

import hashlib
import hmac
import io
import json
import os
import random
import signal
import socket
import sqlite3
import struct
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

RATE = 16_000
SHORT = 150  # samples that the files with lying headers do hold
POSIX_ONLY = pytest.mark.skipif(os.name == "nt", reason="pipes, sockets and limits of POSIX")
SETTINGS = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
SOON = 2.0  # seconds of work
CHANCE = st.randoms(use_true_random=False)


def tone(seconds: float, rate: int = RATE) -> np.ndarray:
    t = np.arange(round(seconds * rate)) / rate
    return 0.3 * np.sin(2 * np.pi * 440 * t) + 0.01 * np.random.default_rng(0).standard_normal(len(t))


@cache
def encoded(kind: str, subtype: str, seconds: float = 0.3) -> bytes:
    """A healthy file."""
    buffer = io.BytesIO()
    soundfile.write(buffer, tone(seconds), RATE, format=kind, subtype=subtype)
    return buffer.getvalue()


def codings() -> list[tuple[str, str]]:
    """Every format and coding that this libsndfile writes and an audio file may have."""
    codings = []
    for kind in sorted(set(soundfile.available_formats()) - {"RAW", "SD2", "SDS", "MAT4", "MAT5", "HTK"}):
        for subtype in soundfile.available_subtypes(kind):
            try:
                encoded(kind, subtype)
            except (soundfile.SoundFileError, ValueError):
                continue
            codings.append((kind, subtype))
    return codings


def two_faced(film: bytes = b"") -> bytes:
    """A minute of faint noise to libsndfile, a sample file of an Akai MPC 2000; to ffmpeg an MP4: ``film``."""
    first_box = 0x01042020  # bytes: its size is how a sample file begins, and the film follows it
    head = b"\x01\x04\x20\x20ftypisom\0\0\2\0isom".ljust(19, b"\0")[:19] + bytes([100, 0, 1])
    frames = (first_box - 42 + len(film)) // 4
    head += struct.pack("<IIII", 0, frames, frames, 0) + bytes([0, 0]) + struct.pack("<H", 65_535)
    noise = np.random.default_rng(1).integers(-50, 50, (first_box - len(head)) // 2).astype("<i2")
    return head + noise.tobytes() + film


# Headers


def wav(data_size: int = 0xFFFFFFFF, *, before: bytes = b"", bits: int = 16, tag: int = 1, data: bytes | None = None):
    frame = bits // 8
    fmt = b"fmt " + struct.pack("<IHHIIHH", 16, tag, 1, RATE, RATE * frame, frame, bits)
    data = bytes(SHORT * frame) if data is None else data
    return b"RIFF\xff\xff\xff\xffWAVE" + before + fmt + b"data" + struct.pack("<I", data_size) + data


def rf64(samples: int) -> bytes:
    sizes = b"ds64" + struct.pack("<IQQQI", 28, 2 * samples + 72, 2 * samples, samples, 0)
    return b"RF64" + wav(before=sizes)[4:]


def lying_headers(samples: int = 2**40) -> dict[str, bytes]:
    """Files of ``SHORT`` samples whose headers claim ``samples``, or as many as the field can say."""
    w64 = bytearray(encoded("W64", "PCM_16", SHORT / RATE))
    at = w64.index(b"data\xf3\xac\xd3\x11")
    w64[at + 16 : at + 24] = struct.pack("<Q", 2 * samples)
    w64[16:24] = struct.pack("<Q", 2 * samples + 200)
    aiff = bytearray(encoded("AIFF", "PCM_16", SHORT / RATE))
    at = aiff.index(b"COMM")
    aiff[at + 10 : at + 14] = b"\xff" * 4
    at = aiff.index(b"SSND")
    aiff[at + 4 : at + 8] = b"\x7f\xff\xff\xff"
    caf = bytearray(encoded("CAF", "PCM_16", SHORT / RATE))
    at = caf.index(b"data")
    caf[at + 4 : at + 12] = struct.pack(">Q", 2 * samples)
    sphere = (
        f"NIST_1A\n   1024\nsample_count -i {samples}\nsample_rate -i 16000\nchannel_count -i 1\nsample_n_bytes -i 2\n"
        "sample_byte_format -s2 01\nsample_sig_bits -i 16\nsample_coding -s3 pcm\nend_head\n"
    )
    flac = bytearray(encoded("FLAC", "PCM_16", SHORT / RATE))
    flac[21] |= 0x0F  # the lower four bits, and the next four bytes, of the number of samples
    flac[22:26] = b"\xff" * 4
    return {
        "a.wav": wav(),
        "b.rf64": rf64(samples),
        "c.w64": bytes(w64),
        "d.aiff": bytes(aiff),
        "e.au": b".snd" + struct.pack(">IIIII", 24, 0xFFFFFFFF, 3, RATE, 1) + bytes(2 * SHORT),
        "f.caf": bytes(caf),
        "g.sph": sphere.encode().ljust(1024, b"\0") + bytes(2 * SHORT),
        "h.flac": bytes(flac),
        "i-chunk.wav": wav(before=b"LIST\xf0\xff\xff\xffINFO"),
        "j-cues.wav": wav(before=b"cue " + struct.pack("<II", 0xFFFFFFF0, 0xFFFFFFFF)),
        "k-marks.aiff": bytes(aiff).replace(b"SSND", b"MARK\x7f\xff\xff\xf0\xff\xffSSND", 1),
        "l-comments.flac": bytes(flac[:42]) + b"\x84\xff\xff\xff" + struct.pack("<II", 4, 2**32 - 1) + bytes(400),
        "m-tag.mp3": b"ID3\x04\0\0\x7f\x7f\x7f\x7f" + bytes(500),
        "n-comment.ogg": encoded("OGG", "VORBIS").replace(b"\x03vorbis", b"\x03vorbis\xff\xff\xff\x7f", 1),
    }


# A FLAC of nothing: each frame stands for 65535 samples of the same value and takes 16 bytes.


def _crc(data: bytes, polynomial: int, bits: int) -> bytes:
    value = 0
    for byte in data:
        value ^= byte << (bits - 8)
        for _ in range(8):
            value = (value << 1) ^ (polynomial if value >> (bits - 1) else 0)
            value &= (1 << bits) - 1
    return value.to_bytes(bits // 8, "big")


def flac_bomb(frames: int, rate: int = RATE) -> bytes:
    """``frames`` * 65535 samples of silence."""
    samples = frames * 65_535
    info = struct.pack(">HH", 65_535, 65_535) + bytes(6)
    info += ((rate << 44) | (15 << 36) | samples).to_bytes(8, "big") + bytes(16)
    parts = [b"fLaC\x80\0\0\x22", info]
    for number in range(frames):
        head = b"\xff\xf8\x70\x08" + chr(number).encode("utf-8", "surrogatepass") + b"\xff\xfe"
        head += _crc(head, 0x07, 8)
        frame = head + b"\0\0\0"
        parts.append(frame + _crc(frame, 0x8005, 16))
    return b"".join(parts)


def sparse(path: Path, head: bytes, size: int) -> Path:
    """A file that takes no room and is ``size`` long."""
    with path.open("wb") as file:
        file.write(head)
        file.truncate(size)
    return path


# Things at a path that are no files


def things(folder: Path) -> dict[str, Path]:
    """One of each kind of what is not a regular file; ``folder`` must be empty."""
    paths = {name: folder / name for name in ("pipe", "socket", "loop", "to-pipe", "to-nowhere", "folder", "missing")}
    os.mkfifo(paths["pipe"])
    with socket.socket(socket.AF_UNIX) as unix:
        here = Path.cwd()
        os.chdir(folder)  # the path of a socket may have a hundred bytes
        try:
            unix.bind("socket")
        finally:
            os.chdir(here)
    paths["loop"].symlink_to(folder / "loop")
    paths["to-pipe"].symlink_to(paths["pipe"])
    paths["to-nowhere"].symlink_to(folder / "nowhere")
    paths["folder"].mkdir()
    return {
        **paths,
        "device": Path("/dev/zero"),
        "endless name": folder / ("n" * 5000),
        "NUL": folder / "a\0b",
        "no text": folder / "a\ud800b",
    }


# Stores


def digest_of(key: bytes | None, *parts: bytes) -> bytes:
    """Return the digest of ``parts``, each behind its length in eight bytes."""
    data = b"".join(len(part).to_bytes(8, "little") + part for part in parts)
    return hashlib.sha256(data).digest() if key is None else hmac.digest(key, data, "sha256")


def vouch_for(store: Path, key: bytes | None = None) -> None:
    """Make every digest of a store anew, as whoever can write to a file can, with ``key`` for those of a seal."""
    with closing(sqlite3.connect(store, isolation_level=None)) as rows:
        about = list(rows.execute("SELECT * FROM store").fetchone()[1:-1])
        identity, listing = about[2], []
        for row, owner, name, dtype, shape, _, data in rows.execute("SELECT rowid, * FROM array").fetchall():
            title = f"array {identity} {owner} {name} {dtype} {shape}".encode("utf-8", "surrogatepass")
            digest = digest_of(key, title, data if isinstance(data, bytes) else str(data).encode())
            rows.execute("UPDATE array SET digest = ? WHERE rowid = ?", (digest, row))
            listing.append([str(owner), str(name), str(dtype), str(shape), digest.hex()])
        for row, later, earlier, bias, own, rival, _ in rows.execute("SELECT rowid, * FROM pair").fetchall():
            parts = [part if isinstance(part, bytes) else str(part).encode() for part in (own, rival)]
            digest = digest_of(key, f"pair {identity} {later} {earlier} {bias!r}".encode(), *parts)
            rows.execute("UPDATE pair SET digest = ? WHERE rowid = ?", (digest, row))
        speakers = rows.execute(
            "SELECT id, number, name, role, seconds, frames, utterances, centroids FROM speaker ORDER BY number, id"
        ).fetchall()
        ((pairs,),) = rows.execute("SELECT count(*) FROM pair").fetchall()
        text = json.dumps([about, speakers, sorted(listing), pairs], default=repr).encode()
        digest = f"{'' if key is None else 'hmac-'}sha256:{digest_of(key, b'voiceclaim-store', text).hex()}"
        rows.execute("UPDATE store SET digest = ?", (digest,))


def edit(store: Path, sql: str, *values: object, vouch: bool = True, key: bytes | None = None) -> None:
    """Run one statement on a store's file, and make its digests anew if ``vouch``."""
    with closing(sqlite3.connect(store, isolation_level=None)) as rows:
        rows.execute(sql, values)
    if vouch:
        vouch_for(store, key)


def query(store: Path, sql: str, *values: object) -> list[tuple]:
    with closing(sqlite3.connect(store)) as rows:
        return rows.execute(sql, values).fetchall()


def config_of(store: Path) -> dict:
    return json.loads(query(store, "SELECT config FROM store")[0][0])


def edit_config(store: Path, section: str, **values: object) -> None:
    """Change settings that a store was enrolled with, and vouch for it."""
    config = config_of(store)
    config[section] |= values
    edit(store, "UPDATE store SET config = ?", json.dumps(config, sort_keys=True))


def arrays_in(store: Path) -> list[tuple[int, str, np.ndarray]]:
    """Return the row, the name and the numbers of every array."""
    rows = query(store, "SELECT rowid, name, dtype, shape, data FROM array ORDER BY rowid")
    return [(row, name, np.frombuffer(data, kind).reshape(json.loads(shape))) for row, name, kind, shape, data in rows]


def put_array(store: Path, row: int, array: np.ndarray) -> None:
    """Put ``array`` in the place of the one in ``row``, and vouch for it."""
    values = (array.dtype.str, json.dumps(list(array.shape)), np.ascontiguousarray(array).tobytes(), row)
    edit(store, "UPDATE array SET dtype = ?, shape = ?, data = ? WHERE rowid = ?", *values)


@contextmanager
def soon(seconds: float = 10.0):
    """Fail what would hang: an alarm interrupts any call that waits."""

    def wake(*_):
        raise TimeoutError(f"still not done after {seconds} s")

    before = signal.signal(signal.SIGALRM, wake)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def content_of(path: Path) -> dict[str, bytes]:
    """Every file at or below a path, with its bytes."""
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return {str(file): file.read_bytes() for file in files}


def damaged(chance: random.Random, sound: bytes) -> bytes:
    """``sound`` as the harness that breaks stores damages it."""
    from torture import damage

    return damage.damaged(chance, sound)


def hostile_folder(folder: Path) -> list[Path]:
    """A speaker's folder in which nothing can be used."""
    folder.mkdir(parents=True)
    files = {
        "bomb.flac": flac_bomb(120, 400_000),
        "text.wav": b"hello, this is no audio at all\n" * 50,
        "nan.wav": wav(bits=32, tag=3, data=struct.pack("<100f", *[np.nan] * 100)),
        "empty.wav": b"",
        "cut.flac": encoded("FLAC", "PCM_16", 1.0)[:3000],
        "one.wav": wav(data=b"\1\2"),
        "header.wav": wav(data=b""),
        "rate.wav": encoded("WAV", "PCM_16").replace(struct.pack("<I", RATE), b"\1\0\0\0", 1),
    }
    for name, data in files.items():
        (folder / name).write_bytes(data)
    os.mkfifo(folder / "pipe.wav")
    (folder / "loop.wav").symlink_to(folder / "loop.wav")
    (folder / "round").symlink_to(folder.parent)
    (folder / "folder.wav").mkdir()
    return [folder / name for name in files]
