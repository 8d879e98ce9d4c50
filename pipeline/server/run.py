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
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h11
import uvicorn
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from threadpoolctl import threadpool_limits
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import InvalidState

from pipeline.errors import ConfigError, ServiceError
from pipeline.server import logs
from pipeline.server.app import create_app
from pipeline.server.security import HEADERS, is_loopback
from pipeline.server.service import Service
from pipeline.server.settings import Settings

_READ_BYTES = 2**16  # of a connection, waiting
_FREE_PIECES, _MEAN_BYTES = 1000, 32  # parsing costs time by the frame or chunk, not by the byte
_MOST_AFTER_ANSWER = 2**20
_SWITCH_SECONDS = 0.001  # the event loop must not wait long for threads that compute
_BAD_REQUEST = b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class _SlicedProtocol(asyncio.BufferedProtocol):
    """A connection that is read a little at a time, by asyncio's loop and also by TLS."""

    transport: asyncio.Transport
    slice_bytes = 2**12  # all that is read at once is parsed at once, and nobody else is answered meanwhile

    def get_buffer(self, sizehint: int) -> bytearray:  # noqa: ARG002
        """See asyncio.BufferedProtocol."""
        self._slice = bytearray(self.slice_bytes)
        return self._slice

    def buffer_updated(self, nbytes: int) -> None:
        """See asyncio.BufferedProtocol."""
        if self.transport.is_closing():
            return
        try:
            self.data_received(bytes(self._slice[:nbytes]))
        except (h11.LocalProtocolError, InvalidState):  # uvicorn refuses what it has answered or closed already
            self.transport.close()

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        raise NotImplementedError


class _Chunks(h11.Connection):
    """HTTP that counts the chunks of bodies, and parses no more of them when there are too many."""

    spare: float = _FREE_PIECES

    def next_event(self) -> Any:
        """See h11.Connection."""
        if self.spare < 0:
            return h11.NEED_DATA
        event = super().next_event()
        if isinstance(event, h11.Data):
            self.spare += len(event.data) / _MEAN_BYTES - 1
        return event


class _HttpProtocol(H11Protocol, _SlicedProtocol):
    """HTTP by h11, which bounds the head of a request, and reads no request before the last one is answered."""

    slice_bytes = 2**14  # uploads of less would cost several times as much

    def __init__(self, config: uvicorn.Config, *args: Any, **options: Any) -> None:
        super().__init__(config, *args, **options)
        self.conn = self._chunks = _Chunks(h11.SERVER, config.h11_max_incomplete_event_size or self.slice_bytes)

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        super().data_received(data)
        if self._chunks.spare < 0:
            self.transport.close()


