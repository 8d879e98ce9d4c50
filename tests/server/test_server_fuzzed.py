"""The service under requests that nobody would send: generated ones, hostile connections, and its load test."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from service import ADMIN_TOKEN, running_copy

pytestmark = pytest.mark.server
ROOT = Path(__file__).resolve().parents[2]
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "ignored_auth",
)


@pytest.mark.slow
def test_generated_requests_meet_no_fault_and_the_answers_that_openapi_promises(store, tmp_path):
    pytest.importorskip("schemathesis")
    with running_copy(store, tmp_path, tokens=True) as service:
        words = ["run", f"{service.url}/openapi.json", "--seed", "1", "--max-examples", "20", "--no-color"]
        words += ["--request-timeout", "120"]  # a removal trains machines again, at low priority
        words += ["--checks", ",".join(CHECKS), "--header", f"Authorization: Bearer {ADMIN_TOKEN}"]
        command = [sys.executable, "-m", "schemathesis.cli", *words]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=300, check=False)
        assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-1000:]
        assert "Tested: 9" in done.stdout, done.stdout
        assert "Traceback" not in service.log_text


def measured(folder: Path, script: str, *words: object) -> dict:
    """Run a script of this project to its end, and return its measurements."""
    command = [sys.executable, str(ROOT / "scripts" / script), *map(str, words), "--json", str(folder / "result.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return json.loads((folder / "result.json").read_text())


@pytest.mark.slow
def test_hostile_connections_leave_the_service_answering_and_the_store_as_it_was(store, tmp_path):
    result = measured(tmp_path, "hostile_connections.py", "--store", store, "--connections", 45)
    assert result["store_unchanged"]
    assert result["same_score"]
    assert sum(result["ended"].values()) == 45
    assert result["healthz_answers"] > 5


@pytest.mark.slow
def test_the_load_test_measures_what_it_says(store, demo, tmp_path):
    words = ("--streams", 4, "--seconds", 3, "--store", store, "--audio", demo / "verify")
    result = measured(tmp_path, "load_test.py", *words)
    assert (result["streams"], result["dropped"], result["chunks"]) == (4, 0, 60)
    assert 0 < result["p50_ms"] <= result["p95_ms"] <= result["max_ms"]
    assert abs(result["rss_growth_mib"]) < 100
