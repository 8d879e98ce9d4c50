"""The command run in this process, through the installed entry point: a process of its own takes seconds to start."""

from __future__ import annotations

import functools
import io
import json
import sys
import tempfile
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from pipeline.cli.main import main


@pytest.fixture
def run(tmp_path, monkeypatch, capsys) -> Callable[..., SimpleNamespace]:
    """run(*words, data=bytes): the exit code and both outputs, in an empty folder; ``lines`` are those of JSON."""

    def start(*words: object, data: bytes = b"") -> SimpleNamespace:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["voiceclaim", *map(str, words)])
        with tempfile.TemporaryFile() as file, pytest.raises(SystemExit) as ended:
            file.write(data)
            file.seek(0)
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(file))
            main()
        out, err = capsys.readouterr()
        lines = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
        return SimpleNamespace(code=ended.value.code or 0, out=out, err=err, lines=lines)

    return start


@pytest.fixture
def refused(run) -> Callable[..., str]:
    """refused(*words, data=bytes): what an error prints; nothing else is printed, and the exit code is 2."""

    def start(*words: object, data: bytes = b"") -> str:
        result = run(*words, data=data)
        assert (result.code, result.out) == (2, "")
        return result.err

    return start


@pytest.fixture
def process(run_in, tmp_path):
    """process(*words, data=bytes): ``run`` in a process of its own."""
    return functools.partial(run_in, tmp_path)
