"""Around every request: whose pages may ask, how much may be sent, what an error tells, what is counted.

Without tokens the service listens on a loopback address only, where every page that a browser on this machine shows
can reach it. So the host that is asked for must be a name of this machine (against DNS rebinding), and what a page
asks must come from a page of that same host.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Mapping
from urllib.parse import unquote_to_bytes, urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pipeline.errors import ServiceError, VoiceclaimError
from pipeline.server.metrics import Metrics
from pipeline.server.problems import MEDIA_TYPE, problem, service_error
from pipeline.server.settings import Settings

LOG = logging.getLogger("voiceclaim.server")
_CLOSED = "the handler is closed"  # uvloop, of a connection that was given up before its answer was sent
SECURITY = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self';"
        " worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "permissions-policy": "microphone=(self), camera=(), geolocation=()",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "x-frame-options": "DENY",
}


class Guard:
    """An ASGI application around ``app``."""

    def __init__(self, app: ASGIApp, settings: Settings, metrics: Metrics) -> None:
        self._app = app
        self._settings = settings
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(scope, send, self._settings.limits.idle_seconds)
        started = time.perf_counter()
        body = _Body(scope, receive, self._settings) if scope["type"] == "http" else None
        try:
            self._check(scope)
            await self._app(scope, receive if body is None else body.receive, exchange.send)
        except (VoiceclaimError, TimeoutError) as error:
            await exchange.refuse(_as_service_error(error))
        except Exception as error:  # a fault of ours: its text may name people, so only its kind and place are told
            if _CLOSED not in str(error):
                LOG.error("%s at %s", type(error).__name__, _place_of(error))
            await exchange.refuse(ServiceError(500, "the service failed; its log says where", kind="Fault"))
        finally:
            if scope["type"] == "http":
                self._count(scope, exchange.status, time.perf_counter() - started)

    def _check(self, scope: Scope) -> None:
        try:
            unquote_to_bytes(scope.get("raw_path") or b"").decode("utf-8")
        except UnicodeDecodeError:
            raise ServiceError(400, "a path must be UTF-8, percent-encoded") from None
        if self._settings.tokens is not None:
            return
        headers = _headers(scope)
        host = headers.get("host", "")
        if _name_of(host) not in self._settings.hosts:
            raise ServiceError(
                421, "this service answers to names of this machine only; ask for localhost, or give it tokens"
            )
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
            raise ServiceError(403, "a page of another origin may not use this service")

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "other")
        self._metrics.requests.labels(route, scope["method"] if route != "other" else "other", str(status)).inc()
        self._metrics.request_seconds.labels(route).observe(seconds)


class _Body:
    """A request's body, counted as it comes."""

    def __init__(self, scope: Scope, receive: Receive, settings: Settings) -> None:
        self._receive = receive
        self._limits = settings.limits
        self._left = settings.limits.body_bytes
        self._whole = False
        length = _headers(scope).get("content-length", "0")
        self._too_large = length.isdecimal() and int(length) > self._left

    async def receive(self) -> Message:
        """The next part; raises ServiceError for too much, TimeoutError for a sender who has stopped."""
        if self._too_large:
            raise self._refusal()
        if self._whole:  # what comes now is that the peer went away, whenever that is
            return await self._receive()
        async with asyncio.timeout(self._limits.idle_seconds):
            message = await self._receive()
        self._left -= len(message.get("body", b""))
        if self._left < 0:
            raise self._refusal()
        self._whole = not message.get("more_body", False)
        return message

    def _refusal(self) -> ServiceError:
        return ServiceError(413, f"a request has at most {self._limits.body_bytes:,} bytes; send fewer files at a time")


class _Exchange:
    """What has been answered so far."""

    def __init__(self, scope: Scope, send: Send, seconds: float) -> None:
        self._scope = scope
        self._send = send
        self._seconds = seconds
        self.status = 0

    async def send(self, message: Message) -> None:
        """Pass ``message`` on, with the headers that every answer has; raises TimeoutError when nobody takes it."""
        if message["type"] in ("http.response.start", "websocket.http.response.start"):
            self.status = message["status"]
            message["headers"] = [*message.get("headers", ()), *_encoded(self._always())]
        elif message["type"] in ("websocket.accept", "websocket.close"):
            self.status = 101
        async with asyncio.timeout(self._seconds):
            await self._send(message)

    async def refuse(self, error: ServiceError) -> None:
        """Tell ``error`` if nothing has been told yet."""
        if self.status:
            return
        body = json.dumps(problem(error)).encode()
        headers = {"content-type": MEDIA_TYPE, "content-length": str(len(body))}
        if error.status == 503:
            headers |= RETRY
        if error.status == 401:
            headers["www-authenticate"] = "Bearer"
        if error.status in (408, 413):  # the rest of the body is not waited for
            headers["connection"] = "close"
        kind = "http.response" if self._scope["type"] == "http" else "websocket.http.response"
        try:
            await self.send({"type": f"{kind}.start", "status": error.status, "headers": _encoded(headers)})
            await self.send({"type": f"{kind}.body", "body": body})
        except (OSError, RuntimeError):
            LOG.debug("a refusal was not taken")

    def _always(self) -> Mapping[str, str]:
        is_page = self._scope["path"] in ("/", "/docs") or self._scope["path"].startswith("/page/")
        return {**SECURITY, "cache-control": "no-cache" if is_page else "no-store"}


RETRY = {"retry-after": "5"}


def _as_service_error(error: VoiceclaimError | TimeoutError) -> ServiceError:
    if isinstance(error, TimeoutError):
        return ServiceError(408, "the request did not come in time", kind="TimeoutError")
    return service_error(error)


def _headers(scope: Scope) -> dict[str, str]:
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}


def _encoded(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode("ascii"), value.encode("latin-1")) for name, value in headers.items()]


def _name_of(host: str) -> str:
    """``host`` without its port, in lower case; an IPv6 address keeps its brackets."""
    name, colon, port = host.lower().rpartition(":")
    return name if colon and (port.isdecimal() or not port) else host.lower()


def _place_of(error: BaseException) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "nowhere" if trace is None else f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
