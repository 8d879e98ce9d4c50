"""Files that promise more than they hold, made by hand: what libraries do not write."""

from __future__ import annotations

import hashlib
import hmac
import io
import json
import os
import socket
import struct
from functools import cache
from pathlib import Path

import numpy as np
import soundfile

RATE = 16_000
SHORT = 150  # samples that the files with lying headers do hold


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
    found = []
    for kind in sorted(set(soundfile.available_formats()) - {"RAW", "SD2", "SDS", "MAT4", "MAT5", "HTK"}):
        for subtype in soundfile.available_subtypes(kind):
            try:
                encoded(kind, subtype)
            except (soundfile.SoundFileError, ValueError):
                continue
            found.append((kind, subtype))
    return found


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


@cache
def _table(polynomial: int, bits: int) -> list[int]:
    table = []
    for byte in range(256):
        value = byte << (bits - 8)
        for _ in range(8):
            value = (value << 1) ^ (polynomial if value >> (bits - 1) else 0)
            value &= (1 << bits) - 1
        table.append(value)
    return table


def _crc(data: bytes, polynomial: int, bits: int) -> bytes:
    table, value = _table(polynomial, bits), 0
    for byte in data:
        value = ((value << 8) & ((1 << bits) - 1)) ^ table[(value >> (bits - 8)) ^ byte]
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


# Files of arrays


def arrays_file(header: object, data: bytes = b"", *, length: int | None = None) -> bytes:
    """A safetensors file with any header at all."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


# Manifests


def digest_of(table: dict, key: bytes | None = None) -> str:
    """What stands at the end of a manifest: over all else in it, its keys in order, without blanks."""
    rest = {name: value for name, value in table.items() if name != "digest"}
    data = b"voiceclaim-store\n" + json.dumps(rest, sort_keys=True, separators=(",", ":")).encode()
    if key is None:
        return f"sha256:{hashlib.sha256(data).hexdigest()}"
    return f"hmac-sha256:{hmac.digest(key, data, 'sha256').hex()}"


def manifest_of(store: Path) -> dict:
    return json.loads((store / "manifest.json").read_text(encoding="utf-8"))


def put_manifest(store: Path, table: dict, key: bytes | None = None) -> None:
    """Write a manifest with a digest that is right, as whoever can change the one can change the other."""
    if table.get("version") != 1:
        table = {**table, "digest": digest_of(table, key)}
    (store / "manifest.json").write_text(json.dumps(table, indent=1, ensure_ascii=False), encoding="utf-8")


def edit_manifest(store: Path, **changes: object) -> None:
    put_manifest(store, manifest_of(store) | changes)


def vouch_for(store: Path, name: str, data: bytes) -> None:
    """Put ``data`` in the place of a file of the store, and its checksum and size into the manifest."""
    (store / name).write_bytes(data)

    def renewed(record: dict) -> dict:
        if record.get("name") != name or "sha256" not in record:
            return record
        return {**record, "sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}

    put_manifest(store, json.loads((store / "manifest.json").read_text(encoding="utf-8"), object_hook=renewed))


def make_version_1(store: Path) -> None:
    """Write the manifest as version 1 did: no digest, no identity, no sizes."""

    def older(record: dict) -> dict:
        return {key: value for key, value in record.items() if key not in {"size", "identity", "digest"}}

    table = json.loads((store / "manifest.json").read_text(encoding="utf-8"), object_hook=older)
    put_manifest(store, {**table, "version": 1})
