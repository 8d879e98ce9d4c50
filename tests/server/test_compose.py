"""The compose file: valid, and the command that makes the token makes one that the service reads."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.server.security import read_tokens

FILE = Path(__file__).resolve().parents[2] / "contrib" / "compose.yaml"


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
