"""Parts of the service that need no sockets: tokens, the store as it changes, errors, addresses, curves."""

from __future__ import annotations

import asyncio
import errno
import gc
import json
import os
import shutil
import signal
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import repeat
from typing import get_type_hints

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st
from service import evaluated
from starlette.websockets import WebSocket, WebSocketDisconnect

from pipeline import errors
from pipeline.audio.streams import PcmFormat
from pipeline.enrollment.enroll import enroll
from pipeline.enrollment.removal import remove_speaker
from pipeline.errors import ConfigError, ServiceError, StoreMissingError, StreamClosedError, UnknownSpeakerError
from pipeline.evaluation import read_list, write_list
from pipeline.evaluation.curves import state_of
from pipeline.metrics import equal_error_rate, error_curve
from pipeline.scoring.decisions import Terms, Update
from pipeline.server.callers import Caller, Shares
from pipeline.server.connections import Connection
from pipeline.server.curves import last_evaluation
from pipeline.server.limits import Limits
from pipeline.server.messages import Hello, problem, read_hello, service_error, shown
from pipeline.server.newest import NewestModel, VerifierSettings
from pipeline.server.run import listen, serve, url_of
from pipeline.server.security import SCOPES, VARIABLE, is_loopback, limit_bodies, parse_tokens, read_tokens, scopes_of
from pipeline.server.service import Service
from pipeline.server.settings import Settings
from pipeline.server.spool import Spool
from pipeline.server.streams import verify_file
from pipeline.server.utterances import UtteranceFiles
from pipeline.store.backup import backup_store, restore_store
from pipeline.store.store import Store

TOKEN = st.text("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~+/", min_size=16, max_size=64)


# Recordings


@pytest.mark.parametrize(("encoding", "kind"), [("s16le", "<i2"), ("f32le", "<f4")])
def test_the_file_of_an_utterance_holds_the_samples_that_were_sent_however_they_are_cut(encoding, kind, tmp_path):
    sent = np.arange(-(2**15), 2**15).astype(kind)
    if kind == "<f4":
        bits = np.random.default_rng(0).integers(0, 2**32, 50_000, dtype=np.uint32).view("<f4")
        sent = bits[np.abs(bits) < 2.0**31]  # finite, subnormal ones among them
    data, settings = sent.tobytes(), Settings(tmp_path / "s.store")
    files = UtteranceFiles(settings, tmp_path, None, PcmFormat(16_000, encoding=encoding))
    for start in range(0, len(data), 9_999):
        files.push(data[start : start + 9_999])
    files.finish()
    (path,) = files.recordings()
    assert soundfile.read(path, dtype=sent.dtype.name)[0].astype(kind).tobytes() == data


def test_an_utterance_for_which_no_file_can_be_opened_is_not_said_to_have_no_room(tmp_path):
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with closing(UtteranceFiles(Settings(tmp_path / "s.store"), tmp_path, None, PcmFormat(16_000))) as files:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
            with pytest.raises(OSError) as refused:
                files.next_utterance()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert service_error(refused.value).status == 503


# Tokens


@given(st.dictionaries(TOKEN, st.sampled_from(["enroll", "verify", "admin", "enroll,verify"]), min_size=1, max_size=5))
def test_a_token_has_the_scopes_of_its_line_and_others_have_none(entries):
    tokens = parse_tokens("\n".join(f"{scope} {token}" for token, scope in entries.items()), "here")
    for token, scope in entries.items():
        expected = SCOPES if scope == "admin" else set(scope.split(","))
        assert scopes_of(tokens, token) == expected
        assert scopes_of(tokens, f"{token}x") == scopes_of(tokens, token[:-1]) == frozenset()
        assert token not in repr(tokens)
    assert scopes_of(tokens, "") == scopes_of(tokens, "\ud800") == frozenset()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "at least one line"),
        ("# nothing\n\n", "at least one line"),
        ("s3cret-s3cret-s3cret", "scope is one of"),
        ("root aaaaaaaaaaaaaaaaaaaa", "scope is one of"),
        ("verify aaaaaaaaaaaaaaa", "at least 16"),
        ("verify with blanks in the token", "at least 16"),
        ("verify aaaaaaaaaaaaaaaaaaaa\nenroll aaaaaaaaaaaaaaaaaaaa", "entry 2: the token is given twice"),
    ],
)
def test_tokens_that_are_none_are_refused_and_not_shown(text, words):
    with pytest.raises(ConfigError, match=words) as refused:
        parse_tokens(text, "tokens.txt")
    assert "s3cret" not in str(refused.value)
    assert "aaaa" not in str(refused.value)


