"""Services lose nothing: beside another one, without disk space, when the clock jumps, with ten thousand speakers."""

from __future__ import annotations

import json
import os
import resource
import secrets
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

import httpx
import numpy as np
import psutil
import pytest
import soundfile
from filelock import FileLock
from populations import NAMES, SMALL, content, model_of
from service import Running, metrics_of, names_in, receive, running, samples_of, send, until, wait_until
from websockets.exceptions import ConnectionClosed

from pipeline.server.scorers import CLAIMS_EACH
from pipeline.store.speakers import Speaker
from pipeline.store.store import Store
from pipeline.verification.audit import check_log

pytestmark = [pytest.mark.server, pytest.mark.skipif(sys.platform != "linux", reason="prlimit")]


def claim(service: Running, name: str, file: Path):
    return service.request("POST", "/verify", data={"claim": name}, files={"file": file.read_bytes()})


def test_two_services_of_one_store_lose_nobody(copied, tmp_path, recordings, heard):
    """Each enrolls two people while the other does, and one removes somebody; both see the same in the end."""
    before = Store(copied).load().names
    newcomers = {"bruno": 0, "clara": 1, "fergus": 0, "hugo": 1}
    with running(copied, tmp_path / "one") as first, running(copied, tmp_path / "two") as second:
        services = (first, second)

        def enroll(name: str) -> int:
            files = [("files", utterance.path.read_bytes()) for utterance in recordings[name][:8]]
            return services[newcomers[name]].request("POST", f"/speakers/{name}", files=files).status_code

        with ThreadPoolExecutor(5) as threads:
            removed = threads.submit(second.request, "DELETE", f"/speakers/{before[-1]}")
            statuses = dict(zip(newcomers, threads.map(enroll, newcomers), strict=True))
        assert set(statuses.values()) <= {201, 503}, statuses
        gone = removed.result().status_code
        assert gone in (200, 503)
        expected = {*before, *(name for name, status in statuses.items() if status == 201)}
        expected -= {before[-1]} if gone == 200 else set()
        assert sorted(names_in(first)) == sorted(names_in(second)) == sorted(expected)
        again = [name for name, status in statuses.items() if status == 503]
        assert [enroll(name) for name in again] == [201] * len(again)
        for service in services:
            assert claim(service, "anna", heard("anna")).json()["decision"] == "accepted"
            assert claim(service, "clara", heard("clara")).json()["decision"] == "accepted"
    assert set(Store(copied).check().names) == expected | set(again)


