"""Claims with a file over HTTP: what is answered and told to whom, what is no claim, and how large a file may be."""

from __future__ import annotations

import time

import httpx
import numpy as np
import pytest
import soundfile
from service import (
    ENROLL_TOKEN,
    PLAIN_TOKEN,
    VERIFY_TOKEN,
    pcm16,
    problem_of,
    receive,
    running,
    samples_of,
    send,
    streamed,
    until,
)

from pipeline.server.client import VoiceclaimClient
from pipeline.verification.audio_warnings import WARNINGS

pytestmark = pytest.mark.server


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


def test_errors_are_of_the_type_and_the_fields_that_openapi_promises(service):
    described = service.request("GET", "/openapi.json").json()
    operations = {
        details["operationId"]: details for verbs in described["paths"].values() for details in verbs.values()
    }
    assert {"speakers", "enroll", "add", "remove", "verify", "identify"} <= set(operations)
    answer = service.request("POST", "/verify", data={"claim": "nobody"}, files={"file": b"RIFF"})
    problem_of(answer, 404)
    schemas = [
        reply["content"][answer.headers["content-type"]]["schema"]
        for operation in operations.values()
        for status, reply in operation["responses"].items()
        if int(status) >= 400 and len(reply["content"]) == 1
    ]
    assert len(schemas) == sum(int(status) >= 400 for each in operations.values() for status in each["responses"])
    assert all(schema == {"$ref": "#/components/schemas/Problem"} for schema in schemas)
    assert set(described["components"]["schemas"]["Problem"]["required"]) == set(answer.json())


