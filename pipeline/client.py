"""A client of the service: enroll, verify and stream audio from another program, waiting or under asyncio.

    with VoiceclaimClient("http://127.0.0.1:8000", token=token) as client:
        client.enroll("anna", ["anna1.wav", "anna2.wav"])
        print(client.verify("anna", "call.wav").decision)
        with client.stream("anna", rate=16000) as stream:
            for samples in microphone:
                print(stream.push(samples).probability)
        print(stream.final.decision)

Whatever the service refuses, and a service that cannot be reached, is a ``ServiceError``.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import httpx
import numpy as np
import websockets.asyncio.client
import websockets.sync.client
from numpy.typing import ArrayLike
from websockets.exceptions import ConnectionClosed, WebSocketException

from pipeline.client_answers import (
    EnrolledSpeaker,
    Enrollment,
    Terms,
    Verification,
    enrollment_of,
    problem_of,
    terms_of,
    update_of,
    verification_of,
)
from pipeline.early import EarlyRule
from pipeline.errors import AudioError, ServiceError, StreamClosedError
from pipeline.updates import Update

__all__ = [
    "AsyncClaimStream",
    "AsyncVoiceclaimClient",
    "Audio",
    "ClaimStream",
    "EnrolledSpeaker",
    "Enrollment",
    "Terms",
    "Verification",
    "VoiceclaimClient",
]

Audio = Path | str | bytes
_MOST_CHUNK = 2**16  # samples of one message
_MOST_MESSAGE = 2**20  # bytes of one that comes
_TRAINING_SECONDS = 3600.0  # to enroll into a large store
_END = json.dumps({"type": "end"})


class VoiceclaimClient:
    """Calls a service and waits; a context manager. ``timeout`` is in seconds, for all but training."""

    def __init__(self, url: str, *, token: str | None = None, timeout: float = 60.0) -> None:
        self._url, self._token, self._timeout = url.rstrip("/"), token, timeout
        self._http = httpx.Client(base_url=self._url, headers=_headers(token), timeout=timeout)

    def enroll(self, name: str, files: Sequence[Audio]) -> Enrollment:
        """Enroll ``name`` from audio files, or from their content. Raises ServiceError or AudioError."""
        with ExitStack() as opened:
            parts = [("files", _part(audio, number, opened)) for number, audio in enumerate(files, start=1)]
            return enrollment_of(self._ask("POST", _path(name), files=parts, timeout=_TRAINING_SECONDS))

    def remove(self, name: str) -> int:
        """Erase ``name``; how many are left. Raises ServiceError."""
        return int(self._ask("DELETE", _path(name), timeout=_TRAINING_SECONDS)["left"])

    def speakers(self) -> tuple[EnrolledSpeaker, ...]:
        """Who can be claimed, in enrollment order. Raises ServiceError."""
        return tuple(EnrolledSpeaker(**entry) for entry in self._ask("GET", "/speakers")["speakers"])

    def verify(self, claim: str, file: Audio, *, system: str | None = None) -> Verification:
        """Check the claim on an audio file, or its content. Raises ServiceError, AudioError."""
        with ExitStack() as opened:
            part = {"file": _part(file, 1, opened)}
            return verification_of(self._ask("POST", "/verify", files=part, data=_claim(claim, system)))

    @contextmanager
    def stream(
        self, claim: str, *, rate: int, system: str | None = None, early: EarlyRule | None = None
    ) -> Iterator[ClaimStream]:
        """Check the claim on live audio at ``rate`` Hz; at the end of the block ``final`` is set. Raises ServiceError.

        With an ``early`` rule updates are ``settled`` as soon as the evidence suffices.

        A block that is left by an exception leaves without a final outcome.
        """
        with ExitStack() as opened:
            with _reaching(self._url):
                connection = websockets.sync.client.connect(
                    _socket_url(self._url), open_timeout=self._timeout, max_size=_MOST_MESSAGE, compression=None
                )
                socket = opened.enter_context(connection)
            stream = ClaimStream(socket, self._url, self._timeout)
            stream._begin(_hello(claim, rate, system, early, self._token))
            yield stream
            stream._end()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ask(self, method: str, path: str, **what: Any) -> dict[str, Any]:
        try:
            return _answer(self._http.request(method, path, **what))
        except httpx.HTTPError as error:
            raise _unreachable(self._url, error) from None


class AsyncVoiceclaimClient:
    """``VoiceclaimClient`` under asyncio: the same calls, awaited."""

    def __init__(self, url: str, *, token: str | None = None, timeout: float = 60.0) -> None:
        self._url, self._token, self._timeout = url.rstrip("/"), token, timeout
        self._http = httpx.AsyncClient(base_url=self._url, headers=_headers(token), timeout=timeout)

    async def enroll(self, name: str, files: Sequence[Audio]) -> Enrollment:
        """See ``VoiceclaimClient.enroll``."""
        with ExitStack() as opened:
            parts = [("files", _part(audio, number, opened)) for number, audio in enumerate(files, start=1)]
            return enrollment_of(await self._ask("POST", _path(name), files=parts, timeout=_TRAINING_SECONDS))

    async def remove(self, name: str) -> int:
        """See ``VoiceclaimClient.remove``."""
        return int((await self._ask("DELETE", _path(name), timeout=_TRAINING_SECONDS))["left"])

    async def speakers(self) -> tuple[EnrolledSpeaker, ...]:
        """See ``VoiceclaimClient.speakers``."""
        return tuple(EnrolledSpeaker(**entry) for entry in (await self._ask("GET", "/speakers"))["speakers"])

    async def verify(self, claim: str, file: Audio, *, system: str | None = None) -> Verification:
        """See ``VoiceclaimClient.verify``."""
        with ExitStack() as opened:
            part = {"file": _part(file, 1, opened)}
            return verification_of(await self._ask("POST", "/verify", files=part, data=_claim(claim, system)))

    @asynccontextmanager
    async def stream(
        self, claim: str, *, rate: int, system: str | None = None, early: EarlyRule | None = None
    ) -> AsyncIterator[AsyncClaimStream]:
        """See ``VoiceclaimClient.stream``."""
        async with AsyncExitStack() as opened:
            with _reaching(self._url):
                connection = websockets.asyncio.client.connect(
                    _socket_url(self._url), open_timeout=self._timeout, max_size=_MOST_MESSAGE, compression=None
                )
                socket = await opened.enter_async_context(connection)
            stream = AsyncClaimStream(socket, self._url, self._timeout)
            await stream._begin(_hello(claim, rate, system, early, self._token))
            yield stream
            await stream._end()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _ask(self, method: str, path: str, **what: Any) -> dict[str, Any]:
        try:
            return _answer(await self._http.request(method, path, **what))
        except httpx.HTTPError as error:
            raise _unreachable(self._url, error) from None


class _Stream:
    """What both kinds of streams know: how many chunks were sent, and what came back last."""

    def __init__(self, url: str, timeout: float) -> None:
        self._url = url
        self._timeout = timeout
        self._terms: Terms | None = None
        self._final: Verification | None = None
        self._sent = 0

    @property
    def terms(self) -> Terms:
        """What decides this claim."""
        if self._terms is None:
            raise StreamClosedError("the stream has not begun")
        return self._terms

    @property
    def final(self) -> Verification:
        """What came of the claim, once the stream has ended."""
        if self._final is None:
            raise StreamClosedError("the stream has not ended in order, and nothing is decided")
        return self._final

    def _chunks(self, samples: ArrayLike) -> list[bytes]:
        if self._final is not None:
            raise StreamClosedError("the stream has ended and takes no more audio")
        whole = np.asarray(samples, dtype="<f4")
        if whole.ndim != 1:
            raise AudioError(f"samples must be of one channel, (n,), got shape {whole.shape}")
        chunks = [whole[start : start + _MOST_CHUNK].tobytes() for start in range(0, max(1, len(whole)), _MOST_CHUNK)]
        self._sent += len(chunks)
        return chunks

    def _take(self, text: str | bytes) -> Update | None:
        """The update in a message if it covers all that was sent; raises ServiceError for a problem."""
        table = json.loads(text)
        if table["type"] == "problem":
            raise problem_of(table)
        if table["type"] == "ready":
            self._terms = terms_of(table)
            return None
        if table["type"] == "final":
            self._final = verification_of(table)
            return self._final.update
        return update_of(table) if table["chunks"] >= self._sent else None


class ClaimStream(_Stream):
    """A claim being checked on live audio; made by ``VoiceclaimClient.stream``."""

    def __init__(self, socket: websockets.sync.client.ClientConnection, url: str, timeout: float) -> None:
        super().__init__(url, timeout)
        self._socket = socket

    def push(self, samples: ArrayLike) -> Update:
        """Send mono ``samples`` (n,), full scale 1, as float32, and wait for the state after them.

        Raises ServiceError, StreamClosedError after the end.
        """
        chunks = self._chunks(samples)
        with _reaching(self._url):
            for chunk in chunks:
                self._send(chunk)
            return self._wait()

    def _begin(self, hello: str) -> None:
        with _reaching(self._url):
            self._send(hello)
            while self._terms is None:
                self._take(self._socket.recv(self._timeout))

    def _end(self) -> None:
        with _reaching(self._url):
            self._send(_END)
            while self._final is None:
                self._wait()

    def _send(self, message: str | bytes) -> None:
        try:
            self._socket.send(message)
        except ConnectionClosed:
            self._wait()  # for the reason, which came before the end

    def _wait(self) -> Update:
        while (update := self._take(self._socket.recv(self._timeout))) is None:
            continue
        return update


class AsyncClaimStream(_Stream):
    """``ClaimStream`` under asyncio; made by ``AsyncVoiceclaimClient.stream``."""

    def __init__(self, socket: websockets.asyncio.client.ClientConnection, url: str, timeout: float) -> None:
        super().__init__(url, timeout)
        self._socket = socket

    async def push(self, samples: ArrayLike) -> Update:
        """See ``ClaimStream.push``."""
        chunks = self._chunks(samples)
        with _reaching(self._url):
            for chunk in chunks:
                await self._send(chunk)
            return await self._wait()

    async def _begin(self, hello: str) -> None:
        with _reaching(self._url):
            await self._send(hello)
            while self._terms is None:
                self._take(await self._receive())

    async def _end(self) -> None:
        with _reaching(self._url):
            await self._send(_END)
            while self._final is None:
                await self._wait()

    async def _send(self, message: str | bytes) -> None:
        try:
            await self._socket.send(message)
        except ConnectionClosed:
            await self._wait()

    async def _wait(self) -> Update:
        while (update := self._take(await self._receive())) is None:
            continue
        return update

    async def _receive(self) -> str | bytes:
        async with asyncio.timeout(self._timeout):
            return await self._socket.recv()


@contextmanager
def _reaching(url: str) -> Iterator[None]:
    """Turn what fails on the way to ``url`` into a ServiceError."""
    try:
        yield
    except (OSError, WebSocketException) as error:
        raise _unreachable(url, error) from None


def _headers(token: str | None) -> dict[str, str]:
    return {} if token is None else {"Authorization": f"Bearer {token}"}


def _path(name: str) -> str:
    return f"/speakers/{quote(name, safe='')}"


def _claim(claim: str, system: str | None) -> dict[str, str]:
    return {"claim": claim} if system is None else {"claim": claim, "system": system}


def _hello(claim: str, rate: int, system: str | None, early: EarlyRule | None, token: str | None) -> str:
    hello: dict[str, Any] = {**_claim(claim, system), "rate": rate, "format": "f32le"}
    if early is not None:
        hello["early"] = asdict(early)
    return json.dumps(hello if token is None else {**hello, "token": token})


def _socket_url(url: str) -> str:
    return f"ws{url.removeprefix('http')}/verify"


def _part(audio: Audio, number: int, opened: ExitStack) -> tuple[str, Any]:
    """An audio file as a part of a request, open until ``opened`` ends."""
    if isinstance(audio, bytes):
        return f"file {number}", audio
    try:
        return Path(audio).name, opened.enter_context(Path(audio).open("rb"))
    except OSError as error:
        raise AudioError(f"{audio}: cannot be read: {error.strerror or error}") from None


def _answer(response: httpx.Response) -> dict[str, Any]:
    if response.is_success:
        table: dict[str, Any] = response.json()
        return table
    try:
        raise problem_of(response.json())
    except (ValueError, KeyError, TypeError):
        raise ServiceError(
            response.status_code, f"status {response.status_code} and no reason; is a Voiceclaim service there?"
        ) from None


def _unreachable(url: str, error: Exception) -> ServiceError:
    return ServiceError(0, f"{url}: the service cannot be reached, or went away: {error or type(error).__name__}")
