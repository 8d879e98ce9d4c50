"""Changes to a speaker store: one writer at a time, and nothing seen by readers until the manifest is replaced.

New files are written under names of their own and flushed to disk, then the manifest that names them takes the old
one's place: that rename is the only commit. Whatever no manifest names is garbage. A writer that fails deletes what it
wrote; what one that was killed left behind is deleted by the next writer, when it begins.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipeline.arrays import AnyArray, ArrayFile, write_arrays
from pipeline.calibration import HeldOutTrials
from pipeline.config import Config
from pipeline.errors import SpeakerExistsError, StoreError, StoreFormatError, StoreMissingError
from pipeline.features.standardize import Standardizer
from pipeline.files import sync_folder
from pipeline.heldout_posteriors import FittedMaps
from pipeline.machines.population import Population
from pipeline.machines.rival_removal import RivalsLeft
from pipeline.machines.rivals import RivalTable
from pipeline.machines.segments import SegmentMachines, Vectors
from pipeline.manifest import NAME as MANIFEST
from pipeline.manifest import (
    PARTIAL,
    FileRecord,
    Key,
    Manifest,
    Role,
    Scaling,
    Speaker,
    new_identity,
    read_manifest,
    write_manifest,
)
from pipeline.posteriors.machine_posteriors import PAIR, map_name
from pipeline.store import STRANGER_PREFIX, SpeakerStore
from pipeline.store_folder import SPEAKERS, held_folder, sweep, writing
from pipeline.store_rivals import pair_arrays, with_machines
from pipeline.store_trials import BEGINNING_PREFIX, SCORE_PREFIX

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class NewSpeaker:
    """What the manifest will say of a speaker about to be enrolled."""

    id: int
    name: str
    role: Role
    seconds: float
    frames: int
    utterances: int


@contextmanager
def store_writer(path: Path | str, *, key: Key = None) -> Iterator[StoreWriter]:
    """Hold the only writer of the store at ``path``, which need not exist yet.

    What it commits is sealed under ``key``, or the one in VOICECLAIM_STORE_KEY, and a store that exists must be sealed
    so already. Raises StoreBusyError while another process writes, StoreError where nothing can be written, and as
    ``SpeakerStore.open``. Whatever is raised before a commit, the store is as it was.
    """
    path = Path(path)
    with held_folder(path):
        writer = StoreWriter(path, key)
        try:
            yield writer
        except BaseException:
            writer.clean()
            raise


class StoreWriter:
    """Made by ``store_writer``; ``current`` is the store as it stands, None before the first speaker.

    What writers before it left behind when they were killed is deleted.
    """

    def __init__(self, path: Path, key: Key) -> None:
        self.path = path
        self._key = key
        self._written: list[str] = []
        self.current = SpeakerStore.open(path, key=key) if (path / MANIFEST).exists() else None
        self.clean()

    def add(
        self,
        speakers: Sequence[NewSpeaker],
        population: Population,
        trials: HeldOutTrials,
        *,
        stretches: Sequence[Vectors] = (),
        strangers: Sequence[Sequence[Vectors]] = (),
        fingerprints: Sequence[AnyArray] = (),
        maps: FittedMaps | None = None,
        config: Config,
        scaling: Standardizer | None,
    ) -> SpeakerStore:
        """Enroll ``speakers``, the last ones of ``population``, and commit.

        ``stretches``, one array a speaker, and ``strangers``, arrays of each, are what their segment machines were
        trained on; ``fingerprints``, one array a speaker, are kept where given; ``maps`` are what their machines'
        posteriors are read from, where they are fitted.

        Raises SpeakerExistsError for a name that is taken.
        """
        old = self.current.manifest if self.current else _empty(config, scaling)
        taken = {speaker.name for speaker in old.speakers}
        for speaker in speakers:
            if speaker.name in taken:
                raise SpeakerExistsError(f"{self.path}: speaker {speaker.name!r} is enrolled already")
            taken.add(speaker.name)
        revision = old.revision + 1
        records = list(old.speakers)
        for speaker in speakers:
            number = len(records)
            arrays = _speaker_arrays(population, number, [earlier.id for earlier in records])
            if stretches:
                arrays["stretches"] = stretches[number - len(old.speakers)].astype(np.float16)
            for which, voice in enumerate(strangers[number - len(old.speakers)] if strangers else ()):
                arrays[f"{STRANGER_PREFIX}{which}"] = voice.astype(np.float16)
            if fingerprints:
                arrays["fingerprints"] = fingerprints[number - len(old.speakers)]
            if maps is not None:
                arrays |= maps.speakers[number - len(old.speakers)].arrays
            file = self._write(f"{SPEAKERS}/{speaker.id:016x}", revision, arrays)
            records.append(
                Speaker(
                    id=speaker.id, name=speaker.name, role=speaker.role, seconds=speaker.seconds,
                    frames=speaker.frames, utterances=speaker.utterances,
                    centroids=len(population.pool.codebook(number)), file=file,
                )
            )  # fmt: skip
        if self.current is not None and self.current.trials is not None:
            trials = HeldOutTrials.joined([self.current.trials, trials])
        return self._commit(
            old.model_copy(
                update={
                    "revision": revision,
                    "speakers": tuple(records),
                    "one_vs_rest": self._write_one_vs_rest(population, revision),
                    "segments": self._write_segments(population.segments, revision),
                    "calibration": self._write_trials(trials, revision),
                    "posteriors": self._write_pooled(None if maps is None else maps.pooled, revision),
                    "rivals": self._write_rivals(population.rivals, revision),
                }
            )
        )

    def remove(
        self,
        name: str,
        one_vs_rest: Population | None,
        segments: SegmentMachines | None,
        pooled: Mapping[str, AnyArray] | None = None,
        rivals: RivalsLeft | None = None,
    ) -> SpeakerStore:
        """Erase a speaker: their file, and their rows in every later speaker's file.

        ``one_vs_rest`` and ``segments`` are the machines of the remaining speakers, trained again where there are any;
        ``pooled`` the pooled maps of their posteriors, fitted again where there are any; ``rivals`` who their hardest
        rivals are now, where pair machines are kept against these, with the machines that this takes more.
        """
        if self.current is None:
            raise StoreMissingError(f"{self.path}: no speaker store here")
        old = self.current.manifest
        number = next(n for n, speaker in enumerate(old.speakers) if speaker.name == name)
        gone, revision = old.speakers[number], old.revision + 1
        records, files = list(old.speakers[:number]), self.current.files.speakers()
        for later, file in zip(old.speakers[number + 1 :], files[number + 1 :], strict=True):
            arrays = _without(file, number, old.speakers)
            if rivals is not None:
                remaining = [*old.speakers[:number], *old.speakers[number + 1 :]]
                arrays = with_machines(arrays, rivals.trained_by(len(records)), remaining)
                if gone.id not in file.read("earlier") and not rivals.trained_by(len(records)):
                    records.append(later)
                    continue
            record = self._write(f"{SPEAKERS}/{later.id:016x}", revision, arrays)
            records.append(later.model_copy(update={"file": record}))
        trials = self.current.trials
        changes = {
            "revision": revision,
            "speakers": tuple(records),
            "one_vs_rest": None if one_vs_rest is None else self._write_one_vs_rest(one_vs_rest, revision),
            "segments": self._write_segments(segments, revision),
            "calibration": None if trials is None else self._write_trials(trials.without(gone.id), revision),
            "posteriors": self._write_pooled(pooled, revision),
            "rivals": None if rivals is None or not records else self._write_rivals(rivals.table, revision),
        }
        return self._commit(old.model_copy(update=changes))

    def _write_one_vs_rest(self, population: Population, revision: int) -> FileRecord | None:
        if population.one_vs_rest_coef is None or population.one_vs_rest_bias is None:
            return None
        arrays = {"coef": population.one_vs_rest_coef, "bias": population.one_vs_rest_bias}
        return self._write("one_vs_rest", revision, arrays)

    def _write_segments(self, segments: SegmentMachines | None, revision: int) -> FileRecord | None:
        if segments is None:
            return None
        space = segments.space
        arrays: dict[str, AnyArray] = {
            "centre": space.centre, "scale": space.scale, "means": space.means, "variances": space.variances,
            "weights": space.weights, "mean": segments.mean, "coef": segments.coef.astype(np.float32),
        }  # fmt: skip
        if segments.models is not None:
            arrays["shifts"] = segments.models.shifts
        return self._write("segments", revision, arrays)

    def _write_trials(self, trials: HeldOutTrials, revision: int) -> FileRecord:
        arrays: dict[str, AnyArray] = {
            "claims": trials.claims, "speakers": trials.speakers, "population": trials.population,
            "frames": trials.frames, "outsider": trials.outsider,
        }  # fmt: skip
        arrays |= {f"{SCORE_PREFIX}{name}": scores for name, scores in trials.scores.items()}
        for frames, found in trials.beginnings.items():
            arrays |= {f"{BEGINNING_PREFIX}{frames}.{name}": scores for name, scores in found.items()}
        return self._write("calibration", revision, arrays)

    def _write_pooled(self, pooled: Mapping[str, AnyArray] | None, revision: int) -> FileRecord | None:
        if pooled is None:
            return None
        arrays = {map_name(kind): maps for kind, maps in pooled.items()}
        return self._write("posteriors", revision, arrays)

    def _write_rivals(self, table: RivalTable | None, revision: int) -> FileRecord | None:
        if table is None:
            return None
        arrays: dict[str, AnyArray] = {"nearest": table.nearest.astype(np.uint32), "hardness": table.hardness}
        return self._write("rivals", revision, arrays)

    def seal(self, key: bytes) -> SpeakerStore:
        """Commit the same store, sealed under ``key`` from now on. Its files are checked first."""
        if self.current is None:
            raise StoreMissingError(f"{self.path}: no speaker store here")
        self.current.check_files()
        self._key = key
        old = self.current.manifest
        return self._commit(old.model_copy(update={"revision": old.revision + 1}))

    def _write(self, what: str, revision: int, arrays: Mapping[str, AnyArray]) -> FileRecord:
        self._written.append(name := f"{what}-{revision}.safetensors")
        with writing(self.path):
            return write_arrays(self.path, name, arrays)

    def _commit(self, manifest: Manifest) -> SpeakerStore:
        manifest = manifest.model_copy(update={"identity": manifest.identity or new_identity()})
        with writing(self.path):
            if (self.path / SPEAKERS).is_dir():
                sync_folder(self.path / SPEAKERS)
            write_manifest(self.path, manifest, self._key)
        self.current = SpeakerStore.open(self.path, key=self._key)
        self.clean()
        return self.current

    def clean(self) -> None:
        """Delete files that the manifest on disk does not name; while there is none, what this writer wrote."""
        try:
            kept = read_manifest(self.path, self._key).files()
        except StoreMissingError:
            for name in (*self._written, PARTIAL):
                with suppress(OSError):
                    (self.path / name).unlink()
        except StoreError:
            return  # there is no telling which they are
        else:
            sweep(self.path, kept)


def _without(file: ArrayFile, number: int, speakers: tuple[Speaker, ...]) -> dict[str, AnyArray]:
    """The arrays of a later speaker's ``file`` without what is there of speaker ``number``."""
    arrays: dict[str, AnyArray] = {name: file.read(name) for name in file.names()}
    if map_name(PAIR) in arrays:
        arrays[map_name(PAIR)] = np.delete(arrays[map_name(PAIR)], number, axis=0)
    if "earlier" in arrays:
        earlier = arrays["earlier"].tolist()
        if speakers[number].id in earlier:
            at, centroids = earlier.index(speakers[number].id), {speaker.id: speaker.centroids for speaker in speakers}
            start = sum(centroids[rival] for rival in earlier[:at])
            arrays["rival"] = np.delete(arrays["rival"], np.s_[start : start + speakers[number].centroids], axis=0)
            for name in ("own", "bias", "earlier"):
                arrays[name] = np.delete(arrays[name], at, axis=0)
    return arrays


