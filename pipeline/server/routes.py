"""The service's routes, a function each: the page, files over HTTP, live audio over WebSockets."""

from __future__ import annotations

import asyncio
import mimetypes
from collections.abc import Coroutine
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast

from fastapi import APIRouter, Depends, HTTPException, Request, Response
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.requests import ClientDisconnect, HTTPConnection
from starlette.websockets import WebSocket

from pipeline.errors import AudioError, InputError, TooManyAttemptsError, VoiceclaimError
from pipeline.evaluation.curves import Evaluation, state_of
from pipeline.evaluation.pages import CHARTS
from pipeline.scoring.decisions import as_json
from pipeline.server import messages, streams
from pipeline.server.callers import Caller
from pipeline.server.changes import Known
from pipeline.server.connections import serve_stream
from pipeline.server.curves import last_evaluation
from pipeline.server.decoding import check
from pipeline.server.forms import CHANNEL, FILE, NUMBER, channel_in, described, saved, text_in
from pipeline.server.messages import PROBLEM_TYPE, EnrolledSpeaker, shown
from pipeline.server.metrics import MEDIA_TYPE as METRICS_TYPE
from pipeline.server.metrics import counting
from pipeline.server.security import ENROLL, IDENTIFY, SCORES, VERIFY, allowed, caller_of
from pipeline.server.service import Service
from pipeline.server.utterances import Recordings

_PAGE = Path(__file__).resolve().parent / "page"
# The files of the page, in memory: no caller makes the service look for files.
_FILES = {path.name: path.read_bytes() for path in _PAGE.iterdir()}
_FILES |= {f"charts/{path.name}": path.read_bytes() for path in CHARTS.iterdir()}
_CODES = (400, 401, 403, 404, 405, 408, 409, 413, 415, 422, 429, 500, 503, 507)
_PROBLEM = {"$ref": "#/components/schemas/Problem"}
_PROBLEMS: dict[int | str, dict[str, Any]] = {
    code: {"content": {PROBLEM_TYPE: {"schema": _PROBLEM}}} for code in _CODES
}


def service_of(connection: HTTPConnection) -> Service:
    """Return the service that a request belongs to."""
    return cast(Service, connection.app.state.service)


async def _service(connection: HTTPConnection) -> Service:
    return service_of(connection)


# Dependencies are coroutines: a function would take a thread.
Here = Annotated[Service, Depends(_service)]
Bearer = Annotated[
    HTTPAuthorizationCredentials | None,
    Depends(HTTPBearer(auto_error=False, description="A token, of the scope that the operation names.")),
]


def _needs(*scopes: str) -> Any:
    """Return a dependency, the caller, that requires one of ``scopes``, before any of the body is read."""

    async def allowed_caller(connection: HTTPConnection, service: Here, bearer: Bearer) -> Caller:
        token = None if bearer is None else bearer.credentials
        return allowed(caller_of(service.settings.tokens, token, connection.scope.get("client")), token, *scopes)

    return Depends(allowed_caller)


Enrolling = Annotated[Caller, _needs(ENROLL)]
Verifying = Annotated[Caller, _needs(VERIFY)]
Identifying = Annotated[Caller, _needs(IDENTIFY)]


router = APIRouter(responses=_PROBLEMS)
_EITHER = [_needs(ENROLL, VERIFY)]


class _Name(PathConvertor):
    regex = "(?s:.*)"  # line ends too


register_url_convertor("name", _Name())


_FORM_OF_FILES = described({"files": {"type": "array", "items": FILE}, CHANNEL: NUMBER}, "files")
_FORM_OF_CLAIM = described(
    {"claim": {"type": "string"}, "file": FILE, "system": {"type": "string"}, CHANNEL: NUMBER}, "claim", "file"
)
_COUNTERS: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/plain": {}}, "description": "Counters in Prometheus' text format"}
}


@router.get("/", include_in_schema=False)
async def page() -> Response:
    """Return the page."""
    return await file("index.html")


@router.get("/docs", include_in_schema=False)
async def docs() -> Response:
    """Return the description of the programming interface."""
    return await file("docs.html")


