"""Features: 12th-order LPC cepstra against librosa.lpc on the same frames, the default front end against the clock."""

from __future__ import annotations

import librosa
import numpy as np
import soxr
from claim_scoring import best_of
from speed.measuring import Figures, peak_gib
from speed.options import Options

from pipeline.audio.corpus import read_corpus
from pipeline.audio.files import read_samples
from pipeline.config import Config
from pipeline.features import lpc
from pipeline.features.frontend import FrontEnd

SECONDS = 60.0
BLOCK_SECONDS = 4.0
_LPCC = ("kind=lpcc", "order=12")
# The default's analysis of frames alone, without that of utterances.
ORDER12 = tuple(
    f"features.{machines}.{setting}" for machines in ("supervector", "gmm", "normalised") for setting in _LPCC
)


def measure(options: Options) -> Figures:
    """Measure seconds on both sides, for the same audio at the settings' own rate."""
    cepstral, default = options.config(*ORDER12), options.config()
    samples = speech(options, cepstral.features.rate)
    seconds = len(samples) / cepstral.features.rate
    framed = frames_of(samples, cepstral)
    patience = options.patience
    here = best_of(lambda: front_end(samples, cepstral), seconds=patience)
    alone = best_of(lambda: models(framed, cepstral), seconds=patience)
    # librosa takes frames along either axis; the faster counts.
    columns = np.ascontiguousarray(framed.T)
    by_rows = best_of(lambda: librosa.lpc(framed, order=cepstral.features.order, axis=-1), seconds=patience)
    by_columns = best_of(lambda: librosa.lpc(columns, order=cepstral.features.order, axis=0), seconds=patience)
    theirs, usual = min(by_rows, by_columns), best_of(lambda: front_end(samples, default), seconds=patience)
    return {
        "features.rate": cepstral.features.rate,
        "features.audio_seconds": seconds,
        "features.frames": len(framed),
        "features.order": cepstral.features.order,
        "features.threads": 1,
        "features.seconds": here,
        "features.lpc_alone_seconds": alone,
        "features.librosa_seconds": theirs,
        "features.librosa_rows_seconds": by_rows,
        "features.librosa_columns_seconds": by_columns,
        "features.ratio_librosa": theirs / here,
        "features.ratio_librosa_lpc_alone": theirs / alone,
        "features.default_seconds": usual,
        "features.realtime": seconds / usual,
        "features.realtime_order12": seconds / here,
        "features.peak_gib": peak_gib(),
    }


def speech(options: Options, rate: int) -> np.ndarray:
    """Return a minute of the speakers' recordings to verify, at ``rate`` Hz."""
    parts: list[np.ndarray] = []
    for utterances in read_corpus(options.corpus / "verify").speakers.values():
        samples, its_rate = read_samples(utterances[0])
        parts.append(soxr.resample(samples, its_rate, rate))
        if sum(map(len, parts)) >= SECONDS * rate:
            break
    return np.resize(np.concatenate(parts), int(SECONDS * rate))


def frames_of(samples: np.ndarray, config: Config) -> np.ndarray:
    """Return windowed frames (T, L) as the stream makes them, but without pre-emphasis; none of them silent."""
    settings = config.features
    view = np.lib.stride_tricks.sliding_window_view(samples, settings.frame_length)[:: settings.frame_step]
    # Digital silence has no Burg model; librosa would warn of it.
    noise = 1e-6 * np.random.default_rng(config.seed).standard_normal(view.shape)
    return np.ascontiguousarray((view + noise) * np.hamming(settings.frame_length))


def front_end(samples: np.ndarray, config: Config) -> int:
    """Return everything from samples to feature vectors: pre-emphasis, frames, model, cepstrum, deltas and the VAD."""
    stream = FrontEnd(config.features, config.features.rate)
    block = int(BLOCK_SECONDS * config.features.rate)
    made = [stream.push(samples[start : start + block]) for start in range(0, len(samples), block)]
    return sum(len(part.vectors) for part in (*made, stream.flush()))


def models(frames: np.ndarray, config: Config) -> np.ndarray:
    """Return the linear prediction alone, which is all that librosa computes."""
    return lpc.levinson_durbin(lpc.autocorrelate(frames, config.features.order))
