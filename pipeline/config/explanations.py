"""Explanations of wrong settings in plain words: the key, the rule and the value got."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel, ValidationError

from pipeline.errors import ConfigError

_PLAIN = {
    "String should match": "text that matches",
    "a valid integer": "a whole number",
    "a valid number": "a number",
    "a valid string": "text",
    "a valid boolean": "true or false",
    "a valid tuple": "a list",
    "greater than or equal to": "at least",
    "less than or equal to": "at most",
    "greater than": "above",
    "less than": "below",
}
"""Phrases in pydantic's messages, and plain ones for them."""


@contextmanager
def explaining(section: type[BaseModel], source: str) -> Iterator[None]:
    """Turn pydantic's error about settings of ``section`` into a ConfigError that begins with ``source``."""
    try:
        yield
    except ValidationError as error:
        raise ConfigError(_explained(section, source, error)) from None


def _explained(section: type[BaseModel], source: str, error: ValidationError) -> str:
    """Return one line for each wrong setting, with all kinds of values allowed."""
    wrong: dict[str, list[Any]] = {}
    for detail in error.errors():
        key = ".".join(str(part) for part in detail["loc"] if not str(part).startswith(("literal", "constrained")))
        wrong.setdefault(key, []).append(detail)
    lines = ((source, *filter(None, [key]), _explain(section, key, its)) for key, its in wrong.items())
    return "\n".join(map(": ".join, lines))


def _explain(section: type[BaseModel], key: str, details: Sequence[Any]) -> str:
    kind, value = details[0]["type"], details[0]["input"]
    if kind == "extra_forbidden":
        known = {name.lower(): name for name in _names(section)}
        near = [known[name] for name in get_close_matches(key.lower(), known, n=3)]
        return "there is no such setting" + (f"; did you mean {', '.join(near)}?" if near else "")
    if kind == "value_error":
        return str(details[0]["ctx"]["error"])
    if kind == "model_type":
        return f"it is a section, whose settings are {f'{key}.' if key else ''}KEY, got {value!r}"
    if kind == "json_invalid":
        return f"it is not JSON: {details[0]['ctx']['error']}"
    if kind == "invalid_key":
        return f"the name of a setting is text, got {value!r}"
    remedy = """; a list is written ["a", "b"]""" if kind == "tuple_type" else ""
    return f"must be {' or '.join(map(_rule, details))}, got {value!r}{remedy}"


def _rule(detail: Any) -> str:
    """Return pydantic's rule for a value in plain words."""
    rule = str(detail["msg"]).removeprefix("Input should be ")
    for words, plain in _PLAIN.items():
        rule = rule.replace(words, plain)
    return rule


def _names(section: type[BaseModel]) -> Iterator[str]:
    """Yield the names of the settings in ``section``, and those in its subsections as ``subsection.name``."""
    for key, field in section.model_fields.items():
        yield key
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from (f"{key}.{name}" for name in _names(field.annotation))