@router.get("/page/{name:name}", include_in_schema=False)
async def file(name: str) -> Response:
    """Return a file of the page."""
    if name not in _FILES:
        raise HTTPException(404)
    return Response(_FILES[name], media_type=mimetypes.guess_type(name)[0])


@router.get("/speakers", dependencies=_EITHER, response_model=messages.SpeakerList, summary="Enrolled speakers")
async def speakers(service: Here) -> dict[str, Any]:
    """List the enrolled speakers in the order of their enrollment."""
    model = await service.model()
    if model is None:
        return {"revision": 0, "speakers": []}
    listed = [EnrolledSpeaker(s.name, s.seconds, s.utterances) for s in model.speakers if s.role == "speaker"]
    return {"revision": model.revision, "speakers": listed}


@router.post(
    "/speakers/{name:name}",
    status_code=201,
    response_model=messages.Enrolled,
    summary="Enroll a speaker from files",
    openapi_extra=_FORM_OF_FILES,
)
async def enroll(name: str, request: Request, service: Here, caller: Enrolling) -> dict[str, Any]:
    """Enroll a new speaker from one or more audio files. It takes seconds to minutes, more with more speakers.

    `channel`, from 1, is the one to read of each file; by default the mean of all. 409 for a name that is enrolled; 422
    for files without enough speech.
    """
    name, _ = await service.check_new(caller, name)
    return await _enrolled(name, request, service, caller)


@router.put(
    "/speakers/{name:name}",
    response_model=messages.Enrolled,
    summary="Add recordings of an enrolled speaker",
    openapi_extra=_FORM_OF_FILES,
)
async def add(name: str, request: Request, service: Here, caller: Enrolling) -> dict[str, Any]:
    """Add recordings to those of an enrolled speaker; the counts and warnings in the answer are of all recordings.

    `channel` is as for a new speaker. 404 for a name that is not enrolled; 422 for files without enough speech.
    """
    name, to = await service.known(name)
    return await _enrolled(name, request, service, caller, to=to)


async def _enrolled(
    name: str, request: Request, service: Service, caller: Caller, *, to: Known | None = None
) -> dict[str, Any]:
    """Enroll ``name`` from the files of the form, or add these ``to`` them; return the fields of ``Enrolled``."""
    most = service.settings.limits.files
    with counting(service.metrics.enrollments, "enrolled" if to is None else "added"):
        async with saved(request, service, caller, "files", files=most, texts=(CHANNEL,)) as (uploads, form):
            channel = channel_in(form)
            recordings, skipped = await _unless_gone(request, _usable(service, caller, uploads, channel))
            summary = await service.enroll(caller, name, recordings, to=to, channel=channel)
    return {**summary, "skipped": [*skipped, *summary["skipped"]]}


async def _usable(
    service: Service, caller: Caller, uploads: Recordings, channel: int | None
) -> tuple[Recordings, list[dict[str, str]]]:
    """Return the files whose ``channel`` can be read, and the others with the reason; raises AudioError if none can."""
    paths = list(uploads)
    reasons = await service.decoders.result(caller, check, paths, service.settings.limits.audio, channel)
    recordings = {path: uploads[path] for path, reason in zip(paths, reasons, strict=True) if reason is None}
    skipped = [{"file": uploads[path], "reason": reason} for path, reason in zip(paths, reasons, strict=True) if reason]
    if not recordings:
        raise AudioError(f"no file can be used; the first: {reasons[0]}")
    return recordings, skipped


@router.delete("/speakers/{name:name}", response_model=messages.Removed, summary="Remove a speaker")
async def remove(name: str, service: Here, caller: Enrolling) -> dict[str, Any]:
    """Erase a speaker, and every number that was computed from their voice."""
    name, _ = await service.known(name)
    with counting(service.metrics.removals, "removed"):
        return await service.changes.remove(caller, name)


