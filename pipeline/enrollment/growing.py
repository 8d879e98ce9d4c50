"""Recordings of a folder that has grown: those already in the store are recognised by their fingerprints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pipeline.audio.corpus import Utterance
from pipeline.config import FeatureSettings
from pipeline.enrollment.duplicates import duplicates
from pipeline.enrollment.quality import Recording, kept_of, measured
from pipeline.enrollment.speech import Progress
from pipeline.errors import AudioError, InputError
from pipeline.features.fingerprints import Prints
from pipeline.machines.workers import Workers, path_for
from pipeline.store.arrays import Arrays
from pipeline.store.model import SpeakerModel


@dataclass(frozen=True)
class Grown:
    """The new utterances of each of the ``speakers``, the numbers ``left_out`` by name, and files that were not read.

    Utterances left out are duplicates of recordings of the same speaker, or have no speech.
    """

    speakers: Mapping[str, Sequence[Utterance]]
    left_out: dict[str, int]
    skipped: tuple[tuple[Path, str], ...]


def grown(
    model: SpeakerModel, speakers: Mapping[str, Sequence[Utterance]], *, workers: Workers, progress: Progress
) -> Grown:
    """Return the utterances of ``speakers`` that are not in ``model`` yet: all of them for people not enrolled.

    Raises InputError where the model keeps no fingerprints of an enrolled speaker.
    """
    known = {
        one.name: _prints(model, one.name, arrays)
        for one, arrays in zip(model.speakers, model.arrays, strict=True)
        if one.name in speakers
    }
    tasks = [(name, replace(one, path=path_for(one.path, workers))) for name in known for one in speakers[name]]
    results = workers.map(
        _measure_of, tasks, common=model.config.features, reads=lambda _, one: (one.path,), many=len(tasks)
    )
    new: dict[str, Sequence[Utterance]] = {name: [] if name in known else its for name, its in speakers.items()}
    left_out, skipped = Counter[str](), []
    for (name, utterance), result in zip(tasks, results, strict=True):
        progress("comparing", 1, len(tasks))
        if isinstance(result, AudioError):
            skipped.append((utterance.path, str(result).removeprefix(f"{utterance.path}: ")))
        elif result.snr_db is None or duplicates([(0, result), (1, kept_of(known[name]))]):
            left_out[name] += 1
        else:
            new[name] = [*new[name], utterance]
    return Grown({name: its for name, its in new.items() if its}, dict(left_out), tuple(skipped))


def _prints(model: SpeakerModel, name: str, arrays: Arrays) -> Prints:
    if "fingerprints" not in arrays:
        raise InputError(
            f"{model.where}: enrolled recordings are recognised by their fingerprints, and the store keeps none of"
            f" {name!r} (duplicate_audio.keep = false); give a folder of new recordings alone, and enroll --add"
            " (add=True)"
        )
    return arrays["fingerprints"]


def _measure_of(settings: FeatureSettings, _name: str, utterance: Utterance) -> Recording | AudioError:
    try:
        return measured(utterance, settings)
    except AudioError as error:
        return error
