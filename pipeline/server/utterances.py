"""Utterances of an enrollment stream: a file each in a private folder, with the speech in them measured."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from pipeline.audio.levels import Clipping
from pipeline.audio.streams import PcmDecoder, PcmFormat
from pipeline.config import Config
from pipeline.errors import ServiceError
from pipeline.features.frontend import FrontEnd
from pipeline.server.settings import Settings
from pipeline.store.model import SpeakerModel

# Encoding: libsndfile's name, data type, and full scale, by which the decoded samples are as they were sent.
_WRITTEN = {"s16le": ("PCM_16", "<i2", 2.0**15), "f32le": ("FLOAT", "<f4", 1.0)}
Table = dict[str, Any]
Recordings = Mapping[Path, str]
"""Audio files, and the names by which the caller knows them."""


@contextmanager
def _written() -> Iterator[None]:
    """Raise OSError if libsndfile cannot write. It gives no reason; its files are new, and in the spool."""
    try:
        yield
    except soundfile.LibsndfileError:
        raise OSError(errno.ENOSPC, "an utterance cannot be written") from None


class UtteranceFiles:
    """Utterances of an enrollment stream, a file each in ``folder``; ``close`` them when done.

    The speech in them is measured by the front end of ``model``, or of the settings that a new store would have.
    """

    def __init__(self, settings: Settings, folder: Path, model: SpeakerModel | None, pcm: PcmFormat) -> None:
        self._config = model.config if model is not None else settings.config or Config()
        self._aim = max(settings.aim_seconds, self._config.codebook.min_seconds)
        self._max_files = settings.limits.files
        self._pcm = pcm
        self._folder = folder
        self._files: list[Path] = []
        self._audio_seconds = self._speech_seconds = self._peak = 0.0
        self._begin()

    def needs(self) -> Table:
        """Return the seconds of speech that are required, and those to aim for."""
        return {"least_seconds": self._config.codebook.min_seconds, "aim_seconds": self._aim}

    @_written()
    def push(self, data: bytes) -> None:
        """Append bytes to the current utterance; raises AudioError, or OSError where there is no room."""
        samples, (_, kind, full_scale) = self._decoder.push(data), _WRITTEN[self._pcm.encoding]
        self._file.write((full_scale * samples).astype(kind))
        self._count(len(self._front_end.push(samples).vectors))
        self._clipping.push(samples)
        if len(samples):
            self._peak = float(np.abs(samples).max())

    def next_utterance(self) -> None:
        """End the current utterance and begin another; raises ServiceError if there would be too many."""
        self.finish()
        if len(self._files) >= self._max_files:
            raise ServiceError(413, f"an enrollment has at most {self._max_files} utterances", kind="InputError")
        self._begin()

    @_written()
    def finish(self) -> None:
        """End the current utterance."""
        if not self._file.closed:
            self._count(len(self._front_end.flush().vectors))
            self._audio_seconds += self._front_end.samples / self._front_end.rate
            self._file.close()

    def progress(self) -> Table:
        """Return the audio and speech so far, the ``peak`` of the last chunk and the utterance's ``clipped`` share."""
        current = 0.0 if self._file.closed else self._front_end.samples / self._front_end.rate
        return {
            "utterances": len(self._files),
            "audio_seconds": round(self._audio_seconds + current, 3),
            "speech_seconds": round(self._speech_seconds, 3),
            "utterance_speech_seconds": round(self._utterance_seconds, 3),
            "aim_seconds": self._aim,
            "peak": self._peak,
            "clipped": self._clipping.share,
        }

    def recordings(self) -> Recordings:
        """Return the utterances in order."""
        return {path: f"utterance {number}" for number, path in enumerate(self._files, start=1)}

    def close(self) -> None:
        """Close the file of the current utterance, if it is open."""
        with suppress(soundfile.LibsndfileError):
            self._file.close()

    @_written()
    def _begin(self) -> None:
        path = self._folder / f"{len(self._files):04d}.wav"
        subtype, *_ = _WRITTEN[self._pcm.encoding]
        path.touch()  # raises the cause where no file can be opened, which libsndfile does not give
        self._file: Any = soundfile.SoundFile(path, "w", self._pcm.rate, 1, subtype, format="WAV")
        self._files.append(path)
        where = f"utterance {len(self._files)}"
        self._decoder = PcmDecoder(self._pcm, where=where)
        self._front_end = FrontEnd(self._config.features, self._pcm.rate, where=where)
        self._clipping = Clipping()
        self._utterance_seconds = 0.0

    def _count(self, frames: int) -> None:
        seconds = frames * self._config.features.step_seconds
        self._speech_seconds += seconds
        self._utterance_seconds += seconds
