"""Client of the service: enroll, verify and stream audio from another program, blocking or under asyncio.

    with VoiceclaimClient("http://127.0.0.1:8000", token=token) as client:
        client.enroll("anna", ["anna1.wav", "anna2.wav"])
        print(client.verify("anna", "call.wav").decision)
        with client.stream("anna", rate=16000) as stream:
            for samples in microphone:
                print(stream.push(samples).probability)
        print(stream.final.decision)

Every refusal by the service, and a service that cannot be reached, is a ``ServiceError``.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    ExitStack,
    asynccontextmanager,
    contextmanager,
)
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import numpy as np
from anyio.from_thread import BlockingPortal, start_blocking_portal
from numpy.typing import ArrayLike
from pydantic import TypeAdapter
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, WebSocketException
from websockets.frames import CloseCode

from pipeline.errors import AudioError, ServiceError, StreamClosedError
from pipeline.scoring.decisions import Decision, Terms, Update
from pipeline.scoring.sequential import SequentialTest
from pipeline.server.messages import EnrolledSpeaker

Audio = Path | str | bytes
_CHUNK_SAMPLES = 2**16  # in one message
_MESSAGE_BYTES = 2**20  # in one answer
_TRAINING_SECONDS = 3600.0  # to enroll into a large store
_TERMS, _UPDATE = TypeAdapter(Terms), TypeAdapter(Update)  # which ignore the fields of a later version


@dataclass(frozen=True, slots=True)
class Verification:
    """The outcome of a claim."""

    terms: Terms
    update: Update

    @property
    def decision(self) -> Decision:
        """Return accepted, rejected, or too little speech."""
        return self.update.decision

    @property
    def score(self) -> float | None:
        """Return the score, None for too little speech."""
        return self.update.score

    @property
    def probability(self) -> float | None:
        """Return the probability of a target trial at the prior of the terms; None without a calibration."""
        return self.update.probability


@dataclass(frozen=True, slots=True)
class Enrollment:
    """A new speaker; ``skipped`` are the files that were not used, with the reasons.

    ``warnings`` are findings of the enrollment checks that did not refuse the speaker.
    """

    speaker: EnrolledSpeaker
    revision: int
    warnings: tuple[str, ...]
    skipped: tuple[tuple[str, str], ...]


class AsyncVoiceclaimClient(AbstractAsyncContextManager["AsyncVoiceclaimClient"]):
    """``VoiceclaimClient`` under asyncio: the same calls, awaited."""

    def __init__(self, url: str, *, token: str | None = None, timeout: float = 60.0) -> None:
        self._url, self._token, self._timeout = url.rstrip("/"), token, timeout
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._http = httpx.AsyncClient(base_url=self._url, headers=headers, timeout=timeout)

    async def enroll(self, name: str, files: Sequence[Audio]) -> Enrollment:
        """See ``VoiceclaimClient.enroll``."""
        with ExitStack() as opened:
            parts = [("files", _part(audio, number, opened)) for number, audio in enumerate(files, start=1)]
            table = await self._ask("POST", f"/speakers/{quote(name, safe='')}", files=parts, timeout=_TRAINING_SECONDS)
        speaker = EnrolledSpeaker(table["name"], table["seconds"], table["utterances"])
        skipped = tuple((file["file"], file["reason"]) for file in table["skipped"])
        return Enrollment(speaker, table["revision"], tuple(table["warnings"]), skipped)

    async def remove(self, name: str) -> int:
        """See ``VoiceclaimClient.remove``."""
        return int((await self._ask("DELETE", f"/speakers/{quote(name, safe='')}", timeout=_TRAINING_SECONDS))["left"])

    async def speakers(self) -> tuple[EnrolledSpeaker, ...]:
        """See ``VoiceclaimClient.speakers``."""
        return tuple(EnrolledSpeaker(**entry) for entry in (await self._ask("GET", "/speakers"))["speakers"])

    async def verify(self, claim: str, file: Audio, *, system: str | None = None) -> Verification:
        """See ``VoiceclaimClient.verify``."""
        with ExitStack() as opened:
            part = {"file": _part(file, 1, opened)}
            return _verification(await self._ask("POST", "/verify", files=part, data=_claim(claim, system)))

    @asynccontextmanager
    async def stream(
        self, claim: str, *, rate: int, system: str | None = None, early: SequentialTest | None = None
    ) -> AsyncIterator[AsyncClaimStream]:
        """See ``VoiceclaimClient.stream``."""
        hello: dict[str, Any] = {**_claim(claim, system), "rate": rate, "format": "f32le"}
        if early is not None:
            hello["early"] = asdict(early)
        if self._token is not None:
            hello["token"] = self._token
        url = f"ws{self._url.removeprefix('http')}/verify"
        with _reaching(self._url):
            socket = await connect(url, open_timeout=self._timeout, max_size=_MESSAGE_BYTES, compression=None)
        async with socket:
            stream = AsyncClaimStream(socket, self._url, self._timeout)
            await stream._begin(hello)
            yield stream
            await stream._end()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aexit__(self, *_raised: object) -> None:
        await self.close()

    async def _ask(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        with _reaching(self._url):
            response = await self._http.request(method, path, **options)
        if response.is_success:
            table: dict[str, Any] = response.json()
            return table
        try:
            raise _refusal(response.json())
        except (ValueError, KeyError, TypeError):
            status = response.status_code
            raise ServiceError(status, f"status {status} without a problem; is a Voiceclaim service there?") from None


class AsyncClaimStream:
    """``ClaimStream`` under asyncio, with the ``terms`` of the claim; made by ``AsyncVoiceclaimClient.stream``."""

    def __init__(self, socket: ClientConnection, url: str, timeout: float) -> None:
        self._socket = socket
        self._url = url
        self._timeout = timeout
        self.terms: Terms
        self._final: Verification | None = None
        self._sent = 0

    @property
    def final(self) -> Verification:
        """Return the outcome of the claim; raises StreamClosedError before the stream has ended."""
        if self._final is None:
            raise StreamClosedError("the stream has not ended normally, and there is no decision")
        return self._final

    async def push(self, samples: ArrayLike) -> Update:
        """See ``ClaimStream.push``."""
        if self._final is not None:
            raise StreamClosedError("the stream has ended and takes no more audio")
        whole = np.asarray(samples, dtype="<f4")
        if whole.ndim != 1:
            raise AudioError(f"samples must be of one channel, (n,), got shape {whole.shape}")
        for start in range(0, max(1, len(whole)), _CHUNK_SAMPLES):
            self._sent += 1
            await self._send(whole[start : start + _CHUNK_SAMPLES].tobytes())
        while (table := await self._receive())["type"] == "update":
            if table["chunks"] >= self._sent:
                return _UPDATE.validate_python(table)
        raise ServiceError(0, f"{self._url}: an update was expected, got {table['type']!r}")

    async def _begin(self, hello: dict[str, Any]) -> None:
        await self._send(json.dumps(hello))
        self.terms = _TERMS.validate_python(await self._receive())

    async def _end(self) -> None:
        await self._send(json.dumps({"type": "end"}))
        while (table := await self._receive())["type"] != "final":
            pass
        self._final = _verification(table)

    async def _send(self, message: str | bytes) -> None:
        with _reaching(self._url):
            try:
                await self._socket.send(message)
            except ConnectionClosed:  # the reason arrived before
                while True:
                    await self._receive()

    async def _receive(self) -> dict[str, Any]:
        with _reaching(self._url):
            async with asyncio.timeout(self._timeout):
                table: dict[str, Any] = json.loads(await self._socket.recv())
        if table["type"] == "problem":
            raise _refusal(table)
        return table


class VoiceclaimClient(AbstractContextManager["VoiceclaimClient"]):
    """Client of the service at ``url``; a context manager. ``timeout`` is in seconds, for all but enrollment.

    It runs ``AsyncVoiceclaimClient`` in a thread.
    """

    def __init__(self, url: str, *, token: str | None = None, timeout: float = 60.0) -> None:
        self._client = AsyncVoiceclaimClient(url, token=token, timeout=timeout)
        self._opened = ExitStack()
        self._portal = self._opened.enter_context(start_blocking_portal())
        self._opened.callback(self._portal.call, self._client.close)

    def enroll(self, name: str, files: Sequence[Audio]) -> Enrollment:
        """Enroll ``name`` from audio files, or from their content. Raises ServiceError or AudioError."""
        return self._portal.call(self._client.enroll, name, files)

    def remove(self, name: str) -> int:
        """Erase ``name`` and return the number of speakers left. Raises ServiceError."""
        return self._portal.call(self._client.remove, name)

    def speakers(self) -> tuple[EnrolledSpeaker, ...]:
        """Return the enrolled speakers in enrollment order. Raises ServiceError."""
        return self._portal.call(self._client.speakers)

    def verify(self, claim: str, file: Audio, *, system: str | None = None) -> Verification:
        """Verify the claim on an audio file, or its content. Raises ServiceError, AudioError."""
        return self._portal.call(lambda: self._client.verify(claim, file, system=system))

    @contextmanager
    def stream(
        self, claim: str, *, rate: int, system: str | None = None, early: SequentialTest | None = None
    ) -> Iterator[ClaimStream]:
        """Verify the claim on live audio at ``rate`` Hz; ``final`` is set at the end of the block. Raises ServiceError.

        With an ``early`` rule updates are ``settled`` as soon as the evidence suffices. A block that is left by an
        exception has no final outcome.
        """
        streaming = self._client.stream(claim, rate=rate, system=system, early=early)
        with self._portal.wrap_async_context_manager(streaming) as stream:
            yield ClaimStream(stream, self._portal)

    def close(self) -> None:
        """Close the connections."""
        self._opened.close()

    def __exit__(self, *_raised: object) -> None:
        self.close()


class ClaimStream:
    """A claim verified on live audio; made by ``VoiceclaimClient.stream``."""

    def __init__(self, stream: AsyncClaimStream, portal: BlockingPortal) -> None:
        self._stream = stream
        self._portal = portal

    @property
    def terms(self) -> Terms:
        """Return the terms on which this claim is decided."""
        return self._stream.terms

    @property
    def final(self) -> Verification:
        """Return the outcome of the claim; raises StreamClosedError before the stream has ended."""
        return self._stream.final

    def push(self, samples: ArrayLike) -> Update:
        """Send mono ``samples`` (n,), full scale 1, as float32, and wait for the state after them.

        Raises ServiceError, StreamClosedError after the end.
        """
        return self._portal.call(self._stream.push, samples)


@contextmanager
def _reaching(url: str) -> Iterator[None]:
    """Turn failures of the connection to ``url`` into a ServiceError."""
    try:
        yield
    except (OSError, WebSocketException, httpx.HTTPError) as error:
        closing = error.rcvd if isinstance(error, ConnectionClosed) else None
        if closing is not None and closing.code == CloseCode.SERVICE_RESTART:
            raise ServiceError(503, f"{url}: the service is shutting down; try again later") from None
        reason = str(error) or type(error).__name__
        raise ServiceError(0, f"{url}: the service cannot be reached, or went away: {reason}") from None


def _refusal(table: Mapping[str, Any]) -> ServiceError:
    """Return the error of a problem, from a response or a WebSocket; KeyError for another table."""
    kind = str(table["kind"] if "kind" in table else table["type"]).removeprefix("urn:voiceclaim:")
    return ServiceError(int(table["status"]), str(table["detail"]), kind=kind)


def _verification(table: Mapping[str, Any]) -> Verification:
    return Verification(_TERMS.validate_python(table), _UPDATE.validate_python(table))


def _claim(claim: str, system: str | None) -> dict[str, str]:
    return {"claim": claim} if system is None else {"claim": claim, "system": system}


def _part(audio: Audio, number: int, opened: ExitStack) -> tuple[str, Any]:
    """Return an audio file as a part of a request, open until ``opened`` is closed."""
    if isinstance(audio, bytes):
        return f"file {number}", audio
    try:
        return Path(audio).name, opened.enter_context(Path(audio).open("rb"))
    except OSError as error:
        raise AudioError(f"{audio}: cannot be read: {error.strerror or error}") from None
