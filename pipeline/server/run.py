"""The service in a process of its own: uvicorn with the bounds that it lacks, from start to an orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn

from pipeline.errors import ConfigError, ServiceError
from pipeline.server.app import create_app
from pipeline.server.connections import BoundedHeads, PoliteWebSockets, Reaper
from pipeline.server.service import Service
from pipeline.server.settings import Settings

_SWITCH_SECONDS = 0.001  # the event loop must not wait long for threads that compute


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen; ``port`` 0 takes a free one. With ``certificate`` and ``key`` (PEM files) by TLS."""

    host: str = "127.0.0.1"
    port: int = 8000
    certificate: Path | None = None
    key: Path | None = None

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def url(self, port: int) -> str:
        """The URL of the page, at the ``port`` that was taken."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'http' if self.certificate is None else 'https'}://{host}:{port}/"


def serve(settings: Settings, address: Address, *, threads: int, started: Callable[[str], None]) -> None:
    """Serve until a signal says to end; ``started`` is called with the URL.

    Raises ConfigError for an address beyond this machine without tokens, ServiceError where nothing can listen.
    """
    if settings.tokens is None and not address.is_loopback:
        raise ConfigError(
            f"host {address.host}: beyond this machine the service wants tokens, and has none; give --tokens FILE or"
            " the variable VOICECLAIM_TOKENS, or listen on 127.0.0.1"
        )
    _allow_many_files()
    sys.setswitchinterval(_SWITCH_SECONDS)
    logging.getLogger("uvicorn.error").addFilter(_without_secrets)
    logging.getLogger("python_multipart").setLevel(logging.ERROR)  # it tells of every bad body
    service = Service(settings, threads=threads)
    config = _config(settings, address, service)
    try:
        config.load()
    except (OSError, ValueError) as error:  # SSLError is an OSError
        service.close()
        raise ConfigError(
            f"{address.certificate}: the certificate or its key cannot be used ({error}); PEM files of both are needed"
        ) from None
    try:
        _Server(config, service, address, started).run()
    except SystemExit:
        service.close()
        raise ServiceError(0, f"cannot listen on {address.host} port {address.port}; is it taken?") from None


def _config(settings: Settings, address: Address, service: Service) -> uvicorn.Config:
    limits = settings.limits
    return uvicorn.Config(
        create_app(service),
        host=address.host,
        port=address.port,
        ssl_certfile=address.certificate,
        ssl_keyfile=address.key,
        http=BoundedHeads,
        ws=PoliteWebSockets,
        ws_max_size=limits.message_bytes,
        ws_per_message_deflate=False,
        limit_concurrency=limits.connections,
        timeout_keep_alive=int(limits.head_seconds),
        timeout_graceful_shutdown=int(limits.grace_seconds),
        access_log=False,
        log_level="error",
        server_header=False,
        proxy_headers=False,
        lifespan="on",
    )


class _Server(uvicorn.Server):
    """Uvicorn's server, which ends streams by saying so and waits for whoever is being enrolled."""

    def __init__(
        self, config: uvicorn.Config, service: Service, address: Address, started: Callable[[str], None]
    ) -> None:
        super().__init__(config)
        self._service = service
        self._address = address
        self._tell = started
        self._reaping: asyncio.Task[None] | None = None

    async def startup(self, sockets: Any = None) -> None:
        """See uvicorn."""
        await super().startup(sockets)
        reaper = Reaper(self.server_state.connections, self._service.settings.limits)
        self._reaping = asyncio.create_task(reaper.run())
        self._tell(self._address.url(self.servers[0].sockets[0].getsockname()[1]))

    async def shutdown(self, sockets: Any = None) -> None:
        """See uvicorn."""
        for server in self.servers:
            server.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._service.settings.limits.grace_seconds):
                await self._service.end()
        await super().shutdown(sockets)
        if self._reaping is not None:
            self._reaping.cancel()
        self._captured_signals.clear()  # uvicorn would raise them again, and an orderly end is no failure


def _without_secrets(record: logging.LogRecord) -> bool:
    """Leave out tracebacks, whose text may name people; where the fault was is told elsewhere. Bad text is no fault."""
    if record.exc_info and isinstance(record.exc_info[1], UnicodeDecodeError):
        return False
    record.exc_info, record.exc_text = None, None
    return True


def _allow_many_files() -> None:
    """Raise the limit of open files as far as this process may: every connection is one."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
