"""Samples to speech feature vectors, as a stream: the one path for files, pipes and microphones.

    samples -> pre-emphasis -> frames less their mean -> gain, window -> LPC, PLP or MFCC -> deltas -> speech only
       |                                                                                            |
       +--> levels in band -> voice activity detection ---------------------------------------------+
       |                                                                                            |
       +--> log mel bands, where asked for ---------------------------------------------------------+

The same frames may be analysed several times: for machines over frames, for supervector machines and for GMMs.
Any chunking of the same samples gives the same vectors bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.config import Analysis, AnalysisConfig, FeatureSettings
from pipeline.errors import StreamClosedError
from pipeline.features import lpc
from pipeline.features.filterbank import BANDS, LogMelStream
from pipeline.features.framing import DeltaStream, FrameStream, PreEmphasis, window, without_offset
from pipeline.features.mfcc import mel_cepstrum
from pipeline.features.pitch import fundamental_frequency
from pipeline.features.plp import SpectralFeatures, perceptual_prediction
from pipeline.features.quality import SpeechMeter
from pipeline.features.vad import VoiceActivityDetector, frame_level, speech_level

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class FeatureBlock:
    """Output of one push: ``vectors`` (T, d) of the speech frames, and the number of ``frames``, speech or not.

    ``below_peak`` (T,): dB below the loudest frame so far, 0 or more. ``others`` has the vectors (T, e) of each of
    ``settings.analyses`` that differs from the first, and log mel bands under "embedding" if the settings ask for them.
    """

    vectors: Array
    frames: int
    below_peak: Array
    others: Mapping[Analysis, NDArray[Any]] = field(default_factory=dict)

    def of(self, analysis: Analysis) -> NDArray[Any]:
        """Return the vectors (T, e) of one ``analysis``."""
        return self.others.get(analysis, self.vectors)

    def part(self, rows: slice) -> FeatureBlock:
        """Return some of the speech frames."""
        part = self._with_each(lambda array: array[rows])
        return replace(part, frames=len(part.vectors))

    def copied(self) -> FeatureBlock:
        """Return a copy of the block that does not keep a larger one in memory."""
        return self._with_each(np.ndarray.copy)

    def at_single_precision(self) -> FeatureBlock:
        """Return the block in single precision, which halves the memory of training on many."""
        return self._with_each(lambda array: array.astype(np.float32))

    def _with_each(self, change: Callable[[NDArray[Any]], NDArray[Any]]) -> FeatureBlock:
        """Return the block with ``change`` made to each of its arrays."""
        others = {name: change(other) for name, other in self.others.items()}
        return FeatureBlock(change(self.vectors), self.frames, change(self.below_peak), others)


def joined(blocks: Sequence[FeatureBlock]) -> FeatureBlock:
    """Concatenate consecutive blocks, at least one."""
    if len(blocks) == 1:
        return blocks[0]
    return FeatureBlock(
        np.concatenate([block.vectors for block in blocks]),
        sum(block.frames for block in blocks),
        np.concatenate([block.below_peak for block in blocks]),
        {name: np.concatenate([block.others[name] for block in blocks]) for name in blocks[0].others},
    )


def joined_to(parts: Sequence[FeatureBlock], frames: float) -> list[FeatureBlock]:
    """Join utterances in order into blocks of at least ``frames`` vectors; a remainder is added to the last block."""
    blocks: list[list[FeatureBlock]] = [[]]
    for part in parts:
        if sum(len(block.vectors) for block in blocks[-1]) >= frames:
            blocks.append([])
        blocks[-1].append(part)
    if len(blocks) > 1 and sum(len(block.vectors) for block in blocks[-1]) < frames:
        remainder = blocks.pop()
        blocks[-1] += remainder
    return [joined(block) for block in blocks if block]


def static_features(settings: FeatureSettings, analysis: AnalysisConfig | None = None) -> Callable[[Array], Array]:
    """Return the function from windowed frames (T, L) to static features (T, order) of one ``analysis``.

    By default, the settings' own analysis.
    """
    analysis = settings if analysis is None else analysis
    length, order = settings.frame_length, analysis.order
    if analysis.kind in ("mfcc", "root_mfcc"):
        root = analysis.compression if analysis.kind == "root_mfcc" else None
        return mel_cepstrum(settings.rate, length, order, root=root)
    if analysis.kind == "plp":
        bands, compression = analysis.bands, analysis.compression
        plp = perceptual_prediction(settings.rate, length, order, bands=bands, compression=compression)
        return plp.then(lpc.cepstrum)
    solve = lpc.burg if analysis.method == "burg" else _autocorrelation
    if analysis.kind == "lpc":
        return lambda frames: solve(frames, order)
    return lambda frames: lpc.cepstrum(solve(frames, order))


def _autocorrelation(frames: Array, order: int) -> Array:
    return lpc.levinson_durbin(lpc.autocorrelate(frames, order))


class _Windowed:
    """Windowed ``frames`` (T, L), whose power spectrum and bands are computed once for all analyses that read them."""

    def __init__(self, frames: Array) -> None:
        self._frames = frames
        self._made: dict[tuple[Callable[[Array], Array], ...], Array] = {}

    def analysed(self, static: Callable[[Array], Array]) -> Array:
        """Return the ``static`` features of the frames."""
        if not isinstance(static, SpectralFeatures):
            return static(self._frames)
        values = self._frames
        for count, step in enumerate(static.steps, 1):
            first = static.steps[:count]
            if first not in self._made:
                self._made[first] = step(values)
            values = self._made[first]
        return values


@dataclass(frozen=True)
class _Plan:
    """The part shared by streams of the same settings.

    ``analyses`` holds, for each analysis, the number of static features, the weight of their deltas and the function
    that computes them; ``others`` has the index of each analysis that differs from the first, ``left_out`` the names of
    those that are not computed.
    """

    window: Array
    analyses: tuple[tuple[int, float, Callable[[Array], Array]], ...]
    others: Mapping[Analysis, int]
    left_out: frozenset[Analysis]
    level: Callable[..., Array]


@lru_cache(maxsize=8)
def _plan_of(settings: FeatureSettings, only: frozenset[Analysis] | None) -> _Plan:
    left_out = frozenset[Analysis]() if only is None else frozenset({*settings.analyses, "pitch"}) - {"frames", *only}
    named = {name: analysis for name, analysis in settings.analyses.items() if name not in left_out}
    distinct = list(dict.fromkeys(named.values()))
    places = {name: distinct.index(analysis) for name, analysis in named.items()}
    shape = window(settings.window, settings.frame_length)
    analyses = [(one.order, one.delta_scale, static_features(settings, one)) for one in distinct]
    if settings.pitch and "pitch" not in left_out:
        places["pitch"] = len(analyses)
        analyses.append((2, 1.0, fundamental_frequency(settings.rate, shape)))
    others = {name: place for name, place in places.items() if place}
    return _Plan(shape, tuple(analyses), others, left_out, speech_level(settings))


class _Analysis:
    """Static features and deltas of one analysis of the frames."""

    def __init__(
        self, settings: FeatureSettings, order: int, delta_scale: float, static: Callable[[Array], Array]
    ) -> None:
        self.order = order
        self.static = static
        self.deltas = DeltaStream(settings.delta_width, scale=delta_scale) if settings.deltas else None

    def push(self, windowed: _Windowed, wanted: NDArray[np.int64], frames: int) -> Array:
        """Return the vectors completed by ``frames`` more frames; those not ``wanted`` have statics of 0."""
        static = np.zeros((frames, self.order))
        if len(wanted):
            static[wanted] = windowed.analysed(self.static)
        return static if self.deltas is None else self.deltas.push(static)

    def flush(self) -> Array:
        """Return the vectors held back for look-ahead."""
        tail = np.empty((0, 0)) if self.deltas is None else self.deltas.flush()
        return tail if len(tail) else np.empty((0, self.order * (1 if self.deltas is None else 2)))


class FeatureStream:
    """Speech feature vectors of mono samples at ``settings.rate`` Hz, by each of ``settings.analyses``.

    A ``meter`` receives the frames, too. Besides the analysis for machines over frames, only those named by ``only``
    are computed; the vectors of any other are (0, 0).
    """

    def __init__(
        self, settings: FeatureSettings, meter: SpeechMeter | None = None, only: frozenset[Analysis] | None = None
    ) -> None:
        self.settings = settings
        self._meter = meter
        self._pre_emphasis = PreEmphasis(settings.pre_emphasis)
        self._raw = FrameStream(settings.frame_length, settings.frame_step)
        self._emphasised = FrameStream(settings.frame_length, settings.frame_step)
        self._plan = _plan_of(settings, only)
        self._analyses = [_Analysis(settings, *analysis) for analysis in self._plan.analyses]
        self._reach = settings.delta_width if settings.deltas else 0  # frames of look-ahead
        self._vad = VoiceActivityDetector(settings.vad, frames_per_second=1.0 / settings.step_seconds)
        self._before = np.zeros(self._reach, dtype=bool)
        self._speech = np.empty(0, dtype=bool)  # of frames that wait for their deltas
        self._below_peak = np.empty(0)
        self._log_mel = LogMelStream() if settings.log_mel else None
        self._bands = np.empty((0, BANDS), dtype=np.float32)
        self._closed = False

    @property
    def delay_ms(self) -> float:
        """Return the delay in ms from a sound to its vector: the frame's length and the look-ahead of the deltas."""
        samples = self.settings.frame_length + self._reach * self.settings.frame_step
        return 1000.0 * samples / self.settings.rate

    def push(self, samples: Array) -> FeatureBlock:
        """Take ``samples`` (n,), full scale 1, and return the vectors they complete."""
        if self._closed:
            raise StreamClosedError("features: the stream was flushed and takes no more samples; start a new one")
        raw = self._raw.push(samples)
        levels = frame_level(raw)
        in_band = self._plan.level(raw, levels)
        speech, below_peak = self._vad.push(in_band)
        if self._meter is not None:
            self._meter.push(raw, levels, speech)
        self._speech = np.concatenate((self._speech, speech))
        self._below_peak = np.concatenate((self._below_peak, below_peak))
        if self._log_mel is not None:
            self._bands = np.concatenate((self._bands, self._log_mel.push(samples)))
        frames = self._emphasised.push(self._pre_emphasis.push(samples))
        wanted = self._wanted(speech)
        # Scaled so that the loudest frame so far is at 0 dB: features do not depend on the gain.
        gain = 10.0 ** (-0.05 * (in_band + below_peak)[wanted])
        windowed = _Windowed(without_offset(frames[wanted]) * (gain[:, None] * self._plan.window))
        return self._speech_of([analysis.push(windowed, wanted, len(frames)) for analysis in self._analyses])

    def _wanted(self, speech: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return the numbers of the frames to analyse: those of ``speech`` (T,), and their neighbours for deltas.

        The last frames are always included, since speech may follow.
        """
        reach = self._reach
        flags = np.concatenate((self._before, speech, np.ones(reach, dtype=bool)))
        self._before = flags[len(speech) : len(speech) + reach]
        if speech.all():
            return np.arange(len(speech))
        near = [flags[at : at + len(speech)] for at in range(2 * reach + 1)]
        return np.flatnonzero(np.logical_or.reduce(near))

    def flush(self) -> FeatureBlock:
        """Return the vectors held back for look-ahead, and close."""
        self._closed = True
        return self._speech_of([analysis.flush()[: len(self._speech)] for analysis in self._analyses])

    def _speech_of(self, vectors: list[Array]) -> FeatureBlock:
        count = len(vectors[0])
        speech, self._speech = self._speech[:count], self._speech[count:]
        below_peak, self._below_peak = self._below_peak[:count], self._below_peak[count:]
        spoken = [of_one[speech] for of_one in vectors]
        others: dict[Analysis, NDArray[Any]] = {name: np.empty((0, 0)) for name in self._plan.left_out}
        others |= {name: spoken[place] for name, place in self._plan.others.items()}
        if "pitch" in self._plan.others:
            others["pitch"] = others["pitch"][:, :2]  # deltas only delay it like the others
        if self._log_mel is not None:
            # Log mel frames begin at the same samples and are shorter, so those of all frames above are complete.
            others["embedding"], self._bands = self._bands[:count][speech], self._bands[count:]
        return FeatureBlock(spoken[0], count, below_peak[speech], others)
