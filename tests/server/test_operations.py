"""Operation of a service: identification, audit log, log lines, metrics, evaluations of another revision."""

from __future__ import annotations

import json
import shutil

import pytest
from service import (
    PLAIN_TOKEN,
    VERIFY_TOKEN,
    entries_in,
    evaluated,
    metrics_of,
    pcm16,
    problem_of,
    receive,
    running,
    running_copy,
    samples_of,
    send,
    streamed,
    until,
    wait_until,
)
from websockets.exceptions import ConnectionClosed

from pipeline.evaluation.curves import state_of
from pipeline.metrics import OperatingPoint
from pipeline.store.store import Store
from pipeline.verification.audit import check_log
from pipeline.verification.policies import BayesCost
from pipeline.verification.verifier import Verifier

pytestmark = pytest.mark.server


def test_an_operator_decides_at_what_claims_are_accepted(store, tmp_path, heard):
    point = OperatingPoint(0.01, cost_false_accept=10.0)
    options = ("--prior", 0.01, "--cost-false-accept", 10, "--unknown-impostors", 0.9)
    with running_copy(store, tmp_path, *options) as service:
        with heard("anna").open("rb") as file:
            outcome = service.request("POST", "/verify", data={"claim": "anna"}, files={"file": file}).json()
        model = Store(store).load(unknown_impostors=0.9)
        verifier = Verifier(model, "anna", decide_by=BayesCost(point))
        expected = verifier.verify_file(heard("anna"))
        assert outcome["llr_threshold"] == pytest.approx(point.threshold)
        assert (outcome["decision"], outcome["prior"]) == (expected.decision, 0.01)
        assert outcome["unknown_impostors"] == 0.9
        assert outcome["probability"] == pytest.approx(expected.probability)
        samples, rate = samples_of(heard("anna"))
        final = streamed(service, "anna", rate, pcm16(samples), "pcm_s16le", 1)
        assert (final["llr_threshold"], final["prior"]) == (outcome["llr_threshold"], 0.01)
        assert final["threshold_probability"] == pytest.approx(verifier.probability(point.threshold))


def test_what_the_store_cannot_decide_by_is_an_error_before_the_service_starts(refused, store):
    assert "rate" in refused("serve", store, "--far", "2")
    assert "one rule" in refused("serve", store, "--far", "0.01", "--prior", "0.1")


def test_a_file_is_identified_with_the_same_numbers_as_in_python(store, tmp_path, heard):
    expected = Store(store).identify(heard("ivan"))
    log = tmp_path / "log.jsonl"
    with running_copy(store, tmp_path, "--log", log, tokens=True) as service:
        files = {"file": heard("ivan").read_bytes()}
        found = service.request("POST", "/identify", files=files, token=VERIFY_TOKEN).json()
        assert (found["decision"], found["name"]) == ("identified", "ivan")
        assert found == json.loads(json.dumps(expected.as_json()))
        others = {"file": heard("marta").read_bytes()}
        stranger = service.request("POST", "/identify", files=others, data={"channel": 1}, token=VERIFY_TOKEN)
        assert stranger.json()["decision"] in ("nobody", "identified")
        assert sum(one["probability"] for one in stranger.json()["candidates"]) <= 1
        refused = service.request("POST", "/identify", files=files, token=PLAIN_TOKEN)
        assert refused.status_code == 403 and "the scope identify" in refused.json()["detail"]
        counts = metrics_of(service, VERIFY_TOKEN)
        assert 'voiceclaim_identifications_total{decision="identified"}' in counts
        assert 'voiceclaim_audio_seconds_total{kind="file"}' in counts
        assert service.uploads == []
    first, second = [entry for entry in entries_in(log) if entry["event"] == "identify"]
    assert (first["decision"], first["speaker"], first["likeliest"]) == ("identified", "ivan", "ivan")
    assert first["llr"] == pytest.approx(found["candidates"][0]["llr"])
    assert second["likeliest"] == stranger.json()["candidates"][0]["name"]
    assert (first.get("channel"), second.get("channel")) == (None, 1)


def test_log_lines_are_json_and_name_nobody_and_enrollments_are_timed(copied, tmp_path, heard, recordings):
    with running(copied, tmp_path, "--log-level", "info") as service:
        files = [("files", utterance.path.read_bytes()) for utterance in recordings["bruno"][:8]]
        assert service.request("POST", "/speakers/Bruno%20Who", files=files).status_code == 201
        answer = service.request("POST", "/verify", data={"claim": "anna"}, files={"file": heard("anna").read_bytes()})
        assert answer.status_code == 200
        assert service.request(f"ODD-{'x' * 10_000}", "/healthz").status_code == 405
        counts = service.request("GET", "/metrics").text
        lines = [line for line in service.output.read_text(encoding="utf-8").splitlines() if line.startswith("{")]
    for line in (
        "voiceclaim_enrollment_seconds_count 1.0",
        'voiceclaim_enrollment_seconds_bucket{le="1800.0"} 1.0',
        'voiceclaim_enrollments_total{outcome="enrolled"} 1.0',
        'voiceclaim_audio_seconds_total{kind="file"}',
        'voiceclaim_request_seconds_count{route="/verify"} 1.0',
        "voiceclaim_store_revision 2.0",
        "voiceclaim_duplicates_total 0.0",
    ):
        assert line in counts, line
    assert 'voiceclaim_waiting{what="changes"} 0.0' in counts
    assert not any("ODD" in line for line in (counts, *lines))
    assert 'voiceclaim_requests_total{method="other",route="/healthz",status="405"} 1.0' in counts
    events = [json.loads(line) for line in lines]
    assert all({"time", "level", "event"} <= event.keys() for event in events)
    assert {"request", "enrollment", "decision"} <= {event["event"] for event in events}
    (enrollment,) = [event for event in events if event["event"] == "enrollment"]
    assert enrollment["recordings"] == 8 and enrollment["seconds"] > 0
    (enrolling,) = [event for event in events if event.get("status") == 201]
    assert (enrolling["route"], enrolling["method"]) == ("/speakers/{name:name}", "POST")
    assert not any(name in line for line in lines for name in ("Bruno", "anna", "127.0.0.1"))


