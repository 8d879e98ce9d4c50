"""Client of the service: enroll, verify, identify and stream audio from another program.

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

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass
from numbers import Real
from pathlib import Path
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import httpx
import numpy as np
from numpy.typing import ArrayLike
from websockets.exceptions import ConnectionClosed, WebSocketException
from websockets.frames import CloseCode
from websockets.sync.client import ClientConnection, connect

from pipeline.audio.streams import as_samples, check_rate
from pipeline.errors import AudioError, InputError, ServiceError, StreamClosedError, check_type
from pipeline.names import check_encodable
from pipeline.scoring.decisions import Decision, NoTruthValue, Terms, Update
from pipeline.scoring.sequential import SequentialTest
from pipeline.server.messages import IDENTIFICATION, TERMS, TOKEN, UPDATE, EnrolledSpeaker
from pipeline.verification.identification import Identification

Audio = Path | str | bytes
_CHUNK_SAMPLES = 2**16  # in one message
_MESSAGE_BYTES = 2**20  # in one answer
_SWITCHED = 101  # status of a WebSocket
_SOCKETS = {"http": "ws", "https": "wss"}
_MOST_PORT = 2**16 - 1
_TRAINING_SECONDS = 3600.0  # to enroll into a large store
State = TypeVar("State")
Outcome = TypeVar("Outcome")
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Verification(NoTruthValue):
    """The outcome of a claim."""

    terms: Terms
    update: Update

    @property
    def decision(self) -> Decision:
        """Return accepted, rejected, or too little speech."""
        return self.update.decision


@dataclass(frozen=True, slots=True)
class Enrollment:
    """A new speaker; ``skipped`` are the files that were not used, with the reasons.

    ``warnings`` are findings of the enrollment checks that did not refuse the speaker.
    """

    speaker: EnrolledSpeaker
    revision: int
    warnings: tuple[str, ...]
    skipped: tuple[tuple[str, str], ...]


class VoiceclaimClient(AbstractContextManager["VoiceclaimClient"]):
    """Client of the service at ``url``; a context manager. ``timeout`` is in seconds, for all but enrollment.

    The service's certificate is checked against those of the system and of certifi, or of the file SSL_CERT_FILE.

    Raises ServiceError for an invalid address, InputError for a token or a timeout that cannot be one. Calls block;
    under asyncio, ``asyncio.to_thread`` awaits them.
    """

    def __init__(self, url: str, *, token: str | None = None, timeout: float = 60.0) -> None:
        check_type("url", url, str, "an address, as http://127.0.0.1:8000,")
        check_type("timeout", timeout, Real, "a number of seconds above 0")
        if not 0 < timeout < np.inf:
            raise InputError(f"timeout: a number of seconds above 0 was expected, got {timeout}")
        self._url, self._token, self._timeout = url.rpartition("@")[2].rstrip("/"), token, float(timeout)
        with _reaching(self._url):
            self._tls = httpx.create_ssl_context()
            self._tls.load_default_certs()
            self._http = httpx.Client(base_url=url, headers=_headers(token), timeout=self._timeout, verify=self._tls)
        address = self._http.base_url
        if address.scheme not in _SOCKETS or not address.host or address.query or (address.port or 1) > _MOST_PORT:
            raise ServiceError(0, f"{self._url}: an address http://HOST:PORT, or https://HOST, was expected")
        self._socket_url = address.copy_with(scheme=_SOCKETS[address.scheme])

    def enroll(self, name: str, files: Iterable[Audio], *, add: bool = False, channel: int | None = None) -> Enrollment:
        """Enroll ``name``, or ``add`` to them, from audio files or their content.

        ``channel``, from 1, is the one to read of each file; by default the mean of all. Raises ServiceError,
        AudioError, and InputError if ``files`` is not a list or is empty.
        """
        if isinstance(files, Audio) or not isinstance(files, Iterable) or not files:
            raise InputError(f"files: a list of one recording or more was expected, got {files!r:.60}")
        with ExitStack() as opened:
            parts = [("files", _part(audio, number, opened)) for number, audio in enumerate(files, start=1)]
            path, method = _path_of(name), "PUT" if add else "POST"
            data = _fields(channel=channel)
            return self._ask(_enrollment, method, path, files=parts, data=data, timeout=_TRAINING_SECONDS)

    def remove(self, name: str) -> int:
        """Erase ``name`` and return the number of speakers left. Raises ServiceError."""
        return self._ask(lambda table: int(table["left"]), "DELETE", _path_of(name), timeout=_TRAINING_SECONDS)

    def speakers(self) -> tuple[EnrolledSpeaker, ...]:
        """Return the enrolled speakers in enrollment order. Raises ServiceError."""
        return self._ask(
            lambda table: tuple(EnrolledSpeaker(**entry) for entry in table["speakers"]), "GET", "/speakers"
        )

    def verify(self, claim: str, file: Audio, *, system: str | None = None, channel: int | None = None) -> Verification:
        """Verify the claim on an audio file, or its content. Raises ServiceError, AudioError.

        ``channel``, from 1, is the one to score; by default the mean of all.
        """
        with ExitStack() as opened:
            part = {"file": _part(file, 1, opened)}
            return self._ask(
                _verification, "POST", "/verify", files=part, data=_fields(claim=claim, system=system, channel=channel)
            )

    def identify(self, file: Audio, *, channel: int | None = None) -> Identification:
        """Find which enrolled speaker speaks in an audio file, or its content. Raises ServiceError, AudioError.

        ``channel``, from 1, is the one to score; by default the mean of all.
        """
        with ExitStack() as opened:
            files = {"file": _part(file, 1, opened)}
            fields = _fields(channel=channel)
            return self._ask(IDENTIFICATION.validate_python, "POST", "/identify", files=files, data=fields)

    @contextmanager
    def stream(
        self, claim: str, *, rate: int, system: str | None = None, early: SequentialTest | None = None
    ) -> Iterator[ClaimStream]:
        """Verify the claim on live audio at ``rate`` Hz; ``final`` is set at the end of the block. Raises ServiceError.

        With an ``early`` rule updates are ``settled`` as soon as the evidence suffices. A block that is left by an
        exception has no final outcome.
        """
        hello: dict[str, Any] = {**_fields(claim=claim, system=system), **_format(rate)}
        if early is not None:
            check_type("early", early, SequentialTest, "a SequentialTest")
            hello["early"] = asdict(early)
        with self._connected("verify") as socket:
            stream = ClaimStream(socket, self._url, self._timeout)
            with _understanding(self._url, _SWITCHED):
                stream.terms = TERMS.validate_python(stream._begin(self._signed(hello)))
            yield stream
            stream._end()

    @contextmanager
    def identification(self, *, rate: int) -> Iterator[IdentificationStream]:
        """Find who speaks in live audio at ``rate`` Hz; ``final`` is set at the end of the block. Raises ServiceError.

        A block that is left by an exception has no final outcome.
        """
        hello = _format(rate)
        with self._connected("identify") as socket:
            stream = IdentificationStream(socket, self._url, self._timeout)
            with _understanding(self._url, _SWITCHED):
                stream._begin(self._signed(hello))
            yield stream
            stream._end()

    def _connected(self, path: str) -> ClientConnection:
        with _reaching(self._url):
            url = self._socket_url.join(path)
            tls = self._tls if url.scheme == "wss" else None
            return connect(str(url), ssl=tls, open_timeout=self._timeout, max_size=_MESSAGE_BYTES, compression=None)

    def _signed(self, hello: dict[str, Any]) -> dict[str, Any]:
        return hello if self._token is None else {**hello, "token": self._token}

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __exit__(self, *_raised: object) -> None:
        self.close()

    def _ask(self, read: Callable[[dict[str, Any]], Answer], method: str, path: str, **options: Any) -> Answer:
        """Send a request, and return what ``read`` makes of its answer."""
        with _reaching(self._url):
            response = self._http.request(method, path, **options)
        with _understanding(self._url, response.status_code):
            if response.is_success:
                return read(response.json())
            raise _refusal(response.json())


class LiveStream(Generic[State, Outcome]):
    """Live audio sent to the service, which answers each push with a ``State``, and the end with an ``Outcome``."""

    _state: Callable[[dict[str, Any]], State]
    _outcome: Callable[[dict[str, Any]], Outcome]

    def __init__(self, socket: ClientConnection, url: str, timeout: float) -> None:
        self._socket = socket
        self._url = url
        self._timeout = timeout
        self._final: Outcome | None = None
        self._sent = 0

    @property
    def final(self) -> Outcome:
        """Return the outcome; raises StreamClosedError before the stream has ended."""
        if self._final is None:
            raise StreamClosedError("the stream has not ended normally, and there is no decision")
        return self._final

    def push(self, samples: ArrayLike) -> State:
        """Send mono ``samples`` (n,) as float32, and wait for the state after them.

        They are floats of full scale 1, or integers as recorded. Raises AudioError for other samples, ServiceError, and
        StreamClosedError after the end.
        """
        if self._final is not None:
            raise StreamClosedError("the stream has ended and takes no more audio")
        whole = as_samples(samples, "samples").astype("<f4")
        if np.ndim(samples) != 1:
            raise AudioError(f"samples must be of one channel, (n,), got shape {np.shape(samples)}")
        for start in range(0, max(1, len(whole)), _CHUNK_SAMPLES):
            self._sent += 1
            self._send(whole[start : start + _CHUNK_SAMPLES].tobytes())
        with _understanding(self._url, _SWITCHED):
            while (table := self._receive())["type"] == "update":
                if table["chunks"] >= self._sent:
                    return self._state(table)
        raise ServiceError(0, f"{self._url}: an update was expected, got {table['type']!r}")

    def _begin(self, hello: dict[str, Any]) -> dict[str, Any]:
        self._send(json.dumps(hello))
        return self._receive()

    def _end(self) -> None:
        self._send(json.dumps({"type": "end"}))
        with _understanding(self._url, _SWITCHED):
            while (table := self._receive())["type"] != "final":
                pass
            self._final = self._outcome(table)

    def _send(self, message: str | bytes) -> None:
        with _reaching(self._url):
            try:
                self._socket.send(message)
            except ConnectionClosed:  # the reason arrived before
                while True:
                    self._receive()

    def _receive(self) -> dict[str, Any]:
        with _reaching(self._url):
            table: dict[str, Any] = json.loads(self._socket.recv(self._timeout))
        if table["type"] == "problem":
            raise _refusal(table)
        return table


def _verification(table: Mapping[str, Any]) -> Verification:
    return Verification(TERMS.validate_python(table), UPDATE.validate_python(table))


class ClaimStream(LiveStream[Update, Verification]):
    """A claim verified on live audio, with its ``terms``; made by ``VoiceclaimClient.stream``."""

    terms: Terms
    _state = UPDATE.validate_python
    _outcome = staticmethod(_verification)


class IdentificationStream(LiveStream[Identification, Identification]):
    """Identification in live audio; made by ``VoiceclaimClient.identification``."""

    _state = _outcome = IDENTIFICATION.validate_python


@contextmanager
def _reaching(url: str) -> Iterator[None]:
    """Turn failures of the connection to ``url`` into a ServiceError."""
    try:
        yield
    except (OSError, RuntimeError, UnicodeEncodeError, WebSocketException, httpx.HTTPError, httpx.InvalidURL) as error:
        closing = error.rcvd if isinstance(error, ConnectionClosed) else None
        if closing is not None and closing.code == CloseCode.SERVICE_RESTART:
            raise ServiceError(503, f"{url}: the service is shutting down; try again later") from None
        reason = str(error) or type(error).__name__
        raise ServiceError(0, f"{url}: the service cannot be reached, or went away: {reason}") from None


@contextmanager
def _understanding(url: str, status: int) -> Iterator[None]:
    """Turn an answer with ``status`` that is not the service's into a ServiceError."""
    try:
        yield
    except (ValueError, KeyError, TypeError):
        raise ServiceError(
            status, f"{url}: status {status}, but no answer to this request; is a Voiceclaim service there?"
        ) from None


