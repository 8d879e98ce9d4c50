"""Connections that send far more, or far longer, than anybody needs: each of them ends, and nobody waits for it."""

from __future__ import annotations

import json
import os
import resource
import shutil
import socket
import ssl
import statistics
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress

import psutil
import pytest
from service import Running, running, wait_until
from websockets.frames import Frame, Opcode

from pipeline.server.limits import Limits
from pipeline.server.protocols import HttpProtocol

pytestmark = pytest.mark.server
CHUNKED = b" HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
LONG = b" HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\n"
UPGRADE = (
    b" /verify HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)
SOON = 15.0  # within which the service ends what it must


@contextmanager
def connected(service: Running, first: bytes):
    """A connection that begins with ``first``."""
    host, _, port = service.url.removeprefix("http://").rpartition(":")
    with socket.create_connection((host, int(port)), timeout=SOON) as caller:
        caller.sendall(first)
        yield caller


@contextmanager
def live(service: Running, first: bytes = b""):
    """A WebSocket without a hello."""
    with connected(service, b"GET" + UPGRADE + b"\r\n") as caller:
        assert caller.recv(4096).startswith(b"HTTP/1.1 101")
        caller.sendall(first)
        yield caller


def frame(opcode: Opcode, data: bytes = b"", *, last: bool = True) -> bytes:
    return Frame(opcode, data, fin=last).serialize(mask=True)


def rest_of(caller: socket.socket) -> bytes:
    """Everything up to the end, which must come."""
    received = b""
    with suppress(ConnectionResetError):
        while data := caller.recv(2**16):
            received += data
    return received


def ends(caller: socket.socket, data: bytes, most: int, pause: float = 0.0) -> bool:
    """Return True if the connection ends before ``most`` bytes of ``data`` again and again, and soon."""
    sent, until = 0, time.monotonic() + SOON
    with suppress(OSError):
        while sent < most and time.monotonic() < until:
            sent += caller.send(data)
            time.sleep(pause)
        return False
    return True


@pytest.mark.parametrize(
    ("request_line", "status"), [(b"POST /verify", 401), (b"POST /nowhere", 404), (b"GET /healthz", 200)]
)
@pytest.mark.parametrize("head", [CHUNKED, LONG])
def test_a_body_that_an_answer_leaves_unread_ends_its_connection(guarded, request_line, status, head):
    piece = b"10000\r\n" + bytes(2**16) + b"\r\n" if head == CHUNKED else bytes(2**16)
    with connected(guarded, request_line + head) as caller:
        for _ in range(8):  # of the usual caller, who listens after that
            caller.sendall(piece)
            time.sleep(0.01)
        answer = caller.recv(2**16).lower()
        assert answer.startswith(b"http/1.1 %d" % status) and answer.count(b"connection: close") == 1
        assert ends(caller, piece, 2**25)
    with connected(guarded, request_line + head) as caller:
        assert ends(caller, b"1\r\nA\r\n", 2**20, 0.3)


def test_a_connection_goes_on_after_an_answer_that_left_nothing_unread(guarded):
    end = b" HTTP/1.1\r\nHost: localhost\r\n"
    first, second = (
        b"POST /verify" + end + b"Content-Length: 0\r\n\r\n",
        b"GET /healthz" + end + b"Connection: close\r\n\r\n",
    )
    with connected(guarded, first + second) as caller:
        answers = rest_of(caller)
    assert answers.startswith(b"HTTP/1.1 401") and b"HTTP/1.1 200" in answers


@pytest.mark.parametrize("token", [b"", b"Authorization: Bearer " + b"v" * 20 + b"\r\n"])
def test_a_body_of_tiny_chunks_ends_its_connection(guarded, token):
    head = b"POST /verify HTTP/1.1\r\n" + token + b"Content-Type: multipart/form-data; boundary=x" + CHUNKED[9:]
    with connected(guarded, head) as caller:
        assert ends(caller, b"1\r\nA\r\n" * 1000, 2**22)


def test_who_announces_too_large_a_body_is_refused_before_any_of_it_comes(guarded):
    head = b"POST /verify HTTP/1.1\r\nAuthorization: Bearer " + b"v" * 20
    with connected(guarded, head + b"\r\nContent-Type: multipart/form-data; boundary=x" + LONG[9:]) as caller:
        assert caller.recv(2**16).startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize(("size", "answered"), [(64, True), (1, False)])
def test_a_form_may_come_in_chunks_but_not_in_tiny_ones(guarded, size, answered):
    begins = b'--x\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\n'
    pieces = (begins, *[bytes(size)] * 2000, b"\r\n--x--\r\n", b"")
    head = b"POST /verify HTTP/1.1\r\nConnection: close\r\nAuthorization: Bearer " + b"v" * 20
    with connected(guarded, head + b"\r\nContent-Type: multipart/form-data; boundary=x" + CHUNKED[9:]) as caller:
        with suppress(OSError):
            caller.sendall(b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces))
        assert rest_of(caller).startswith(b"HTTP/1.1 422") == answered


