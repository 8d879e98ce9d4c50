"""New speakers and their speech, with the earlier arrays of speakers to whom recordings are added."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from pipeline.audio.streams import Samples
from pipeline.enrollment.quality import Recording
from pipeline.features.stream import FeatureBlock
from pipeline.store.arrays import Arrays
from pipeline.store.layout import AnyArray
from pipeline.store.speakers import Speaker

Utterances = list[FeatureBlock]


@dataclass(frozen=True)
class Speech:
    """One new speaker's speech, utterance by utterance.

    ``versions[0]`` has the utterances as recorded. Each further version has an augmented version of every utterance, in
    the same order, and each of ``pseudo_speakers`` has all utterances at one other speed. An augmented utterance has no
    frames where it has no speech, or where there is no version of that kind.
    """

    versions: list[Utterances]
    pseudo_speakers: list[Utterances]

    def mapped(self, change: Callable[[Utterances], Utterances]) -> Speech:
        """Return the speech with ``change`` applied to each version and each pseudo-speaker."""
        return Speech(list(map(change, self.versions)), list(map(change, self.pseudo_speakers)))


@dataclass(frozen=True)
class Earlier:
    """Arrays that a store keeps of a ``speaker`` to whom recordings are added (``pipeline.enrollment.adding``)."""

    speaker: Speaker
    arrays: Arrays


@dataclass
class NewSpeaker:
    """One new speaker.

    ``recordings`` are the measurements of the utterances, in order, where these were asked for; ``skipped`` the files
    that could not be read or hold no speech, with the reasons; ``earlier`` the arrays of one who was enrolled before.
    Held-out utterances are scored as recorded and in the versions with numbers ``scored``; other versions have only the
    features that machines are trained on.
    """

    name: str
    speech: Speech
    id: int = field(default_factory=lambda: secrets.randbits(63))
    recordings: list[Recording] = field(default_factory=list)
    skipped: list[tuple[Path, str]] = field(default_factory=list)
    earlier: Earlier | None = None
    scored: Sequence[int] = ()

    @property
    def utterances(self) -> Utterances:
        """Return the utterances as they were recorded."""
        return self.speech.versions[0]

    def add(self, speech: Speech, recording: Recording | None) -> None:
        """Append the speech of one more utterance, and its measurements where there are any."""
        for version, blocks in zip(self.speech.versions, speech.versions, strict=True):
            version.extend(blocks)
        for pseudo, blocks in zip(self.speech.pseudo_speakers, speech.pseudo_speakers, strict=True):
            pseudo.extend(blocks)
        self.recordings += [] if recording is None else [recording]

    @property
    def frames(self) -> int:
        """Return the number of speech vectors, augmentation not counted."""
        return sum(len(utterance.vectors) for utterance in self.utterances)

    @property
    def counts(self) -> tuple[int, int]:
        """Return the numbers of speech vectors and of utterances, earlier ones among them."""
        old = (0, 0) if self.earlier is None else (self.earlier.speaker.frames, self.earlier.speaker.utterances)
        return old[0] + self.frames, old[1] + len(self.utterances)

    @property
    def high_db(self) -> float | None:
        """Return the median ``SpeechMeter.high_db`` of the recordings; None where none was measured."""
        levels = [one.high_db for one in self.recordings if one.high_db is not None]
        return float(np.median(levels)) if levels else None

    def keep_frame_vectors(self) -> None:
        """Drop everything but the vectors that machines over frames are trained on."""
        self.speech = Speech([[replace(block, others={}) for block in self.utterances]], [])

    def after_earlier(self, name: str, rows: AnyArray) -> AnyArray:
        """Return ``rows``, after the earlier ones that are kept under ``name``."""
        if self.earlier is None or name not in self.earlier.arrays:
            return rows
        old = self.earlier.arrays[name]
        return np.concatenate((old.astype(rows.dtype), rows)) if len(rows) else old

    def weighed(self, vectors: Samples) -> tuple[Samples, Samples | None]:
        """Return ``vectors`` (T, d) after the earlier centroids, and the number of frames that each stands for."""
        if self.earlier is None:
            return vectors, None
        old = self.earlier.speaker
        weights = np.repeat([old.frames / old.centroids, 1.0], [old.centroids, len(vectors)])
        return self.after_earlier("centroids", vectors), weights

    def averaged(self, name: str, array: AnyArray) -> AnyArray:
        """Return the mean of ``array`` and the earlier one that is kept under ``name``, weighted by frames."""
        if self.earlier is None or name not in self.earlier.arrays:
            return array
        share = self.frames / self.counts[0]
        return (share * array + (1.0 - share) * self.earlier.arrays[name]).astype(array.dtype)