def _empty(config: Config, scaling: Standardizer | None) -> Manifest:
    numbers = None
    if scaling is not None:
        numbers = Scaling(mean=tuple(scaling.mean.tolist()), scale=tuple(scaling.scale.tolist()))
    return Manifest(config=config.model_dump(mode="json"), scaling=numbers)


def _speaker_arrays(population: Population, number: int, earlier: list[int]) -> dict[str, AnyArray]:
    pool = population.pool
    if population.one_class_coef is None or population.one_class_bias is None:
        raise StoreFormatError("a population without one-class machines cannot be stored")
    arrays: dict[str, AnyArray] = {
        "centroids": pool.codebook(number),
        "one_class": population.one_class_coef[pool.rows(number)],
        "one_class_bias": population.one_class_bias[number : number + 1],
    }
    if population.pairs is not None:
        claim = np.array([number])
        arrays |= {
            "earlier": np.array(earlier, dtype=np.uint64),
            "own": np.swapaxes(population.pairs.rows(number)[:, :number], 0, 1),
            "rival": population.pairs.columns(claim)[: pool.offsets[number], 0],
            "bias": population.pairs.bias(claim)[0, :number],
        }
    if population.rival_machines is not None:
        against = population.rival_machines.earlier(number).tolist()
        found = [(earlier[rival], population.rival_machines.machine(number, rival)) for rival in against]
        arrays |= pair_arrays(found, len(pool.codebook(number)))
    return arrays
