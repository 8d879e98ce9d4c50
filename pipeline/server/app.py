"""The service as an ASGI application: its routes, its middleware, and its answers to errors."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from anyio import to_thread
from fastapi import Depends, FastAPI, Request, Response
from fastapi.responses import JSONResponse
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket
from uvicorn.protocols.utils import ClientDisconnected

from pipeline import __version__
from pipeline.errors import ServiceError, TooManyAttemptsError, VoiceclaimError
from pipeline.server.messages import PROBLEM_TYPE, Problem, problem, service_error
from pipeline.server.metrics import count_requests
from pipeline.server.routes import router, service_of
from pipeline.server.security import check_origin, limit_bodies
from pipeline.server.service import Service

_ABOUT = """Enroll speakers and verify claims of identity by voice.

Errors are problems in JSON (RFC 9457). Three WebSockets, which OpenAPI does not describe, take live audio: `/verify`,
`/identify` and `/enroll`; see the project's `docs/service.md`.
"""


def create_app(service: Service, started: Callable[[], None] = lambda: None) -> FastAPI:
    """Return the application of ``service``: calls ``started`` at startup, and closes the service at shutdown."""

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        # One thread for Starlette's forms, which never ends: see ``started_threads``.
        to_thread.current_default_thread_limiter().total_tokens = 1
        await to_thread.run_sync(lambda: None)
        started()
        with suppress(asyncio.CancelledError):  # by a second Ctrl-C, which uvicorn would log as a traceback
            yield
        service.close()

    settings, limits = service.settings, service.settings.limits
    app = _Described(
        title="Voiceclaim",
        version=__version__,
        description=_ABOUT,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
        generate_unique_id_function=lambda route: route.name,
        dependencies=[Depends(check_origin)] if settings.tokens is None else [],
    )
    app.state.service = service
    for kind in (VoiceclaimError, HTTPException, TimeoutError, ClientDisconnect, OSError, MemoryError, Exception):
        app.add_exception_handler(kind, _problem_response)
    app.add_middleware(limit_bodies, limits=limits, tokens=settings.tokens, room=service.room)
    if settings.tokens is None:  # against DNS rebinding: any page in a browser here can reach a loopback address
        app.add_middleware(_trusted_hosts, hosts=settings.hosts)
    app.add_middleware(count_requests, metrics=service.metrics)
    app.include_router(router)
    app.add_api_websocket_route("/{path:path}", _no_stream)
    return app


class _Described(FastAPI):
    """An application whose OpenAPI has the model of errors, which FastAPI itself would declare as application/json."""

    def openapi(self) -> dict[str, Any]:
        """Return the description in OpenAPI."""
        described = super().openapi()
        described["components"]["schemas"]["Problem"] = Problem.model_json_schema()
        return described


def _trusted_hosts(app: ASGIApp, hosts: Sequence[str]) -> ASGIApp:
    """Wrap ``app`` so that a request whose Host header names none of ``hosts`` is refused."""
    names = {host.lower() for host in hosts}

    async def trusted(scope: Scope, receive: Receive, send: Send) -> None:
        host = Headers(scope=scope).get("host", "") if scope["type"] in ("http", "websocket") else None
        if host is None or re.sub(r":\d+$", "", host).lower() in names:
            await app(scope, receive, send)
            return
        detail = f"the Host header must be one of {', '.join(sorted(names))}, got {host!r:.80}; ask by such a name"
        answer = _answer(ServiceError(400, detail, kind="InputError"), {})
        await answer(scope, receive, send)

    return trusted


async def _no_stream(_socket: WebSocket) -> None:
    """Refuse a WebSocket to any other path, as a request is refused."""
    raise HTTPException(404)


async def _problem_response(request: Request, error: Exception) -> Response:
    told, headers = _as_service_error(request, error), dict(getattr(error, "headers", None) or {})
    if told.status == 401:
        headers["www-authenticate"] = "Bearer"
    if told.status in (503, 507):
        headers["retry-after"] = str(math.ceil(told.retry_seconds))
    if isinstance(error, TooManyAttemptsError):
        headers["retry-after"] = str(math.ceil(error.seconds))
    return _answer(told, headers)


def _answer(told: ServiceError, headers: Mapping[str, str]) -> Response:
    return JSONResponse(problem(told), told.status, headers, media_type=PROBLEM_TYPE)


def _as_service_error(request: Request, error: Exception) -> ServiceError:
    if isinstance(error, HTTPException):
        method = request.scope.get("method", "GET")  # a WebSocket is asked for by GET
        why = {404: "there is no such path", 405: f"the path does not take {method:.20}"}.get(error.status_code)
        detail = str(error.detail) if why is None else f"{request.url.path:.100}: {why}; /docs lists what there is"
        return ServiceError(error.status_code, detail, kind="HTTPException")
    if isinstance(error, TimeoutError):
        return ServiceError(408, "the request did not arrive in time", kind="TimeoutError")
    if isinstance(error, ClientDisconnect | ClientDisconnected):
        return ServiceError(400, "the body of the request is incomplete", kind="InputError")
    return service_error(error, service_of(request).aliases)