@router.post(
    "/verify", response_model=messages.Outcome, summary="Verify a claim on a file", openapi_extra=_FORM_OF_CLAIM
)
async def verify(request: Request, service: Here, caller: Verifying) -> dict[str, Any]:
    """Verify the claim that an enrolled speaker speaks in an audio file.

    The decision may be `not_enough_speech`, which is no error. `channel`, from 1, is the one to score; by default the
    mean of all. `system` selects another scoring system, with the scope `rules`. Without the scope `scores` the answer
    has the decision, and no score or threshold.
    """
    async with saved(request, service, caller, "file", files=1, texts=("claim", "system", CHANNEL)) as (uploads, form):
        claim, system, channel = text_in(form, "claim"), text_in(form, "system"), channel_in(form)
        if claim is None:
            raise InputError("the field 'claim' must name a speaker, and is missing")
        streams.check_rules(caller, system)
        verifier = await service.claimed(caller, claim, system)
        try:
            async with service.attempt(caller, verifier) as attempt:
                [path] = uploads
                verifying = streams.verify_file(service, caller, claim, system, path, channel)
                verifier, update = await _unless_gone(request, verifying)
                attempt.note(update)
        except TooManyAttemptsError:
            raise
        except VoiceclaimError as error:
            await service.record(verifier.claim, verifier, error, channel)
            raise
    await service.record(verifier.claim, verifier, update, channel)
    service.metrics.audio_seconds.labels("file").inc(update.audio_seconds)
    return shown(as_json(verifier.terms, update), scores=SCORES in caller.scopes)


@router.post(
    "/identify",
    response_model=messages.Identified,
    summary="Identify who speaks in a file",
    openapi_extra=described({"file": FILE, CHANNEL: NUMBER}, "file"),
)
async def identify(request: Request, service: Here, caller: Identifying) -> dict[str, Any]:
    """Find which enrolled speaker speaks in an audio file: the likeliest five, and the probability that none does.

    `channel`, from 1, is the one to score; by default the mean of all. Failed attempts are not counted, and the answer
    has scores of several speakers: access must not rest on it alone.
    """
    async with saved(request, service, caller, "file", files=1, texts=(CHANNEL,)) as (uploads, form):
        [path], channel = uploads, channel_in(form)
        identifier = await service.identifier()
        found = await _unless_gone(request, streams.identify_file(service, caller, identifier, path, channel))
    service.metrics.audio_seconds.labels("file").inc(found.audio_seconds)
    return found.as_json()


@router.get("/healthz", response_model=messages.Health, summary="Sign of life")
async def healthz(request: Request, service: Here) -> dict[str, str]:
    """Check that the service can read its store."""
    await service.model()
    return {"status": "ok", "version": request.app.version}


@router.get(
    "/evaluation", dependencies=_EITHER, response_model_exclude={"state"}, summary="Error rates of the last evaluation"
)
async def evaluation(service: Here) -> Evaluation:
    """Return both error rates against the threshold, for every scoring system of the last evaluation.

    `stale` is true if the store has changed since, and null if the evaluation does not say which store it measured.
    """
    last, model = await service.run("disk", last_evaluation, service.settings.evaluation), await service.model()
    stale = None if last.state is None else model is None or last.state != state_of(model)
    return last.model_copy(update={"stale": stale})


@router.get(
    "/metrics", dependencies=_EITHER, responses=_COUNTERS, response_class=Response, summary="Counters for Prometheus"
)
async def metrics(service: Here) -> Response:
    """Return counters in Prometheus' text format; no names, addresses or scores."""
    await service.model()
    return Response(service.metrics.text(), media_type=METRICS_TYPE)


@router.websocket("/verify")
async def verify_live(socket: WebSocket) -> None:
    """Verify a claim on live audio."""
    await serve_stream(socket, service_of(socket), VERIFY, messages.VerifyHello, streams.verify)


@router.websocket("/identify")
async def identify_live(socket: WebSocket) -> None:
    """Identify who speaks in live audio."""
    await serve_stream(socket, service_of(socket), IDENTIFY, messages.Hello, streams.identify)


@router.websocket("/enroll")
async def enroll_live(socket: WebSocket) -> None:
    """Enroll a speaker from live audio."""
    await serve_stream(socket, service_of(socket), ENROLL, messages.EnrollHello, streams.enroll)


T = TypeVar("T")


async def _unless_gone(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Run ``work`` for as long as the caller waits for it; raises ClientDisconnect."""
    task, gone = asyncio.create_task(work), asyncio.create_task(_gone(request))
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnect
        return task.result()
    finally:
        for each in (task, gone):
            each.cancel()
        await asyncio.wait((task, gone))


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