class _LiveProtocol(WebSocketsSansIOProtocol, _SlicedProtocol):
    """A WebSocket by uvicorn and websockets, without tiny frames and without pongs that nobody reads."""

    _spare: float = _FREE_PIECES

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol. A request that is none for a WebSocket gets no answer by uvicorn."""
        self._spare += len(data) / _MEAN_BYTES
        super().data_received(data)
        if self.conn.handshake_exc is not None and not self.handshake_initiated:
            self.transport.write(b"".join(self.conn.data_to_send()) or _BAD_REQUEST)
            self.transport.close()

    def handle_events(self) -> None:
        """Handle all frames that have been read, or close."""
        self._spare -= len(self.conn.events)
        if self._spare < 0:
            self.transport.close()
        else:
            super().handle_events()

    def handle_ping(self) -> None:
        """Answer, or drop the pong where the peer does not read (RFC 6455, 5.5.3, asks for the last one alone)."""
        if self.writable.is_set():
            super().handle_ping()
        else:
            self.conn.data_to_send()


def _end_unread(app: ASGIApp, seconds: float) -> ASGIApp:
    """Wrap ``app`` so that the connection ends after an answer to a request whose body it has not read.

    A little of that body is read yet, within ``seconds``: a reset would take the answer from a caller who still sends.
    """

    async def ending(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        complete = "transfer-encoding" not in headers and headers.get("content-length", "0") == "0"

        async def noted() -> Message:
            nonlocal complete
            message = await receive()
            complete = not message.get("more_body", False)
            return message

        async def drain() -> None:
            left = _MOST_AFTER_ANSWER
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    while not complete and left > 0:
                        left -= len((await noted()).get("body", b""))

        async def answer(message: Message) -> None:
            if not complete and message["type"] == "http.response.start":
                MutableHeaders(scope=message)["connection"] = "close"
            elif not complete and not message.get("more_body", False):
                await send({**message, "more_body": True})
                await drain()
                message = {"type": "http.response.body"}
            await send(message)

        await app(scope, noted, answer)

    return ending


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

    ``prepare`` is called before, once nothing is left that could keep the service from starting.

    With ``certificate`` and ``key`` (PEM files) by TLS. Raises ConfigError for an address beyond this machine without
    tokens and for a certificate that cannot be used, ServiceError where nothing can listen.
    """
    if settings.tokens is None and not is_loopback(host):
        raise ConfigError(
            f"host {host}: beyond this machine the service needs tokens, and has none; give --tokens FILE or"
            " the variable VOICECLAIM_TOKENS, or listen on 127.0.0.1"
        )
    logs.configure(settings.log_level)
    _allow_many_files()
    sys.setswitchinterval(_SWITCH_SECONDS)
    logging.getLogger("uvicorn.error").addFilter(_without_names)
    logging.getLogger("python_multipart").setLevel(logging.ERROR)  # it reports every bad body
    # Threads score beside each other: threads of BLAS besides would wait for them.
    with threadpool_limits(1), listen(host, port, settings.limits.idle_seconds) as listening:
        service = Service(settings, threads=threads)
        tempfile.tempdir = str(service.spool.folder)  # where starlette puts the files of a form
        url = url_of(host, listening.getsockname()[1], encrypted=certificate is not None)
        try:
            config = _config(create_app(service, lambda: _begin(started, url)), settings, certificate, key)
            _load(config, certificate)
            prepare()
            # uvicorn shuts down gracefully at a signal, and then raises it again.
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, lambda *_: None)
            # A terminal that is closed ends the service, except under nohup.
            if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
                signal.signal(signal.SIGHUP, lambda *_: signal.raise_signal(signal.SIGTERM))
            uvicorn.Server(config).run(sockets=[listening])
        finally:
            service.close()


def _load(config: uvicorn.Config, certificate: Path | None) -> None:
    try:
        config.load()
    except (OSError, ValueError) as error:  # SSLError is an OSError
        raise ConfigError(
            f"{certificate}: the certificate or its key cannot be used ({error}); both must be PEM files"
        ) from None


def _begin(started: Callable[[str], None], url: str) -> None:
    asyncio.get_running_loop().set_exception_handler(_log_fault)
    started(url)


def _log_fault(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log an error that nothing waited for."""
    error = context.get("exception")
    logs.log_event("fault", level=logging.ERROR, what=context["message"] if error is None else _place_of(error))


def _config(app: ASGIApp, settings: Settings, certificate: Path | None, key: Path | None) -> uvicorn.Config:
    limits = settings.limits
    return uvicorn.Config(
        _end_unread(app, limits.idle_seconds),
        loop="asyncio",  # of which a protocol reads as little at a time as it likes
        ssl_certfile=certificate,
        ssl_keyfile=key,
        http=_HttpProtocol,
        h11_max_incomplete_event_size=limits.head_bytes,
        ws=_LiveProtocol,
        ws_max_size=limits.message_bytes,
        ws_per_message_deflate=False,
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
        record.msg, record.args = _place_of(error), ()
    record.exc_info, record.exc_text = None, None
    return True


def _place_of(error: BaseException) -> str:
    """Return the kind of ``error`` and its place in the code."""
    last = traceback.extract_tb(error.__traceback__, limit=-1)
    return " at ".join((type(error).__name__, *(f"{frame.filename}:{frame.lineno}" for frame in last)))


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