def test_tokens_come_from_a_file_or_the_environment(tmp_path, monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    assert read_tokens() is None
    monkeypatch.setenv(VARIABLE, "verify aaaaaaaaaaaaaaaaaaaa;enroll bbbbbbbbbbbbbbbbbbbb")
    assert scopes_of(read_tokens(), "b" * 20) == {"enroll"}
    (tmp_path / "tokens.txt").write_text("  # hers\nverify   cccccccccccccccccccc==\r\n")
    assert scopes_of(read_tokens(tmp_path / "tokens.txt"), "c" * 20 + "==") == {"verify"}
    with pytest.raises(ConfigError, match="cannot be read"):
        read_tokens(tmp_path / "missing.txt")
    (tmp_path / "tokens.txt").write_bytes(b"verify \xff")
    with pytest.raises(ConfigError, match="cannot be read: it is not text"):
        read_tokens(tmp_path / "tokens.txt")


# The bounds


def test_as_much_audio_as_is_allowed_fits_in_two_channels_of_a_file_and_one_of_an_enrollment():
    for bounds in (Limits(file_seconds=600.0, enroll_seconds=1800.0), Limits(file_seconds=600.0, enroll_seconds=60.0)):
        assert bounds.audio.samples == max(600 * 48_000 * 2, int(bounds.enroll_seconds) * 48_000)


def test_a_body_has_so_many_seconds_and_its_sender_any_number_for_the_answer():
    async def read(limits: Limits, messages) -> None:
        async def receive():
            seconds, message = next(messages)
            await asyncio.sleep(seconds)
            return message

        async def app(_scope, receive, _send):
            while (await receive())["type"] != "http.disconnect":
                pass

        bounded = limit_bodies(app, limits, None, Shares("bytes", 1000, 1000))
        await bounded({"type": "http", "headers": [], "client": None}, receive, None)

    part, last = ({"type": "http.request", "body": b"x", "more_body": more} for more in (True, False))
    with pytest.raises(TimeoutError):
        asyncio.run(read(Limits(body_seconds=0.3), repeat((0.01, part))))
    asyncio.run(read(Limits(body_seconds=0.3, idle_seconds=0.3), iter([(0, last), (0.5, {"type": "http.disconnect"})])))


def test_messages_that_came_with_the_end_of_a_stream_are_received_before_it(store):
    events = [
        {"type": "websocket.connect"},
        *({"type": "websocket.receive", "bytes": data, "text": None} for data in (b"one", b"two")),
        {"type": "websocket.disconnect", "code": 1001},
    ]

    async def receive():
        return events.pop(0)

    async def send(_message) -> None:
        pass

    async def scenario(service: Service) -> None:
        socket = WebSocket({"type": "websocket"}, receive, send)
        await socket.accept()
        connection = Connection(socket, service, "verify")
        assert await connection.receive() == [b"one", b"two"]
        for _ in range(2):
            with pytest.raises(WebSocketDisconnect):
                await connection.receive()

    with closing(Service(Settings(store), threads=1)) as service:
        asyncio.run(scenario(service))


# The spool


def test_a_voice_that_cannot_be_deleted_where_no_file_can_be_opened_is_deleted_with_the_next(store):
    resource = pytest.importorskip("resource")

    async def test(service):
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        try:
            async with service.private_folder() as first:
                (first / "voice").write_bytes(b"voice")
                resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert first.exists()
        async with service.private_folder() as second:
            assert second.exists()
        assert not first.exists() and not second.exists()

    with closing(Service(Settings(store), threads=1)) as service:
        asyncio.run(test(service))


def test_a_spool_leaves_room_and_those_of_services_that_live_and_deletes_itself_and_the_others(tmp_path):
    one = Spool(tmp_path, 2**60)
    assert 0 < one.bytes <= shutil.disk_usage(tmp_path).free / 2 + 2**28  # others write, too
    upload = one.private_folder() / "upload"
    upload.touch()
    two = Spool(tmp_path, 5)
    assert upload.exists() and two.bytes == 5
    one._lock.release()  # as where its service was killed
    three = Spool(tmp_path, 5)
    assert set(tmp_path.iterdir()) == {two.folder, three.folder}
    for each in (two, three):
        each.close()
    assert not list(tmp_path.iterdir())


def test_a_place_that_holds_no_spool_is_an_error_in_one_line(tmp_path):
    with pytest.raises(ServiceError, match="no folder for uploads can be made here: No such file"):
        Spool(tmp_path / "none", 5)


# The store as it changes


def test_the_newest_revision_is_seen_and_an_older_one_goes_on(copied, recordings, heard):
    live = NewestModel(VerifierSettings(copied, most=2))
    first = live.current()
    assert live.current() is first
    verifier = live.verifier("anna")
    assert live.verifier("anna") is verifier
    expected = verifier.verify_file(heard("anna"))
    enroll(copied, {"clara": recordings["clara"][:6]})
    assert live.current().names[-1] == "clara"
    assert live.verifier("anna") is not verifier
    assert verifier.verify_file(heard("anna")) == expected
    remove_speaker(copied, "clara")
    with pytest.raises(UnknownSpeakerError):
        live.verifier("clara")
    assert verifier.verify_file(heard("anna")) == expected


def test_a_state_of_the_same_number_after_a_restore_is_another(copied, tmp_path):
    live = NewestModel(VerifierSettings(copied, most=2))
    backup_store(copied, tmp_path / "backup.store")
    remove_speaker(copied, "lars")
    seen = live.current()
    restore_store(tmp_path / "backup.store", copied)
    remove_speaker(copied, "anna")
    now = live.current()
    assert (now.identity, now.revision) == (seen.identity, seen.revision)
    assert (seen.names, now.names) == (("anna", "dexter", "ivan"), ("dexter", "ivan", "lars"))
    assert state_of(now) != state_of(seen)
    with pytest.raises(UnknownSpeakerError):
        live.verifier("anna")


def test_nothing_of_who_was_removed_is_kept(copied):
    live = NewestModel(VerifierSettings(copied, most=2))
    kept = [weakref.ref(made) for made in (live.verifier("lars"), live.identifier(), live.current())]
    remove_speaker(copied, "lars")
    live.current()
    gc.collect()
    assert [made() for made in kept] == [None] * 3


def test_who_is_given_recordings_is_not_said_to_be_removed(copied, heard):
    live = NewestModel(VerifierSettings(copied, most=2))
    verifier = live.verifier("anna")
    remove_speaker(copied, "lars")
    live.check_enrolled(verifier)
    enroll(copied, {"anna": [heard("anna")]}, add=True)
    with pytest.raises(StreamClosedError, match="removed, or enrolled anew with more recordings"):
        live.check_enrolled(verifier)


def test_another_store_in_the_place_of_this_one_has_nobody_of_it(copied, tmp_path, recordings, tiny):
    live = NewestModel(VerifierSettings(copied, most=2))
    verifier, another = live.verifier("anna"), tmp_path / "another.store"
    enroll(another, {name: recordings[name] for name in ("anna", "ivan")}, tiny)
    assert Store(another).load().revision == verifier.model.revision
    another.replace(copied)
    with pytest.raises(StreamClosedError, match="removed"):
        live.check_enrolled(verifier)
    assert live.verifier("anna").model.names == ("anna", "ivan")
    copied.rename(another)
    for _ in range(2):  # a store that is lost is not one before its first enrollment
        with pytest.raises(StoreMissingError, match=r"store is gone; put it back, or start the service again$"):
            live.current()
    another.rename(copied)
    assert live.verifier("anna").model.names == ("anna", "ivan")


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="processes are halted by signals")
def test_nothing_is_decided_on_a_file_of_somebody_who_was_removed_while_it_was_scored(copied, tmp_path, said):
    samples, rate = said
    soundfile.write(tmp_path / "long.wav", np.tile(samples, 30), rate)
    caller = Caller("address 127.0.0.1", None, frozenset())

    async def scenario(service: Service) -> None:
        service.file_scorers.start()
        (worker,) = (scorer.worker for scorer in service.file_scorers._scorers)
        verifying = asyncio.create_task(verify_file(service, caller, "anna", None, tmp_path / "long.wav", None))
        while worker.tasks < 3:  # until the claim has begun, and the first of the audio is on its way
            await asyncio.sleep(0.001)
        os.kill(worker._process.pid, signal.SIGSTOP)
        await asyncio.to_thread(remove_speaker, copied, "anna")
        os.kill(worker._process.pid, signal.SIGCONT)
        with pytest.raises(StreamClosedError, match=r"anna.* has been removed"):
            await verifying

    with closing(Service(Settings(copied), threads=1)) as service:
        asyncio.run(scenario(service))


