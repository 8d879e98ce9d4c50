"""The service as an ASGI application: who may come in by which door, what is read, one call, one answer."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, cast

from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, HTTPConnection
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp
from starlette.websockets import WebSocket

from pipeline._version import __version__
from pipeline.errors import ServiceError, VoiceclaimError
from pipeline.server import messages, streams, tokens
from pipeline.server.curves import Evaluation, LastEvaluation
from pipeline.server.guard import RETRY, Guard
from pipeline.server.metrics import MEDIA_TYPE as METRICS_TYPE
from pipeline.server.problems import MEDIA_TYPE, problem, service_error
from pipeline.server.recorder import private_folder
from pipeline.server.service import Service
from pipeline.server.uploads import files_in, form_of, save_uploads, text_in, verify_upload

PAGE = Path(__file__).resolve().parent / "page"
_ABOUT = """Enroll speakers and check whether a voice is who it claims to be.

Errors are problems in JSON (RFC 9457). Two WebSockets, which OpenAPI does not describe, take live audio: `/verify`
and `/enroll`; the project's `docs/service.md` says how they are spoken to.
"""
_BEARER = HTTPBearer(auto_error=False, description="A token, of the scope that the operation names.")
_CODES = (400, 401, 403, 404, 405, 408, 409, 413, 415, 421, 422, 503)
_PROBLEMS: dict[int | str, dict[str, Any]] = {
    code: {"model": messages.ProblemDetails, "content": {MEDIA_TYPE: {}}} for code in _CODES
}


def service_of(connection: HTTPConnection) -> Service:
    """The service that a request came to."""
    return cast(Service, connection.app.state.service)


Here = Annotated[Service, Depends(service_of)]


class Needs:
    """Lets in those whose token has one of ``scopes``, before anything of the body is read."""

    def __init__(self, *scopes: str) -> None:
        self.scopes = scopes

    def __call__(self, service: Here, token: Annotated[HTTPAuthorizationCredentials | None, Depends(_BEARER)]) -> None:
        """Raise ServiceError for everybody else."""
        service.allow(None if token is None else token.credentials, *self.scopes)


TO_ENROLL = [Depends(Needs(tokens.ENROLL))]
TO_VERIFY = [Depends(Needs(tokens.VERIFY))]
TO_LOOK = [Depends(Needs(tokens.ENROLL, tokens.VERIFY))]


def create_app(service: Service) -> ASGIApp:
    """The application of ``service``; ends it when the server does."""

    @asynccontextmanager
    async def life(_app: FastAPI) -> AsyncIterator[None]:
        yield
        service.close()

    app = FastAPI(
        title="Voiceclaim",
        version=__version__,
        description=_ABOUT,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=life,
    )
    app.state.service = service
    app.state.evaluation = LastEvaluation(service.settings.evaluation)
    for kind in (VoiceclaimError, HTTPException, RequestValidationError, TimeoutError, ClientDisconnect, Exception):
        app.add_exception_handler(kind, _tell)
    _add_pages(app)
    _add_speakers(app)
    _add_verification(app)
    _add_watching(app)
    return Guard(app, service.settings, service.metrics)


def _add_pages(app: FastAPI) -> None:
    def page(name: str) -> Callable[[], Awaitable[Response]]:
        async def show() -> Response:
            return FileResponse(PAGE / name)

        return show

    app.get("/", include_in_schema=False)(page("index.html"))
    app.get("/docs", include_in_schema=False)(page("docs.html"))
    app.mount("/page", StaticFiles(directory=PAGE))


def _add_speakers(app: FastAPI) -> None:
    app.get("/speakers", dependencies=TO_LOOK, responses=_PROBLEMS, summary="Who can be claimed")(speakers)
    app.post(
        "/speakers/{name:path}",
        status_code=201,
        dependencies=TO_ENROLL,
        responses=_PROBLEMS,
        summary="Enroll a speaker from files",
        openapi_extra=_form({"files": {"type": "array", "items": _FILE}}, ["files"]),
    )(enroll)
    app.delete("/speakers/{name:path}", dependencies=TO_ENROLL, responses=_PROBLEMS, summary="Remove a speaker")(remove)
    app.websocket("/enroll")(enroll_live)


def _add_verification(app: FastAPI) -> None:
    fields = {"claim": {"type": "string"}, "file": _FILE, "system": {"type": "string"}}
    app.post(
        "/verify",
        dependencies=TO_VERIFY,
        responses=_PROBLEMS,
        response_model=messages.Outcome,
        summary="Check a claim on a file",
        openapi_extra=_form(fields, ["claim", "file"]),
    )(verify)
    app.websocket("/verify")(verify_live)


def _add_watching(app: FastAPI) -> None:
    app.get("/healthz", responses=_PROBLEMS, summary="Whether the service is there")(healthz)
    app.get("/evaluation", dependencies=TO_LOOK, responses=_PROBLEMS, summary="Error rates of the last evaluation")(
        evaluation
    )
    text: dict[int | str, dict[str, Any]] = {
        200: {"content": {"text/plain": {}}, "description": "Counters in Prometheus' text format"}
    }
    app.get(
        "/metrics",
        dependencies=TO_LOOK,
        responses={**_PROBLEMS, **text},
        response_class=Response,
        summary="Counters for Prometheus",
    )(metrics)


_FILE = {"type": "string", "format": "binary"}


def _form(fields: dict[str, Any], required: list[str]) -> dict[str, Any]:
    schema = {"type": "object", "properties": fields, "required": required}
    return {"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": schema}}}}


async def speakers(service: Here) -> messages.SpeakerList:
    """Names of everybody who can be claimed, in the order of their enrollment."""
    store = await service.aside(service.snapshot)
    if store is None:
        return messages.SpeakerList(revision=0, speakers=[])
    listed = [s for s in store.speakers if s.role == "speaker"]
    return messages.SpeakerList(
        revision=store.manifest.revision,
        speakers=[messages.SpeakerEntry(name=s.name, seconds=s.seconds, utterances=s.utterances) for s in listed],
    )


async def enroll(name: str, request: Request, service: Here) -> messages.Enrolled:
    """Enroll a new speaker from one or more audio files. It takes seconds to minutes, with the number of speakers.

    409 for a name that is enrolled; 422 for files without enough speech.
    """
    service.check_name(name)
    service.trainer.check_room()
    store = await service.aside(service.snapshot)
    if store is not None and name in {speaker.name for speaker in store.speakers}:
        raise ServiceError(409, f"{name!r} is enrolled already; remove them first", kind="SpeakerExistsError")
    limits, outcome = service.settings.limits, "enrolled"
    folder = await service.aside(private_folder, service.settings.spool)
    try:
        async with form_of(request, files=limits.files) as form:
            uploads = files_in(form, "files")
            recordings, skipped = await service.decode(
                lambda: save_uploads(uploads, folder, seconds=limits.file_seconds)
            )
        summary = await service.trainer.enroll(name, recordings)
    except VoiceclaimError as error:
        outcome = service_error(error).kind
        raise
    finally:
        service.metrics.enrollments.labels(outcome).inc()
        await service.aside(lambda: shutil.rmtree(folder, ignore_errors=True))
    return messages.Enrolled.model_validate({**summary, "skipped": [*skipped, *summary["skipped"]]})


async def remove(name: str, service: Here) -> messages.Removed:
    """Erase a speaker, and every number that their voice went into."""
    store = await service.aside(service.snapshot)
    if store is None or name not in {speaker.name for speaker in store.speakers}:
        raise ServiceError(404, f"{name!r}: no such speaker is enrolled", kind="UnknownSpeakerError")
    outcome = "removed"
    try:
        return messages.Removed.model_validate(await service.trainer.remove(name))
    except ServiceError as error:
        outcome = error.kind
        raise
    finally:
        service.metrics.removals.labels(outcome).inc()


async def verify(request: Request, service: Here) -> dict[str, Any]:
    """Score an audio file against the claim that its speaker is somebody enrolled.

    The decision may be `not_enough_speech`, which is no error. `system` names another scoring system than the store's.
    """
    async with form_of(request, files=1) as form:
        claim, file, system = text_in(form, "claim"), files_in(form, "file")[0].file, text_in(form, "system")
        if claim is None:
            raise ServiceError(422, "the field 'claim' must name a speaker, and is not there", kind="InputError")
        verifier = None
        try:
            verifier = await service.verifier(claim, system)
            seconds = service.settings.limits.file_seconds
            found = verifier
            update = await service.decode(lambda: verify_upload(found, file, seconds=seconds))
        except VoiceclaimError as error:
            await service.aside(service.record, claim, verifier, error)
            raise
    await service.aside(service.record, claim, verifier, update)
    service.metrics.audio_seconds.labels("file").inc(update.audio_seconds)
    return {**messages.terms_of(verifier), **messages.table_of(update)}


async def healthz(service: Here) -> messages.Health:
    """Whether the service is there and can read its store."""
    await service.aside(service.snapshot)
    return messages.Health(status="ok", version=__version__)


async def evaluation(request: Request, service: Here) -> Evaluation:
    """Both error rates against the threshold, for every scoring system of the evaluation that the service was given."""
    return cast(Evaluation, await service.aside(request.app.state.evaluation.current))


async def metrics(service: Here) -> Response:
    """Counters in Prometheus' text format; no names, addresses or scores."""
    await service.aside(service.snapshot)
    return Response(service.metrics.page(), media_type=METRICS_TYPE)


