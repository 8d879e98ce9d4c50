"""Claims checked while somebody speaks, and voices enrolled while they speak: the two WebSockets."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import numpy as np
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from pipeline.errors import ServiceError, VoiceclaimError
from pipeline.pcm import PcmDecoder
from pipeline.server.inbox import Gone, Inbox, Message
from pipeline.server.messages import (
    EnrollHello,
    VerifyHello,
    read_command,
    read_hello,
    table_of,
    terms_of,
    text_of,
)
from pipeline.server.problems import problem, service_error
from pipeline.server.recorder import Recorder
from pipeline.server.service import Service
from pipeline.server.tokens import ENROLL, VERIFY
from pipeline.updates import Update
from pipeline.verification import VerificationStream, Verifier

_CODES = {413: 1009, 422: 1007, 500: 1011, 503: 1013}  # RFC 6455, and IANA's registry of codes
_HEARTBEAT_SECONDS = 2.0
Handler = Callable[["Line"], Awaitable[None]]


class Line:
    """One accepted WebSocket: its inbox, and messages out, none of which waits for ever."""

    def __init__(self, socket: WebSocket, service: Service) -> None:
        self.service = service
        self.inbox = Inbox(socket, service.settings.limits, service.ending)
        self._socket = socket

    async def send(self, kind: str, table: dict[str, Any]) -> None:
        """Send one message; raises Gone when the peer has gone or does not read."""
        try:
            async with asyncio.timeout(self.service.settings.limits.idle_seconds):
                await self._socket.send_text(text_of({**table, "type": kind}))
        except (TimeoutError, OSError, RuntimeError, WebSocketDisconnect):
            raise Gone from None

    async def hello(self, kind: type[Any], scope: str) -> Any:
        """The hello of a caller who may have this stream; raises ServiceError."""
        hello = read_hello(await self.inbox.first(), kind)
        self.service.allow(hello.token or _bearer(self._socket), scope)
        return hello

    async def end(self, error: ServiceError | None) -> None:
        """Close, saying what was wrong if anything was."""
        await self.inbox.close()
        if self._socket.application_state is not WebSocketState.CONNECTED:
            return
        try:
            if error is not None:
                await self.send("problem", {**problem(error), "kind": error.kind})
            async with asyncio.timeout(self.service.settings.limits.idle_seconds):
                await self._socket.close(1000 if error is None else _CODES.get(error.status, 1008))
        except (Gone, TimeoutError, OSError, RuntimeError, WebSocketDisconnect):
            return


async def serve_stream(socket: WebSocket, service: Service, kind: str, handle: Handler) -> None:
    """Accept ``socket`` and ``handle`` it to its end, whatever that is."""
    await socket.accept()
    line = Line(socket, service)
    how, error = "done", None
    try:
        await handle(line)
    except (Gone, WebSocketDisconnect):
        how = "gone"
    except VoiceclaimError as found:
        error = service_error(found, [(service.settings.store, "the store")])
        how = error.kind
    except Exception:
        how, error = "Fault", ServiceError(500, "the service failed; its log says where", kind="Fault")
        raise
    finally:
        service.metrics.streams_ended.labels(kind, how).inc()
        await line.end(error)


def _bearer(socket: WebSocket) -> str | None:
    scheme, _, token = socket.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


class _Audio:
    """Binary messages to samples, counted."""

    def __init__(self, hello: Any, service: Service, kind: str) -> None:
        self._rate = hello.rate
        self._width = hello.pcm.frame_bytes
        self._most = service.settings.limits.stream_seconds
        self._counter = service.metrics.audio_seconds.labels(kind)
        self.bytes = 0
        self.chunks = 0

    def count(self, data: bytes) -> bytes:
        """``data``; raises ServiceError when that is more than a stream may have."""
        self.chunks += 1
        self.bytes += len(data)
        seconds = len(data) / self._width / self._rate
        self._counter.inc(seconds)
        if self.bytes / self._width / self._rate > self._most:
            raise ServiceError(413, f"a stream has at most {self._most:g} s of audio", kind="InputError")
        return data


# Verification


async def verify(line: Line) -> None:
    """Score what is said against one claim, an update for all that came since the last one."""
    service = line.service
    hello: VerifyHello = await line.hello(VerifyHello, VERIFY)
    with service.stream(VERIFY):
        try:
            verifier = await service.verifier(hello.claim, hello.system, hello.rule)
            stream = await service.aside(verifier.stream, hello.rate)
        except VoiceclaimError as error:
            await service.aside(service.record, hello.claim, None, error)
            raise
        await line.send("ready", {**terms_of(verifier), "rate": hello.rate, "delay_ms": stream.delay_ms})
        await _Claim(line, hello, verifier, stream).run()


class _Claim:
    """One claim being checked."""

    def __init__(self, line: Line, hello: VerifyHello, verifier: Verifier, stream: VerificationStream) -> None:
        self._line = line
        self._service = line.service
        self._verifier = verifier
        self._stream = stream
        self._decoder = PcmDecoder(hello.pcm, where="the stream")
        self._audio = _Audio(hello, line.service, VERIFY)

    async def run(self) -> None:
        """Until the end is said; what was heard is recorded, whoever ended it."""
        try:
            await self._hear()
        except BaseException as error:
            await self._close(error)
            raise
        final = await self._close(None)
        told = {**terms_of(self._verifier), **self._told(final)}
        await self._line.send("final", {**told, "chunks": self._audio.chunks})

    async def _hear(self) -> None:
        ended = False
        while not ended:
            messages = await self._line.inbox.take()
            started = time.perf_counter()
            data, ended = _until_the_end(messages, self._audio)
            if data is None:
                continue
            table = await self._service.score(self._push, data)
            if not ended:
                await self._line.send("update", {**table, "chunks": self._audio.chunks})
            self._service.metrics.update_seconds.observe(time.perf_counter() - started)

    def _push(self, data: bytes) -> dict[str, Any]:
        return self._told(self._stream.push(self._decoder.push(data)))

    def _told(self, update: Update) -> dict[str, Any]:
        """The fields of ``update``, and where the threshold stands beside its probability."""
        return {**table_of(update), "threshold_probability": threshold_probability(self._verifier, update.frames)}

    async def _close(self, error: BaseException | None) -> Update:
        final = await self._service.score(self._stream.close)
        failed = error if isinstance(error, VoiceclaimError) and not isinstance(error, ServiceError) else None
        await self._service.aside(self._service.record, self._verifier.claim, self._verifier, failed or final)
        return final


def threshold_probability(verifier: Verifier, frames: int) -> float | None:
    """Probability of a true claim at the threshold, after ``frames`` of speech; None without a calibration."""
    if frames == 0:
        return None
    llr = verifier.llr_threshold
    if llr is None:
        llrs = verifier.store.llrs(verifier.system, np.array([verifier.threshold]), frames)
        llr = None if llrs is None else float(llrs[0])
    return None if llr is None else verifier.probability(llr)


def _until_the_end(messages: Sequence[Message], audio: _Audio) -> tuple[bytes | None, bool]:
    """The audio in ``messages`` (None: no such message), and whether they say that the stream ends."""
    parts: list[bytes] = []
    for message in messages:
        if isinstance(message, str):
            if read_command(message).type != "end":
                raise ServiceError(422, "a stream that verifies is one utterance", kind="InputError")
            return (b"".join(parts) if parts else None), True
        parts.append(audio.count(message))
    return (b"".join(parts) if parts else None), False


# Enrollment


async def enroll(line: Line) -> None:
    """Keep what is said until its end, telling how much speech there is, then enroll the speaker."""
    service = line.service
    hello: EnrollHello = await line.hello(EnrollHello, ENROLL)
    service.check_name(hello.name)
    service.trainer.check_room()
    with service.stream(ENROLL):
        store = await service.aside(service.snapshot)
        if store is not None and hello.name in {speaker.name for speaker in store.speakers}:
            raise ServiceError(409, f"{hello.name!r} is enrolled already; remove them first", kind="SpeakerExistsError")
        recorder = await service.aside(Recorder, service.settings, store, hello.pcm)
        try:
            await line.send("ready", {"name": hello.name, "rate": hello.rate, **recorder.needs()})
            await _listen(line, hello, recorder)
            await _train(line, hello.name, recorder)
        finally:
            await service.aside(recorder.discard)


async def _listen(line: Line, hello: EnrollHello, recorder: Recorder) -> None:
    audio = _Audio(hello, line.service, ENROLL)
    while True:
        for message in await line.inbox.take():
            if isinstance(message, bytes):
                await line.service.score(recorder.push, audio.count(message))
            elif read_command(message).type == "utterance":
                await line.service.score(recorder.next_utterance)
            else:
                await line.service.score(recorder.finish)
                return
        await line.send("progress", {**recorder.progress(), "chunks": audio.chunks})


async def _train(line: Line, name: str, recorder: Recorder) -> None:
    """Enroll; once that has begun it goes on to its end, whether or not the caller waits for it."""
    service = line.service
    line.inbox.check()
    training = asyncio.create_task(service.trainer.enroll(name, recorder.recordings()))
    started, gone = time.monotonic(), False
    while not training.done():
        try:
            if not gone:
                await line.send("training", {"seconds": round(time.monotonic() - started, 1)})
        except Gone:
            gone = True
        await asyncio.wait([training], timeout=_HEARTBEAT_SECONDS)
    try:
        summary = training.result()
    except ServiceError as error:
        service.metrics.enrollments.labels(error.kind).inc()
        raise
    service.metrics.enrollments.labels("enrolled").inc()
    await line.send("enrolled", summary)
