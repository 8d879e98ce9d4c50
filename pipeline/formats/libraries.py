"""The libraries that read and write lists fast, loaded when first needed: pyarrow and h5py, the extra ``formats``."""

from __future__ import annotations

import importlib
from typing import Any

from pipeline.errors import LibraryMissingError


def load(module: str, needed_for: str) -> Any:
    """A module of one of the libraries; raises LibraryMissingError, which says how to install it."""
    library = module.partition(".")[0]
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise LibraryMissingError(
            f"{needed_for} needs the library {library}, which cannot be loaded ({error});"
            " install it with: pip install 'voiceclaim[formats]'"
        ) from error
