"""Enrollments and removals side by side: nobody is let in by the way, or shut out, and answers say what was done."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from service import (
    ADMIN_TOKEN,
    ENROLL_TOKEN,
    TOKENS,
    Running,
    entries_in,
    files_of,
    names_in,
    problem_of,
    running,
    wait_until,
)

from pipeline.enrollment.enroll import enroll
from pipeline.enrollment.removal import retrained_without
from pipeline.errors import ServiceError
from pipeline.server.callers import Caller
from pipeline.server.workers import Bounds, Worker, Workers
from pipeline.store.store import Store
from pipeline.verification.audit import check_log

pytestmark = pytest.mark.server
CALLER = Caller("address 127.0.0.1", None, frozenset())
PATIENT = ("--idle-seconds", 120)  # half of a request waits while somebody is enrolled


def interrupted(service: Running, path: str, files, meanwhile) -> httpx.Response:
    """Add recordings by a request of which most arrives after it was accepted and ``meanwhile`` was called."""
    whole = httpx.Request("PUT", f"{service.url}{path}", files=files)
    body = whole.read()

    def parts():
        yield body[:200]
        wait_until(lambda: service.uploads)
        meanwhile()
        yield body[200:]

    return httpx.put(whole.url, content=parts(), headers=whole.headers, timeout=120)


def utterances_of(service: Running, name: str) -> int:
    speakers = service.request("GET", "/speakers").json()["speakers"]
    return next(each["utterances"] for each in speakers if each["name"] == name)


def test_recordings_are_added_to_whom_the_request_found_or_to_nobody(copied, tmp_path, recordings):
    with running(copied, tmp_path, *PATIENT) as service:

        def call(method: str, name: str, files=None) -> int:
            return service.request(method, f"/speakers/{name}", files=files).status_code

        def enroll_again() -> list[int]:
            return [call("DELETE", "ivan"), call("POST", "ivan", files_of(recordings, "ivan"))]

        for name, meanwhile, done in (
            ("lars", lambda: [call("DELETE", "lars")], [200]),
            ("ivan", enroll_again, [200, 201]),
        ):
            statuses: list[int] = []
            refused = interrupted(
                service,
                f"/speakers/{name}",
                files_of(recordings, name),
                lambda meanwhile=meanwhile, statuses=statuses: statuses.extend(meanwhile()),
            )
            assert statuses == done
            assert "nothing was changed" in problem_of(refused, 404)
            assert names_in(service) == ["anna", "dexter", "ivan"]
        assert utterances_of(service, "ivan") == 6


def test_two_requests_to_add_recordings_of_one_speaker_are_both_met(tmp_path, recordings, tiny_with):
    some = {name: recordings[name][:6] for name in ("anna", "ivan", "lars")}
    enroll(tmp_path / "few.store", some, tiny_with("checks.duplicates=off"))
    files, statuses = files_of(recordings, "anna", 12), []
    with running(tmp_path / "few.store", tmp_path, *PATIENT) as service:

        def add() -> None:
            statuses.append(service.request("PUT", "/speakers/anna", files=files[9:]).status_code)

        added = interrupted(service, "/speakers/anna", files[6:9], add)
        assert statuses == [200]
        assert added.status_code == 200, added.text
        assert utterances_of(service, "anna") == added.json()["utterances"] == 12
        assert "id" not in added.json()


def test_somebody_whom_another_process_removes_meanwhile_is_not_enrolled_again(copied, tmp_path, recordings):
    with running(copied, tmp_path) as service, ThreadPoolExecutor(1) as threads:
        with Store(copied).writing() as transaction:
            adding = threads.submit(service.request, "PUT", "/speakers/lars", files=files_of(recordings, "lars"))
            wait_until(lambda: service.uploads)
            time.sleep(5)  # it is waiting for the store
            transaction.save(retrained_without(transaction.model, "lars"))
        assert "no such speaker is enrolled any more" in problem_of(adding.result(), 404)
        assert names_in(service) == ["anna", "dexter", "ivan"]


@pytest.mark.slow
def test_an_enrollment_is_ended_once_and_keeps_its_turn_and_removals_wait_for_it(copied, tmp_path, recordings):
    tokens = {"VOICECLAIM_TOKENS": TOKENS}
    with running(copied, tmp_path, environment=tokens) as service, ThreadPoolExecutor(4) as threads:

        def begin(method: str, name: str, token: str) -> Future[httpx.Response]:
            files = files_of(recordings, name) if method == "POST" else None
            begun = threads.submit(service.request, method, f"/speakers/{name}", token=token, files=files)
            time.sleep(3)
            return begun

        with Store(copied).writing():  # so that it takes as long as this block
            victim = begin("POST", "hugo", ENROLL_TOKEN)
            others = [begin("POST", "bruno", ADMIN_TOKEN), begin("DELETE", "lars", ADMIN_TOKEN)]
        first = others[1].result()
        second = service.request("DELETE", "/speakers/ivan", token=ADMIN_TOKEN)
        answers = [first, victim.result(), second, others[0].result()]
        assert [answer.status_code for answer in answers] == [200, 201, 200, 201]
        revisions = [answer.json()["revision"] for answer in answers]
        assert revisions == sorted(revisions)
    assert Store(copied).load().names == ("anna", "dexter", "hugo", "bruno")


def test_an_enrollment_that_takes_too_long_ends(copied, tmp_path, recordings):
    with running(copied, tmp_path, "--train-seconds", 1) as service, Store(copied).writing():
        late = service.request("POST", "/speakers/hugo", files=files_of(recordings, "hugo"))
        assert "it took longer than 1 s, and was ended; nothing was changed" in problem_of(late, 503)
        assert late.headers["retry-after"] == "1"


def test_what_cannot_be_logged_is_not_done(copied, tmp_path, recordings):
    log, key = tmp_path / "calls.jsonl", tmp_path / "log.key"
    key.write_bytes(b"k" * 32)
    with running(copied, tmp_path, "--log", log, "--log-key", key) as service:
        made = service.request("POST", "/speakers/fergus", files=files_of(recordings, "fergus"))
        assert made.status_code == 201
        before, lines = Store(copied).state(), log.read_bytes()
        log.write_bytes(lines + b"no line of a log\n")
        for method, name, options in (
            ("POST", "bruno", {"files": files_of(recordings, "bruno")}),
            ("PUT", "fergus", {"files": files_of(recordings, "fergus", 9)[6:]}),
            ("DELETE", "fergus", {}),
        ):
            detail = problem_of(service.request(method, f"/speakers/{name}", **options), 503)
            assert detail.startswith("the audit log: ") and str(tmp_path) not in detail
            assert Store(copied).state() == before
        log.write_bytes(lines)
        key.rename(tmp_path / "elsewhere")
        assert str(tmp_path) not in problem_of(service.request("DELETE", "/speakers/fergus"), 503)
        (tmp_path / "elsewhere").rename(key)
        assert service.request("DELETE", "/speakers/fergus").status_code == 200
    assert check_log(log, key=b"k" * 32).events == {"open": 1, "enroll": 1, "remove": 1}


def test_what_fails_after_a_change_does_not_deny_it(copied, tmp_path, heard):
    log = tmp_path / "calls.jsonl"
    with running(copied, tmp_path, "--log", log) as service:
        Path(f"{log}.fingerprints").write_bytes(b"no database" * 1000)
        claim = {"data": {"claim": "anna"}, "files": {"file": heard("anna").read_bytes()}}
        assert "the fingerprints: " in problem_of(service.request("POST", "/verify", **claim), 503)
        assert entries_in(log)[-1]["error"] == "AuditError"
        detail = problem_of(service.request("DELETE", "/speakers/lars"), 503)
        assert "the change was made, but its record failed: the fingerprints: " in detail
        assert str(tmp_path) not in detail
        assert names_in(service) == ["anna", "dexter", "ivan"]
    assert entries_in(log)[-1]["event"] == "remove"


def test_a_process_that_dies_says_whether_it_may_have_changed_something():
    worker = Worker(Bounds(nice=0, seconds=60.0))
    try:
        worker.begin(die_after_asking)
        assert worker.receive() == "may I?"
        worker.answer()
        with pytest.raises(ServiceError, match="has died, and the change may have been made, and not be logged"):
            worker.receive()
    finally:
        worker.end()
        worker.join()


def test_a_process_that_dies_before_it_is_answered_is_said_to_have_died():
    worker = Worker(Bounds(nice=0, seconds=60.0))
    worker.begin(ask)
    assert worker.receive() == "may I?"
    worker.end()
    worker.join()
    worker.answer()
    with pytest.raises(ServiceError, match="has died"):
        worker.receive()


def test_a_task_has_its_seconds_for_all_of_its_messages():
    worker = Worker(Bounds(nice=0, seconds=60.0))
    try:
        worker.begin(ask)
        assert worker.receive() == "may I?"
        worker.answer()
        assert worker.receive() == {"result": None}
        worker._bounds = Bounds(nice=0, seconds=3.0)  # from here on, where its imports are done
        for _ in range(2):
            worker.begin(tell_twice, 0.8)
            assert [worker.receive() for _ in range(3)] == [0.8, 0.8, {"result": None}]
        worker.begin(tell_twice, 1.6)
        assert worker.receive() == 1.6
        with pytest.raises(ServiceError, match="it took longer than 3 s, and was ended; nothing was changed"):
            worker.receive()
        worker._process.join(10)
        assert worker.has_ended
    finally:
        worker.end()
        worker.join()


def test_a_process_does_sixteen_tasks_and_none_after_one_that_was_left_or_killed_it():
    async def scenario() -> None:
        async def pid() -> int:
            return await workers.result(CALLER, tell_process)

        with pytest.raises(ServiceError, match="its log names the place"):
            await workers.result(CALLER, fail, "anna")
        assert [worker.tasks for worker in workers._idle] == [1]  # it goes on after an error
        (first,) = {await pid() for _ in range(15)}
        fresh = await pid()
        assert fresh != first
        os.kill(fresh, signal.SIGKILL)
        workers._idle[0].join()
        async with workers.conversation(CALLER, tell_twice, 0.0) as (left, messages):
            assert await anext(messages) == 0.0
        assert left.has_ended
        assert await pid() not in (fresh, left._process.pid)

    workers = Workers("tasks", 1, Bounds(nice=0, seconds=60.0), waiting=1)
    try:
        asyncio.run(scenario())
    finally:
        workers.close()


def test_a_fault_in_a_process_is_a_line_with_its_place_and_names_nobody(capfd):
    worker = Worker(Bounds(nice=0, seconds=60.0))
    try:
        worker.begin(fail, "anna")
        with pytest.raises(ServiceError, match="its log names the place"):
            worker.receive()
    finally:
        worker.end()
        worker.join()
    (line,) = capfd.readouterr().err.splitlines()
    assert json.loads(line)["what"].startswith(f"KeyError at {__file__}:")
    assert "anna" not in line


@pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="Linux has processes that take what others leave")
def test_an_idle_process_and_its_threads_take_what_others_leave():
    worker = Worker(Bounds(nice=19, seconds=60.0, idle=True))
    try:
        worker.begin(tell_scheduling)
        assert worker.receive() == [[os.SCHED_IDLE, 19]] * 2
    finally:
        worker.end()
        worker.join()


def tell_scheduling(channel) -> None:
    def mine() -> list[int]:
        thread = threading.get_native_id()
        return [os.sched_getscheduler(thread), os.getpriority(os.PRIO_PROCESS, thread)]

    with ThreadPoolExecutor(1) as pool:
        channel.value([mine(), pool.submit(mine).result()])


def ask(channel) -> None:
    channel.ask("may I?")


def tell_twice(channel, seconds: float) -> None:
    for _ in range(2):
        time.sleep(seconds)
        channel.value(seconds)


def tell_process(_channel) -> int:
    return os.getpid()


def fail(_channel, name: str) -> None:
    raise KeyError(name)


def die_after_asking(channel) -> None:
    channel.ask("may I?")
    os._exit(1)
