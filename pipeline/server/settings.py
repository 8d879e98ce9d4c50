"""What a service is started with: its store, its limits, who may call it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pipeline.config import Config
from pipeline.server.tokens import Tokens

MIB = 2**20
HOSTS = ("localhost", "127.0.0.1", "[::1]")


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on what one caller can ask for, and on what all of them can together.

    ``file_seconds`` is audio in one uploaded file, ``stream_seconds`` audio in one stream. A stream is ended after
    ``idle_seconds`` without audio, a connection after ``head_seconds`` without a whole request or hello, and either
    when its peer does not read what it is sent for ``idle_seconds``.
    """

    body_bytes: int = 64 * MIB
    files: int = 256
    file_seconds: float = 600.0
    stream_seconds: float = 300.0
    message_bytes: int = MIB
    queued_bytes: int = 256 * 1024
    streams: int = 128
    waiting_enrollments: int = 4
    connections: int = 4096
    idle_seconds: float = 20.0
    head_seconds: float = 10.0
    grace_seconds: float = 300.0
    name_characters: int = 200
    verifiers: int = 64


@dataclass(frozen=True, slots=True)
class Settings:
    """One service.

    Without ``tokens`` everybody may do everything, and only ``hosts`` may be asked for, by pages of those hosts.
    ``config`` is for a store that is made by the first enrollment. ``aim_seconds`` of speech are what the page asks
    of somebody who enrolls. Uploaded and streamed audio lies in ``spool`` (None: the system's folder for temporary
    files) until it is enrolled. ``outsiders`` is that of ``SpeakerStore.open``.
    """

    store: Path
    tokens: Tokens | None = None
    hosts: Sequence[str] = HOSTS
    config: Config | None = None
    evaluation: Path | None = None
    log: Path | None = None
    log_key: Path | None = None
    jobs: int = 1
    outsiders: float | None = None
    aim_seconds: float = 8.0
    spool: Path | None = None
    limits: Limits = field(default_factory=Limits)
