"""A service that ends, a process of it that dies, and callers who go meanwhile: nobody is lost, nothing is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import httpx
import psutil
import pytest
from packed_flac import packed_flac
from service import COMMAND, Running, files_of, names_in, problem_of, receive, running, send, until, wait_until
from websockets.exceptions import ConnectionClosed

from pipeline.store.store import Store
from pipeline.verification.verifier import Verifier

pytestmark = pytest.mark.server


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


@pytest.mark.parametrize(
    ("before", "said"),
    [
        ("import pipeline.server.scorers as s; s._SECONDS = 0.05", "could not be started: it took longer than 0.05 s"),
        ("open('calls.fingerprints', 'w').write('damaged')", "calls.fingerprints: fingerprints of audio cannot be"),
        pytest.param(
            "import pipeline.cli.app, pipeline.server.run, psutil, resource as r;"
            " r.setrlimit(r.RLIMIT_AS, (psutil.Process().memory_info().vms + 2**26, r.RLIM_INFINITY))",
            "not enough memory: can't start new thread",
            marks=pytest.mark.skipif(sys.platform != "linux", reason="limits of memory"),
        ),
        *(
            pytest.param(
                "import pipeline.cli.app, pipeline.server.run, resource as r;"
                f" r.setrlimit(r.RLIMIT_NOFILE, ({most}, {most}))",
                "voiceclaim: too many open files; let this command open more (ulimit -n)",
                marks=pytest.mark.skipif(sys.platform != "linux", reason="limits of files"),
            )
            for most in (12, 20)
        ),
    ],
)
def test_a_service_that_cannot_start_says_why_in_one_line(copied, tmp_path, before, said):
    words = (*COMMAND[:-1], f"{before}; {COMMAND[-1]}", "serve", str(copied), "--port", "0", "--log", "calls")
    words = (*words, "--spool", str(tmp_path))
    ended = subprocess.run(words, check=False, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    (line,) = ended.stderr.splitlines()
    assert said in line
    assert (ended.returncode, ended.stdout) == (2, "")
    assert not list(tmp_path.glob("voiceclaim-*"))


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="signals of POSIX")
@pytest.mark.parametrize("names", [["SIGTERM"], ["SIGHUP"], ["SIGTERM", "SIGTERM", "SIGINT"]])
def test_a_service_that_is_ended_while_it_starts_leaves_nothing(copied, tmp_path, names):
    ended_at_its_start(copied, tmp_path, lambda process: process.children(), names)


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="signals of POSIX")
def test_a_service_that_is_ended_while_it_makes_its_store_leaves_nothing(tmp_path):
    store = tmp_path / "new.store"

    def trains(process: psutil.Process) -> bool:
        return store.exists() and sum(thread.user_time > 0.3 for thread in process.threads()) > 1

    ended_at_its_start(store, tmp_path, trains, ["SIGTERM"])
    assert not list(tmp_path.glob("new.store*"))


def ended_at_its_start(store: Path, folder: Path, at: Callable[[psutil.Process], object], names: Sequence[str]) -> None:
    """Send a service on ``store`` the signals of these names, one after the other, and check that it ends well."""
    spool = folder / "spool"
    spool.mkdir()
    words = (*COMMAND, "serve", str(store), "--port", "0", "--spool", str(spool), "--jobs", "2")
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as starting:
        try:
            wait_until(lambda: at(psutil.Process(starting.pid)))
            for name in names:
                starting.send_signal(getattr(signal, name))
                time.sleep(0.1)
            said, _ = starting.communicate(timeout=60)
        finally:
            starting.kill()  # one that hangs fails the test, and not the whole run
    assert starting.returncode == 0 and b"Traceback" not in said, said
    assert not list(spool.iterdir())


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_a_second_interrupt_ends_a_service_at_once_and_quietly(copied, tmp_path):
    with running(copied, tmp_path) as service:
        children = psutil.Process(service.process.pid).children()
        with service.socket("/enroll") as socket:
            send(socket, name="dora", rate=8000, format="pcm_s16le")
            until(socket, "ready")
            for _ in range(2):
                service.process.send_signal(signal.SIGINT)
            assert service.process.wait(60) == 0
        assert "Traceback" not in service.log_text
        assert not list(service.spool.iterdir())
        assert not psutil.wait_procs(children, 20)[1]


@pytest.mark.parametrize("background", [True, False])
def test_a_service_starts_where_the_first_enrollment_was_killed(tmp_path, recordings, background):
    store, options = (
        tmp_path / "s",
        ("--set", "seed=5", "--set", 'machines.kinds=["one_vs_one", "one_class"]', "--set", "scoring.system=rpoao"),
    )
    first = (*COMMAND, "background", "--store", str(store))
    with subprocess.Popen(first, stdout=subprocess.DEVNULL) as enrolling:
        wait_until(store.exists)
        enrolling.kill()
    assert store.read_bytes() == b""
    with running(store, tmp_path, *options, *([] if background else ["--no-background"])) as service:
        assert (Store(store).state() is not None) == background
        answer = service.request("POST", "/speakers/anna", files=files_of(recordings, "anna"))
        assert answer.status_code == 201, answer.text
    assert Store(store).load().config.seed == 5
