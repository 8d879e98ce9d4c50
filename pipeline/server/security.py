"""Access to the service: bearer tokens and their scopes, the origin of web pages, the bodies of requests, headers.

Tokens come from a file or the environment, one entry per line or separated by semicolons. An entry is scopes joined by
commas, a space, and the token. ``admin`` stands for every scope. Empty lines and lines that begin with # are ignored.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pipeline.errors import ConfigError, ServiceError
from pipeline.files import read_bounded
from pipeline.server.callers import Caller, Patience, Shares
from pipeline.server.messages import TOKEN

if TYPE_CHECKING:
    from pipeline.server.limits import Limits

VARIABLE = "VOICECLAIM_TOKENS"
ENROLL, VERIFY, IDENTIFY, SCORES, RULES, ADMIN = "enroll", "verify", "identify", "scores", "rules", "admin"
_EACH = (ENROLL, VERIFY, IDENTIFY, SCORES, RULES)
SCOPES = frozenset(_EACH)
_ALLOWED = {**{scope: frozenset({scope}) for scope in _EACH}, ADMIN: SCOPES}
_MAX_BYTES = 2**20
_MIN_CHARACTERS = 16
HEADERS = {
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
    "cache-control": "no-store",
}
"""Headers of every response."""


Tokens = Mapping[bytes, frozenset[str]]
"""Scopes by the SHA-256 of their token; the tokens themselves are not kept."""
Address = tuple[str, int] | None
"""Host and port of a client."""


def scopes_of(tokens: Tokens, token: str) -> frozenset[str]:
    """Return the scopes of ``token``, none if it is unknown, in constant time."""
    digest, granted = _digest(token), frozenset[str]()
    for known, scopes in tokens.items():
        if hmac.compare_digest(known, digest):
            granted = scopes
    return granted


def read_tokens(path: Path | None = None) -> Tokens | None:
    """Read tokens from the file ``path``, else from the variable VOICECLAIM_TOKENS; None without either.

    Raises ConfigError, which names the line and never shows a token.
    """
    if path is None:
        return parse_tokens(os.environ[VARIABLE], VARIABLE) if VARIABLE in os.environ else None
    try:
        text = read_bounded(path, _MAX_BYTES).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise ConfigError(f"{path}: the tokens cannot be read: {reason}") from None
    return parse_tokens(text, str(path))


def parse_tokens(text: str, where: str) -> Tokens:
    """Parse the entries in ``text``; raises ConfigError about ``where``."""
    entries: dict[bytes, frozenset[str]] = {}
    for number, line in enumerate(text.replace(";", "\n").split("\n"), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        names, _, token = line.strip().partition(" ")
        token, entry = token.strip(), f"{where}, entry {number}"
        scopes = _scopes(names.split(","), entry)
        if len(token) < _MIN_CHARACTERS or TOKEN.fullmatch(token) is None:
            raise ConfigError(
                f"{entry}: a token has at least {_MIN_CHARACTERS} letters, digits or -._~+/, then = if any;"
                f" got {len(token)} characters; make one with `openssl rand -hex 24`"
            )
        if _digest(token) in entries:
            raise ConfigError(f"{entry}: the token is given twice; join its scopes with a comma")
        entries[_digest(token)] = scopes
    if not entries:
        raise ConfigError(f"{where}: at least one line 'scope token' was expected, got none")
    return entries


def _scopes(names: Iterable[str], entry: str) -> frozenset[str]:
    unknown = [name for name in names if name not in _ALLOWED]
    if unknown:  # which is not shown: it may be the token
        raise ConfigError(
            f"{entry}: a scope is one of {', '.join(_ALLOWED)}, but the entry does not begin with one;"
            " is the token in front of its scope?"
        )
    return frozenset[str]().union(*(_ALLOWED[name] for name in names))


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def token_in(headers: Headers) -> str | None:
    """Return the bearer token in the head of a request, if there is one."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def caller_of(tokens: Tokens | None, token: str | None, client: Address) -> Caller:
    """Return the caller with this ``token`` at the address ``client``; without ``tokens`` callers have every scope.

    With tokens, an address of this machine is taken to be a proxy's.
    """
    address = "" if client is None else client[0]
    if tokens is None:
        return Caller(f"address {address}", address, SCOPES)
    digest = _digest(token or "").hex()
    return Caller(f"token {digest}", None if is_loopback(address) else address, scopes_of(tokens, token or ""))


def allowed(caller: Caller, token: str | None, *scopes: str) -> Caller:
    """Return ``caller``; raises ServiceError unless it has one of ``scopes``."""
    if not caller.scopes:
        reason = "the token is unknown" if token else "the request has none"
        raise ServiceError(401, f"a bearer token is needed, but {reason}", kind="Unauthorized")
    if not caller.scopes & set(scopes):
        raise ServiceError(403, f"this takes a token with the scope {' or '.join(scopes)}", kind="Forbidden")
    return caller


def is_loopback(host: str) -> bool:
    """Return True if only this machine can reach the address ``host``."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


async def check_origin(connection: HTTPConnection) -> None:
    """Raise ServiceError for a request by a web page of another origin."""
    origin, host = connection.headers.get("origin"), connection.headers.get("host", "")
    if origin is not None and origin.partition("://")[2].lower() != host.lower():
        raise ServiceError(403, "a page of another origin may not use this service", kind="Forbidden")


def limit_bodies(app: ASGIApp, limits: Limits, tokens: Tokens | None, room: Shares) -> ASGIApp:
    """Wrap ``app`` so that bodies stay within ``limits`` of size, time and rate, and within the caller's share of room.

    Its ``receive`` raises ServiceError for a body that is too large, TimeoutError for one that stops or is too slow.
    """

    async def limited_app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        received, complete, began = 0, False, 0.0
        patience = Patience(limits.idle_seconds)
        announced = int(headers.get("content-length", "0"))  # h11 lets only digits through

        async def limited() -> Message:
            nonlocal received, complete, began
            if complete:  # the next message is the disconnect, whenever that is
                return await receive()
            if announced <= limits.body_bytes:
                began = began or time.monotonic()
                async with asyncio.timeout(began + limits.body_seconds - time.monotonic()), patience.waiting():
                    message = await receive()
                size = len(message.get("body", b""))
                patience.gain(size / limits.body_bytes_a_second)
                share.take(size)
                received += size
                complete = not message.get("more_body", False)
            if max(announced, received) > limits.body_bytes:
                most = limits.body_bytes
                raise ServiceError(413, f"a request has at most {most:,} bytes; send fewer or shorter files")
            return message

        with room.of(caller_of(tokens, token_in(headers), scope.get("client"))) as share:
            await app(scope, limited, send)

    return limited_app