@pytest.mark.parametrize(
    ("first", "flood"),
    [
        (b"", frame(Opcode.PONG)),
        (frame(Opcode.BINARY, last=False), frame(Opcode.CONT, last=False)),
        (frame(Opcode.BINARY, last=False), frame(Opcode.CONT, b"ab", last=False)),
    ],
    ids=["pongs", "empty continuations", "continuations of two bytes"],  # masks are random
)
def test_a_flood_of_tiny_frames_ends_its_connection(guarded, first, flood):
    with live(guarded, first) as caller:
        assert ends(caller, flood * 1000, 2**22)


def test_frames_are_read_a_few_at_a_time_and_a_flood_of_them_ends(guarded):
    with live(guarded) as caller:
        with suppress(OSError):
            caller.sendall(frame(Opcode.PING) * 10_000)
        pongs = rest_of(caller).count(frame(Opcode.PONG)[:1])
    assert 0 < pongs < 4000  # none if all had been parsed before any was answered


def test_pongs_that_nobody_reads_are_not_kept(guarded):
    process, sent = psutil.Process(guarded.process.pid), 0
    before = process.memory_info().rss
    with live(guarded) as caller, suppress(OSError):  # it ends after ten seconds without a hello
        while sent < 2**26:
            sent += caller.send(frame(Opcode.PING, bytes(125)) * 500)
            assert process.memory_info().rss - before < 2**23


@pytest.mark.parametrize(
    ("method", "more", "status"),
    [
        (b"POST", b"Content-Length: 5\r\n", 400),
        (b"GET", b"Content-Length: 5\r\n", 400),
        (b"GET", b"X: a\x01b\r\n", 400),
        (b"GET", b"X: " + b"a" * 12_000 + b"\r\n", 431),
        (b"GET", b"".join(b"X%d: a\r\n" % number for number in range(200)), 431),
    ],
    ids=["POST", "a body", "a control character", "a long header", "many headers"],
)
def test_a_request_that_is_none_for_a_websocket_is_answered_and_ends(guarded, method, more, status):
    with connected(guarded, method + UPGRADE + more + b"\r\n") as caller:
        assert rest_of(caller).startswith(b"HTTP/1.1 %d " % status)


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"POST /verify" + CHUNKED[:-2] + b"Content-Length: -5\r\n\r\n",
        b"POST" + UPGRADE + b"Content-Length: 5\r\n\r\n",
    ],
    ids=["no host", "a length below 0", "none for a WebSocket"],
)
def test_what_is_no_request_is_refused_by_a_problem(guarded, data):
    with connected(guarded, data) as caller:
        head, _, body = rest_of(caller).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ") and b"application/problem+json" in head
    assert json.loads(body)["type"] == "urn:voiceclaim:InputError"


def form_of(data: bytes) -> bytes:
    """A request with ``data`` as its only file."""
    body = b'--x\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\n' + data + b"\r\n--x--\r\n"
    head = b"POST /verify HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    return head + b"Content-Type: multipart/form-data; boundary=x\r\nContent-Length: %d\r\n\r\n" % len(body) + body


def test_paths_of_thousands_of_parts_hold_up_no_upload(service):
    path = b"GET /page/" + b"a/" * 15_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with ExitStack() as connections:
        for _ in range(100):
            connections.enter_context(connected(service, path * 5))
        with connected(service, form_of(bytes(2**21))) as caller:
            assert rest_of(caller).startswith(b"HTTP/1.1 422 ")


def test_forms_that_take_long_to_parse_hold_up_nobody(service):
    """Data that nearly holds the boundary is parsed byte by byte."""

    def upload() -> bytes:
        with connected(service, form_of(b"\r\n--xy" * 2**16)) as caller:
            caller.settimeout(60)
            return rest_of(caller)

    began, waits = time.monotonic(), []
    with ThreadPoolExecutor(40) as callers:
        uploads = [callers.submit(upload) for _ in range(40)]
        while not all(each.done() for each in uploads):
            asked = time.monotonic()
            assert service.request("GET", "/healthz").status_code == 200
            waits.append(time.monotonic() - asked)
    assert all(each.result().startswith(b"HTTP/1.1 422 ") for each in uploads)
    assert statistics.median(waits) < (time.monotonic() - began) / 15


