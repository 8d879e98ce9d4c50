"""The client against the real service: what it gives is what the library gives, and every refusal is a ServiceError."""

from __future__ import annotations

import dataclasses
import shutil
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from file_server import served_folder
from service import (
    ADMIN_TOKEN,
    IDENTIFY_TOKEN,
    PLAIN_TOKEN,
    VERIFY_TOKEN,
    metrics_of,
    running,
    running_copy,
    samples_of,
)
from websockets.sync.server import ServerConnection, serve

from pipeline.errors import AudioError, InputError, ServiceError, StreamClosedError
from pipeline.scoring.decisions import Decision, State, Update
from pipeline.scoring.sequential import SequentialTest
from pipeline.server.client import EnrolledSpeaker, VoiceclaimClient
from pipeline.store.store import Store
from pipeline.verification.identifier import Identifier
from pipeline.verification.policies import Sequential
from pipeline.verification.verifier import Verifier

pytestmark = pytest.mark.server


def assert_alike(result: Update, expected: Update) -> None:
    """Every field of the two, numbers to the last digits but a few."""
    for field in dataclasses.fields(Update):
        ours, theirs = getattr(result, field.name), getattr(expected, field.name)
        assert ours == (pytest.approx(theirs, abs=1e-6) if isinstance(theirs, float) else theirs), field.name


def test_a_file_is_verified_as_the_library_does(client, store, heard):
    verifier = Verifier(Store(store).load(), "dexter")
    for voice in ("dexter", "anna"):
        result = client.verify("dexter", heard(voice))
        assert_alike(result.update, verifier.verify_file(heard(voice)))
        assert client.verify("dexter", heard(voice).read_bytes(), system="rpoao").terms.system == "rpoao"
        assert dataclasses.replace(result.terms, revision=1) == verifier.terms
    assert result.decision is Decision.REJECTED


def test_integers_as_recorded_are_streamed_as_the_library_takes_them(client, store, heard):
    samples, rate = samples_of(heard("ivan"))
    recorded = np.round(samples * 2**15).astype(np.int16)
    expected = Verifier(Store(store).load(), "ivan").stream(rate)
    with client.stream("ivan", rate=rate) as stream:
        assert_alike(stream.push(recorded), expected.push(recorded))
        for other in (recorded.astype(np.int64), recorded.tobytes(), "call.wav", [[0.0], [0.0, 1.0]]):
            with pytest.raises(AudioError, match=r"^samples: samples must be"):
                stream.push(other)
    for other in (None, "8000", np.nan, 8):
        with pytest.raises(AudioError, match=r"^stream: the sampling rate must"), client.stream("ivan", rate=other):
            pass
    assert_alike(stream.final.update, expected.close())


@pytest.mark.parametrize("early", [None, SequentialTest(0.05, 0.05, "fixed")])
def test_a_stream_gives_the_updates_that_the_library_gives(client, store, heard, early):
    samples, rate = samples_of(heard("ivan"))
    policy = None if early is None else Sequential(early)
    expected = Verifier(Store(store).load(), "ivan", decide_by=policy).stream(rate)
    with client.stream("ivan", rate=rate, early=early) as stream:
        for start in range(0, len(samples), 1600):
            chunk = samples[start : start + 1600]
            assert_alike(stream.push(chunk), expected.push(chunk))
        with pytest.raises(StreamClosedError, match="has not ended"):
            _ = stream.final
    assert_alike(stream.final.update, expected.close())
    assert stream.final.update.state is State.CLOSED
    assert stream.terms == stream.final.terms
    assert (stream.terms.sequential_bounds is None) == (early is None)
    with pytest.raises(StreamClosedError, match="takes no more"):
        stream.push(samples)


