"""Files that come with the package: presets of settings, the demo corpus and the background voices."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from pipeline.errors import ConfigError

# A wheel has presets and data inside the package, a checkout beside it.
_PACKAGE = Path(__file__).resolve().parent
_ALIASES = {"xin2002": "paper"}


def configs_folder() -> Path:
    """Return the folder of presets."""
    return _folder("configs", "configs")


def demo_folder() -> Path:
    """Return the folder of the demo corpus."""
    return _folder("demo", "data/demo")


def background_folder() -> Path:
    """Return the folder of the background voices."""
    return _folder("background", "data/background")


def _folder(packed: str, in_checkout: str) -> Path:
    folder = _PACKAGE / "_resources" / packed
    return folder if folder.is_dir() else _PACKAGE.parent / in_checkout


def find_config(name: str) -> Path:
    """Return the settings file ``name``: a path, or a preset (``paper``, or ``xin2002``); raises ConfigError."""
    path = Path(name)
    with suppress(OSError):  # a path that no file can have
        if path.suffix == ".toml" or path.exists():
            return path
    presets = {file.stem: file for file in sorted(configs_folder().glob("*.toml"))}
    packaged = presets.get(_ALIASES.get(name, name))
    if packaged is None:
        raise ConfigError(f"settings {name!r}: neither a file nor a preset ({', '.join(presets)})")
    return packaged