@pytest.mark.parametrize(
    ("data", "files", "status", "words"),
    [
        ({"claim": "ana"}, {"file": b"RIFF"}, 404, "nearest enrolled: 'anna'"),
        ({"claim": "anna"}, {"file": b"no audio"}, 422, "cannot be decoded"),
        ({"claim": "anna"}, {"file": b""}, 422, "empty"),
        ({"claim": "anna", "system": "guess", "channel": "1"}, {"file": b"RIFF"}, 422, "'guess' is unknown"),
        ({}, {"file": b"RIFF"}, 422, "'claim' must name a speaker"),
        ({"claim": ["anna", "lars"]}, {"file": b"RIFF"}, 422, "once"),
        ({"claim": ["anna"] * 9}, {"file": b"RIFF"}, 400, "Too many fields"),
        ({"claim": "x" * 9000}, {"file": b"RIFF"}, 400, "exceeded maximum size"),
        ({"claim": "anna"}, [("file", b"RIFF"), ("file", b"RIFF")], 400, "Too many files"),
        ({}, {"claim": b"anna"}, 422, "at least one file in the field 'file' was expected"),
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
    ("charset", "status"),
    [("utf-8", 404), ("UTF-8", 404), ("latin-1", 404), ("undefined", 415), ("punycode", 415), ("unicode_escape", 415)],
)
def test_a_form_is_in_one_of_two_encodings(service, charset, status):
    body = (
        b'--B\r\nContent-Disposition: form-data; name="claim"\r\n\r\nb\\ud800\r\n'
        b'--B\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\nx\r\n--B--\r\n'
    )
    headers = {"content-type": f"multipart/form-data; boundary=B; charset={charset}"}
    problem_of(service.request("POST", "/verify", content=body, headers=headers), status)


@pytest.mark.parametrize("cut", [b"\r\n--B--\r\n", b"9\r\n--B--\r\n", b"--\r\n", b""], ids=repr)
def test_a_form_that_was_cut_short_is_refused_and_none_of_it_is_used(service, heard, cut):
    """Its last field, the channel that the recording does not have, would be missing unnoticed."""
    body = (
        b'--B\r\nContent-Disposition: form-data; name="claim"\r\n\r\nanna\r\n'
        b'--B\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\n%b\r\n'
        b'--B\r\nContent-Disposition: form-data; name="channel"\r\n\r\n9\r\n--B--\r\n'
    ) % heard("anna").read_bytes()
    headers = {"content-type": "multipart/form-data; boundary=B"}
    answer = service.request("POST", "/verify", content=body.removesuffix(cut), headers=headers)
    assert ("cut short" if cut else "channel 9") in problem_of(answer, 400 if cut else 422)
    assert service.uploads == []


def test_audio_that_was_accepted_before_is_told_when_there_is_a_log(guarded, heard):
    """The guarded service keeps a log, and fingerprints of what it accepted beside it."""
    files = {"file": heard("lars", 2).read_bytes()}  # of words that this synthetic voice was not enrolled with
    for suspected in (False, True):
        answer = guarded.request("POST", "/verify", data={"claim": "lars"}, files=files, token=VERIFY_TOKEN).json()
        assert (answer["decision"], answer["duplicate_suspected"]) == ("accepted", suspected)


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
    file = httpx.Request("POST", guarded.url, data={"claim": "anna"}, files={"file": bytes(2**20 + 1)})
    headers = {"Content-Type": file.headers["Content-Type"]}
    chunked = guarded.request("POST", "/verify", content=iter([file.read()]), headers=headers, token=VERIFY_TOKEN)
    assert "1,048,576 bytes" in problem_of(chunked, 413)
    most = guarded.request("POST", "/verify", content=file.read()[: 2**20], headers=headers, token=VERIFY_TOKEN)
    assert "cut short" in problem_of(most, 400)
    assert guarded.uploads == []


def test_uploads_have_their_share_of_the_room(store, tmp_path):
    with running(store, tmp_path, "--spool-mib", 1) as service:
        files = {"file": bytes(2**19 + 1)}
        answer = service.request("POST", "/verify", data={"claim": "anna"}, files=files)
        assert "one caller has at most 524,288 bytes of uploads" in problem_of(answer, 503)
        with service.socket("/enroll") as socket:
            send(socket, name="dora", rate=8000, format="pcm_s16le")
            until(socket, "ready")
            for size in (0, 2**19, 2):
                socket.send(bytes(size))
            while (last := receive(socket))["type"] == "progress":
                pass
            assert "one caller has at most 524,288 bytes of uploads" in last["detail"]


def test_a_body_that_keeps_up_is_read_however_long_it_takes(guarded):
    """Twice as long as the service waits for nothing, in parts at four times the least rate."""
    file = httpx.Request("POST", guarded.url, data={"claim": "anna"}, files={"file": bytes(2**17)})
    body = file.read()

    def parts():
        for at in range(0, len(body), 2**14):
            yield body[at : at + 2**14]
            time.sleep(0.25)

    headers = {"Content-Type": file.headers["Content-Type"]}
    answer = guarded.request("POST", "/verify", content=parts(), headers=headers, token=VERIFY_TOKEN)
    assert "cannot be decoded" in problem_of(answer, 422)


def test_only_the_decision_is_told_without_the_scope_scores(guarded, heard):
    files = {"file": heard("anna").read_bytes()}
    plain, full = (
        guarded.request("POST", "/verify", data={"claim": "anna"}, files=files, token=token).json()
        for token in (PLAIN_TOKEN, VERIFY_TOKEN)
    )
    assert plain["decision"] == full["decision"] == "accepted"
    assert full["score"] > full["threshold"]
    assert plain.keys() == full.keys()
    assert {plain[name] for name in ("score", "llr", "probability", "threshold")} == {None}
    samples, rate = samples_of(heard("anna"))
    with guarded.socket("/verify") as socket:
        send(socket, claim="anna", rate=rate, format="pcm_s16le", token=PLAIN_TOKEN)
        ready = until(socket, "ready")
        assert ready["threshold"] is None and "score" not in ready
        socket.send(bytes(1600))
        assert until(socket, "update")["decision"] == "not_enough_speech"
        socket.send(pcm16(samples))
        update = until(socket, "update")
        assert (update["decision"], update["threshold_probability"]) == ("undecided", None)
        send(socket, type="end")
        assert until(socket, "final")["decision"] == "accepted"
    for more in ({"system": "rpoao"}, {"early": {"miss": 0.01}}):
        with guarded.socket("/verify") as socket:
            send(socket, claim="anna", rate=8000, format="pcm_s16le", token=PLAIN_TOKEN, **more)
            assert receive(socket)["status"] == 403
