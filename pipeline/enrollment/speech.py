"""New speakers' utterances on their way into machines: read, augmented, and checked for enough speech."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from pipeline.audio.augmentation import Augmenter
from pipeline.audio.corpus import Utterance
from pipeline.audio.downmix import Downmix
from pipeline.audio.files import read_samples
from pipeline.audio.streams import Samples
from pipeline.config import Analysis, Config, FeatureSettings
from pipeline.enrollment.new_speakers import NewSpeaker, Speech, Utterances
from pipeline.enrollment.quality import Recording, RecordingMeter
from pipeline.errors import AudioError, NotEnoughSpeechError
from pipeline.features.frontend import features_of, read_features
from pipeline.features.quality import NARROW_DB
from pipeline.features.stream import FeatureBlock, joined
from pipeline.machines.branches import EMBEDDED, NORMALISED, RAW, Branch, reads_augmented, utterance_kinds_of
from pipeline.machines.workers import Item, Workers, path_for

Progress = Callable[[str, int, int], None]
"""Called as progress(stage, steps just done, steps in all)."""

# Held-out utterances of an augmented version that suffice, one per speaker: with many speakers, each speaker's are
# scored only in some of the versions.
ENOUGH_CHANGED = 400
# Length of the pieces that a longer recording is augmented in.
PIECE_SECONDS = 60.0


def read_speech(
    speakers: Mapping[str, Sequence[Utterance]],
    settings: Config,
    *,
    enrolled: int,
    workers: Workers,
    progress: Progress,
    measured: bool = False,
) -> tuple[list[NewSpeaker], list[tuple[Path, str]]]:
    """Return everybody's speech, and the files that could not be read or have no speech, with the reasons.

    ``enrolled`` is the number of speakers known already; recordings are ``measured`` on request.
    """
    augmenter = _augmenter(speakers, settings, enrolled + len(speakers))
    newcomers = _unread(speakers, augmenter, enrolled)
    tasks = [
        (name, number, newcomers[name].scored, replace(utterance, path=path_for(utterance.path, workers)))
        for name in speakers
        for number, utterance in enumerate(speakers[name])
    ]
    results = workers.map(
        _read, tasks, common=(settings, augmenter, measured), reads=lambda *task: (task[-1].path,), many=len(tasks)
    )
    for (owner, *_, utterance), result in zip(tasks, results, strict=True):
        progress("reading", 1, len(tasks))
        if isinstance(result, AudioError):
            newcomers[owner].skipped.append((utterance.path, str(result).removeprefix(f"{utterance.path}: ")))
            continue
        speech, recording = result
        if not len(speech.versions[0][0].vectors):
            newcomers[owner].skipped.append((utterance.path, "no speech was found in it"))
            continue
        newcomers[owner].add(speech, recording)
    return list(newcomers.values()), [one for newcomer in newcomers.values() for one in newcomer.skipped]


def _unread(names: Collection[str], augmenter: Augmenter | None, enrolled: int) -> dict[str, NewSpeaker]:
    """Return new speakers by name, without any speech yet, numbered after the ``enrolled`` ones."""
    versions, pseudo_speakers = (1, 0) if augmenter is None else (1 + len(augmenter.kinds), len(augmenter.speeds))
    most = max(1, ENOUGH_CHANGED // (enrolled + len(names)))
    return {
        name: NewSpeaker(
            name,
            Speech([[] for _ in range(versions)], [[] for _ in range(pseudo_speakers)]),
            scored=by_turns(range(1, versions), most, place),
        )
        for place, name in enumerate(names, start=enrolled)
    }


def _read(
    how: tuple[Config, Augmenter | None, bool],
    speaker: str,
    number: int,
    scored: Sequence[int],
    utterance: Utterance,
) -> tuple[Speech, Recording | None] | AudioError:
    """Return the speech of one utterance, and its measurements; ``how``: settings, augmenter, whether to measure."""
    settings, augmenter, measured = how
    meter = RecordingMeter(utterance.path, settings.features) if measured else None
    listen = (lambda *_: None) if meter is None else meter.push
    try:
        mix = Downmix(str(utterance.path), utterance.channel)
        if augmenter is None:
            speech = Speech([[read_features(utterance, settings.features, listen=listen, mix=mix)]], [])
        else:
            samples, rate = read_samples(utterance, mix)
            pieces = np.array_split(samples, max(1, math.ceil(len(samples) / (PIECE_SECONDS * rate))))
            for piece in pieces:
                listen(piece, rate)
            place = (speaker, number, str(utterance.path))
            speech = _augmented(augmenter, pieces, rate, settings, place, scored)
        return speech, None if meter is None else meter.finish(channels_differ=mix.channels_differ)
    except AudioError as error:
        return error


def _augmenter(speakers: Mapping[str, Sequence[Utterance]], settings: Config, population: int) -> Augmenter | None:
    """Return the augmenter for the utterance machines of ``population`` speakers, None where no machine needs one."""
    machines = settings.machines.kinds
    kinds = settings.augmentation.kinds if reads_augmented(machines) else ()
    has_pseudo = any(kind.branch.has_pseudo_speakers(settings, population) for kind in utterance_kinds_of(machines))
    speeds = settings.supervector.speeds if has_pseudo else ()
    return Augmenter(settings, speakers, kinds=kinds, speeds=speeds) if kinds or speeds else None


def _augmented(
    augmenter: Augmenter,
    pieces: Sequence[Samples],
    rate: int,
    settings: Config,
    place: tuple[str, int, str],
    scored: Sequence[int],
) -> Speech:
    """Return the speech of one utterance and of its augmented versions; an utterance without speech has none.

    ``place`` names its speaker, its number and its file. Versions that are not ``scored`` have only the features that
    machines are trained on. Long recordings are analysed in ``pieces`` (n,): all versions of a whole one would take
    gigabytes.
    """
    made = [_of_piece(augmenter, piece, rate, settings, place, scored) for piece in pieces]
    spoken = [one for one in made if one.versions[1:] or one.pseudo_speakers] or made[:1]
    return Speech(_end_to_end([one.versions for one in spoken]), _end_to_end([one.pseudo_speakers for one in spoken]))


def _end_to_end(pieces: Sequence[list[Utterances]]) -> list[Utterances]:
    """Return each version of one utterance, given piece by piece."""
    return [[joined([block for blocks in its for block in blocks])] for its in zip(*pieces, strict=True)]


def _of_piece(
    augmenter: Augmenter,
    samples: Samples,
    rate: int,
    settings: Config,
    place: tuple[str, int, str],
    scored: Sequence[int],
) -> Speech:
    """Return the speech in the ``samples`` (n,) of one piece, as ``_augmented`` does for all pieces."""
    speaker, number, where = place
    of_versions = settings.features.for_utterances
    recorded = features_of(samples, rate, settings.features, where=where)
    if len(recorded.vectors) == 0:
        return Speech([[recorded]], [])

    def speech(made: Samples | None, only: frozenset[Analysis] | None) -> Utterances:
        if made is None:
            return [_nothing(of_versions)]
        return [features_of(made, of_versions.rate, of_versions, where=where, only=only).at_single_precision()]

    trained, of_pseudo = _analyses(settings, NORMALISED, EMBEDDED), _analyses(settings, RAW)
    versions = augmenter.versions(samples, rate, speaker=speaker, number=number)
    return Speech(
        [[recorded], *(speech(one, None if n in scored else trained) for n, one in enumerate(versions, start=1))],
        [speech(one, of_pseudo) for one in augmenter.pseudo_speakers(samples, rate, speaker=speaker, number=number)],
    )


def _analyses(settings: Config, *branches: Branch) -> frozenset[Analysis]:
    """Return the analyses that machines of ``branches`` read, and the one that the condition is classified by."""
    kinds = [kind for kind in utterance_kinds_of(settings.machines.kinds) if kind.branch in branches]
    return frozenset[Analysis]({"supervector"}).union(*(kind.analyses for kind in kinds))


@lru_cache(maxsize=1)
def _nothing(settings: FeatureSettings) -> FeatureBlock:
    """Return the features of an utterance without speech."""
    return features_of(np.empty(0), settings.rate, settings)


def is_narrow_band(levels: Iterable[float | None]) -> bool:
    """Check whether recordings end at 4 kHz, as by telephone, by the ``high_db`` of each speaker who was measured."""
    measured = [level for level in levels if level is not None]
    return bool(measured) and float(np.median(measured)) < NARROW_DB


def by_turns(versions: Sequence[Item], most: int, number: int) -> list[Item]:
    """Return at most ``most`` of the ``versions`` of a speaker's utterances, in rotation by speakers' ``number``."""
    first = number * most % max(1, len(versions))
    return [*versions, *versions][first : first + min(most, len(versions))]


def audible(newcomers: list[NewSpeaker], settings: Config) -> tuple[list[NewSpeaker], list[tuple[str, str]]]:
    """Separate speakers with enough speech from those without; raises NotEnoughSpeechError if nobody has enough.

    A speaker's reason names the first file of theirs that could not be used; the error names the first of all files.
    """
    step, needed = settings.features.step_seconds, settings.codebook.min_seconds
    short = [newcomer for newcomer in newcomers if not newcomer.frames or newcomer.counts[0] * step < needed]

    def error_of(newcomer: NewSpeaker, cause: str, more: str = "") -> NotEnoughSpeechError:
        where = f"speaker {newcomer.name!r}"
        return NotEnoughSpeechError(where, seconds=newcomer.frames * step, needed=needed, cause=cause, more=more)

    if newcomers and len(short) == len(newcomers):
        others = f"the same for {len(newcomers) - 1} more speakers" if len(newcomers) > 1 else ""
        skipped = [one for newcomer in newcomers for one in newcomer.skipped]
        raise error_of(newcomers[0], _unused(skipped), others)
    refused = {newcomer.name: str(error_of(newcomer, _unused(newcomer.skipped))) for newcomer in short}
    return [newcomer for newcomer in newcomers if newcomer.name not in refused], list(refused.items())


def _unused(skipped: Sequence[tuple[Path, str]]) -> str:
    """Return a sentence on how many files were ``skipped`` and why the first was; "" if none was."""
    return f"{len(skipped)} of the files cannot be used, the first: {skipped[0][0]}: {skipped[0][1]}" if skipped else ""