def limit_files(service: Running, size: int) -> None:
    """Let no file of the service and its processes grow beyond ``size`` bytes."""
    process = psutil.Process(service.process.pid)
    for each in (process, *process.children(recursive=True)):
        resource.prlimit(each.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def test_without_room_nothing_is_decided_or_changed_and_with_room_all_goes_on(copied, tmp_path, recordings, heard):
    before, log = content(copied), tmp_path / "log.jsonl"
    files = [("files", utterance.path.read_bytes()) for utterance in recordings["bruno"][:8]]
    with running(copied, tmp_path, "--log", log) as service:
        assert claim(service, "anna", heard("anna")).status_code == 200
        size = log.stat().st_size
        limit_files(service, size + 1)
        answer = claim(service, "anna", heard("anna"))
        assert answer.status_code in (503, 507) and "decision" not in answer.json()
        assert service.request("POST", "/speakers/bruno", files=files).status_code in (503, 507)
        assert service.request("GET", "/healthz").status_code == 200
        assert content(copied) == before
        limit_files(service, resource.RLIM_INFINITY)
        assert claim(service, "anna", heard("anna")).json()["decision"] == "accepted"
        assert service.request("POST", "/speakers/bruno", files=files).status_code == 201
        assert 'enrollments_total{outcome="enrolled"} 1.0' in metrics_of(service)
        assert service.uploads == []
    assert "bruno" in Store(copied).check().names
    events = check_log(log).events
    assert events["verify"] >= 2


def test_a_service_that_has_started_starts_no_thread_and_answers_where_none_could_start(copied, tmp_path, heard):
    """Without memory for a thread CPython may wait for ever, and with it the event loop."""
    pages = ("/", "/page/main.js", "/docs", "/healthz", "/speakers", "/metrics") * 4
    soundfile.write(tmp_path / "long.wav", np.tile(samples_of(heard("anna"))[0], 40), 8000)
    long = {"file": (tmp_path / "long.wav").read_bytes()}
    assert len(long["file"]) > 2**20  # which Starlette writes to the disk
    with running(copied, tmp_path) as service, ThreadPoolExecutor(len(pages)) as callers:
        process = psutil.Process(service.process.pid)
        threads, size = process.num_threads(), process.memory_info().vms
        resource.prlimit(process.pid, resource.RLIMIT_AS, (size, resource.RLIM_INFINITY))
        assert {answer.status_code for answer in callers.map(partial(service.request, "GET"), pages)} == {200}
        resource.prlimit(process.pid, resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        with ExitStack() as sockets:
            for _ in range(CLAIMS_EACH + 1):
                send(sockets.enter_context(service.socket("/verify")), claim="anna", rate=8000, format="f32le")
            claims = [callers.submit(claim, service, "anna", heard("anna")) for _ in range(4)]
            claims += [callers.submit(service.request, "POST", "/identify", files=long) for _ in range(4)]
            assert [each.result().status_code for each in claims] == [200] * 8
        assert process.num_threads() == threads


def test_connections_without_a_descriptor_wait_and_are_a_line_a_second(copied, tmp_path):
    with running(copied, tmp_path) as service:
        process, address = psutil.Process(service.process.pid), httpx.URL(service.url)
        most = process.num_fds() + 4
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (most, most))
        began = time.monotonic()
        with ExitStack() as connections:
            for _ in range(16):
                connections.enter_context(socket.create_connection((address.host, address.port)))
            wait_until(lambda: service.log_text.count("out of system resource: Too many open files") > 1)
            assert service.log_text.count('"event"') <= 2 + time.monotonic() - began
        assert names_in(service) == list(Store(copied).load().names)


def test_who_speaks_to_enroll_without_room_is_told_so_and_nothing_is_left(copied, tmp_path):
    with running(copied, tmp_path) as service:
        with service.socket("/enroll") as socket:
            send(socket, name="dora", rate=8000, format="pcm_s16le")
            until(socket, "ready")
            limit_files(service, 1000)
            socket.send(bytes(16_000))
            assert receive(socket)["status"] == 507
            with pytest.raises(ConnectionClosed) as closed:
                socket.recv(30)
            assert closed.value.rcvd.code == 1013
        limit_files(service, 1)
        with service.socket("/enroll") as socket:  # where not even the first utterance can be begun
            send(socket, name="dora", rate=8000, format="pcm_s16le")
            assert receive(socket)["status"] == 507
        wait_until(lambda: not service.uploads)


def test_a_log_that_another_process_holds_holds_up_claims_and_nothing_else(copied, tmp_path, heard):
    log = tmp_path / "log.jsonl"
    with running(copied, tmp_path, "--log", log) as service, ThreadPoolExecutor(4) as threads:
        with FileLock(f"{log}.lock"):
            claims = [threads.submit(claim, service, "anna", heard("anna")) for _ in range(4)]
            wait_until(lambda: 'voiceclaim_decisions_total{decision="accepted"} 4.0' in metrics_of(service))
            assert names_in(service) == list(Store(copied).load().names)
            assert not any(each.done() for each in claims)
        assert [each.result().json()["decision"] for each in claims] == ["accepted"] * 4
    assert check_log(log).events["verify"] == 4


def test_a_clock_that_jumps_ends_no_chain_and_no_memory(copied, tmp_path, heard):
    """Two services, one of them ten days ahead, write to one log and one memory in turn."""
    log = tmp_path / "log.jsonl"
    for number, ahead in enumerate((0, 864_000, 0)):
        with running(
            copied, tmp_path / str(number), "--log", log, environment={"PYTHONPATH": later(tmp_path, ahead)}
        ) as service:
            told = claim(service, "ivan", heard("ivan")).json()
        assert told["decision"] == "accepted"
        assert told["duplicate_suspected"] or number == 0
    times = [json.loads(line)["time"] for line in log.read_text(encoding="utf-8").splitlines()]
    assert times != sorted(times)
    assert check_log(log).events["verify"] == 3


def later(folder: Path, seconds: int) -> str:
    """Return a PYTHONPATH in which every clock that tells the date is ``seconds`` ahead."""
    place = folder / f"ahead {seconds}"
    place.mkdir(exist_ok=True)
    (place / "sitecustomize.py").write_text(
        "import datetime, time\n"
        f"real, ahead = time.time, {seconds}\n"
        "time.time = lambda: real() + ahead\n"
        "class Later(datetime.datetime):\n"
        "    @classmethod\n"
        "    def now(cls, tz=None):\n"
        "        return datetime.datetime.fromtimestamp(time.time(), tz)\n"
        "datetime.datetime = Later\n"
    )
    return os.pathsep.join([str(place), *filter(None, [os.environ.get("PYTHONPATH")])])


@pytest.mark.slow
def test_ten_thousand_speakers_are_listed(tmp_path):
    config = SMALL.model_copy(
        update={
            "machines": SMALL.machines.model_copy(update={"kinds": ("one_vs_rest", "one_class")}),
            "scoring": SMALL.scoring.model_copy(update={"system": "poar"}),
        }
    )
    two = model_of(NAMES[:2], config)
    speakers = tuple(
        Speaker(secrets.randbits(63), f"speaker {n}", "speaker", 10.0, 1000, 4, two.speakers[0].centroids)
        for n in range(10_000)
    )
    arrays = {name: two.arrays[0][name] for name in two.arrays[0]}
    store = Store(tmp_path / "many.store")
    with store.writing() as transaction:
        transaction.save(replace(two, speakers=speakers, arrays=tuple(dict(arrays) for _ in speakers)))
    with running(store.path, tmp_path) as service:
        listed = names_in(service)
        assert service.request("DELETE", "/speakers/nobody").status_code == 404
    assert listed == [speaker.name for speaker in speakers]
