"""New speakers' utterances on their way into machines: read, copied, standardised, and weighed for enough speech."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipeline.backends import Workers, found_from_anywhere
from pipeline.config import Config
from pipeline.copies import CopyMaker
from pipeline.corpus import Utterance
from pipeline.errors import AudioError, NotEnoughSpeechError
from pipeline.features.standardize import Standardizer
from pipeline.features.stream import FeatureBlock
from pipeline.frontend import Listener, features_of, read_features, read_samples
from pipeline.holdout import Cut
from pipeline.manifest import new_id
from pipeline.recording_quality import Recording, RecordingMeter

Samples = NDArray[np.float64]
Utterances = list[FeatureBlock]
Progress = Callable[[str, int, int], None]
"""Called as progress(stage, steps just done, steps in all)."""


@dataclass(frozen=True)
class Speech:
    """One new speaker's speech, utterance by utterance.

    ``versions[0]`` are the utterances as they were recorded; each further version holds a degraded copy of every one,
    in the same order. ``strangers`` hold them at another speed each. Copies may be without speech.
    """

    versions: list[Utterances]
    strangers: list[Utterances]

    def kept(self, cut: Cut) -> Speech:
        """What ``cut`` leaves to train on."""
        return Speech([cut.kept(version) for version in self.versions], [cut.kept(voice) for voice in self.strangers])

    def scaled(self, scaling: Standardizer) -> Speech:
        """The same speech standardised."""

        def scale(parts: list[Utterances]) -> list[Utterances]:
            return [[replace(block, vectors=scaling(block.vectors)) for block in part] for part in parts]

        return Speech(scale(self.versions), scale(self.strangers))


@dataclass
class Voice:
    """One new speaker; ``recordings`` are measured one by one, in the order of the utterances, where that was asked."""

    name: str
    speech: Speech
    id: int = field(default_factory=new_id)
    recordings: list[Recording] = field(default_factory=list)

    @property
    def utterances(self) -> Utterances:
        """The utterances as they were recorded."""
        return self.speech.versions[0]

    @property
    def frames(self) -> int:
        """Speech vectors in all, copies not counted."""
        return sum(len(utterance.vectors) for utterance in self.utterances)


def read_voices(
    speakers: Mapping[str, Sequence[Utterance]],
    settings: Config,
    scaling: Standardizer | None,
    *,
    enrolled: int,
    workers: Workers,
    progress: Progress,
    measured: bool = False,
) -> tuple[list[Voice], list[tuple[Path, str]]]:
    """Everybody's speech, and the files that could not be read with the reasons; ``enrolled`` speakers are known."""
    tasks = [
        (name, number, replace(utterance, path=found_from_anywhere(utterance.path, workers)))
        for name in speakers
        for number, utterance in enumerate(speakers[name])
    ]
    maker = _copy_maker(speakers, settings, enrolled + len(speakers))
    results = workers.map(
        _read, tasks, common=_Reading(settings, scaling, maker, measured), reads=lambda *task: (task[-1].path,)
    )
    skipped: list[tuple[Path, str]] = []
    versions, strangers = (1, 0) if maker is None else (1 + len(maker.settings.kinds), len(maker.speeds))
    voices = {
        name: Voice(name, Speech([[] for _ in range(versions)], [[] for _ in range(strangers)])) for name in speakers
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
    """How utterances are read: what they all have in common."""

    settings: Config
    scaling: Standardizer | None
    maker: CopyMaker | None
    measured: bool


def _read(
    how: _Reading, speaker: str, number: int, utterance: Utterance
) -> tuple[Speech, Recording | None] | AudioError:
    """The speech of one utterance, and its measurements."""
    settings, maker = how.settings, how.maker
    meter = RecordingMeter(utterance.path, settings.features) if how.measured else None
    listen = None if meter is None else meter.push
    try:
        if maker is None:
            heard = read_features(utterance, settings.features, how.scaling, listen=listen)
            speech = Speech([[heard.speech]], [])
        else:
            speech = _with_copies(
                maker, utterance, settings, how.scaling, speaker=speaker, number=number, listen=listen
            )
        return speech, None if meter is None else meter.finish()
    except AudioError as error:
        return error


def _copy_maker(speakers: Mapping[str, Sequence[Utterance]], settings: Config, population: int) -> CopyMaker | None:
    """Who makes the copies that the segment machines of ``population`` speakers want; None where they want none."""
    strangers = settings.segments.has_strangers(population)
    if "segment" not in settings.machines.kinds or not (settings.copies.kinds or strangers):
        return None
    return CopyMaker(settings, speakers, strangers=strangers)


def _with_copies(
    maker: CopyMaker,
    utterance: Utterance,
    settings: Config,
    scaling: Standardizer | None,
    *,
    speaker: str,
    number: int,
    listen: Listener | None,
) -> Speech:
    """The speech of one utterance and of its copies; no copies are made where there is no speech."""
    samples, rate = read_samples(utterance)
    if listen is not None:
        listen(samples, rate)

    def speech(audio: Samples, audio_rate: int) -> FeatureBlock:
        return features_of(audio, audio_rate, settings.features, scaling, where=str(utterance.path)).speech

    recorded = speech(samples, rate)
    if len(recorded.vectors) == 0:
        return Speech([[recorded]], [])
    copies = maker.copies(samples, rate, speaker=speaker, number=number)
    return Speech(
        [[recorded], *([speech(copy, settings.features.rate)] for copy in copies)],
        [[speech(voice, settings.features.rate)] for voice in maker.strangers(samples, rate)],
    )


def _append(speech: Speech, utterance: Speech) -> None:
    for parts, more in ((speech.versions, utterance.versions), (speech.strangers, utterance.strangers)):
        for part, blocks in zip(parts, more, strict=True):
            part.extend(blocks)


def standardized(
    voices: list[Voice], settings: Config, scaling: Standardizer | None, *, first: bool
) -> Standardizer | None:
    """The scaling of the store: ``scaling``, or, at the ``first`` enrollment under settings that ask for it, a new one.

    A new one is learned from the voices and applied to them.
    """
    if not first or not settings.features.standardize:
        return scaling
    learned = Standardizer.fit(np.concatenate([block.vectors for voice in voices for block in voice.utterances]))
    for voice in voices:
        voice.speech = voice.speech.scaled(learned)
    return learned


def audible(voices: list[Voice], settings: Config) -> tuple[list[Voice], list[tuple[str, str]]]:
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