def test_a_speaker_is_identified_in_a_file_and_live_as_the_library_does(client, store, heard):
    identifier = Identifier(Store(store).load())
    assert client.identify(heard("ivan")) == identifier.identify_file(heard("ivan"))
    samples, rate = samples_of(heard("lars"))
    expected = identifier.stream(rate)
    with client.identification(rate=rate) as stream:
        for start in range(0, len(samples), 1600):
            chunk = samples[start : start + 1600]
            assert stream.push(chunk).name == expected.push(chunk).name
    result, offline = stream.final, expected.close()
    assert (result.decision, result.name, result.closed) == (offline.decision, "lars", True)
    ratios = [[one.llr for one in found.candidates] for found in (result, offline)]
    np.testing.assert_allclose(*ratios, atol=1e-6)


def test_a_speaker_is_identified_live_with_the_scope_for_that_alone(guarded, heard):
    samples, rate = samples_of(heard("lars"))
    with (
        VoiceclaimClient(guarded.url, token=IDENTIFY_TOKEN) as client,
        client.identification(rate=rate) as stream,
    ):
        assert stream.push(samples).name == "lars"
    assert stream.final.name == "lars"


def test_identification_ends_with_a_speaker_who_is_removed_and_needs_the_scope(store, tmp_path, heard):
    samples, rate = samples_of(heard("ivan"))
    with (
        # On a busy machine a removal, of low priority, takes longer than a silent stream has by default.
        running_copy(store, tmp_path, "--idle-seconds", 200, tokens=True) as service,
        VoiceclaimClient(service.url, token=PLAIN_TOKEN) as plain,
        VoiceclaimClient(service.url, token=ADMIN_TOKEN) as admin,
    ):
        with pytest.raises(ServiceError, match="the scope identify") as refused, plain.identification(rate=rate):
            pass
        assert refused.value.status == 403
        with pytest.raises(ServiceError, match="removed") as ended, admin.identification(rate=rate) as stream:
            assert stream.push(samples).name == "ivan"
            admin.remove("ivan")
            stream.push(samples)
        assert ended.value.status == 409
        counts = metrics_of(service, ADMIN_TOKEN)
    assert 'voiceclaim_streams_ended_total{how="StreamClosedError",kind="identify"} 1.0' in counts


def test_streams_side_by_side_on_threads_do_not_mix(client, store, heard):
    expected = {name: Verifier(Store(store).load(), "lars").verify_file(heard(name)) for name in ("lars", "anna")}

    def outcome(name: str, size: int) -> Update:
        samples, rate = samples_of(heard(name))
        with client.stream("lars", rate=rate) as stream:
            for start in range(0, len(samples), size):
                stream.push(samples[start : start + size])
        return stream.final.update

    names, sizes = ("lars", "lars", "anna", "anna"), (700, 10**6, 1999, 700)
    with ThreadPoolExecutor(4) as threads:
        for name, result in zip(names, threads.map(outcome, names, sizes), strict=True):
            assert_alike(result, expected[name])


def test_a_speaker_of_any_name_is_enrolled_listed_and_removed(client, service, recordings, silence, tmp_path):
    (tmp_path / "notes.txt").write_text("no audio")
    files = [*(utterance.path for utterance in recordings["fergus"][:6]), silence, tmp_path / "notes.txt"]
    before, name = client.speakers(), "Zoë/../😀"
    made = client.enroll(name, files)
    try:
        assert made.speaker == EnrolledSpeaker(name, made.speaker.seconds, 6)
        assert [name for name, _ in made.skipped] == ["notes.txt", silence.name]
        assert str(service.spool) not in str(made)
        assert client.speakers() == (*before, made.speaker)
        with pytest.raises(ServiceError, match="enrolled already") as refused:
            client.enroll(name, files)
        assert (refused.value.status, refused.value.kind) == (409, "SpeakerExistsError")
        more = client.enroll(name, [utterance.path for utterance in recordings["fergus"][6:9]], add=True).speaker
        assert (more.name, more.utterances) == (name, 9)
        assert more.seconds > made.speaker.seconds
        assert client.speakers() == (*before, more)
        with pytest.raises(ServiceError, match="no file can be used; the first: "):
            client.enroll("dora", files[-1:])
        with pytest.raises(ServiceError, match="no such speaker") as refused:
            client.enroll("nobody", files, add=True)
        assert refused.value.status == 404
    finally:
        assert client.remove(name) == 4
    counts = metrics_of(service)
    for line in (
        'enrollments_total{outcome="added"}',
        'enrollments_total{outcome="AudioError"}',
        'removals_total{outcome="removed"}',
    ):
        assert f"voiceclaim_{line}" in counts, line
    assert client.speakers() == before
    assert service.uploads == []


