"""The service in a process of its own: its socket, uvicorn by public settings, and a graceful shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import signal
import socket
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from threadpoolctl import threadpool_limits

from pipeline.errors import ConfigError, ServiceError
from pipeline.server import logs
from pipeline.server.app import create_app
from pipeline.server.protocols import HttpProtocol, LiveProtocol, end_unread
from pipeline.server.security import HEADERS, is_loopback
from pipeline.server.service import Service
from pipeline.server.settings import Settings

_READ_BYTES = 2**16  # of a connection, waiting in its socket to be read
_SWITCH_SECONDS = 0.001  # the event loop must not wait long for threads that compute


def url_of(host: str, port: int, *, encrypted: bool = False) -> str:
    """Return the URL of the page at ``host`` and ``port``."""
    return f"{'https' if encrypted else 'http'}://{f'[{host}]' if ':' in host else host}:{port}/"


def listen(host: str, port: int, idle_seconds: float) -> socket.socket:
    """Return a listening socket, whose peers must read what they are sent within ``idle_seconds`` (Linux).

    Raises ServiceError where nothing can listen.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.create_server((host, port), family=family)
    except OSError as error:
        cause = "something else listens there; choose another with --port, or a free one with --port 0"
        advice = cause if error.errno == errno.EADDRINUSE else "is it an address of this machine?"
        raise ServiceError(0, f"cannot listen on {host} port {port}: {error.strerror or error}; {advice}") from None
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _READ_BYTES)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(1000 * idle_seconds))
    return listening


def serve(
    settings: Settings,
    host: str,
    port: int,
    *,
    certificate: Path | None = None,
    key: Path | None = None,
    threads: int,
    prepare: Callable[[], None] = lambda: None,
    started: Callable[[str], None],
) -> None:
    """Serve at ``host`` and ``port`` (0: a free one) until SIGTERM or Ctrl-C; ``started`` is called with the URL.

    ``prepare`` is called before that, once nothing is left that could keep the service from starting.

    With ``certificate`` and ``key`` (PEM files), it serves by TLS. Raises ConfigError for an address beyond this
    machine without tokens and for a certificate that cannot be used, ServiceError if the address cannot be listened on
    or no process can be started.
    """
    if settings.tokens is None and not is_loopback(host):
        raise ConfigError(
            f"host {host}: beyond this machine the service needs tokens, but has none; give --tokens FILE or"
            " the variable VOICECLAIM_TOKENS, or listen on 127.0.0.1"
        )
    logs.configure(settings.log_level)
    _allow_many_files()
    sys.setswitchinterval(_SWITCH_SECONDS)
    logging.getLogger("uvicorn.error").addFilter(_without_names)
    logging.getLogger("python_multipart").setLevel(logging.ERROR)  # it reports every bad body
    # Threads score in parallel: additional threads of BLAS would only wait for them.
    with threadpool_limits(1), listen(host, port, settings.limits.idle_seconds) as listening:
        service = Service(settings, threads=threads)
        tempfile.tempdir = str(service.spool.folder)  # where starlette puts the files of a form
        url = url_of(host, listening.getsockname()[1], encrypted=certificate is not None)
        pending: list[int] = []
        try:
            config = _config(create_app(service, lambda: _begin(started, url, pending)), settings, certificate, key)
            _load(config, certificate)
            # A terminal that is closed ends the service, except under nohup.
            if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
                signal.signal(signal.SIGHUP, lambda *_: signal.raise_signal(signal.SIGTERM))
            _at_the_end(partial(_exit, pending))
            prepare()
            # An exception while processes are being started could leave one that nobody ends.
            _at_the_end(lambda number, _frame: pending.append(number))
            service.start()
            # uvicorn shuts down gracefully at a signal, and then raises it again.
            uvicorn.Server(config).run(sockets=[listening])
        finally:
            service.close()


def _at_the_end(handler: Callable[[int, FrameType | None], Any]) -> None:
    """Have ``handler`` called by the signals that end the service."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, handler)


def _exit(pending: list[int], number: int, _frame: FrameType | None) -> None:
    """Exit; the signal is also noted as ``pending``, since what a callback of a C library raises is lost."""
    pending.append(number)
    sys.exit(0)


def _load(config: uvicorn.Config, certificate: Path | None) -> None:
    try:
        config.load()
    except (OSError, ValueError) as error:  # SSLError is an OSError
        raise ConfigError(
            f"{certificate}: the certificate or its key cannot be used ({error}); both must be PEM files"
        ) from None


def _begin(started: Callable[[str], None], url: str, pending: list[int]) -> None:
    """Call ``started``; signals that are ``pending`` from before uvicorn listened to them are raised again."""
    asyncio.get_running_loop().set_exception_handler(_Faults())
    for number in pending:
        signal.raise_signal(number)
    started(url)


class _Faults:
    """Logs errors that nothing waited for.

    Where no more files can be opened, asyncio fails to accept connections thousands of times a second; one is logged.
    """

    def __init__(self) -> None:
        self._silent_until = 0.0

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        what = context["message"] if error is None else logs.place_of(error)
        if isinstance(error, OSError) and "socket" in context:
            if loop.time() < self._silent_until:
                return
            self._silent_until = loop.time() + 1.0
            what = f"{context['message']}: {error.strerror}"
        logs.log_event("fault", level=logging.ERROR, what=what)


def _config(app: ASGIApp, settings: Settings, certificate: Path | None, key: Path | None) -> uvicorn.Config:
    limits = settings.limits
    return uvicorn.Config(
        end_unread(app, limits.idle_seconds),
        loop="asyncio",  # in which a protocol may read as little at a time as it likes
        ssl_certfile=certificate,
        ssl_keyfile=key,
        http=HttpProtocol,
        h11_max_incomplete_event_size=limits.head_bytes,
        ws=LiveProtocol,
        ws_max_size=limits.message_bytes,
        ws_per_message_deflate=False,
        ws_ping_interval=None,  # a pong comes behind the audio that TCP holds; streams have their own patience
        limit_concurrency=limits.connections,
        timeout_keep_alive=int(limits.idle_seconds),
        timeout_graceful_shutdown=int(limits.grace_seconds),
        headers=list(HEADERS.items()),
        access_log=False,
        log_level="error",
        server_header=False,
        proxy_headers=settings.proxy is not None,
        forwarded_allow_ips=settings.proxy,
        lifespan="on",
    )


def _without_names(record: logging.LogRecord) -> bool:
    """Replace a traceback, whose text may name people, by the kind of the error and its place in the code."""
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, UnicodeDecodeError):  # a text message that is not UTF-8 is no fault of the service
        return False
    if error is not None:
        record.msg, record.args = logs.place_of(error), ()
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
