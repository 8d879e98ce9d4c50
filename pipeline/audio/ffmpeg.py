"""Formats that libsndfile does not read, decoded by ffmpeg on PATH: a process that writes WAV into a pipe.

The container is recognised by the first bytes of the file and passed to ffmpeg, which then neither guesses nor follows
playlists. ffmpeg reads only files that a user names by a path. Audio without a path, such as an upload, is refused if
it begins like such a container.
"""

from __future__ import annotations

import os
import re
import select
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import BinaryIO, cast

import soundfile

from pipeline.audio.streams import DECODER_ERRORS
from pipeline.errors import AudioError

SUFFIXES = frozenset(
    {
        *(".m4a", ".m4b", ".mp4", ".mov", ".qta", ".3gp", ".3g2", ".aac", ".webm"),
        *(".weba", ".mka", ".mkv", ".amr", ".wma", ".asf", ".ape", ".wv", ".shn"),
    }
)
# Offset and first bytes of a container, and ffmpeg's name for it.
_CONTAINERS = (
    (4, b"ftyp", "mov"),
    (0, b"\x1aE\xdf\xa3", "matroska"),
    (0, b"\xff\xf1", "aac"),
    (0, b"\xff\xf9", "aac"),
    (0, b"#!AMR", "amr"),
    (0, b"\x30\x26\xb2\x75\x8e\x66\xcf\x11", "asf"),
    (0, b"MAC ", "ape"),
    (0, b"wvpk", "wv"),
    (0, b"ajkg", "shn"),
)
_ENDED_EARLY = "File ended prematurely"  # in a Matroska element; ffmpeg then exits with code 0
_CPU_SECONDS = 900  # of one file
_PATIENCE = 60.0  # seconds without a byte


def container(head: bytes) -> str | None:
    """Return ffmpeg's name for the container that begins with ``head``; None for what libsndfile may read."""
    return next((name for at, magic, name in _CONTAINERS if head.startswith(magic, at)), None)


def is_available() -> bool:
    """Return True if ffmpeg is on PATH."""
    return shutil.which("ffmpeg") is not None


def advice(path: Path | str) -> str:
    """Return what to do with the file at ``path`` where ffmpeg is missing."""
    wanted = str(Path(path).with_suffix(".wav"))
    return (
        "this format is decoded by ffmpeg, which is not on PATH: install it (apt install ffmpeg, brew install ffmpeg),"
        f" or convert the file where it is: {shlex.join(['ffmpeg', '-i', str(path), wanted])}"
    )


class Decoder:
    """An ffmpeg process that decodes the first audio track of the file at ``path``; ``sound`` reads its output.

    Raises AudioError where ffmpeg is missing or cannot decode the file.
    """

    def __init__(self, path: str, kind: str) -> None:
        program = shutil.which("ffmpeg")
        if program is None:
            raise AudioError(f"{path}: {advice(path)}")
        self._path = path
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the decoder
        words = ["-nostdin", "-v", "error", "-xerror", "-timelimit", str(_CPU_SECONDS)]
        words += ["-protocol_whitelist", "file", "-f", kind, "-i", f"file:{path}", "-map", "0:a:0"]
        words += ["-f", "wav", "-c:a", "pcm_f32le", "pipe:1"]
        self._process = subprocess.Popen(  # noqa: S603  # a list of words: no shell
            [program, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self._log
        )
        self._pipe = cast(BinaryIO, self._process.stdout)
        try:
            self.wait()
            self.sound = soundfile.SoundFile(self._pipe.fileno(), closefd=False)
        except DECODER_ERRORS as error:
            remarks = self._ended()
            self.close()
            raise AudioError(
                f"{path}: ffmpeg cannot decode it ({remarks[0] if remarks else error}); it is damaged, has no"
                " sound, or is cut short, as by an interrupted recording"
            ) from error
        except BaseException:
            self.close()
            raise

    def wait(self) -> None:
        """Wait until there is something to read, or the end; raises AudioError after ``_PATIENCE`` seconds."""
        if os.name != "nt" and not select.select([self._pipe], [], [], _PATIENCE)[0]:
            self._process.kill()
            raise AudioError(f"{self._path}: ffmpeg gave nothing for {_PATIENCE:g} s; is the disk still connected?")

    def check(self, seconds: float) -> None:
        """Raise AudioError if the sound ended, after ``seconds``, because of an error."""
        if remarks := self._ended():
            raise AudioError(
                f"{self._path}: decoding fails at {seconds:.3f} s (ffmpeg: {remarks[-1]}); the file is damaged or cut"
                " short"
            )

    def close(self) -> None:
        """End the process and release the pipe; a second call does nothing."""
        self._process.kill()
        self._process.wait()
        self._pipe.close()
        self._log.close()

    def _ended(self) -> list[str]:
        """Wait for the end; return the errors that ffmpeg wrote, if it failed or the file ended early."""
        try:
            self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._log.seek(0)
        lines = self._log.read(2**16).decode(errors="replace").strip().splitlines()
        remarks = [re.sub(r"^\[[^]]* @ 0x[0-9a-f]+\] ", "", line) for line in lines]
        if self._process.returncode == 0:
            return [line for line in remarks if line == _ENDED_EARLY]
        return remarks or [f"exit code {self._process.returncode}"]
