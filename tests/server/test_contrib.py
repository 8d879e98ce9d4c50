"""The compose file is valid and makes its token; the options of the systemd unit start a service."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from service import ADMIN_TOKEN, problem_of, running

from pipeline.server.security import read_tokens

CONTRIB = Path(__file__).resolve().parents[2] / "contrib"
FILE = CONTRIB / "compose.yaml"


def test_the_token_is_made_once_is_shown_and_is_read_by_the_service(tmp_path):
    yaml = pytest.importorskip("yaml")
    script = yaml.safe_load(FILE.read_text(encoding="utf-8"))["services"]["token"]["command"][-1]
    script = script.replace("/tokens/tokens.txt", str(tmp_path / "tokens.txt"))
    script = script.replace("os.chown(path, 10001, 10001)", "")  # which root alone may do
    shown = [
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    ]
    assert shown[0] == shown[1]
    scope, token = shown[0].split()[-2:]
    assert scope == "admin" and len(token) == 48
    assert (tmp_path / "tokens.txt").stat().st_mode & 0o777 == 0o600
    assert read_tokens(tmp_path / "tokens.txt") is not None


@pytest.mark.skipif(shutil.which("docker") is None, reason="no docker here")
def test_docker_reads_the_file():
    done = subprocess.run(
        ["docker", "compose", "--file", FILE, "config", "--quiet"], capture_output=True, text=True, check=False
    )
    if "unknown flag: --file" in done.stderr or "is not a docker command" in done.stderr:
        pytest.skip("docker without compose")
    assert done.returncode == 0, done.stderr


def test_the_options_of_the_unit_start_a_service_with_its_tokens(copied, tmp_path):
    tokens = tmp_path / "tokens"
    tokens.write_text(f"admin {ADMIN_TOKEN}")
    unit = (CONTRIB / "voiceclaim.service").read_text(encoding="utf-8")
    options = re.search(r"^ExecStart=\S+/voiceclaim serve \$\{STATE_DIRECTORY\}/speakers --port 8000 (.+)$", unit, re.M)
    assert options is not None
    words = options[1].replace("${CREDENTIALS_DIRECTORY}/tokens", str(tokens)).split()
    with running(copied, tmp_path / "started", *words) as service:
        assert "token" in problem_of(service.request("GET", "/speakers"), 401)
        assert service.request("GET", "/speakers", token=ADMIN_TOKEN).status_code == 200
