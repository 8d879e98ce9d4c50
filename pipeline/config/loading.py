"""Settings read from TOML, with overrides; a mistake is a ConfigError that names the key."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from pipeline.config.explanations import explaining
from pipeline.config.settings import Config
from pipeline.errors import ConfigError
from pipeline.files import read_bounded
from pipeline.resources import find_config

_MOST_BYTES = 2**18  # of a settings file
_MOST_COLUMNS = 1000
_CONFIG = TypeAdapter(Config)


def load_config(path: Path | str | None = None, overrides: Iterable[str] = ()) -> Config:
    """Read settings from a TOML file or preset (defaults without one), then apply ``section.key=value`` overrides.

    Raises ConfigError naming the file and the key.

    Parameters
    ----------
    path : path, optional
        A TOML file with some of the sections and keys of ``configs/default.toml``, or the name of a preset.
    overrides : iterable of str
        ``section.key=value``, the value as in TOML.

    Returns
    -------
    Config

    Examples
    --------
    >>> import pipeline
    >>> pipeline.load_config(overrides=["machines.C=1"]).machines.C
    1.0
    """
    if not isinstance(path, Path | str | None):
        raise ConfigError(
            f"settings: the path of a file or the name of a preset was expected, got {type(path).__name__}"
        )
    try:
        texts = iter([overrides] if isinstance(overrides, str) else overrides)
    except TypeError:
        raise ConfigError(f"overrides: texts section.key=value were expected, got {type(overrides).__name__}") from None
    path = find_config(path) if isinstance(path, str) else path
    table: dict[str, Any] = {} if path is None else _read_toml(path)
    source = "settings" if path is None else str(path)
    for override in texts:
        if not isinstance(override, str):
            raise ConfigError(f"override: a text section.key=value was expected, got {type(override).__name__}")
        _apply(table, override)
        source = "settings" if path is None else f"{path}, as overridden"
    return parse_config(table, source=source)


def parse_config(table: Mapping[str, Any], *, source: str) -> Config:
    """Check a nested mapping of settings, as from TOML or JSON; ``source`` names it in errors."""
    with explaining(Config, source):
        return _CONFIG.validate_python(table)


def by_dotted_name(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the settings of a nested ``table`` by their names ``section.key``, each after ``prefix``."""
    leaves: dict[str, Any] = {}
    for key, value in table.items():
        inner = by_dotted_name(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
        leaves |= inner
    return leaves


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return _parse_toml(read_bounded(path, _MOST_BYTES).decode("utf-8-sig"))  # some editors write a byte-order mark
    except OSError as error:
        raise ConfigError(f"{path}: settings cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise ConfigError(f"{path}: not TOML, lines key = value under [section]: {error}") from None


def _parse_toml(text: str) -> dict[str, Any]:
    """Parse TOML; raises ValueError, within a bounded time for any text."""
    # Parsing time grows with the square of a dotted key's length.
    if max(map(len, text.splitlines()), default=0) > _MOST_COLUMNS:
        raise ValueError(f"a line has more than {_MOST_COLUMNS} characters")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _apply(table: dict[str, Any], override: str) -> None:
    """Set one ``section.key=value``; a value that is not TOML is taken as a plain string."""
    key, equals, text = override.partition("=")
    parts = key.strip().split(".")
    if not equals or not all(parts) or len(key) > _MOST_COLUMNS:
        raise ConfigError(f"override {override!r}: must read section.key=value")
    try:
        value = _parse_toml(f"value = {text}")["value"]
    except ValueError:
        value = text.strip()
    for part in parts[:-1]:
        table = table.setdefault(part, {})
        if not isinstance(table, dict):
            raise ConfigError(f"override {override!r}: {part} is a value, not a section")
    table[parts[-1]] = value