async def verify_live(socket: WebSocket) -> None:
    """Live audio against a claim."""
    await streams.serve_stream(socket, service_of(socket), tokens.VERIFY, streams.verify)


async def enroll_live(socket: WebSocket) -> None:
    """Live audio of somebody who enrolls."""
    await streams.serve_stream(socket, service_of(socket), tokens.ENROLL, streams.enroll)


async def _tell(request: Request, error: Exception) -> Response:
    """The problem that ``error`` is."""
    found, headers = _as_service_error(request, error), dict(getattr(error, "headers", None) or {})
    if found.status == 401:
        headers["www-authenticate"] = "Bearer"
    if found.status == 503:
        headers |= RETRY
    if found.status in (408, 413):  # the rest of the body is not waited for
        headers["connection"] = "close"
    return JSONResponse(problem(found), found.status, headers, media_type=MEDIA_TYPE)


def _as_service_error(request: Request, error: Exception) -> ServiceError:
    if isinstance(error, VoiceclaimError):
        return service_error(error, [(service_of(request).settings.store, "the store")])
    if isinstance(error, HTTPException):
        return ServiceError(error.status_code, str(error.detail), kind="HTTPException")
    if isinstance(error, RequestValidationError):
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        return ServiceError(422, f"{where}: {first['msg']}", kind="InputError")
    if isinstance(error, TimeoutError):
        return ServiceError(408, "the request did not come in time", kind="TimeoutError")
    if isinstance(error, ClientDisconnect):
        return ServiceError(400, "the request ended before its end", kind="InputError")
    return ServiceError(500, "the service failed; its log says where", kind="Fault")
