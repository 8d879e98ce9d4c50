"""Bearer tokens and what they allow: read from a file or the environment, compared in constant time.

One entry a line, or between semicolons: scopes joined by commas, a blank, the token. ``admin`` stands for every scope.
Blank lines and those that begin with # do not count.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from pipeline.errors import ConfigError
from pipeline.files import read_bounded

VARIABLE = "VOICECLAIM_TOKENS"
ENROLL, VERIFY, ADMIN = "enroll", "verify", "admin"
SCOPES = frozenset({ENROLL, VERIFY})
_ALLOWED = {ENROLL: frozenset({ENROLL}), VERIFY: frozenset({VERIFY}), ADMIN: SCOPES}
_MOST_BYTES = 2**20
_LEAST = 16
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # RFC 6750, b64token


@dataclass(frozen=True, slots=True)
class Tokens:
    """What each token allows, by its SHA-256: the tokens themselves are not kept."""

    scopes: tuple[tuple[bytes, frozenset[str]], ...] = field(repr=False)

    def scopes_of(self, token: str) -> frozenset[str]:
        """Scopes of ``token``, none if it is unknown; the time taken does not tell which it resembles."""
        asked = hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
        found: frozenset[str] = frozenset()
        for digest, scopes in self.scopes:
            if hmac.compare_digest(digest, asked):
                found = scopes
        return found


def read_tokens(path: Path | None = None) -> Tokens | None:
    """Tokens in the file ``path``, else in the environment variable VOICECLAIM_TOKENS; None without either.

    Raises ConfigError, which names the line and never shows a token.
    """
    if path is None and VARIABLE not in os.environ:
        return None
    if path is None:
        return parse_tokens(os.environ[VARIABLE], VARIABLE)
    try:
        text = read_bounded(path, _MOST_BYTES).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise ConfigError(f"{path}: the tokens cannot be read: {reason}") from None
    return parse_tokens(text, str(path))


def parse_tokens(text: str, where: str) -> Tokens:
    """The entries in ``text``; raises ConfigError about ``where``."""
    found: dict[bytes, frozenset[str]] = {}
    for number, line in enumerate(text.replace(";", "\n").split("\n"), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        scopes, _, token = line.strip().partition(" ")
        token = token.strip()
        allowed = _allowed(scopes.split(","), f"{where}, entry {number}")
        if len(token) < _LEAST or _TOKEN.fullmatch(token) is None:
            raise ConfigError(
                f"{where}, entry {number}: a token has at least {_LEAST} letters, digits or -._~+/ and maybe = at its"
                f" end, got {len(token)} characters; make one with `openssl rand -hex 24`"
            )
        digest = hashlib.sha256(token.encode()).digest()
        if digest in found:
            raise ConfigError(f"{where}, entry {number}: the token is there twice; join its scopes by a comma")
        found[digest] = allowed
    if not found:
        raise ConfigError(f"{where}: at least one line 'scope token' was expected, got none")
    return Tokens(tuple(found.items()))


def _allowed(names: Iterable[str], where: str) -> frozenset[str]:
    allowed: frozenset[str] = frozenset()
    for name in names:
        if name not in _ALLOWED:
            raise ConfigError(
                f"{where}: a scope is one of {', '.join(_ALLOWED)}, and the entry does not begin with one;"
                " is the token in front of its scope?"
            )
        allowed |= _ALLOWED[name]
    return allowed
