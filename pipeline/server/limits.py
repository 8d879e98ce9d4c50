"""Limits of a service and their defaults, which are also those of the options of `voiceclaim serve`."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 2**20


@dataclass(frozen=True, slots=True)
class AudioBounds:
    """Bounds on audio: ``seconds`` of a file, seconds ``in_all``, ``samples`` of all files, over all channels."""

    seconds: float
    in_all: float
    samples: int


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits per caller, and on all callers together.

    A request has at most ``body_bytes``, which arrive within ``body_seconds``, and are never more than ``idle_seconds``
    behind ``body_bytes_a_second``; all requests together at most ``spool_bytes`` at once. ``file_seconds`` is audio
    in one uploaded file, ``enroll_seconds`` in all that one enrollment is given, ``decode_seconds`` the time and
    ``decode_memory`` the bytes to decode a request, ``train_seconds`` the time for an enrollment.

    A stream has at most ``stream_seconds`` of audio, and twice that of time. It is closed after ``idle_seconds``
    without audio, once audio is ``idle_seconds`` behind a quarter of real time, or after ``hello_seconds`` without a
    first message; a connection after ``idle_seconds`` without a request, or when its peer does not read for so long
    (by TCP_USER_TIMEOUT, on Linux). One token or address has at most ``share`` of streams, room and waiting places.
    """

    body_bytes: int = 64 * MIB
    body_seconds: float = 300.0
    body_bytes_a_second: int = 16 * 1024
    spool_bytes: int = 512 * MIB
    head_bytes: int = 32 * 1024
    files: int = 256
    file_seconds: float = 600.0
    enroll_seconds: float = 1800.0
    decode_seconds: float = 60.0
    decode_memory: int = 2**31
    train_seconds: float = 900.0
    stream_seconds: float = 300.0
    message_bytes: int = MIB
    streams: int = 256
    share: float = 0.5
    waiting: int = 8
    waiting_enrollments: int = 4
    connections: int = 4096
    idle_seconds: float = 20.0
    hello_seconds: float = 10.0
    grace_seconds: float = 300.0
    verifiers: int = 64

    @property
    def audio(self) -> AudioBounds:
        """Return the bounds on the files of one request: samples as of two channels at 48 kHz."""
        samples = 48_000 * max(2 * self.file_seconds, self.enroll_seconds)
        return AudioBounds(self.file_seconds, self.enroll_seconds, int(samples))
