"""Log mel bands of a stream, as computed by Kaldi: the usual input of neural speaker encoders."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pipeline.config.audio import LOG_MEL_RATE
from pipeline.extras import library

BANDS = 80


class LogMelStream:
    """80 log mel bands per 25 ms frame, every 10 ms, from samples at 16 kHz, full scale 1, by kaldi-native-fbank.

    Any chunking of the same samples gives the same bands bit for bit. Raises UnavailableError without the library.
    """

    def __init__(self) -> None:
        fbank = library("kaldi_native_fbank", "features.log_mel", "embedding")
        options = fbank.FbankOptions()
        options.frame_opts.dither, options.frame_opts.samp_freq, options.mel_opts.num_bins = 0.0, LOG_MEL_RATE, BANDS
        self._bank = fbank.OnlineFbank(options)
        self._taken = 0

    def push(self, samples: NDArray[np.float64]) -> NDArray[np.float32]:
        """Take ``samples`` (n,) and return the bands (T, 80) of the frames that they complete."""
        self._bank.accept_waveform(LOG_MEL_RATE, samples.astype(np.float32))
        first, self._taken = self._taken, self._bank.num_frames_ready
        # Copies, since ``pop`` frees the library's own arrays; without ``pop``, memory would grow with the stream.
        bands = np.array([self._bank.get_frame(frame) for frame in range(first, self._taken)], dtype=np.float32)
        self._bank.pop(self._taken - first)
        return bands.reshape(-1, BANDS)