def answers(service: Running) -> bool:
    with connected(service, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n") as caller:
        return rest_of(caller).startswith(b"HTTP/1.1 200 ")


def test_connections_that_send_nothing_and_websockets_have_an_end(service):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = Limits().connections
    if hard < most + 500:
        pytest.skip("too few files may be opened")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        with ExitStack() as connections:
            for _ in range(most):
                connections.enter_context(connected(service, b""))
            with connected(service, b"") as caller:
                assert rest_of(caller) == b""
            with suppress(BrokenPipeError), connected(service, b"GET" + UPGRADE + b"\r\n") as caller:
                assert rest_of(caller) == b""
        wait_until(lambda: answers(service))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_long_message_is_not_kept_of_who_is_not_let_in(guarded):
    """Without a hello, or after one that is refused, a message may not fill memory until the stream ends."""
    begun, more = frame(Opcode.TEXT, bytes(2**14), last=False), frame(Opcode.CONT, bytes(2**14), last=False)
    refused = frame(Opcode.TEXT, b"{}")
    for first in (begun, refused + begun):
        with live(guarded, first) as caller:
            assert ends(caller, more, 2**19, 0.1)
    with live(guarded, refused + b"\x82\xff" + (2**20).to_bytes(8, "big") + bytes(4 + 2**17)) as caller:
        caller.settimeout(6)  # uvicorn alone would wait for ten
        rest_of(caller)
    with live(guarded, refused + b"\x82\xff" + (2**20).to_bytes(8, "big") + bytes(4)) as caller:
        assert ends(caller, bytes(2**14), 2**19, 0.1)


def test_what_uvicorn_refuses_too_late_ends_without_a_traceback(guarded):
    with live(guarded, frame(Opcode.TEXT, b"\xffanna") + frame(Opcode.CLOSE, b"\x03\xe8")) as caller:
        rest_of(caller)
    with connected(guarded, b"POST /verify" + CHUNKED) as caller:
        assert caller.recv(2**16).startswith(b"HTTP/1.1 401")
        caller.sendall(b"no chunk\r\n")
        rest_of(caller)
    assert guarded.request("GET", "/healthz").status_code == 200
    assert "Traceback" not in guarded.log_text
    assert '"fault"' not in guarded.log_text


def with_a_frame_that_is_none() -> bytes:
    head = b"GET" + UPGRADE + b"X: " + b"x" * 8100 + b"\r\nY: "
    head += b"y" * (HttpProtocol.slice_bytes - len(head) - 4) + b"\r\n\r\n"  # all that is read before the frame
    return head + Frame(Opcode.TEXT, b"{}").serialize(mask=False)


def test_a_frame_that_is_none_behind_the_handshake_closes_as_soon_as_that_is_answered(service):
    with connected(service, with_a_frame_that_is_none()) as caller:
        head, _, closed = rest_of(caller).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 101 ")
    assert closed == Frame(Opcode.CLOSE, b"\x03\xeaincorrect masking").serialize(mask=False)
    assert service.request("GET", "/healthz").status_code == 200
    assert '"fault"' not in service.log_text


@pytest.mark.skipif(shutil.which("openssl") is None, reason="a certificate is made by openssl")
def test_a_frame_that_is_none_before_the_handshake_is_answered_is_no_fault(store, tmp_path):
    """Only TLS hands over what it has read ahead before the handshake is answered, most times."""
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    words = ("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-keyout", key)
    subprocess.run((*words, "-out", certificate), check=True, capture_output=True)
    trusting = ssl.create_default_context(cafile=certificate)
    with running(store, tmp_path / "service", "--tls-cert", certificate, "--tls-key", key) as service:
        for _ in range(20):
            with (
                socket.create_connection(("127.0.0.1", int(service.url.rpartition(":")[2])), timeout=SOON) as plain,
                trusting.wrap_socket(plain, server_hostname="localhost") as caller,
            ):
                caller.sendall(with_a_frame_that_is_none())
                answer = rest_of(caller)
            assert answer == b"" or answer.endswith(b"\x03\xeaincorrect masking")
        assert '"fault"' not in service.log_text and "Traceback" not in service.log_text


def test_an_error_that_nothing_waits_for_is_one_line_with_its_place(store, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol\n"
        "def fail(self, event): raise ValueError('anna')\n"
        "WebSocketsSansIOProtocol.handle_pong = fail\n"
    )
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    with running(store, tmp_path / "service", environment={"PYTHONPATH": path}) as service:
        with live(service, frame(Opcode.PONG)) as caller:
            rest_of(caller)
        (line,) = [line for line in service.log_text.splitlines() if "ValueError" in line]
        assert json.loads(line)["what"] == f"ValueError at {tmp_path / 'sitecustomize.py'}:2"
        assert "anna" not in service.log_text and "Traceback" not in service.log_text
