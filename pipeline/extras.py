"""Libraries of the package's extras, imported where they are first needed."""

from __future__ import annotations

import importlib
from typing import Any

from pipeline.errors import UnavailableError


def library(module: str, purpose: str, extra: str) -> Any:
    """Import and return ``module`` for ``purpose``; raises UnavailableError, naming the ``extra``, if it is missing."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        name = module.partition(".")[0].replace("_", "-")
        raise UnavailableError(
            f"{purpose} needs the library {name}, which cannot be loaded ({error}); install it in the checkout, with"
            f" the extra `{extra}`: pip install '.[{extra}]'"
        ) from error
