"""Access control: hosts, origins, tokens, scopes and paths, the headers of answers, and services that cannot start."""

from __future__ import annotations

import json
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest
from service import (
    ADMIN_TOKEN,
    ENROLL_TOKEN,
    IDENTIFY_TOKEN,
    PLAIN_TOKEN,
    VERIFY_TOKEN,
    Running,
    entries_in,
    pcm16,
    problem_of,
    receive,
    running_copy,
    samples_of,
    send,
    streamed,
)
from starlette.routing import Route, WebSocketRoute
from websockets.exceptions import InvalidStatus

from pipeline.server.app import create_app
from pipeline.server.routes import router
from pipeline.server.service import Service
from pipeline.server.settings import Settings

pytestmark = pytest.mark.server
OPEN = {"/", "/docs", "/openapi.json", "/page/{name:name}", "/healthz"}  # they hold nothing of anybody


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
        ({"Host": f"LocalHost:{port}", "Origin": f"http://localHOST:{port}"}, 200),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": f"http://127.0.0.1:{int(port) - 1}"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": ""}, 403),
        ({"Origin": "http://["}, 403),
    ):
        assert service.request("GET", "/speakers", headers=headers).status_code == status, headers
    for path in ("/speakers", "/page/main.js"):
        detail = problem_of(service.request("GET", path, headers={"Host": "evil.example"}), 400)
        assert detail.startswith("the Host header must be one of 127.0.0.1, [::1], localhost, got 'evil.example';")
    for header, status in (("Origin", 403), ("Host", 400)):
        with pytest.raises(InvalidStatus) as refused:
            service.socket("/verify", additional_headers={header: "http://evil.example"})
        assert refused.value.response.status_code == status
    assert "without completing" not in service.log_text
    with service.socket("/verify", additional_headers={"Origin": f"http://{host}"}) as socket:
        send(socket, claim="anna", rate=8000, format="f32le")
        assert receive(socket)["type"] == "ready"


def routes_of(store: Path) -> list[Route | WebSocketRoute]:
    app = Service(Settings(store), threads=1)
    try:
        own = [route for route in create_app(app).routes if isinstance(route, Route)]
        assert {route.path for route in own} == {"/openapi.json"}
        return [*own, *router.routes]
    finally:
        app.close()


