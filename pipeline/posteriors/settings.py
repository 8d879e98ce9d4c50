"""Types of an estimator's settings, checked at ``fit`` as scikit-learn requires."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from math import isnan
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from pipeline.errors import FitError

_PLAIN: dict[Any, tuple[Callable[[Any], bool], str]] = {
    bool: (lambda value: isinstance(value, bool | np.bool_), "True or False"),
    int: (lambda value: isinstance(value, int | np.integer) and _is_float(value), "a whole number"),
    float: (lambda value: isinstance(value, int | float | np.integer | np.floating) and _is_float(value), "a number"),
    NoneType: (lambda value: value is None, "None"),
}
"""Check of a value, and its description in messages, by type."""


def check_settings(estimator: Any) -> None:
    """Raise FitError if a setting of the dataclass ``estimator`` is not of the annotated type.

    Numbers may be numpy's, but not NaN. Settings of types other than numbers, flags and names are left to the caller.
    """
    try:
        hints = get_type_hints(type(estimator))
    except NameError:  # types imported only for type checking
        return
    for name in (field.name for field in fields(estimator)):
        hint, value = hints[name], getattr(estimator, name)
        kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
        allowed = [_allowed(kind) for kind in kinds]
        known = [one for one in allowed if one is not None]
        if len(known) == len(allowed) and not any(is_one(value) for is_one, _ in known):
            raise FitError(f"{name}: {' or '.join(words for _, words in known)} expected, got {value!r:.80}")


def check_base(name: str, value: Any) -> None:
    """Raise FitError unless ``value``, the setting ``name``, is None or a scikit-learn estimator."""
    if value is not None and (isinstance(value, type) or not hasattr(value, "get_params")):
        raise FitError(f"{name}: a scikit-learn estimator, as SVC(), expected, got {value!r:.80}")


def _allowed(kind: Any) -> tuple[Callable[[Any], bool], str] | None:
    if get_origin(kind) is Literal:
        names = get_args(kind)
        return lambda value: isinstance(value, str) and value in names, f"one of {', '.join(names)}"
    return _PLAIN.get(kind)


def _is_float(value: Any) -> bool:
    """Check that a number can be a float: not a bool, not NaN, not a whole number out of range."""
    try:
        return not isinstance(value, bool) and not isnan(value)
    except OverflowError:
        return False
