"""Which of a speaker's utterances are held out at enrollment, to find a threshold."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pipeline.config import Config

Array = NDArray[np.float64]


def split_utterances(utterances: list[Array], settings: Config) -> tuple[Array, list[Array]]:
    """Vectors to train on, and the held-out trials: whole utterances, joined to about ``trial_seconds`` of speech.

    The last utterances are held out, not random ones: names sort by session or by text, and a threshold must hold for
    sessions and texts that were not enrolled. A speaker with a single utterance has its end held out instead.
    """
    wanted = settings.threshold.holdout * sum(map(len, utterances))
    if len(utterances) == 1:
        cut = max(1, len(utterances[0]) - max(1, round(wanted)))
        return utterances[0][:cut], [utterances[0][cut:]] if cut < len(utterances[0]) else []
    sizes = np.cumsum([len(vectors) for vectors in reversed(utterances)])
    cut = max(1, len(utterances) - 1 - int(np.searchsorted(sizes, wanted)))
    kept, held = utterances[:cut], utterances[cut:]
    return np.concatenate(kept), _join(held, settings.threshold.trial_seconds / settings.features.step_seconds)


def _join(parts: list[Array], frames: float) -> list[Array]:
    """Join utterances in order into trials of at least ``frames`` vectors; a remainder goes with the last."""
    trials: list[list[Array]] = [[]]
    for part in parts:
        if sum(map(len, trials[-1])) >= frames:
            trials.append([])
        trials[-1].append(part)
    if len(trials) > 1 and sum(map(len, trials[-1])) < frames:
        remainder = trials.pop()
        trials[-1] += remainder
    return [np.concatenate(trial) for trial in trials]
