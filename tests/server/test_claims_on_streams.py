"""Claims on a WebSocket: the library's score whatever the chunks, what is no hello, and where a stream ends."""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from contextlib import contextmanager, suppress

import numpy as np
import psutil
import pytest
import soxr
from service import (
    VERIFY_TOKEN,
    Running,
    entries_in,
    metrics_of,
    pcm16,
    receive,
    running,
    samples_of,
    send,
    streamed,
    until,
    wait_until,
)
from websockets.exceptions import ConnectionClosed

from pipeline.store.store import Store
from pipeline.verification.duplicate_audio import DuplicateMemory
from pipeline.verification.verifier import Verifier

pytestmark = pytest.mark.server


def code_of(socket) -> int:
    """The code of the close, which must be next."""
    with pytest.raises(ConnectionClosed) as closed:
        socket.recv(30)
    return closed.value.rcvd.code


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


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="processes are halted by signals")
def test_audio_that_waits_for_scoring_ends_no_stream(copied, tmp_path):
    """For longer than any keepalive waits, nothing behind that audio is read, a pong neither."""
    with running(copied, tmp_path) as service, service.socket("/verify", ping_interval=None) as socket:
        send(socket, claim="anna", rate=48_000, format="f32le")
        until(socket, "ready")
        scorers = psutil.Process(service.process.pid).children()
        audio = threading.Thread(target=lambda: [socket.send(bytes(19_200)) for _ in range(700)])  # 13 MB
        for process in scorers:
            process.suspend()
        audio.start()
        time.sleep(45)
        for process in scorers:
            process.resume()
        audio.join(60)
        send(socket, type="end")
        assert until(socket, "final")["audio_seconds"] == pytest.approx(70)


@pytest.mark.parametrize(
    ("hello", "status", "words"),
    [
        ("{", 422, "the first message: JSON: "),
        (b"\0\0", 422, "must be a hello"),
        ('{"claim": "nobody", "claim": "anna", "rate": 8000, "format": "f32le"}', 422, "twice"),
        ('{"claim": "anna", "rate": 8000, "format": "f32le", "early": {"miss": 0.1, "miss": 0.2}}', 422, "twice"),
        ({"rate": 8000, "format": "pcm_s16le"}, 422, "claim"),
        ({"claim": "anna", "rate": 8000, "format": "mp3"}, 422, "format"),
        ({"claim": "anna", "rate": "8000", "format": "f32le"}, 422, "rate"),
        ({"claim": "anna", "rate": 8001, "format": "f32le"}, 422, "one of the rates"),
        ({"claim": "anna", "rate": 8000, "format": "f32le", "more": 1}, 422, "more"),
        ({"claim": "anna", "rate": 8000, "format": "f32le", "early": {"miss": 5e-324}}, 422, "the miss rate"),
        ({"claim": "anna", "rate": 8000, "format": "f32le", "early": {"more": 1}}, 422, "early: the fields miss"),
        ({"claim": "nobody", "rate": 8000, "format": "f32le"}, 404, "no such speaker"),
        ({"claim": "x" * 8192, "rate": 8000, "format": "f32le"}, 413, "8192"),
    ],
)
def test_a_hello_that_is_none_is_a_problem(service, hello, status, words):
    with service.socket("/verify") as socket:
        started = time.monotonic()
        socket.send(json.dumps(hello) if isinstance(hello, dict) else hello)
        problem = receive(socket)
        assert (problem["type"], problem["status"]) == ("problem", status)
        assert words in problem["detail"]
        if "the first message" in problem["detail"]:  # so that nobody sends many of them
            assert time.monotonic() - started > 0.2
        assert code_of(socket) == {404: 1008, 413: 1009, 422: 1007}[status]


@pytest.mark.parametrize(
    "text",
    ["[" * 8000, "1" * 8000, "NaN", '["end"]', '{"type": "end", "more": 1}', '{"type": "end"' + " " * 8192 + "}"],
)
def test_a_command_that_is_none_is_a_problem_and_no_decision(service, text):
    with service.socket("/verify") as socket:
        send(socket, claim="anna", rate=8000, format="pcm_s16le")
        until(socket, "ready")
        socket.send(text)
        assert (problem := receive(socket))["status"] == 422 and "got another" in problem["detail"]


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
    assert entries_in(guarded.log)[-1]["decision"] == "not_enough_speech"  # of the audio before
    with begun(guarded) as (socket, _):
        socket.send(b"")
        assert until(socket, "update")["decision"] == "not_enough_speech"
        for _ in range(2):
            socket.send(bytes(2 * 8000 * 2))
        send(socket, type="end")
        socket.send(bytes(2))  # is not read
        assert until(socket, "final")["audio_seconds"] == 4
        assert code_of(socket) == 1000
    with begun(guarded) as (socket, _):
        socket.send(bytes(2**20 + 1))
        assert code_of(socket) == 1009
    with begun(guarded) as (socket, _):
        problem = receive(socket)
        assert (problem["status"], problem["kind"]) == (408, "TimeoutError")
        assert code_of(socket) == 1008


