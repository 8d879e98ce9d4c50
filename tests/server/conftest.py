"""Two services that the tests of this folder share; a test that enrolls somebody removes them again."""

from __future__ import annotations

import pytest
from service import running_copy

from pipeline.server.client import VoiceclaimClient


@pytest.fixture(scope="session")
def service(store, tmp_path_factory):
    """A service on a copy of the session's store, for this machine only."""
    with running_copy(store, tmp_path_factory.mktemp("service")) as started:
        yield started


@pytest.fixture
def client(service):
    """A client of the service."""
    with VoiceclaimClient(service.url) as started:
        yield started


@pytest.fixture(scope="session")
def guarded(store, tmp_path_factory):
    """A service with tokens, an audit log and narrow bounds."""
    folder = tmp_path_factory.mktemp("guarded")
    bounds = ("--body-mib", 1, "--stream-seconds", 4, "--file-seconds", 5, "--streams", 2, "--idle-seconds", 1)
    bounds += ("--share", 1, "--failures", 0)
    log = folder / "log.jsonl"
    with running_copy(store, folder, *bounds, "--log", log, tokens=True) as started:
        started.log = log
        yield started