def test_only_so_many_verifiers_are_kept(copied):
    live = NewestModel(VerifierSettings(copied, most=2))
    anna, lars = live.verifier("anna"), live.verifier("lars")
    assert live.verifier("anna") is anna
    live.verifier("ivan")
    assert live.verifier("anna") is anna
    assert live.verifier("lars") is not lars


def test_threads_that_ask_at_once_get_the_same_verifier(copied):
    live = NewestModel(VerifierSettings(copied, most=4))
    with ThreadPoolExecutor(4) as pool:
        assert len(set(map(id, pool.map(live.verifier, ["anna"] * 4)))) == 1


def test_a_store_that_is_not_there_yet_has_nobody(tmp_path):
    live = NewestModel(VerifierSettings(tmp_path / "none", most=2))
    assert live.current() is None
    with pytest.raises(UnknownSpeakerError, match="nobody is enrolled"):
        live.verifier("anna")


def test_there_is_nobody_to_be_identified_before_the_first_enrollment_and_among_background_speakers(
    tmp_path, recordings, tiny
):
    enroll(tmp_path / "s", {name: recordings[name] for name in ("ivan", "lars")}, tiny, role="background")
    for name in ("none", "s"):
        service = Service(Settings(tmp_path / name), threads=1)
        with closing(service), pytest.raises(ServiceError, match="nobody is enrolled yet") as refused:
            asyncio.run(service.identifier())
        assert refused.value.status == 409


