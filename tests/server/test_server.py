"""The service: real processes, real sockets. What it answers, what it refuses, what it never leaves behind."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np
import pytest
import soundfile
import soxr
from packed_flac import packed_flac
from service import (
    ADMIN_TOKEN,
    ENROLL_TOKEN,
    PLAIN_TOKEN,
    VERIFY_TOKEN,
    Running,
    pcm16,
    problem_of,
    receive,
    running,
    samples_of,
    send,
    until,
)
from starlette.routing import Mount, Route, WebSocketRoute
from websockets.exceptions import ConnectionClosed, InvalidStatus

from pipeline.server.app import create_app, router
from pipeline.server.client import VoiceclaimClient
from pipeline.server.service import Service
from pipeline.server.settings import Settings
from pipeline.store.store import Store
from pipeline.verification.audio_warnings import WARNINGS
from pipeline.verification.audit import check_log
from pipeline.verification.duplicate_audio import DuplicateMemory
from pipeline.verification.verifier import Verifier

pytestmark = pytest.mark.server
OPEN = {"/", "/docs", "/openapi.json", "/page", "/page/charts", "/healthz"}  # they hold nothing of anybody


def wait_until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def streamed(service: Running, claim: str, rate: int, data: bytes, form: str, seed: int, token: str | None = None):
    """Return the final state of a claim on a stream, in pieces of random lengths that cut samples in two."""
    chosen = np.random.default_rng(seed)
    with service.socket("/verify") as socket:
        send(socket, claim=claim, rate=rate, format=form, **({"token": token} if token else {}))
        until(socket, "ready")
        while data:
            size = int(chosen.choice((2, 159, 1600, 8192, 16_384)) + chosen.choice((0, 0, 1)))
            socket.send(data[:size])
            data = data[size:]
        send(socket, type="end")
        return until(socket, "final")


# Verification


@pytest.mark.parametrize(("form", "rate"), [("pcm_s16le", 8000), ("f32le", 8000), ("f32le", 44_100)])
def test_a_stream_in_chunks_of_any_size_has_the_librarys_score(service, opened, heard, voices, form, rate):
    for seed, voice in enumerate(voices):
        samples = samples_of(heard(voice, seed))[0]
        samples = samples if rate == 8000 else soxr.resample(samples, 8000, rate).astype("<f4")
        data = pcm16(samples) if form == "pcm_s16le" else samples.astype("<f4").tobytes()
        for claim in (voice, voices[0]):
            stream = Verifier(opened, claim).stream(rate)
            stream.push(samples)
            expected = stream.close()
            result = streamed(service, claim, rate, data, form, seed)
            assert result["score"] == pytest.approx(expected.score, abs=1e-6)
            assert (result["decision"], result["frames"]) == (expected.decision, expected.frames)


def test_warnings_about_the_audio_are_in_every_answer(service, heard, tmp_path):
    samples, rate = samples_of(heard("anna"))
    samples = (0.5 * np.clip(4 * samples / np.abs(samples).max(), -1, 1)).astype("<f4")
    soundfile.write(tmp_path / "loud.wav", samples, rate, subtype="FLOAT")
    files = {"file": (tmp_path / "loud.wav").read_bytes()}
    expected = [f"clipping: {WARNINGS['clipping']}"]
    assert service.request("POST", "/verify", data={"claim": "anna"}, files=files).json()["warnings"] == expected
    assert streamed(service, "anna", rate, samples.tobytes(), "f32le", 0)["warnings"] == expected
    with VoiceclaimClient(service.url) as client:
        assert client.verify("anna", tmp_path / "loud.wav").update.warnings == tuple(expected)
        with client.stream("anna", rate=rate) as stream:
            assert stream.push(samples).warnings == tuple(expected)
    described = service.request("GET", "/openapi.json").json()["components"]["schemas"]["Outcome"]
    assert "warnings" in described["required"]


@pytest.mark.parametrize(
    ("data", "files", "status", "words"),
    [
        ({"claim": "ana"}, {"file": b"RIFF"}, 404, "nearest enrolled: 'anna'"),
        ({"claim": "anna"}, {"file": b"no audio"}, 422, "cannot be decoded"),
        ({"claim": "anna"}, {"file": b""}, 422, "empty"),
        ({"claim": "anna", "system": "guess"}, {"file": b"RIFF"}, 422, "'guess' is unknown"),
        ({}, {"file": b"RIFF"}, 422, "'claim' must name a speaker"),
        ({"claim": ["anna", "lars"]}, {"file": b"RIFF"}, 422, "once"),
        ({"claim": "ANNA"}, {"file": b"RIFF"}, 404, "nearest enrolled: 'anna'"),
        ({"claim": "anna"}, {"files": b"RIFF"}, 422, "the field 'files' has no meaning here; the fields are 'claim', "),
        ({"claim": "anna", "threshold": "9"}, {"file": b"RIFF"}, 422, "the field 'threshold' has no meaning here"),
        ({"claim": "anna", "file": "call.wav"}, {"file": b"RIFF"}, 422, "got text (with curl: -F file=@call.wav)"),
        ({"claim": "anna"}, {}, 415, "multipart/form-data"),
    ],
)
def test_what_cannot_be_verified_is_a_problem(service, data, files, status, words):
    detail = problem_of(service.request("POST", "/verify", data=data, files=files), status)
    assert words in detail
    assert str(service.store) not in detail


@pytest.mark.parametrize(
    ("method", "path", "status", "words"),
    [
        ("POST", "/verfy", 404, "/verfy: there is no such path; /docs lists what there is"),
        ("GET", "/verify", 405, "/verify: the path does not take GET; /docs"),
        ("GET", "/speakers/anna", 405, "/speakers/anna: the path does not take GET"),
        ("DELETE", "/speakers", 405, "/speakers: the path does not take DELETE"),
        ("GET", "/speakers/", 405, "/speakers/: the path does not take GET"),
    ],
)
def test_a_path_or_method_that_is_none_is_named(service, method, path, status, words):
    assert words in problem_of(service.request(method, path), status)


@pytest.mark.parametrize(
    ("hello", "status", "words"),
    [
        ("{", 422, "the first message"),
        (b"\0\0", 422, "must be a hello"),
        ({"rate": 8000, "format": "pcm_s16le"}, 422, "claim"),
        ({"claim": "anna", "rate": 8000, "format": "mp3"}, 422, "format"),
        ({"claim": "anna", "rate": 10, "format": "f32le"}, 422, "rate"),
        ({"claim": "anna", "rate": 8000, "format": "f32le", "more": 1}, 422, "more"),
        ({"claim": "nobody", "rate": 8000, "format": "f32le"}, 404, "no such speaker"),
        ({"claim": "x" * 20_000, "rate": 8000, "format": "f32le"}, 413, "8192"),
    ],
)
def test_a_hello_that_is_none_is_a_problem(service, hello, status, words):
    with service.socket("/verify") as socket:
        socket.send(json.dumps(hello) if isinstance(hello, dict) else hello)
        problem = receive(socket)
        assert (problem["type"], problem["status"]) == ("problem", status)
        assert words in problem["detail"]
        with pytest.raises(ConnectionClosed):
            socket.recv(30)


# Enrollment


def files_of(recordings, voice: str, count: int = 6) -> list[tuple[str, bytes]]:
    return [("files", utterance.path.read_bytes()) for utterance in recordings[voice][:count]]


def entries_in(log: Path) -> list[dict]:
    return [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]


def metrics_of(service: Running, token: str | None = None) -> str:
    return service.request("GET", "/metrics", token=token).text


def names_in(service: Running) -> list[str]:
    return [entry["name"] for entry in service.request("GET", "/speakers").json()["speakers"]]


def test_somebody_enrolls_by_speaking(service, recordings, heard):
    with service.socket("/enroll") as socket:
        send(socket, name="carla", rate=8000, format="pcm_s16le")
        ready = receive(socket)
        assert (ready["type"], ready["least_seconds"], ready["aim_seconds"]) == ("ready", 3.0, 8.0)
        for utterance in recordings["clara"][:5]:
            socket.send(pcm16(samples_of(utterance.path)[0]))
            send(socket, type="utterance")
        send(socket, type="end")
        progress = until(socket, "progress")
        assert progress["audio_seconds"] > progress["speech_seconds"] > 0
        assert 0 < progress["peak"] <= 1
        enrolled = until(socket, "enrolled")
    try:
        assert enrolled["name"] == "carla"
        assert enrolled["seconds"] > 3
        samples, rate = samples_of(heard("clara"))
        assert streamed(service, "carla", rate, pcm16(samples), "pcm_s16le", 1)["decision"] == "accepted"
    finally:
        service.request("DELETE", "/speakers/carla")
    assert service.uploads == []


@pytest.mark.parametrize("how", ["gone", "gone after the end", "too little speech", "known name", "odd name"])
def test_nobody_is_enrolled_by_half(service, how):
    before = Store(service.store).state()
    name = {"known name": "anna", "odd name": ".."}.get(how, "dora")
    with service.socket("/enroll") as socket:
        send(socket, name=name, rate=8000, format="pcm_s16le")
        if how in ("known name", "odd name"):
            assert receive(socket)["status"] == (409 if how == "known name" else 422)
        else:
            until(socket, "ready")
            socket.send(bytes(8000))
            until(socket, "progress")
        if how in ("too little speech", "gone after the end"):
            send(socket, type="end")
        if how == "too little speech":
            while (message := receive(socket))["type"] == "training":
                pass
            assert (message["status"], message["kind"]) == (422, "NotEnoughSpeechError")
    wait_until(lambda: not service.uploads)
    assert Store(service.store).state() == before


@pytest.mark.parametrize(
    ("path", "status"),
    [("/speakers/", 422), ("/speakers/%2e%2e", 404), ("/speakers/a%00b", 422), ("/speakers/%ff", 400)],
)
def test_a_name_that_no_url_can_carry_is_refused(service, path, status):
    answer = service.request("POST", path, files=[])
    assert answer.status_code in (status, 422), answer.text
    assert answer.headers["content-type"] == "application/problem+json"


# Who may come in


def test_other_hosts_and_pages_of_other_origins_are_refused(service):
    host = service.url.removeprefix("http://")
    port = host.rpartition(":")[2]
    for headers, status in (
        ({}, 200),
        ({"Host": f"localhost:{port}"}, 200),
        ({"Host": "evil.example"}, 400),
        ({"Host": f"evil.example:{port}"}, 400),
        ({"Host": f"127.0.0.1.evil.example:{port}"}, 400),
        ({"Origin": f"http://{host}"}, 200),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": f"http://127.0.0.1:{int(port) - 1}"}, 403),
        ({"Origin": "null"}, 403),
    ):
        assert service.request("GET", "/speakers", headers=headers).status_code == status, headers
    with pytest.raises(InvalidStatus) as refused:
        service.socket("/verify", additional_headers={"Origin": "http://evil.example"})
    assert refused.value.response.status_code == 403
    with service.socket("/verify", additional_headers={"Origin": f"http://{host}"}) as socket:
        send(socket, claim="anna", rate=8000, format="f32le")
        assert receive(socket)["type"] == "ready"


def routes_of(store: Path) -> list[Route | WebSocketRoute | Mount]:
    app = Service(Settings(store), threads=1)
    try:
        own = [route for route in create_app(app).routes if isinstance(route, Route | Mount)]
        assert {route.path for route in own} == {"/openapi.json", "/page", "/page/charts"}
        return [*own, *router.routes]
    finally:
        app.close()


NEEDS = {"/verify": "verify", "/identify": "identify", "/enroll": "enroll", "/speakers/nobody": "enroll"}
SCOPES_OF = {
    None: None,
    "x" * 20: None,
    ENROLL_TOKEN: {"enroll"},
    PLAIN_TOKEN: {"verify"},
    VERIFY_TOKEN: {"verify", "identify"},
    ADMIN_TOKEN: {"enroll", "verify", "identify"},
}


def test_no_endpoint_works_without_its_scope(guarded, store):
    seen = set()
    for route in routes_of(store):
        if route.path in OPEN:
            continue
        seen.add(route.path)
        path = route.path.replace("{name:name}", "nobody")
        needs = NEEDS.get(path)
        for token, scopes in SCOPES_OF.items():
            expected = 401 if scopes is None else 403 if needs not in {None, *scopes} else None
            if isinstance(route, WebSocketRoute):
                assert refusal_of(guarded, path, token) == expected, (path, token)
                continue
            for method in route.methods:
                answer = guarded.request(method, path, token=token)
                assert (answer.status_code if answer.status_code in (401, 403) else None) == expected, (path, token)
                assert answer.status_code < 500
                if expected == 401:
                    assert answer.headers["www-authenticate"] == "Bearer"
    others = {"/enroll", "/metrics", "/evaluation"}
    assert seen == {"/speakers", "/speakers/{name:name}", "/verify", "/identify", *others}


def refusal_of(service: Running, path: str, token: str | None) -> int | None:
    """Status of the refusal of a hello with ``token``, None if it is let in."""
    who = {"/verify": {"claim": "anna"}, "/enroll": {"name": "dora"}}.get(path, {})
    with service.socket(path) as socket:
        send(socket, **who, rate=8000, format="f32le", **({"token": token} if token else {}))
        status = receive(socket).get("status")
    return status if status in (401, 403) else None


def test_audio_that_was_accepted_before_is_told_when_there_is_a_log(guarded, heard):
    """The guarded service keeps a log, and fingerprints of what it accepted beside it."""
    files = {"file": heard("lars", 2).read_bytes()}  # of words that this synthetic voice was not enrolled with
    for suspected in (False, True):
        answer = guarded.request("POST", "/verify", data={"claim": "lars"}, files=files, token=VERIFY_TOKEN).json()
        assert (answer["decision"], answer["duplicate_suspected"]) == ("accepted", suspected)


def test_a_token_may_come_in_the_head_of_a_websocket_too(guarded):
    with guarded.socket("/verify", additional_headers={"Authorization": f"Bearer {VERIFY_TOKEN}"}) as socket:
        send(socket, claim="anna", rate=8000, format="f32le")
        assert receive(socket)["type"] == "ready"


def test_a_certificate_that_cannot_be_used_is_an_error_in_one_line(store, run, garbage):
    result = run("serve", store, "--port", 0, "--tls-cert", garbage)
    assert result.code == 2
    assert "certificate or its key cannot be used" in result.err.splitlines()[-1]


def test_a_service_that_cannot_start_makes_no_store(tmp_path, run, garbage):
    for options in (("--host", "0.0.0.0"), ("--port", 0, "--tls-cert", garbage)):  # noqa: S104
        assert run("serve", tmp_path / "new.store", *options).code == 2
        assert not list(tmp_path.glob("new.store*"))


def test_headers_keep_the_page_to_itself(service):
    for path in ("/", "/docs", "/page/main.js", "/page/style.css", "/speakers", "/nowhere"):
        answer = service.request("GET", path)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "server" not in answer.headers
    assert "no-store" in service.request("GET", "/speakers").headers["cache-control"]


def test_what_is_not_there_is_a_problem_and_the_page_gives_no_other_file(service):
    problem_of(service.request("GET", "/nowhere"), 404)
    problem_of(service.request("PUT", "/verify"), 405)
    for path in ("/page/../app.py", "/page/%2e%2e/app.py", "/page//etc/passwd", "/page/"):
        assert service.request("GET", path).status_code == 404


# Bounds


def test_requests_have_bounds(guarded, tmp_path):
    soundfile.write(tmp_path / "long.wav", np.zeros(6 * 8000), 8000)
    long = (tmp_path / "long.wav").read_bytes()
    for path, token, field, content, words in (
        ("/verify", VERIFY_TOKEN, "file", bytes(2**20 + 1), "1,048,576 bytes"),
        ("/verify", VERIFY_TOKEN, "file", long, "at most 5 s"),
        ("/speakers/dora", ENROLL_TOKEN, "files", long, "at most 5 s"),
    ):
        claim = {"claim": "anna"} if field == "file" else None
        answer = guarded.request("POST", path, data=claim, files={field: content}, token=token)
        assert words in problem_of(answer, 413)
    assert guarded.uploads == []


def test_the_head_of_a_request_has_an_end(service):
    host, _, port = service.url.removeprefix("http://").rpartition(":")
    with socket.create_connection((host, int(port)), timeout=30) as caller:
        caller.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n")
        with pytest.raises(OSError, match=r"reset|Broken pipe"):
            for _ in range(1000):
                caller.sendall(b"X: " + b"y" * 2**15 + b"\r\n")
    assert service.request("GET", "/healthz").status_code == 200


@contextmanager
def begun(service: Running):
    """A stream, and the first answer that it got."""
    with service.socket("/verify") as socket:
        send(socket, claim="anna", rate=8000, format="pcm_s16le", token=VERIFY_TOKEN)
        yield socket, receive(socket)


def test_streams_have_bounds(guarded):
    with begun(guarded) as (socket, _):
        socket.send(bytes(2 * 8000 * 5))
        assert "at most 4 s" in receive(socket)["detail"]
    with begun(guarded) as (socket, _), pytest.raises(ConnectionClosed) as closed:
        socket.send(bytes(2**20 + 1))
        socket.recv(30)
    assert closed.value.rcvd.code == 1009
    with begun(guarded) as (socket, _):
        problem = receive(socket)
        assert (problem["status"], problem["kind"]) == (408, "TimeoutError")


def test_there_are_only_so_many_streams(guarded):
    wait_until(lambda: not re.search(r"voiceclaim_streams\{.*} [1-9]", metrics_of(guarded, VERIFY_TOKEN)))
    with begun(guarded) as (_, first), begun(guarded) as (_, second), begun(guarded) as (_, third):
        assert (first["type"], second["type"]) == ("ready", "ready")
        assert (third["status"], "2 streams" in third["detail"]) == (503, True)


def test_a_sender_who_is_faster_than_the_maths_is_held_up_and_loses_nothing(service, store, heard):
    samples, rate = samples_of(heard("lars"))
    many = np.tile(samples, 20)
    stream = Verifier(Store(store).load(), "lars").stream(rate)
    stream.push(np.round(many * 2**15) / 2**15)
    expected = stream.close()
    result = streamed(service, "lars", rate, pcm16(many), "pcm_s16le", 5)
    assert result["score"] == pytest.approx(expected.score, abs=1e-6)
    assert result["audio_seconds"] == pytest.approx(len(many) / rate)


# What is kept, told and counted


def test_names_are_in_the_audit_log_and_nowhere_else(guarded, heard):
    samples, rate = samples_of(heard("dexter"))
    final = streamed(guarded, "dexter", rate, pcm16(samples), "pcm_s16le", 2, VERIFY_TOKEN)
    files = {"file": ("dexters-call.flac", heard("dexter").read_bytes())}
    guarded.request("POST", "/verify", data={"claim": "dexter"}, files=files, token=VERIFY_TOKEN)
    guarded.request("POST", "/verify", data={"claim": "quentin"}, files={"file": b"x"}, token=VERIFY_TOKEN)
    lines = entries_in(guarded.log)
    entries = [line for line in lines if line.get("claim") in ("dexter", "quentin")]
    assert [line["decision"] for line in entries] == ["accepted", "accepted", None]
    assert entries[0]["score"] == final["score"]
    assert entries[2]["error"] == "UnknownSpeakerError"
    assert check_log(guarded.log).lines == len(lines)
    assert "dexter" not in guarded.log_text
    assert "quentin" not in guarded.log_text
    assert VERIFY_TOKEN not in guarded.log_text


def test_a_stream_that_breaks_off_is_in_the_audit_log(guarded, heard):
    samples, rate = samples_of(heard("ivan"))
    with guarded.socket("/verify") as socket:
        send(socket, claim="ivan", rate=rate, format="pcm_s16le", token=VERIFY_TOKEN)
        until(socket, "ready")
        socket.send(pcm16(samples))
        update = until(socket, "update")
    wait_until(lambda: guarded.log.exists() and '"ivan"' in guarded.log.read_text(encoding="utf-8"))
    last = entries_in(guarded.log)[-1]
    assert (last["claim"], last["decision"], update["decision"]) == ("ivan", "accepted", "accepted")


def test_prometheus_reads_what_is_counted(service, heard):
    samples, rate = samples_of(heard("anna"))
    streamed(service, "anna", rate, pcm16(samples), "pcm_s16le", 3)
    wait_until(lambda: 'voiceclaim_streams{kind="verify"} 0.0' in metrics_of(service))
    text = metrics_of(service)
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert float(lines["voiceclaim_speakers"]) == 4
    assert float(lines['voiceclaim_decisions_total{decision="accepted"}']) >= 1
    assert float(lines['voiceclaim_audio_seconds_total{kind="verify"}']) >= len(samples) / rate
    assert "anna" not in text


# The end


@pytest.mark.slow
def test_the_end_waits_for_who_is_being_enrolled_and_refuses_the_others(copied, tmp_path, recordings, heard):
    answers: list[httpx.Response] = []
    with running(copied, tmp_path) as service:
        with service.socket("/verify") as socket:
            send(socket, claim="anna", rate=8000, format="pcm_s16le")
            until(socket, "ready")
            enrolling = threading.Thread(
                target=lambda: answers.append(
                    service.request("POST", "/speakers/hugo", files=files_of(recordings, "hugo"))
                )
            )
            enrolling.start()
            wait_until(lambda: service.uploads)
            time.sleep(0.5)
            started = time.monotonic()
            service.process.terminate()
            with pytest.raises(ConnectionClosed) as closed:
                receive(socket)
            assert closed.value.rcvd.code == 1012
        assert service.process.wait(60) == 0, service.log_text
        assert time.monotonic() - started < 60
        enrolling.join(30)
    enrolled = answers[0].status_code == 201
    assert enrolled or answers[0].status_code == 503
    assert ("hugo" in Store(copied).load().names) == enrolled
    assert Verifier(Store(copied).load(), "hugo" if enrolled else "anna").verify_file(heard("anna")).frames
    assert service.uploads == []


def trainer_of(service: Running) -> int | None:
    """Return the process that trains or decodes, if there is one yet (Linux): the two first ones score claims."""
    children = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == service.process.pid and b"spawn_main" in (entry / "cmdline").read_bytes():
                children.append(int(entry.name))
        except OSError:  # it has ended meanwhile
            continue
    return max(children) if len(children) > 2 else None


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="processes are looked up in /proc")
def test_a_training_process_that_dies_leaves_the_service_and_the_store(copied, tmp_path, recordings):
    before = Store(copied).state()
    answers: list[httpx.Response] = []
    with running(copied, tmp_path) as service:

        def call() -> httpx.Response:
            return service.request("POST", "/speakers/hugo", files=files_of(recordings, "hugo"))

        enrolling = threading.Thread(target=lambda: answers.append(call()))
        enrolling.start()
        wait_until(lambda: trainer_of(service))
        os.kill(trainer_of(service), signal.SIGKILL)
        enrolling.join(60)
        assert "has died" in problem_of(answers[0], 503)
        assert answers[0].headers["retry-after"]
        assert Store(copied).state() == before
        assert service.uploads == []
        assert call().status_code == 201
        assert names_in(service)[-1] == "hugo"


@pytest.mark.slow
def test_a_store_is_made_by_the_first_enrollment(tmp_path, recordings, heard):
    settings = ("--set", "features.rate=8000", "--set", "scoring.system=worst_rival", "--set", "codebook.centroids=30")
    with running(tmp_path / "new.store", tmp_path, "--no-background", *settings) as service:
        assert names_in(service) == []
        nobody = service.request("POST", "/verify", data={"claim": "anna"}, files={"file": b"RIFF"})
        assert "nobody is enrolled" in problem_of(nobody, 404)
        for name in ("anna", "lars"):
            made = service.request("POST", f"/speakers/{name}", files=files_of(recordings, name, 12))
            assert made.status_code == 201, made.text
        assert names_in(service) == ["anna", "lars"]
        samples, rate = samples_of(heard("anna"))
        assert streamed(service, "anna", rate, pcm16(samples), "pcm_s16le", 4)["decision"] == "accepted"


@pytest.mark.slow
def test_the_first_user_of_a_new_store_is_told_from_others(tmp_path, recordings, heard):
    with running(tmp_path / "new.store", tmp_path, "--config", "lean") as service:
        assert names_in(service) == []
        made = service.request("POST", "/speakers/bruno", files=files_of(recordings, "bruno", 12))
        assert made.status_code == 201, made.text
        assert names_in(service) == ["bruno"]
        for name, decision in (("bruno", "accepted"), ("lars", "rejected"), ("karla", "rejected")):
            files = {"file": heard(name).read_bytes()}
            answer = service.request("POST", "/verify", data={"claim": "bruno"}, files=files)
            assert answer.json()["decision"] == decision, answer.text


# Callers who want more than their share


def test_only_the_decision_is_told_without_the_scope_scores(guarded, heard):
    files = {"file": heard("anna").read_bytes()}
    plain, full = (
        guarded.request("POST", "/verify", data={"claim": "anna"}, files=files, token=token).json()
        for token in (PLAIN_TOKEN, VERIFY_TOKEN)
    )
    assert plain["decision"] == full["decision"] == "accepted"
    assert full["score"] > full["threshold"]
    assert {plain[name] for name in ("score", "llr", "probability", "threshold")} == {None}
    samples, rate = samples_of(heard("anna"))
    with guarded.socket("/verify") as socket:
        send(socket, claim="anna", rate=rate, format="pcm_s16le", token=PLAIN_TOKEN)
        until(socket, "ready")
        socket.send(pcm16(samples))
        update = until(socket, "update")
        assert (update["decision"], update["threshold_probability"]) == ("undecided", None)
        send(socket, type="end")
        assert until(socket, "final")["decision"] == "accepted"
    for more in ({"system": "rpoao"}, {"early": {"miss": 0.01}}):
        with guarded.socket("/verify") as socket:
            send(socket, claim="anna", rate=8000, format="pcm_s16le", token=PLAIN_TOKEN, **more)
            assert receive(socket)["status"] == 403


def test_a_stream_of_somebody_who_is_removed_ends_without_a_decision(copied, tmp_path, heard):
    samples, rate = samples_of(heard("lars", 2))  # of words that this synthetic voice was not enrolled with
    before, log = Store(copied).load(), tmp_path / "log.jsonl"
    with running(copied, tmp_path, "--log", log) as service:
        with service.socket("/verify") as socket:
            send(socket, claim="lars", rate=rate, format="pcm_s16le")
            until(socket, "ready")
            socket.send(pcm16(samples))
            assert until(socket, "update")["decision"] == "accepted"
            assert service.request("DELETE", "/speakers/lars").status_code == 200
            send(socket, type="end")
            problem = receive(socket)
            assert (problem["type"], problem["status"], problem["kind"]) == ("problem", 409, "StreamClosedError")
        assert entries_in(log)[-1]["error"] == "StreamClosedError"
        assert DuplicateMemory.beside(log).known(before, "lars") == []


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="processes are looked up in /proc")
def test_a_removal_waits_for_nobodys_enrollment_which_is_done_after_it(copied, tmp_path, recordings):
    answers: list[httpx.Response] = []
    with running(copied, tmp_path) as service:

        def call() -> None:
            answers.append(service.request("POST", "/speakers/hugo", files=files_of(recordings, "hugo")))

        enrolling = threading.Thread(target=call)
        enrolling.start()
        wait_until(lambda: trainer_of(service))
        assert service.request("DELETE", "/speakers/lars").status_code == 200
        enrolling.join(120)
        assert answers[0].status_code == 201, answers[0].text
        assert names_in(service) == ["anna", "dexter", "ivan", "hugo"]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="processes are looked up in /proc")
def test_an_upload_whose_caller_has_gone_is_no_longer_decoded(service):
    packed = packed_flac(20.0, 30_000)
    with pytest.raises(httpx.TimeoutException):
        httpx.post(f"{service.url}/verify", data={"claim": "anna"}, files={"file": packed}, timeout=0.5)
    wait_until(lambda: not trainer_of(service) and not service.uploads)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="processes are looked up in /proc")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGKILL, -9), (signal.SIGHUP, 0)])
def test_nothing_is_left_of_a_service_however_it_ends(copied, tmp_path, heard, number, code):
    with running(copied, tmp_path) as service:
        answer = service.request("POST", "/verify", data={"claim": "anna"}, files={"file": heard("anna").read_bytes()})
        assert answer.status_code == 200
        decoder = trainer_of(service)
        with service.socket("/enroll") as socket:
            send(socket, name="dora", rate=8000, format="pcm_s16le")
            until(socket, "ready")
            assert service.uploads
            service.process.send_signal(number)
            assert service.process.wait(60) == code
        wait_until(lambda: not Path(f"/proc/{decoder}/cmdline").exists(), 20)
        assert bool(service.uploads) == (code != 0)
    with running(copied, Path(tmp_path / "next"), spool=service.spool) as service:
        assert service.uploads == []
