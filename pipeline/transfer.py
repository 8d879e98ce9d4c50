"""Speakers from one store to another, or to a backup: ``export_speakers`` and ``import_speakers``.

An export carries what machines are trained on, no machine. Importing trains them, against those in the target store.
Into a new store that gives, bit for bit, what the source store is when everybody else is removed from it. Into a store
with people in it, it gives the machines that enrolling the same recordings there would have given, but for two things.
Stretches are made in the mixture of a store's first enrollment, and nothing can turn those of one mixture into those of
another: stores must share theirs, unless the target has no segment machines. And held-out trials of the newcomers
against the people there would take their recordings: only those of the exported speakers among themselves come along,
so that thresholds and calibrations rest on these and on the target's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from pipeline.arrays import AnyArray
from pipeline.calibration import HeldOutTrials
from pipeline.config import Config
from pipeline.errors import ConfigError, SpeakerExistsError, TransferError, UnknownSpeakerError
from pipeline.features.standardize import Standardizer
from pipeline.heldout_posteriors import FittedMaps, pooled_maps
from pipeline.machines.assembly import train_population
from pipeline.machines.mixtures import SpeakerModels
from pipeline.machines.pool import Pool
from pipeline.machines.population import Population
from pipeline.machines.segment_training import SegmentTraining
from pipeline.machines.segments import SegmentSpace, Vectors
from pipeline.posteriors.machine_posteriors import PAIR, MapArrays, MapSource, map_name
from pipeline.posteriors.map_fitting import MapFitter
from pipeline.store import STRANGER_PREFIX, SpeakerStore
from pipeline.store_trials import read_trials
from pipeline.store_writer import NewSpeaker, StoreWriter, store_writer
from pipeline.transfer_file import SHIFTS, Export, ExportedSpeaker, is_carried, read_export, write_export

_MIXTURE = ("centre", "scale", "means", "variances", "weights")


@dataclass(frozen=True)
class ImportReport:
    """Who was imported into what is now ``store``; ``held_out_trials`` came along."""

    store: SpeakerStore
    imported: tuple[str, ...]
    held_out_trials: int


def export_speakers(store: Path | str, path: Path | str, names: Sequence[str] | None = None) -> tuple[str, ...]:
    """Write speakers of the store at ``store``, everybody without ``names``, to the new file ``path``; their names.

    Raises UnknownSpeakerError, and TransferError where the file cannot be written or is there already.
    """
    opened = SpeakerStore.open(store)
    known = [speaker.name for speaker in opened.speakers]
    for name in names or ():
        if name not in known:
            raise UnknownSpeakerError(name, opened.names[:3])
    chosen = [n for n, name in enumerate(known) if names is None or name in names]
    if not chosen:
        raise TransferError(f"{store}: nobody is enrolled, and there is nothing to export")
    files, segments = opened.files.speakers(), None
    if opened.manifest.segments is not None:
        segments = opened.population(("segment",)).segments
    arrays: list[dict[str, AnyArray]] = []
    for place, number in enumerate(chosen):
        file = files[number]
        arrays.append({name: file.read(name) for name in file.names() if is_carried(name)})
        if segments is not None and segments.models is not None:
            arrays[-1][SHIFTS] = segments.models.shifts[number]
        if map_name(PAIR) in arrays[-1]:
            arrays[-1][map_name(PAIR)] = arrays[-1][map_name(PAIR)][chosen[:place]]
    write_export(
        Path(path),
        Export(
            config=opened.config,
            scaling=opened.manifest.scaling,
            speakers=[_about(opened, number) for number in chosen],
            arrays=arrays,
            mixture=_mixture_of(opened),
            trials=_trials_among(opened, [opened.speakers[number].id for number in chosen]),
        ),
    )
    return tuple(known[number] for number in chosen)


def _about(store: SpeakerStore, number: int) -> ExportedSpeaker:
    speaker = store.speakers[number]
    return ExportedSpeaker(
        id=f"{speaker.id:016x}",
        name=speaker.name,
        role=speaker.role,
        seconds=speaker.seconds,
        frames=speaker.frames,
        utterances=speaker.utterances,
        centroids=speaker.centroids,
    )


def _mixture_of(store: SpeakerStore) -> dict[str, AnyArray]:
    if store.manifest.segments is None:
        return {}
    file = store.files.segments()
    return {name: file.read(name) for name in _MIXTURE}


def _trials_among(store: SpeakerStore, ids: Sequence[int]) -> dict[str, AnyArray]:
    """Held-out trials of the speakers ``ids`` that claim to be one of them."""
    if store.manifest.calibration is None:
        return {}
    file, wanted = store.files.trials(), np.array(ids, dtype=np.uint64)
    rows = np.isin(file.read("claims"), wanted) & np.isin(file.read("speakers"), wanted)
    return {name: file.read(name)[rows] for name in file.names()}


def import_speakers(store: Path | str, path: Path | str, *, jobs: int = 1) -> ImportReport:
    """Enroll the speakers of the file ``path`` into the store at ``store``, under its settings.

    A store that is not there yet is made with the settings of the file. Raises TransferError for a file that is damaged
    or does not fit the store, SpeakerExistsError for a name, or a speaker, that is enrolled. All or nothing.
    """
    export = read_export(Path(path))
    with store_writer(store) as writer, threadpool_limits(1):
        settings = export.config if writer.current is None else writer.current.config
        _check_fit(export, settings, writer, Path(path))
        population, stretches, strangers = _trained(export, settings, writer.current, jobs)
        trials = _trials(export, writer.current, Path(path))
        newcomers = [
            NewSpeaker(one.number, one.name, one.role, one.seconds, one.frames, one.utterances)
            for one in export.speakers
        ]
        prints = [arrays.get("fingerprints", np.empty(0, dtype=np.uint32)) for arrays in export.arrays]
        scaling = export.scaling
        imported = writer.add(
            newcomers,
            population,
            trials,
            stretches=stretches,
            strangers=strangers,
            fingerprints=prints if settings.replay.keep else (),
            maps=_maps(export, settings, writer.current),
            config=settings,
            scaling=None if scaling is None else Standardizer(np.array(scaling.mean), np.array(scaling.scale)),
        )
    return ImportReport(imported, tuple(one.name for one in export.speakers), len(trials))


def _check_fit(export: Export, settings: Config, writer: StoreWriter, path: Path) -> None:
    """Raise TransferError, or SpeakerExistsError, where the speakers cannot be those of the store."""
    current = writer.current
    if "segment" in settings.machines.kinds and not all("stretches" in arrays for arrays in export.arrays):
        raise TransferError(
            f"{path}: the store has segment machines, and the speakers come from one without; enroll them instead"
        )
    if "mixture" in settings.machines.kinds and not all(SHIFTS in arrays for arrays in export.arrays):
        raise TransferError(
            f"{path}: the store has speaker models (mixture in machines.kinds), and the speakers come from one without;"
            " enroll them instead"
        )
    if current is None:
        return
    names, ids = {one.name for one in current.speakers}, {one.id: one.name for one in current.speakers}
    for one in export.speakers:
        if one.name in names or one.number in ids:
            under = "" if one.name in names else f" as {ids[one.number]!r}"
            raise SpeakerExistsError(f"{writer.path}: enrolled already{under}: {one.name!r}; remove them first")
    if settings.features != export.config.features or current.manifest.scaling != export.scaling:
        raise TransferError(f"{path}: features or their scaling are not those of {writer.path}; enroll from recordings")
    if settings.posterior.fitted and settings.posterior != export.config.posterior:
        raise TransferError(f"{path}: posteriors were fitted as {writer.path} does not; enroll from recordings")
    if "segment" in settings.machines.kinds and not _same(export.mixture, _mixture_of(current)):
        raise TransferError(
            f"{path}: its stretches of speech were made in another mixture than that of {writer.path}, which was first"
            " enrolled with other people; import into a new store, or enroll from recordings"
        )


def _same(one: Mapping[str, AnyArray], other: Mapping[str, AnyArray]) -> bool:
    return bool(one) and all(np.array_equal(one[name], other[name]) for name in _MIXTURE)


def _trained(
    export: Export, settings: Config, current: SpeakerStore | None, jobs: int
) -> tuple[Population, list[Vectors], list[list[Vectors]]]:
    """Machines of everybody, and the stretches of the newcomers and of the strangers made of their voices."""
    known = current.population() if current is not None and current.speakers else None
    books = [known.pool.codebook(n) for n in range(len(known))] if known else []
    books += [np.asarray(arrays["centroids"], dtype=np.float64) for arrays in export.arrays]
    population = train_population(
        Pool.of(books, settings.machines.sigma),
        settings.machines,
        known=known,
        family=settings.posterior.family,
        jobs=jobs,
    )
    if "segment" not in settings.machines.kinds:
        return population, [], []
    own = [np.asarray(arrays["stretches"], dtype=np.float32) for arrays in export.arrays]
    strangers = [
        [np.asarray(arrays[name], dtype=np.float32) for name in sorted(arrays) if name.startswith(STRANGER_PREFIX)]
        for arrays in export.arrays
    ]
    everybody = [*(current.stretches() if current else []), *own]
    heard = [*(current.strangers() if current else []), *strangers]
    heard = heard if settings.segments.has_strangers(len(population)) else []
    _check_memory([*everybody, *(part for parts in heard for part in parts)], settings)
    training = SegmentTraining(everybody, ridge=settings.segments.ridge, strangers=heard, jobs=jobs)
    mixture = export.mixture
    space = SegmentSpace(
        mixture["centre"],
        mixture["scale"],
        mixture["means"],
        mixture["variances"],
        mixture["weights"],
        settings.segments.relevance,
    )
    machines = training.machines(space).with_models(_models(export, settings, known))
    return population.with_segments(machines), own, strangers


def _models(export: Export, settings: Config, known: Population | None) -> SpeakerModels | None:
    """Models of everybody, where the settings ask for any."""
    if "mixture" not in settings.machines.kinds:
        return None
    new = [np.asarray(arrays[SHIFTS], dtype=np.float32) for arrays in export.arrays]
    models = None if known is None or known.segments is None else known.segments.models
    return SpeakerModels(np.stack(new)) if models is None else models.with_more(new)


def _check_memory(stretches: Sequence[Vectors], settings: Config) -> None:
    """Refuse a Gram matrix of ``stretches`` that would be larger than the settings allow."""
    count, most = sum(map(len, stretches)), settings.machines.gram_gib
    if (gib := 4 * count * count / 2**30) > most:
        raise ConfigError(
            f"machines.gram_gib: {count} stretches of speech need a Gram matrix of {gib:.1f} GiB, and {most:g} are"
            " allowed; import fewer speakers, or into a store with other settings"
        )


@dataclass(frozen=True)
class _Trials:
    """Arrays of held-out trials (``store.TrialFile``)."""

    path: Path
    arrays: Mapping[str, AnyArray]

    def names(self) -> list[str]:
        return list(self.arrays)

    def read(self, name: str) -> AnyArray:
        return self.arrays[name]


def _trials(export: Export, current: SpeakerStore | None, path: Path) -> HeldOutTrials:
    """The trials that came along.

    None of them where they lack a system that the store has scores of, or were scored among other rivals than its are.
    """
    known = None if current is None else current.trials
    found = read_trials(_Trials(path, export.trials)) if export.trials else None
    if current is not None and current.config.machines.rivals != export.config.machines.rivals:
        found = None
    if found is not None and (known is None or known.scores.keys() <= found.scores.keys()):
        return found
    if current is None or current.manifest.calibration is None:
        raise TransferError(f"{path}: neither the file nor the store has held-out trials; enroll from recordings")
    file = current.files.trials()
    return read_trials(_Trials(path, {name: file.read(name)[:0] for name in file.names()}))


def _maps(export: Export, settings: Config, current: SpeakerStore | None) -> FittedMaps | None:
    """Maps of fitted posteriors: those that came along, the pooled ones for pairs with the people in the store."""
    if not settings.posterior.fitted:
        return None
    known: list[MapSource] = [] if current is None else list(current.map_sources())
    none = MapFitter(settings.posterior).none
    found = []
    for arrays in export.arrays:
        kept = {name: array for name, array in arrays.items() if name.endswith(("_map", "_sample"))}
        kept[map_name(PAIR)] = np.concatenate((np.tile(none, (len(known), 1)), arrays[map_name(PAIR)]))
        found.append(MapArrays(kept))
    return FittedMaps(found, pooled_maps(settings, [*known, *found]))