def test_a_refusal_is_an_error_with_its_status(client, guarded, heard, silence):
    with pytest.raises(ServiceError, match="no such speaker") as refused:
        client.verify("nobody", heard("anna"))
    assert (refused.value.status, refused.value.kind) == (404, "UnknownSpeakerError")
    with pytest.raises(ServiceError) as refused, client.stream("nobody", rate=8000):
        pass
    assert refused.value.status == 404
    with pytest.raises(ServiceError, match="finite") as refused, client.stream("anna", rate=8000) as stream:
        stream.push(np.full(100, np.nan))
    assert refused.value.kind == "AudioError"
    with VoiceclaimClient(guarded.url, token=VERIFY_TOKEN) as other:
        with pytest.raises(ServiceError, match="a token with the scope enroll") as refused:
            other.remove("anna")
        assert refused.value.status == 403
        with other.stream("anna", rate=8000) as stream:
            pass
        assert stream.final.decision is Decision.NOT_ENOUGH_SPEECH
    assert client.verify("anna", silence).decision is Decision.NOT_ENOUGH_SPEECH


def test_errors_of_the_caller_are_raised_as_they_are(client, tmp_path):
    for call in (client.verify, lambda name, file: client.enroll(name, [file])):
        with pytest.raises(AudioError, match="cannot be read"):
            call("anna", tmp_path / "missing.wav")
    with pytest.raises(AudioError, match="one channel"), client.stream("anna", rate=8000) as stream:
        stream.push(np.zeros((10, 2)))
        with pytest.raises(AudioError, match="cannot be read: embedded null"):
            call("anna", "\0.wav")
        for other in (None, 5, [b"RIFF"]):
            with pytest.raises(InputError, match="file 1: a path, or the bytes of a file, was expected"):
                call("anna", other)
    for name in (None, 5, b"anna"):
        with pytest.raises(InputError, match="name: a name was expected"):
            client.remove(name)
    for call in (
        lambda name: client.verify(name, b"x"), client.remove, lambda name: client.enroll(name, [b"x"]),
        lambda name: client.stream(name, rate=8000).__enter__(),
    ):  # fmt: skip
        with pytest.raises(InputError, match="a name must be text, got half a surrogate pair"):
            call("\ud800")
    with pytest.raises(ServiceError):
        client.verify(5, b"x")
    for files in ([], "call.wav", tmp_path, b"RIFF", None, 5):
        with pytest.raises(InputError, match="files: a list of one recording or more was expected"):
            client.enroll("anna", files)
    with pytest.raises(ConnectionError, match="mine"), client.stream("anna", rate=8000):
        raise ConnectionError("mine")


def test_a_service_that_is_not_there_is_an_error_in_one_line():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with VoiceclaimClient(f"http://127.0.0.1:{port}") as client:
        for call in (client.speakers, lambda: client.verify("anna", b"x"), client.stream("anna", rate=8000).__enter__):
            with pytest.raises(ServiceError, match="cannot be reached") as refused:
                call()
            assert refused.value.status == 0


