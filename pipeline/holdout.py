"""Which of a speaker's utterances are held out at enrollment, to find a threshold and a calibration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.config import Config
from pipeline.features.stream import FeatureBlock, joined

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Cut:
    """Held out: the utterances after number ``first``, and of that one itself all but a leading ``share``."""

    first: int
    share: float

    def kept(self, utterances: Sequence[FeatureBlock]) -> list[FeatureBlock]:
        """What is left to train on, of the utterances themselves or of copies of them."""
        whole = list(utterances[: self.first])
        if self.share > 0.0:
            whole.append(utterances[self.first].part(slice(0, self._frames(utterances))))
        return whole

    def held(self, utterances: Sequence[FeatureBlock]) -> list[FeatureBlock]:
        """The rest."""
        head = utterances[self.first].part(slice(self._frames(utterances), None))
        return [block for block in (head, *utterances[self.first + 1 :]) if len(block.vectors)]

    def _frames(self, utterances: Sequence[FeatureBlock]) -> int:
        return round(self.share * len(utterances[self.first].vectors))


def cut_of(utterances: Sequence[FeatureBlock], settings: Config) -> Cut:
    """Hold out whole utterances that make up about the share ``threshold.holdout`` of the speech.

    The last utterances are held out, not random ones: names sort by session or by text, and a threshold must hold for
    sessions and texts that were not enrolled. A speaker with a single utterance has its end held out instead.
    """
    sizes = [len(block.vectors) for block in utterances]
    wanted = settings.threshold.holdout * sum(sizes)
    if len(sizes) == 1:
        return Cut(0, max(1, sizes[0] - max(1, round(wanted))) / sizes[0])
    from_the_end = np.cumsum(sizes[::-1])
    return Cut(max(1, len(sizes) - 1 - int(np.searchsorted(from_the_end, wanted))), 0.0)


def split_utterances(utterances: Sequence[FeatureBlock], settings: Config) -> tuple[FeatureBlock, list[FeatureBlock]]:
    """Speech to train on, and the held-out trials: whole utterances, joined to about ``trial_seconds`` of speech."""
    cut = cut_of(utterances, settings)
    frames = settings.threshold.trial_seconds / settings.features.step_seconds
    return joined(cut.kept(utterances)), join_trials(cut.held(utterances), frames)


def join_trials(parts: Sequence[FeatureBlock], frames: float) -> list[FeatureBlock]:
    """Join utterances in order into trials of at least ``frames`` vectors; a remainder goes with the last."""
    trials: list[list[FeatureBlock]] = [[]]
    for part in parts:
        if sum(len(block.vectors) for block in trials[-1]) >= frames:
            trials.append([])
        trials[-1].append(part)
    if len(trials) > 1 and sum(len(block.vectors) for block in trials[-1]) < frames:
        remainder = trials.pop()
        trials[-1] += remainder
    return [joined(trial) for trial in trials if trial]
