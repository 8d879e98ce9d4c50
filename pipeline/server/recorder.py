"""Speech on its way to enrollment: written to a private folder, and heard by the front end to tell how much it is."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from pipeline.config import Config
from pipeline.errors import ServiceError
from pipeline.frontend import FrontEnd
from pipeline.pcm import PcmDecoder, PcmFormat
from pipeline.server.settings import Settings
from pipeline.server.training import Recording
from pipeline.store import SpeakerStore

_CLIPPED = 0.985  # of full scale
_SUBTYPES = {"s16le": ("PCM_16", "<i2"), "f32le": ("FLOAT", "<f4")}


def private_folder(spool: Path | None) -> Path:
    """A new folder that nobody else can read, in ``spool`` (None: among the system's temporary files)."""
    return Path(tempfile.mkdtemp(prefix="voiceclaim-", dir=spool))


class Recorder:
    """Utterances of somebody who is about to be enrolled, a file each; ``discard`` them when done.

    The front end that listens is that of ``store``, or of the settings that a new store would have.
    """

    def __init__(self, settings: Settings, store: SpeakerStore | None, pcm: PcmFormat) -> None:
        self._config = store.config if store is not None else settings.config or Config()
        self._scaling = None if store is None else store.scaling
        self._aim = max(settings.aim_seconds, self._config.codebook.min_seconds)
        self._most_files = settings.limits.files
        self._pcm = pcm
        self._folder = private_folder(settings.spool)
        self._rest = b""
        self._files: list[Path] = []
        self._audio_seconds = self._speech_seconds = self._peak = self._clipped = 0.0
        self._begin()

    def needs(self) -> dict[str, Any]:
        """Seconds of speech without which nobody is enrolled, and seconds to aim for."""
        return {"least_seconds": self._config.codebook.min_seconds, "aim_seconds": self._aim}

    def push(self, data: bytes) -> None:
        """Take in bytes of the current utterance; raises AudioError."""
        rest = self._rest + data
        whole = len(rest) - len(rest) % self._pcm.frame_bytes
        samples = self._decoder.push(data)
        self._rest = rest[whole:]
        self._file.write(np.frombuffer(rest[:whole], _SUBTYPES[self._pcm.encoding][1]))
        self._hear(len(self._front_end.push(samples).vectors))
        if len(samples):
            sizes = np.abs(samples)
            self._peak, self._clipped = float(sizes.max()), float(np.mean(sizes >= _CLIPPED))

    def next_utterance(self) -> None:
        """End the current recording and begin another; raises ServiceError for one too many."""
        self.finish()
        if len(self._files) >= self._most_files:
            raise ServiceError(413, f"an enrollment has at most {self._most_files} utterances", kind="InputError")
        self._begin()

    def finish(self) -> None:
        """End the current recording."""
        if not self._file.closed:
            self._hear(len(self._front_end.flush().vectors))
            self._audio_seconds += self._front_end.samples / self._front_end.rate
            self._file.close()

    def progress(self) -> dict[str, Any]:
        """How much has been heard; ``peak`` and the ``clipped`` share are those of the last chunk."""
        now = 0.0 if self._file.closed else self._front_end.samples / self._front_end.rate
        return {
            "utterances": len(self._files),
            "audio_seconds": round(self._audio_seconds + now, 3),
            "speech_seconds": round(self._speech_seconds, 3),
            "utterance_speech_seconds": round(self._utterance_seconds, 3),
            "aim_seconds": self._aim,
            "peak": self._peak,
            "clipped": self._clipped,
        }

    def recordings(self) -> list[Recording]:
        """The utterances in order."""
        return [Recording(path, f"utterance {number}") for number, path in enumerate(self._files, start=1)]

    def discard(self) -> None:
        """Delete every recording."""
        self._file.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _begin(self) -> None:
        path = self._folder / f"{len(self._files):04d}.wav"
        subtype, _ = _SUBTYPES[self._pcm.encoding]
        self._file: Any = soundfile.SoundFile(path, "w", self._pcm.rate, 1, subtype, format="WAV")
        self._files.append(path)
        self._decoder = PcmDecoder(self._pcm, where=f"utterance {len(self._files)}")
        self._front_end = FrontEnd(
            self._config.features, self._pcm.rate, scaling=self._scaling, where=f"utterance {len(self._files)}"
        )
        self._rest = b""
        self._utterance_seconds = 0.0

    def _hear(self, frames: int) -> None:
        seconds = frames * self._config.features.step_seconds
        self._speech_seconds += seconds
        self._utterance_seconds += seconds