# Errors


@pytest.mark.parametrize("kind", [errors.InputError, *errors.InputError.__subclasses__()])
def test_no_input_is_an_error_of_the_server(kind):
    error = kind.__new__(kind)
    Exception.__init__(error, "/srv/store: x\udcff")
    result = problem(service_error(error, []))
    assert 400 <= result["status"] < 500
    assert result["type"] == f"urn:voiceclaim:{kind.__name__}"
    json.dumps(result, ensure_ascii=False).encode()


def test_paths_of_the_server_are_not_told(tmp_path):
    error = errors.StoreBusyError(f"{tmp_path / 'a'}: busy, {tmp_path}")
    result = service_error(error, [(tmp_path, "the store"), (tmp_path / "a", "the file")])
    assert (result.status, result.detail) == (503, "the file: busy, the store")
    assert service_error(ServiceError(418, str(tmp_path)), [(tmp_path, "x")]).detail == str(tmp_path)


@pytest.mark.parametrize(
    ("status", "numbers"),
    [
        (507, (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)),
        (503, (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN)),
        (500, (errno.ENOENT, errno.EACCES)),
    ],
)
def test_a_machine_without_room_is_told_from_a_fault(status, numbers):
    assert {service_error(OSError(number, "x")).status for number in numbers} == {status}
    assert service_error(MemoryError()).status == 503


# What is told