def _refusal(table: Mapping[str, Any]) -> ServiceError:
    """Return the error of a problem, from a response or a WebSocket; KeyError for another table."""
    kind = str(table["kind"] if "kind" in table else table["type"]).removeprefix("urn:voiceclaim:")
    return ServiceError(int(table["status"]), str(table["detail"]), kind=kind)


def _enrollment(table: Mapping[str, Any]) -> Enrollment:
    speaker = EnrolledSpeaker(table["name"], table["seconds"], table["utterances"])
    skipped = tuple((file["file"], file["reason"]) for file in table["skipped"])
    return Enrollment(speaker, table["revision"], tuple(table["warnings"]), skipped)


def _headers(token: str | None) -> dict[str, str]:
    """Return the headers of every request; raises InputError, without showing it, for an invalid token."""
    if token is None:
        return {}
    check_type("token", token, str, "a text")
    if TOKEN.fullmatch(token) is None:
        raise InputError(
            "token: letters, digits or -._~+/, then = if any, were expected, got other characters, or none; read from a"
            " file with the end of its line?"
        )
    return {"Authorization": f"Bearer {token}"}


def _format(rate: int) -> dict[str, Any]:
    """Return the format of a stream; raises AudioError for an invalid rate."""
    check_rate(rate, "stream")
    return {"rate": int(rate) if rate % 1 == 0 else float(rate), "format": "f32le"}


def _path_of(name: str) -> str:
    """Return the path of a speaker; raises InputError unless ``name`` is a text that can be sent."""
    check_type("name", name, str, "a name")
    return f"/speakers/{quote(check_encodable(name), safe='')}"


def _fields(**fields: str | int | None) -> dict[str, str]:
    """Return the fields of a request that are given; raises InputError for a text that cannot be sent."""
    return {name: check_encodable(str(value)) for name, value in fields.items() if value is not None}


def _part(audio: Audio, number: int, opened: ExitStack) -> tuple[str, Any]:
    """Return an audio file as a part of a request, open until ``opened`` is closed."""
    check_type(f"file {number}", audio, Audio, "a path, or the bytes of a file,")
    if isinstance(audio, bytes):
        return f"file {number}", audio
    try:
        return Path(audio).name, opened.enter_context(Path(audio).open("rb"))
    except (OSError, ValueError) as error:  # ValueError: a path with NUL
        raise AudioError(f"{audio}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
