"""Settings of a service: its store, its tokens, its policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pipeline.config import Config
from pipeline.server.limits import Limits
from pipeline.server.security import Tokens
from pipeline.verification.attempts import AttemptLimits
from pipeline.verification.audit import AuditLog, open_log
from pipeline.verification.policies import Policy

HOSTS = ("localhost", "127.0.0.1", "[::1]")


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of one service.

    Without ``tokens`` every caller may use everything; the Host header must then be one of ``hosts``, and the Origin
    header, if any, that same host. ``config`` is for a store that the first enrollment creates. Claims are decided by
    ``decide_by`` (None: the store's own threshold); ``unknown_impostors`` is that of ``Store.load``. ``aim_seconds`` is
    the speech that the page asks for at enrollment. Uploaded and streamed audio lies in ``spool`` until it is enrolled
    (None: in memory, see ``Spool``). Requests from ``proxy`` have the address that it reports. Failed claims are
    limited by ``attempts`` (None: they are not counted). Log lines have ``log_level`` and above
    (``pipeline.server.logs``).
    """

    store: Path
    tokens: Tokens | None = field(default=None, repr=False)
    hosts: Sequence[str] = HOSTS
    config: Config | None = None
    evaluation: Path | None = None
    log: Path | None = None
    log_key: Path | None = None
    jobs: int = 1
    unknown_impostors: float | None = None
    decide_by: Policy | None = None
    aim_seconds: float = 40.0
    spool: Path | None = None
    proxy: str | None = None
    attempts: AttemptLimits | None = None
    log_level: str = "warning"
    limits: Limits = field(default_factory=Limits)

    @property
    def audit_log(self) -> AuditLog | None:
        """Return the audit log with its key, if there is one; raises AuditError for a key that cannot be read."""
        return open_log(self.log, self.log_key)