def test_numbers_that_a_voice_could_be_tuned_by_need_their_scope():
    names = {*get_type_hints(Terms), *get_type_hints(Update), "threshold_probability"}
    table = {**dict.fromkeys(names, 0.5), "decision": "accepted", "settled": False}
    told = {name for name, value in shown(table, scores=False).items() if value == 0.5}
    of_audio = {"state", "frames", "speech_seconds", "audio_seconds", "duplicate_suspected", "warnings"}
    assert told == of_audio | {
        "claim", "system", "threshold_source", "prior", "unknown_impostors", "competing", "revision",
    }  # fmt: skip
    assert shown(table, scores=True) == table


@pytest.mark.parametrize(
    ("decision", "settled", "told"),
    [
        ("accepted", False, "undecided"),
        ("accepted", True, "accepted"),
        ("not_enough_speech", False, "not_enough_speech"),
    ],
)
def test_a_decision_that_may_change_needs_the_scope_of_scores(decision, settled, told):
    assert shown({"decision": decision, "settled": settled}, scores=False) == {"decision": told, "settled": settled}


def test_a_hello_shows_its_token_to_no_log():
    assert "s3cret" not in repr(read_hello('{"rate": 8000, "format": "f32le", "token": "s3cret"}', Hello))


# Addresses


def test_only_addresses_of_this_machine_go_without_tokens():
    assert all(map(is_loopback, ("127.0.0.1", "127.8.8.8", "::1", "localhost")))
    assert not any(map(is_loopback, ("192.0.2.1", "::", "localhost.example", "127.0.0.1.example", "")))


def test_an_address_beyond_this_machine_without_tokens_or_already_taken_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"192\.0\.2\.1: .*needs tokens"):
        serve(Settings(tmp_path / "store"), "192.0.2.1", 0, threads=1, started=print)
    with listen("127.0.0.1", 0, 1.0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ServiceError, match=f"cannot listen on 127.0.0.1 port {port}.*--port 0"):
            listen("127.0.0.1", port, 1.0)
    assert url_of("::1", 8000) == "http://[::1]:8000/"


# The evaluation


@pytest.mark.parametrize("trials", [20, 3000])
def test_the_curves_of_an_evaluation_are_those_of_its_scores(tmp_path, trials):
    rng = np.random.default_rng(0)
    target, nontarget = rng.normal(1.5, 1.0, trials), rng.normal(0.0, 1.0, trials)
    evaluated(tmp_path / "evaluation", supervector=(target, nontarget))
    result = last_evaluation(tmp_path / "evaluation")
    assert last_evaluation(tmp_path / "evaluation") is result
    (system,) = result.systems
    curve = error_curve(target, nontarget)
    assert len(system.thresholds) <= 400
    for threshold, accept, reject in zip(system.thresholds, system.false_accept, system.false_reject, strict=True):
        step = np.searchsorted(curve.thresholds, threshold)
        assert (accept, reject) == (curve.false_accept[step], curve.false_reject[step])
    assert (system.false_accept[0], system.false_reject[0]) == (1.0, 0.0)
    assert system.thresholds == sorted(set(system.thresholds))
    assert np.max(np.abs(np.diff(system.false_accept))) < 0.1
    assert np.max(np.abs(np.diff(system.false_reject))) < 0.1
    assert system.equal_error_rate == equal_error_rate(target, nontarget).rate
    assert system.store_threshold == 0.25
    assert "secret" not in result.model_dump_json()
    evaluated(tmp_path / "evaluation", supervector=(target[:10], nontarget))
    assert last_evaluation(tmp_path / "evaluation").systems[0].targets == 10
    # A long list is kept as a table.
    text = tmp_path / "evaluation" / "scores.txt"
    write_list(text.with_suffix(".parquet"), read_list(text), format_name="parquet")
    text.unlink()
    assert last_evaluation(tmp_path / "evaluation").systems[0].targets == 10


def test_no_evaluation_is_said_to_be_none(tmp_path):
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "scores.txt").write_text("no scores")
    for folder in (None, tmp_path / "missing", tmp_path / "broken"):
        with pytest.raises(ServiceError) as refused:
            last_evaluation(folder)
        assert refused.value.status == 404
        assert str(tmp_path) not in refused.value.detail
