"""Fixture for tests of the audit log: without a key, and with one."""

from __future__ import annotations

import pytest
from audit_logs import KEY


@pytest.fixture(params=[None, KEY], ids=["without a key", "with a key"])
def key(request) -> bytes | None:
    return request.param