def test_what_is_no_service_and_what_is_no_address_are_errors_in_one_line(tmp_path):
    (tmp_path / "speakers").write_text("<p>", encoding="utf-8")
    with served_folder(tmp_path) as url, VoiceclaimClient(url) as client:
        for call, status in ((client.speakers, 200), (lambda: client.remove("anna"), 501)):
            with pytest.raises(ServiceError, match=f"status {status}, .* is a Voiceclaim service there") as refused:
                call()
            assert refused.value.status == status
        for text in ("{}", "[]", "null", '{"speakers": [{"name": "anna"}]}', '{"type": "x", "status": "y"}'):
            (tmp_path / "speakers").write_text(text, encoding="utf-8")
            with pytest.raises(ServiceError, match="is a Voiceclaim service there"):
                client.speakers()
    with pytest.raises(ServiceError, match=r"http://localhost:abc: .*Invalid port"):
        VoiceclaimClient("http://localhost:abc")
    for address in (
        "",
        "localhost:8000",
        "ftp://localhost",
        "http://",
        "http://localhost:99999",
        "http://localhost/?x",
    ):
        with pytest.raises(ServiceError, match=r"an address http://HOST:PORT, or https://HOST, was expected$"):
            VoiceclaimClient(address)
    for options in ({"url": None}, {"url": b"http://localhost"}, {"timeout": "1"}, {"timeout": 0}, {"timeout": np.nan}):
        with pytest.raises(InputError, match=f"^{next(iter(options))}: "):
            VoiceclaimClient(**{"url": "http://localhost", **options})


@pytest.mark.parametrize("end", ["\n", "\0", "\u00e9", " ", "\ud800", None])
def test_what_is_no_token_is_refused_without_being_shown(end):
    token = b"secret" if end is None else f"secret{end}"
    with pytest.raises(InputError, match=r"^token: ") as refused:
        VoiceclaimClient("http://localhost", token=token)
    assert "secret" not in str(refused.value)


def test_a_password_in_the_address_is_not_shown():
    with (
        VoiceclaimClient("http://name:secret@127.0.0.1:9") as client,
        pytest.raises(ServiceError, match=r"^127\.0\.0\.1:9: the service cannot be reached"),
    ):
        client.speakers()


def test_the_scheme_of_the_address_is_in_any_case_and_the_rate_of_any_integer_type(service):
    with (
        VoiceclaimClient(service.url.replace("http", "HTTP") + "/") as client,
        client.stream("anna", rate=np.int64(8000)) as stream,
        client.identification(rate=np.float32(8000)),
    ):
        pass
    assert stream.final.decision is Decision.NOT_ENOUGH_SPEECH


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_requests_and_streams_by_tls_trust_the_same_certificate(store, tmp_path, monkeypatch):
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate]
    words += ["-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(words, check=True, capture_output=True)
    with running_copy(store, tmp_path, "--tls-cert", certificate, "--tls-key", key) as service:
        for trusted in (False, True):
            if trusted:
                monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
            with VoiceclaimClient(service.url) as client:
                for call in (client.speakers, client.stream("anna", rate=8000).__enter__):
                    if trusted:
                        assert call()
                    else:
                        with pytest.raises(ServiceError, match="certificate verify failed"):
                            call()


@pytest.mark.parametrize("answer", ["<p>", "[]", "{}", '{"type": "ready"}', '{"type": "problem"}'])
def test_a_socket_that_is_none_of_the_service_is_an_error_in_one_line(answer):
    def answered(connection: ServerConnection) -> None:
        for _ in connection:
            connection.send(answer)

    with ThreadPoolExecutor(1) as threads, serve(answered, "127.0.0.1", 0) as server:
        threads.submit(server.serve_forever)
        with (
            VoiceclaimClient(f"http://127.0.0.1:{server.socket.getsockname()[1]}") as client,
            pytest.raises(ServiceError, match="is a Voiceclaim service there"),
            client.stream("anna", rate=8000),
        ):
            pass


@pytest.mark.slow
def test_the_end_of_the_service_ends_a_stream_with_an_error(copied, tmp_path):
    with running(copied, tmp_path) as service, VoiceclaimClient(service.url) as client:
        with pytest.raises(ServiceError) as refused, client.stream("anna", rate=8000) as stream:
            stream.push(np.zeros(800))
            service.process.terminate()
            service.process.wait(30)
            stream.push(np.zeros(800))
        assert refused.value.status in (0, 503)
