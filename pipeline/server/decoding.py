"""Tasks of the processes that decode uploaded files: a decoder is the first thing that hostile audio meets."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from pipeline.audio.downmix import Downmix
from pipeline.audio.files import open_audio
from pipeline.audio.streams import Samples
from pipeline.errors import AudioError, ServiceError
from pipeline.server.limits import AudioBounds
from pipeline.server.workers import Channel


class Decoder:
    """Decodes files one after the other within ``bounds``."""

    def __init__(self, bounds: AudioBounds) -> None:
        self._bounds = bounds
        self._seconds, self._samples = 0.0, 0

    def blocks(self, path: Path, mix: Downmix) -> Iterator[tuple[int, Samples]]:
        """Yield the rate and mono samples (n,) of ``path`` by ``mix``, in blocks of which the first is empty.

        Raises AudioError, or ServiceError beyond the bounds.
        """
        bounds, seconds = self._bounds, 0.0
        # The file has no name.
        with os.fdopen(os.open(path, os.O_RDONLY), "rb") as file, open_audio(file, mix=mix) as audio:
            yield audio.rate, np.empty(0)
            for block in audio.blocks():
                seconds += len(block) / audio.rate
                self._seconds += len(block) / audio.rate
                self._samples += len(block) * audio.channels
                if seconds > bounds.seconds:
                    raise _too_much(f"a file has at most {bounds.seconds:g} s of audio; cut it into parts")
                if self._seconds > bounds.in_all:
                    raise _too_much(f"the files of one request have at most {bounds.in_all:g} s of audio")
                if self._samples > bounds.samples:
                    raise _too_much(
                        f"at most {bounds.samples:,} samples of all channels are decoded for one request, but there"
                        f" are more at {audio.rate} Hz and {audio.channels} channels; send one channel at 16 kHz"
                    )
                yield audio.rate, block


def _too_much(detail: str) -> ServiceError:
    return ServiceError(413, detail, kind="InputError")


def decode(channel: Channel, path: Path, bounds: AudioBounds, chosen: int | None) -> None:
    """Send the rate of a file, then the samples of its ``chosen`` channel, then whether mixed channels differ."""
    mix = Downmix("audio", chosen)
    for rate, block in Decoder(bounds).blocks(path, mix):
        if len(block):
            channel.samples(block)
        else:
            channel.value({"rate": rate})
    channel.value({"channels_differ": mix.channels_differ})


def check(_channel: Channel, paths: Sequence[Path], bounds: AudioBounds, chosen: int | None) -> list[str | None]:
    """Return, for each file, the reason why it cannot be decoded, or None; raises ServiceError beyond the bounds."""
    decoder, reasons = Decoder(bounds), list[str | None]()
    for path in paths:
        try:
            for _ in decoder.blocks(path, Downmix("audio", chosen)):
                pass
            reasons.append(None)
        except AudioError as error:
            reasons.append(str(error))
    return reasons