def test_a_fault_is_a_line_with_its_place_wherever_it_happens_and_the_caller_is_told_no_path(copied, tmp_path):
    with running(copied, tmp_path) as service:
        shutil.rmtree(next(service.spool.glob("voiceclaim-*")))
        answer = service.request("POST", "/verify", data={"claim": "anna"}, files={"file": b"x"})
        with service.socket("/enroll") as socket:
            send(socket, name="dora", rate=8000, format="f32le")
            problem = receive(socket)
            with pytest.raises(ConnectionClosed) as closed:
                socket.recv(30)
        assert closed.value.rcvd.code == 1011
        faults = [json.loads(line) for line in service.log_text.splitlines() if '"fault"' in line]
    assert problem["detail"] == problem_of(answer, 500) == "the service failed; its log names the place"
    assert [fault["what"].partition(" at ")[0] for fault in faults] == ["FileNotFoundError"] * 2
    assert all(f'"event": "{event}"' in service.log_text for event in ("request", "stream"))
    assert not any(name in service.log_text for name in ("anna", "dora", "Traceback"))


def test_an_evaluation_of_an_earlier_revision_is_stale(copied, tmp_path):
    folder = evaluated(tmp_path / "evaluation", fused=([1.0, 3.0], [0.0, 2.0]))
    table = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    with running(copied, tmp_path, "--evaluation", folder) as service:
        assert service.request("GET", "/evaluation").json()["stale"] is None
        table["state"] = state_of(Store(copied).load())
        (folder / "metrics.json").write_text(json.dumps(table), encoding="utf-8")
        answer = service.request("GET", "/evaluation").json()
        assert answer["stale"] is False and "state" not in answer
        assert service.request("DELETE", "/speakers/lars").status_code == 200
        assert service.request("GET", "/evaluation").json()["stale"] is True


def test_names_are_in_the_audit_log_and_nowhere_else(guarded, heard):
    samples, rate = samples_of(heard("dexter"))
    final = streamed(guarded, "dexter", rate, pcm16(samples), "pcm_s16le", 2, VERIFY_TOKEN)
    files = {"file": ("dexters-call.flac", heard("dexter").read_bytes())}
    data = {"claim": "dexter", "channel": 1}
    guarded.request("POST", "/verify", data=data, files=files, token=VERIFY_TOKEN)
    guarded.request("POST", "/verify", data={"claim": "quentin"}, files={"file": b"x"}, token=VERIFY_TOKEN)
    lines = entries_in(guarded.log)
    entries = [line for line in lines if line.get("claim") in ("dexter", "quentin")]
    assert [line["decision"] for line in entries] == ["accepted", "accepted", None]
    assert [line.get("channel") for line in entries] == [None, 1, None]
    assert entries[0]["score"] == final["score"]
    assert entries[2]["error"] == "UnknownSpeakerError"
    assert check_log(guarded.log).lines == len(lines)
    assert "dexter" not in guarded.log_text
    assert "quentin" not in guarded.log_text
    assert VERIFY_TOKEN not in guarded.log_text


def test_a_name_is_in_the_audit_log_as_it_is_enrolled_however_it_is_claimed(copied, tmp_path, garbage):
    Store(copied).rename("anna", "Zo\u00eb")
    with running(copied, tmp_path, "--log", tmp_path / "log.jsonl") as service:
        claimed = {"data": {"claim": "Zoe\u0308"}, "files": {"file": garbage.read_bytes()}}
        assert problem_of(service.request("POST", "/verify", **claimed), 422)
    assert entries_in(tmp_path / "log.jsonl")[-1]["claim"] == "Zo\u00eb"


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


def test_a_stream_whose_audio_is_refused_has_the_error_in_the_audit_log(guarded):
    with guarded.socket("/verify") as socket:
        send(socket, claim="lars", rate=8000, format="f32le", token=VERIFY_TOKEN)
        until(socket, "ready")
        socket.send(b"\xff" * 4000)
        assert receive(socket)["kind"] == "AudioError"
    last = entries_in(guarded.log)[-1]
    assert (last["claim"], last["decision"], last["error"]) == ("lars", None, "AudioError")


def test_prometheus_reads_what_is_counted(service, heard):
    samples, rate = samples_of(heard("anna"))
    streamed(service, "anna", rate, pcm16(samples), "pcm_s16le", 3)
    wait_until(lambda: 'voiceclaim_streams{kind="verify"} 0.0' in metrics_of(service))
    text = metrics_of(service)
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert float(lines["voiceclaim_speakers"]) == 4
    assert float(lines['voiceclaim_decisions_total{decision="accepted"}']) >= 1
    assert float(lines['voiceclaim_audio_seconds_total{kind="verify"}']) >= len(samples) / rate
    assert float(lines["voiceclaim_update_seconds_count"]) >= 1
    assert "anna" not in text