@pytest.mark.parametrize("hello", [{"claim": "anna"}, {"name": "dora"}, {}], ids=["verify", "enroll", "identify"])
@pytest.mark.parametrize(("form", "size"), [("pcm_s16le", 2), ("f32le", 4)])
def test_a_part_of_a_sample_before_the_end_is_a_problem_and_no_decision(service, hello, form, size):
    path = {"claim": "/verify", "name": "/enroll"}.get(next(iter(hello), ""), "/identify")
    with service.socket(path) as socket:
        send(socket, **hello, rate=8000, format=form)
        until(socket, "ready")
        socket.send(bytes(3 * size - 1))
        send(socket, type="end")
        while (last := receive(socket))["type"] in ("update", "progress"):
            pass
        assert (last["status"], last["kind"]) == (422, "AudioError")
        assert f"a whole sample of {size} bytes, got {size - 1} of its bytes" in last["detail"]
        assert code_of(socket) == 1007


def test_a_message_of_more_than_a_mebibyte_closes_without_a_problem(service):
    with service.socket("/verify") as socket:
        send(socket, claim="anna", rate=8000, format="f32le")
        until(socket, "ready")
        socket.send(bytes(2**20 + 1))
        assert code_of(socket) == 1009


@pytest.mark.slow
def test_a_first_message_is_waited_for_ten_seconds(service):
    started = time.monotonic()
    with service.socket("/verify") as socket:
        assert receive(socket)["status"] == 408
        assert time.monotonic() - started > 9.5


def test_a_stream_may_be_slow_but_no_slower_than_a_quarter_of_real_time(guarded):
    """The guarded service waits for a second, and each second of audio gives back four."""
    for pause, milliseconds, status in ((0.2, 100, None), (0.3, 20, 408)):
        with begun(guarded) as (socket, _):
            for _ in range(8):
                with suppress(ConnectionClosed):
                    socket.send(bytes(16 * milliseconds))
                time.sleep(pause)
            with suppress(ConnectionClosed):
                send(socket, type="end")
            while (last := receive(socket))["type"] == "update":
                pass
            assert last.get("status") == status


def test_a_stream_of_little_audio_ends_after_twice_the_time_of_the_most(store, tmp_path):
    with running(store, tmp_path, "--stream-seconds", 1) as service, begun(service) as (socket, _):
        started, last = time.monotonic(), {"type": "ready"}
        while last["type"] != "problem" and time.monotonic() < started + 15:
            time.sleep(0.1)
            with suppress(ConnectionClosed):
                socket.send(bytes(160))
            last = receive(socket)
    assert last["status"] == 408 and time.monotonic() - started > 1.5


def test_a_stream_of_tiny_messages_ends_and_of_short_ones_goes_on(service):
    for size, kind in ((64, "final"), (40, "problem")):
        with begun(service) as (socket, _):
            with suppress(ConnectionClosed):
                for _ in range(1500):
                    socket.send(bytes(size))
                send(socket, type="end")
            while (last := receive(socket))["type"] == "update":
                pass
            assert (last["type"], last.get("status")) == (kind, 429 if kind == "problem" else None)
            with pytest.raises(ConnectionClosed) as closed:
                socket.recv(30)
            assert (closed.value.rcvd is None) == (kind == "problem")  # no answer to a close is waited for


def test_there_are_only_so_many_streams(guarded):
    wait_until(lambda: not re.search(r"voiceclaim_streams\{.*} [1-9]", metrics_of(guarded, VERIFY_TOKEN)))
    with begun(guarded) as (_, first), begun(guarded) as (_, second), begun(guarded) as (socket, third):
        assert (first["type"], second["type"]) == ("ready", "ready")
        assert (third["status"], "2 streams" in third["detail"]) == (503, True)
        assert code_of(socket) == 1013


def test_chunks_that_come_together_are_scored_together(service, heard):
    """A process that falls behind catches up: the more audio a turn has, the less its seconds cost."""
    data = 16 * pcm16(samples_of(heard("anna"))[0])
    chunks = [data[at : at + 3200] for at in range(0, len(data), 3200)]
    with begun(service) as (socket, _):
        for chunk in chunks:
            socket.send(chunk)
        send(socket, type="end")
        states = [receive(socket)]
        while states[-1]["type"] != "final":
            states.append(receive(socket))
    assert (states[-1]["chunks"], states[-1]["audio_seconds"]) == (len(chunks), len(data) / 16_000)
    assert len(states) < len(chunks) / 4, len(states)


def test_a_sender_who_is_faster_than_the_maths_is_held_up_and_loses_nothing(service, store, heard):
    samples, rate = samples_of(heard("lars"))
    many = np.tile(samples, 20)
    stream = Verifier(Store(store).load(), "lars").stream(rate)
    stream.push(np.round(many * 2**15) / 2**15)
    expected = stream.close()
    result = streamed(service, "lars", rate, pcm16(many), "pcm_s16le", 5)
    assert result["score"] == pytest.approx(expected.score, abs=1e-6)
    assert result["audio_seconds"] == pytest.approx(len(many) / rate)


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
