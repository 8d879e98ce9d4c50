"""Settings of a service: its store, its limits, its tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pipeline.config import Config
from pipeline.server.security import Tokens

MIB = 2**20
HOSTS = ("localhost", "127.0.0.1", "[::1]")


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits per caller, and on all callers together.

    ``file_seconds`` is audio in one uploaded file, ``stream_seconds`` audio in one stream. A stream is closed after
    ``idle_seconds`` without audio, or ``hello_seconds`` without a first message; a connection after ``idle_seconds``
    without a request, or when its peer does not read for so long (by TCP_USER_TIMEOUT, on Linux).
    """

    body_bytes: int = 64 * MIB
    head_bytes: int = 32 * 1024
    files: int = 256
    file_seconds: float = 600.0
    stream_seconds: float = 300.0
    message_bytes: int = MIB
    streams: int = 128
    waiting_enrollments: int = 4
    connections: int = 4096
    idle_seconds: float = 20.0
    hello_seconds: float = 10.0
    grace_seconds: float = 300.0
    name_characters: int = 200
    verifiers: int = 64


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of one service.

    Without ``tokens`` every caller may use everything; the Host header must then be one of ``hosts``, and the Origin
    header, if any, that same host. ``config`` is for a store that the first enrollment creates. ``aim_seconds`` is the
    speech that the page asks for at enrollment. Uploaded and streamed audio lies in ``spool`` (None: the system's
    folder for temporary files) until it is enrolled. ``unknown_impostors`` is that of ``Store.load``.
    """

    store: Path
    tokens: Tokens | None = field(default=None, repr=False)
    hosts: Sequence[str] = HOSTS
    config: Config | None = None
    evaluation: Path | None = None
    log: Path | None = None
    log_key: Path | None = None
    jobs: int = 1
    unknown_impostors: float | None = None
    aim_seconds: float = 8.0
    spool: Path | None = None
    limits: Limits = field(default_factory=Limits)
