"""Files that come with the package: named settings and the demo corpus.

A wheel carries them inside the package; in a checkout they stand beside it.
"""

from __future__ import annotations

from pathlib import Path

from pipeline.errors import ConfigError

_PACKAGE = Path(__file__).resolve().parent


def configs_folder() -> Path:
    """The folder of named settings."""
    packed = _PACKAGE / "_resources" / "configs"
    return packed if packed.is_dir() else _PACKAGE.parent / "configs"


def demo_folder() -> Path:
    """The demo corpus."""
    packed = _PACKAGE / "_resources" / "demo"
    return packed if packed.is_dir() else _PACKAGE.parent / "data" / "demo"


def find_config(name: str) -> Path:
    """The settings file ``name``: a path, or the name of one that comes with the package (``xin2002``)."""
    path = Path(name)
    if path.suffix == ".toml" or path.exists():
        return path
    packaged = configs_folder() / f"{name}.toml"
    if not packaged.is_file():
        known = ", ".join(sorted(file.stem for file in configs_folder().glob("*.toml")))
        raise ConfigError(f"settings {name!r}: neither a file nor one of {known}")
    return packaged
