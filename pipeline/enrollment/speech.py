"""New speakers' utterances on their way into machines: read, augmented, standardised, and weighed for enough speech."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pipeline.audio.augmentation import Augmenter
from pipeline.audio.corpus import Utterance
from pipeline.audio.files import read_samples
from pipeline.config import Config
from pipeline.enrollment.quality import Recording, RecordingMeter
from pipeline.errors import AudioError, NotEnoughSpeechError
from pipeline.features.fingerprints import joined
from pipeline.features.frontend import Listener, features_of, read_features
from pipeline.features.stream import FeatureBlock
from pipeline.machines.workers import Workers, path_for

Samples = NDArray[np.float64]
Utterances = list[FeatureBlock]
Progress = Callable[[str, int, int], None]
"""Called as progress(stage, steps just done, steps in all)."""


class Split(Protocol):
    """A hold-out split (``enrollment.holdout``)."""

    def kept(self, utterances: Sequence[FeatureBlock]) -> list[FeatureBlock]:
        """Return the utterances that are left to train on."""


@dataclass(frozen=True)
class Speech:
    """One new speaker's speech, utterance by utterance.

    ``versions[0]`` are the utterances as they were recorded; each further version holds an augmented one of each,
    in the same order. ``pseudo_speakers`` hold them at another speed each. Augmented utterances may be without speech.
    """

    versions: list[Utterances]
    pseudo_speakers: list[Utterances]

    def kept(self, cut: Split) -> Speech:
        """Return the speech that a hold-out split leaves to train on."""
        return Speech(
            [cut.kept(version) for version in self.versions], [cut.kept(voice) for voice in self.pseudo_speakers]
        )


@dataclass
class NewSpeaker:
    """One new speaker; ``recordings`` are measured one by one, in the order of the utterances, where that was asked."""

    name: str
    speech: Speech
    id: int = field(default_factory=lambda: secrets.randbits(63))
    recordings: list[Recording] = field(default_factory=list)

    @property
    def utterances(self) -> Utterances:
        """The utterances as they were recorded."""
        return self.speech.versions[0]

    def fingerprints(self, *, keep: bool) -> dict[str, NDArray[np.uint32]]:
        """Return the fingerprints of all recordings as an array of the model; none unless they are to be kept."""
        return {"fingerprints": joined(recording.prints for recording in self.recordings)} if keep else {}

    @property
    def frames(self) -> int:
        """Speech vectors in all, augmentation not counted."""
        return sum(len(utterance.vectors) for utterance in self.utterances)


def read_speech(
    speakers: Mapping[str, Sequence[Utterance]],
    settings: Config,
    *,
    enrolled: int,
    workers: Workers,
    progress: Progress,
    measured: bool = False,
) -> tuple[list[NewSpeaker], list[tuple[Path, str]]]:
    """Everybody's speech, and the files that could not be read with the reasons; ``enrolled`` speakers are known."""
    tasks = [
        (name, number, replace(utterance, path=path_for(utterance.path, workers)))
        for name in speakers
        for number, utterance in enumerate(speakers[name])
    ]
    augmenter = _augmenter(speakers, settings, enrolled + len(speakers))
    results = workers.map(
        _read, tasks, common=_Reading(settings, augmenter, measured), reads=lambda *task: (task[-1].path,)
    )
    skipped: list[tuple[Path, str]] = []
    versions, pseudo_speakers = (
        (1, 0) if augmenter is None else (1 + len(augmenter.settings.kinds), len(augmenter.speeds))
    )
    voices = {
        name: NewSpeaker(name, Speech([[] for _ in range(versions)], [[] for _ in range(pseudo_speakers)]))
        for name in speakers
    }
    for (owner, _, utterance), result in zip(tasks, results, strict=True):
        progress("reading", 1, len(tasks))
        if isinstance(result, AudioError):
            skipped.append((utterance.path, str(result)))
            continue
        speech, recording = result
        if len(speech.versions[0][0].vectors):
            _append(voices[owner].speech, speech)
            if recording is not None:
                voices[owner].recordings.append(recording)
    return list(voices.values()), skipped


@dataclass(frozen=True)
class _Reading:
    """Settings that the reading of all utterances shares."""

    settings: Config
    augmenter: Augmenter | None
    measured: bool


def _read(
    how: _Reading, speaker: str, number: int, utterance: Utterance
) -> tuple[Speech, Recording | None] | AudioError:
    """The speech of one utterance, and its measurements."""
    settings, augmenter = how.settings, how.augmenter
    meter = RecordingMeter(utterance.path, settings.features) if how.measured else None
    listen = None if meter is None else meter.push
    try:
        if augmenter is None:
            speech = Speech([[read_features(utterance, settings.features, listen=listen)]], [])
        else:
            speech = _augmented(augmenter, utterance, settings, speaker=speaker, number=number, listen=listen)
        return speech, None if meter is None else meter.finish()
    except AudioError as error:
        return error


def _augmenter(speakers: Mapping[str, Sequence[Utterance]], settings: Config, population: int) -> Augmenter | None:
    """Return the augmenter for the segment machines of ``population`` speakers, None without augmentation."""
    pseudo_speakers = settings.supervector.has_pseudo_speakers(population)
    if "supervector" not in settings.machines.kinds or not (settings.augmentation.kinds or pseudo_speakers):
        return None
    return Augmenter(settings, speakers, speed_perturbed=pseudo_speakers)


def _augmented(
    augmenter: Augmenter,
    utterance: Utterance,
    settings: Config,
    *,
    speaker: str,
    number: int,
    listen: Listener | None,
) -> Speech:
    """Return the speech of one utterance and of its augmented versions; there are none where there is no speech."""
    samples, rate = read_samples(utterance)
    if listen is not None:
        listen(samples, rate)

    def speech(audio: Samples, audio_rate: int) -> FeatureBlock:
        return features_of(audio, audio_rate, settings.features, where=str(utterance.path))

    recorded = speech(samples, rate)
    if len(recorded.vectors) == 0:
        return Speech([[recorded]], [])
    versions = augmenter.versions(samples, rate, speaker=speaker, number=number)
    return Speech(
        [[recorded], *([speech(version, settings.features.rate)] for version in versions)],
        [[speech(voice, settings.features.rate)] for voice in augmenter.pseudo_speakers(samples, rate)],
    )


def _append(speech: Speech, utterance: Speech) -> None:
    for parts, more in ((speech.versions, utterance.versions), (speech.pseudo_speakers, utterance.pseudo_speakers)):
        for part, blocks in zip(parts, more, strict=True):
            part.extend(blocks)


def audible(voices: list[NewSpeaker], settings: Config) -> tuple[list[NewSpeaker], list[tuple[str, str]]]:
    """Part those with enough speech from those without; raises NotEnoughSpeechError if nobody has."""
    step, needed = settings.features.step_seconds, settings.codebook.min_seconds
    enough, refused, errors = [], [], []
    for voice in voices:
        if voice.frames and voice.frames * step >= needed:
            enough.append(voice)
            continue
        errors.append(NotEnoughSpeechError(f"speaker {voice.name!r}", found=voice.frames * step, needed=needed))
        refused.append((voice.name, str(errors[-1])))
    if not enough:
        raise errors[0]
    return enough, refused
