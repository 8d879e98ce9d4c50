"""Answers of the service: statuses of errors, hidden paths, and numbers that need the scope of scores."""

from __future__ import annotations

import errno
import json
from typing import get_type_hints

import pytest

from pipeline import errors
from pipeline.errors import ServiceError
from pipeline.scoring.decisions import Terms, Update
from pipeline.server.messages import problem, service_error, shown


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
