"""Paths of audio files: opened, or refused with an error that names the likely mistake."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

from pipeline.errors import AudioError
from pipeline.files import open_regular

NO_SUCH_FILE = "no such file"


def open_path(path: Path) -> BinaryIO:
    """Open ``path`` without waiting; raises AudioError for anything but a regular file."""
    try:
        return open_regular(path)
    except FileNotFoundError:
        raise AudioError(f"{path}: {NO_SUCH_FILE}; {_why_missing(path)}") from None
    except NotADirectoryError:
        raise AudioError(f"{path}: a part of its path is a file; was one given for a folder?") from None
    except IsADirectoryError:
        raise AudioError(f"{path}: an audio file was expected, got a folder; name one file in it") from None
    except PermissionError:
        raise AudioError(f"{path}: this user may not read it; change its permissions, or those of its folder") from None
    except OSError as error:
        raise AudioError(
            f"{path}: {error.strerror or error}; on the command line, - reads a pipe (verify, identify, record)"
        ) from error


def _why_missing(path: Path) -> str:
    """Return the likely reason why there is no file at ``path``."""
    if path == Path("-"):
        return "a pipe is read by verify, identify and record alone"
    if _is_address(path):
        return "nothing is fetched from an address, download it first"
    if path.parts[:1] == ("~",):
        return "only a shell knows ~ as the home folder: in Python, Path(path).expanduser()"
    if os.sep == "/" and "\\" in path.name:
        return "folders are separated by / here, not by \\ as in Windows"
    if any(sign in path.name for sign in "*?"):
        return "a pattern stands for files in a shell alone, where one matches; in Python, pathlib.Path().glob"
    return "a mistyped or moved path?"


def _is_address(path: Path) -> bool:
    """Return True for a URL that was turned into a path, such as https:/host/call.wav."""
    return len(path.parts) > 2 and len(path.parts[0]) > 2 and path.parts[0].endswith(":")
