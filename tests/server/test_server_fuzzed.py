"""The service under what nobody would send: generated requests, hostile connections, every utterance of a real list."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from service import ADMIN_TOKEN, TOKENS, pcm16, running, samples_of, send, until

from pipeline.audio.corpus import read_corpus
from pipeline.config import load_config
from pipeline.enrollment.enroll import enroll
from pipeline.evaluation import read_trials
from pipeline.store.store import Store
from pipeline.verification.verifier import Verifier

pytestmark = pytest.mark.server
ROOT = Path(__file__).resolve().parents[2]
COMMANDS30 = ROOT.parent / "shared" / "corpora" / "commands30"
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "ignored_auth",
)


@pytest.mark.slow
def test_generated_requests_meet_no_fault_and_the_answers_that_openapi_promises(copied, tmp_path):
    pytest.importorskip("schemathesis")
    with running(copied, tmp_path, environment={"VOICECLAIM_TOKENS": TOKENS}) as service:
        words = ["run", f"{service.url}/openapi.json", "--seed", "1", "--max-examples", "20", "--no-color"]
        words += ["--request-timeout", "120"]  # a removal trains machines again, at low priority
        words += ["--checks", ",".join(CHECKS), "--header", f"Authorization: Bearer {ADMIN_TOKEN}"]
        command = [sys.executable, "-m", "schemathesis.cli", *words]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=300, check=False)
        assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-1000:]
        assert "Tested: 7" in done.stdout
        assert "Traceback" not in service.log_text


@pytest.mark.slow
def test_hostile_connections_leave_the_service_answering_and_the_store_as_it_was(store, tmp_path):
    script = ROOT / "scripts" / "hostile_connections.py"
    words = ["--store", str(store), "--connections", "45", "--json", str(tmp_path / "result.json")]
    command = [sys.executable, str(script), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    result = json.loads((tmp_path / "result.json").read_text())
    assert done.returncode == 0, result
    assert result["store_unchanged"]
    assert result["same_score"]
    assert sum(result["ended"].values()) == 45
    assert result["healthz_answers"] > 5
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_the_load_test_measures_what_it_says(store, demo, tmp_path):
    script = ROOT / "scripts" / "load_test.py"
    words = ["--streams", "4", "--seconds", "3", "--store", str(store), "--audio", str(demo / "verify")]
    command = [sys.executable, str(script), *words, "--json", str(tmp_path / "result.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "result.json").read_text())
    assert (result["streams"], result["dropped"], result["chunks"]) == (4, 0, 60)
    assert 0 < result["p50_ms"] <= result["p95_ms"] <= result["max_ms"]
    assert abs(result["rss_growth_mib"]) < 100


@pytest.mark.slow
@pytest.mark.skipif(not COMMANDS30.is_dir(), reason="the corpora are not here")
def test_every_target_utterance_of_a_real_list_has_the_score_of_its_file(tmp_path):
    corpus = read_corpus(COMMANDS30 / "enroll").speakers
    settings = load_config(None, ["codebook.centroids=40", "ubm.components=32", "supervector.speeds_below=0"])
    enroll(tmp_path / "store", {name: utterances[:12] for name, utterances in corpus.items()}, settings)
    opened = Store(tmp_path / "store").load()
    verifiers = {name: Verifier(opened, name) for name in opened.names}
    rng = np.random.default_rng(7)
    targets = [trial for trial in read_trials(COMMANDS30 / "trials_test.txt") if trial.target]
    assert len(targets) == 300
    with running(tmp_path / "store", tmp_path) as service:
        for trial in targets:
            expected = verifiers[trial.speaker].verify_file(COMMANDS30 / trial.path)
            samples, rate = samples_of(COMMANDS30 / trial.path)
            with service.socket("/verify") as socket:
                send(socket, claim=trial.speaker, rate=rate, format="pcm_s16le")
                until(socket, "ready")
                data = pcm16(samples)
                while data:
                    size = int(rng.integers(1, 16_000))
                    socket.send(data[:size])
                    data = data[size:]
                send(socket, type="end")
                result = until(socket, "final")
            assert result["frames"] == expected.frames
            assert result["decision"] == expected.decision
            if expected.score is not None:
                assert result["score"] == pytest.approx(expected.score, abs=1e-6)