NEEDS = {"/verify": {"verify"}, "/identify": {"identify"}, "/enroll": {"enroll"}, "/speakers/nobody": {"enroll"}}
SCOPES_OF = {
    None: None,
    "x" * 20: None,
    ENROLL_TOKEN: {"enroll"},
    PLAIN_TOKEN: {"verify"},
    IDENTIFY_TOKEN: {"identify"},
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
        needs = NEEDS.get(path, {"enroll", "verify"})  # either
        for token, scopes in SCOPES_OF.items():
            expected = 401 if scopes is None else 403 if not needs & scopes else None
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


def test_claims_to_be_nobody_have_an_end_and_so_have_their_names(store, tmp_path):
    log = tmp_path / "log.jsonl"
    with running_copy(store, tmp_path, "--log", log, "--caller-failures", 3, tokens=True) as service:

        def claim(name: str):
            return service.request("POST", "/verify", data={"claim": name}, files={"file": b"x"}, token=PLAIN_TOKEN)

        for name in ("x" * 201, "e\u0301" * 1000):
            assert "at most 200 characters" in problem_of(claim(name), 422)
            with service.socket("/verify") as socket:
                send(socket, claim=name, rate=8000, format="f32le", token=PLAIN_TOKEN)
                assert "at most 200 characters" in receive(socket)["detail"]
        assert not log.exists()
        for _ in range(4):  # a mistake of the program that claims is no failure
            fields = {"claim": "anna", "system": "guess"}
            guess = service.request("POST", "/verify", data=fields, files={"file": b"x"}, token=VERIFY_TOKEN)
            assert guess.status_code == 422
        assert [claim("nobody").status_code for _ in range(5)] == [404, 404, 404, 429, 429]
        assert claim("anna").status_code == 429
    assert [line["event"] for line in entries_in(log)] == ["open", *["verify"] * 7]


def test_failed_claims_alone_are_counted_until_a_caller_must_wait(store, tmp_path, heard, silence, garbage):
    log, anna, lars = tmp_path / "log.jsonl", heard("anna"), heard("lars")
    with running_copy(store, tmp_path, "--log", log, "--failures", 2, tokens=True) as service:

        def claim(file: Path, **more: str):
            fields, token = {"claim": "anna", **more}, VERIFY_TOKEN if more else PLAIN_TOKEN
            return service.request("POST", "/verify", data=fields, files={"file": file.read_bytes()}, token=token)

        def live(file: Path) -> str:
            samples, rate = samples_of(file)
            return streamed(service, "anna", rate, pcm16(samples), "pcm_s16le", 1, PLAIN_TOKEN)["decision"]

        for _ in range(2):
            assert claim(silence).json()["decision"] == live(silence) == "not_enough_speech"
            assert claim(garbage).status_code == claim(anna, system="guess").status_code == 422
        assert [claim(file).json()["decision"] for file in (lars, anna, lars)] == ["rejected", "accepted", "rejected"]
        assert [live(file) for file in (anna, lars)] == ["accepted", "rejected"]
        assert claim(lars).json()["decision"] == "rejected"
        assert claim(anna).status_code == 429
    events = [line["event"] for line in entries_in(log)]
    assert (events[-2:], events.count("delay")) == (["delay", "verify"], 1)


def test_streams_that_begin_at_once_count_within_the_hour(store, tmp_path):
    with ExitStack() as held:
        service = held.enter_context(running_copy(store, tmp_path, "--caller-failures", 2, tokens=True))
        sockets = [held.enter_context(service.socket("/verify")) for _ in range(4)]
        for claim, socket in zip(("anna", "dexter", "ivan", "lars"), sockets, strict=True):
            send(socket, claim=claim, rate=8000, format="f32le", token=PLAIN_TOKEN)
        first = sorted(receive(socket).get("status", 200) for socket in sockets)
    assert first == [200, 200, 429, 429]


def test_failures_that_cannot_be_counted_let_nobody_in_and_name_no_file(store, tmp_path):
    (tmp_path / "voices.store.attempts").write_bytes(b"no database" * 99)
    with running_copy(store, tmp_path, tokens=True) as service:
        answer = service.request("POST", "/verify", data={"claim": "anna"}, files={"file": b"x"}, token=PLAIN_TOKEN)
        assert "voices" not in problem_of(answer, 503)
        service.store.write_bytes(b"no store" * 99)
        assert "the store: " in problem_of(service.request("GET", "/healthz"), 503)


def test_a_token_may_come_in_the_head_of_a_websocket_too(guarded):
    with guarded.socket("/verify", additional_headers={"Authorization": f"bearer  {VERIFY_TOKEN}"}) as socket:
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
    for path in ("/page/../app.py", "/page/%2e%2e/app.py", "/page//etc/passwd", "/page/", "/page/charts", "/page/%00"):
        assert service.request("GET", path).status_code == 404


@pytest.mark.parametrize("path", ["/nowhere", "/healthz", "/page/index.html", "/verify%ff"])
def test_a_websocket_to_another_path_is_refused_by_a_problem(guarded, path):
    with pytest.raises(InvalidStatus) as refused:
        guarded.socket(path)
    answer = refused.value.response
    assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")
    assert "no such path" in json.loads(answer.body)["detail"]
    assert "ERROR" not in guarded.log_text


def test_the_head_of_a_request_has_an_end(service):
    host, _, port = service.url.removeprefix("http://").rpartition(":")
    with socket.create_connection((host, int(port)), timeout=30) as caller:
        caller.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n")
        with pytest.raises(OSError, match=r"reset|Broken pipe"):
            for _ in range(1000):
                caller.sendall(b"X: " + b"y" * 2**15 + b"\r\n")
    assert service.request("GET", "/healthz").status_code == 200
