"""What operators see: identification over HTTP, log lines, metrics of enrollment, evaluations of another revision."""

from __future__ import annotations

import json

import pytest
from service import PLAIN_TOKEN, VERIFY_TOKEN, evaluated, running, running_copy

from pipeline.evaluation.curves import state_of
from pipeline.store.store import Store

pytestmark = pytest.mark.server


def test_a_file_is_identified_with_the_same_numbers_as_in_python(store, tmp_path, heard):
    expected = Store(store).identify(heard("ivan"))
    log = tmp_path / "log.jsonl"
    with running_copy(store, tmp_path, "--log", log, tokens=True) as service:
        files = {"file": heard("ivan").read_bytes()}
        found = service.request("POST", "/identify", files=files, token=VERIFY_TOKEN).json()
        assert (found["decision"], found["name"]) == ("identified", "ivan")
        assert found == json.loads(json.dumps(expected.as_json()))
        stranger = service.request("POST", "/identify", files={"file": heard("marta").read_bytes()}, token=VERIFY_TOKEN)
        assert stranger.json()["decision"] in ("nobody", "identified")
        assert sum(one["probability"] for one in stranger.json()["candidates"]) <= 1
        refused = service.request("POST", "/identify", files=files, token=PLAIN_TOKEN)
        assert refused.status_code == 403 and "needs identify" in refused.json()["detail"]
        assert service.uploads == []
    entries = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    first, second = [entry for entry in entries if entry["event"] == "identify"]
    assert (first["decision"], first["speaker"], first["likeliest"]) == ("identified", "ivan", "ivan")
    assert first["llr"] == pytest.approx(found["candidates"][0]["llr"])
    assert second["likeliest"] == stranger.json()["candidates"][0]["name"]


def test_log_lines_are_json_and_name_nobody_and_enrollments_are_timed(copied, tmp_path, heard, recordings):
    with running(copied, tmp_path, "--log-level", "info") as service:
        files = [("files", utterance.path.read_bytes()) for utterance in recordings["bruno"][:8]]
        assert service.request("POST", "/speakers/Bruno%20Who", files=files).status_code == 201
        answer = service.request("POST", "/verify", data={"claim": "anna"}, files={"file": heard("anna").read_bytes()})
        assert answer.status_code == 200
        counts = service.request("GET", "/metrics").text
        lines = [line for line in service.output.read_text(encoding="utf-8").splitlines() if line.startswith("{")]
    assert "voiceclaim_enrollment_seconds_count 1.0" in counts
    assert 'voiceclaim_waiting{what="changes"} 0.0' in counts
    assert "voiceclaim_duplicates_total" in counts
    events = [json.loads(line) for line in lines]
    assert all({"time", "level", "event"} <= event.keys() for event in events)
    assert {"request", "enrollment", "decision"} <= {event["event"] for event in events}
    (enrollment,) = [event for event in events if event["event"] == "enrollment"]
    assert enrollment["recordings"] == 8 and enrollment["seconds"] > 0
    (enrolling,) = [event for event in events if event.get("status") == 201]
    assert (enrolling["route"], enrolling["method"]) == ("/speakers/{name:name}", "POST")
    assert not any(name in line for line in lines for name in ("Bruno", "anna", "127.0.0.1"))


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
