"""Changes to a speaker store: one writer at a time, and nothing seen by readers until the manifest is replaced.

New files are written under names of their own and flushed to disk, then the manifest that names them takes the old
one's place. Whatever no manifest names is garbage, swept by the next writer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from pipeline.arrays import AnyArray, ArrayFile, write_arrays
from pipeline.calibration import HeldOutTrials
from pipeline.config import Config
from pipeline.errors import SpeakerExistsError, StoreBusyError, StoreError, StoreFormatError, StoreMissingError
from pipeline.features.standardize import Standardizer
from pipeline.heldout_posteriors import FittedMaps
from pipeline.machines.population import Population
from pipeline.machines.segments import SegmentMachines, Vectors
from pipeline.manifest import NAME as MANIFEST
from pipeline.manifest import PARTIAL, FileRecord, Manifest, Role, Scaling, Speaker, sync_folder, write_manifest
from pipeline.posteriors.machine_posteriors import PAIR, map_name
from pipeline.store import SCORE_PREFIX, STRANGER_PREFIX, SpeakerStore

Array = NDArray[np.float64]
LOCK = ".lock"
SPEAKERS = "speakers"
_ARRAY_FILE = re.compile(r"(?:one_vs_rest|segments|calibration|posteriors|[0-9a-f]{16})-[0-9]+\.safetensors")


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
def store_writer(path: Path | str) -> Iterator[StoreWriter]:
    """Hold the only writer of the store at ``path``, which need not exist yet.

    Raises StoreBusyError while another process writes, StoreError where nothing can be written.
    """
    path = Path(path)
    made = [folder for folder in (path, *path.parents) if not folder.exists()]
    try:
        path.mkdir(parents=True, exist_ok=True)
        _refuse_strangers(path)
        with FileLock(path / LOCK, timeout=0):
            yield StoreWriter(path)
    except Timeout:
        raise StoreBusyError(f"{path}: another process is writing to this store; try again when it is done") from None
    except OSError as error:
        raise StoreError(f"{path}: the store cannot be written: {error.strerror or error}") from error
    finally:
        _forget_if_empty(path, made)


def _forget_if_empty(path: Path, made: list[Path]) -> None:
    """Take back the folders ``made`` for a store that never came to be."""
    if not made or not path.is_dir() or {entry.name for entry in path.iterdir()} - {LOCK}:
        return
    (path / LOCK).unlink(missing_ok=True)
    for folder in made:
        folder.rmdir()


def _refuse_strangers(path: Path) -> None:
    """Raise StoreError for a folder without a manifest that holds anything a store does not leave behind."""
    if (path / MANIFEST).exists():
        return
    inside = [entry for entry in path.iterdir() if entry.name not in {LOCK, SPEAKERS, PARTIAL}]
    if (path / SPEAKERS).is_dir():
        inside += (path / SPEAKERS).iterdir()
    strangers = sorted(entry.name for entry in inside if not _is_ours(entry))
    if strangers:
        raise StoreError(
            f"{path}: the folder holds other things ({', '.join(strangers[:3])}) and no store; name a new or"
            " empty folder"
        )


def _is_ours(path: Path) -> bool:
    """Whether ``path`` is named as only a store names its files."""
    return path.is_file() and _ARRAY_FILE.fullmatch(path.name) is not None


class StoreWriter:
    """Made by ``store_writer``; ``current`` is the store as it stands, None before the first speaker."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.current = SpeakerStore.open(path) if (path / MANIFEST).exists() else None

    def add(
        self,
        speakers: Sequence[NewSpeaker],
        population: Population,
        trials: HeldOutTrials,
        *,
        stretches: Sequence[Vectors] = (),
        strangers: Sequence[Sequence[Vectors]] = (),
        maps: FittedMaps | None = None,
        config: Config,
        scaling: Standardizer | None,
    ) -> SpeakerStore:
        """Enroll ``speakers``, the last ones of ``population``, and commit.

        ``stretches``, one array a speaker, and ``strangers``, arrays of each, are what their segment machines were
        trained on; ``maps`` what their machines' posteriors are read from, where they are fitted.

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
            if maps is not None:
                arrays |= maps.speakers[number - len(old.speakers)].arrays
            file = write_arrays(self.path, f"{SPEAKERS}/{speaker.id:016x}-{revision}.safetensors", arrays)
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
                }
            )
        )

    def remove(
        self,
        name: str,
        one_vs_rest: Population | None,
        segments: SegmentMachines | None,
        pooled: Mapping[str, AnyArray] | None = None,
    ) -> SpeakerStore:
        """Erase a speaker: their file, and their rows in every later speaker's file.

        ``one_vs_rest`` and ``segments`` are the machines of the remaining speakers, trained again where there are any;
        ``pooled`` the pooled maps of their posteriors, fitted again where there are any.
        """
        if self.current is None:
            raise StoreMissingError(f"{self.path}: no speaker store here")
        old = self.current.manifest
        number = next(n for n, speaker in enumerate(old.speakers) if speaker.name == name)
        gone, revision = old.speakers[number], old.revision + 1
        records = list(old.speakers[:number])
        for later in old.speakers[number + 1 :]:
            arrays = self._without(later, number, old.speakers)
            file = write_arrays(self.path, f"{SPEAKERS}/{later.id:016x}-{revision}.safetensors", arrays)
            records.append(later.model_copy(update={"file": file}))
        trials = self.current.trials
        changes = {
            "revision": revision,
            "speakers": tuple(records),
            "one_vs_rest": None if one_vs_rest is None else self._write_one_vs_rest(one_vs_rest, revision),
            "segments": self._write_segments(segments, revision),
            "calibration": None if trials is None else self._write_trials(trials.without(gone.id), revision),
            "posteriors": self._write_pooled(pooled, revision),
        }
        return self._commit(old.model_copy(update=changes))

    def _without(self, later: Speaker, number: int, speakers: tuple[Speaker, ...]) -> dict[str, AnyArray]:
        file = ArrayFile(self.path, later.file)
        arrays: dict[str, AnyArray] = {name: file.read(name) for name in file.names()}
        for name in {"own", "bias", "earlier", map_name(PAIR)} & set(arrays):
            arrays[name] = np.delete(arrays[name], number, axis=0)
        if "rival" in arrays:
            start = sum(speaker.centroids for speaker in speakers[:number])
            gone = np.s_[start : start + speakers[number].centroids]
            arrays["rival"] = np.delete(arrays["rival"], gone, axis=0)
        return arrays

    def _write_one_vs_rest(self, population: Population, revision: int) -> FileRecord | None:
        if population.one_vs_rest_coef is None or population.one_vs_rest_bias is None:
            return None
        arrays = {"coef": population.one_vs_rest_coef, "bias": population.one_vs_rest_bias}
        return write_arrays(self.path, f"one_vs_rest-{revision}.safetensors", arrays)

    def _write_segments(self, segments: SegmentMachines | None, revision: int) -> FileRecord | None:
        if segments is None:
            return None
        space = segments.space
        arrays: dict[str, AnyArray] = {
            "centre": space.centre, "scale": space.scale, "means": space.means, "variances": space.variances,
            "weights": space.weights, "mean": segments.mean, "coef": segments.coef.astype(np.float32),
        }  # fmt: skip
        return write_arrays(self.path, f"segments-{revision}.safetensors", arrays)

    def _write_trials(self, trials: HeldOutTrials, revision: int) -> FileRecord:
        arrays: dict[str, AnyArray] = {
            "claims": trials.claims, "speakers": trials.speakers, "population": trials.population,
            "frames": trials.frames, "outsider": trials.outsider,
        }  # fmt: skip
        arrays |= {f"{SCORE_PREFIX}{name}": scores for name, scores in trials.scores.items()}
        return write_arrays(self.path, f"calibration-{revision}.safetensors", arrays)

    def _write_pooled(self, pooled: Mapping[str, AnyArray] | None, revision: int) -> FileRecord | None:
        if pooled is None:
            return None
        arrays = {map_name(kind): maps for kind, maps in pooled.items()}
        return write_arrays(self.path, f"posteriors-{revision}.safetensors", arrays)

    def _commit(self, manifest: Manifest) -> SpeakerStore:
        if (self.path / SPEAKERS).is_dir():
            sync_folder(self.path / SPEAKERS)
        write_manifest(self.path, manifest)
        self._sweep(manifest)
        self.current = SpeakerStore(self.path, manifest)
        return self.current

    def _sweep(self, manifest: Manifest) -> None:
        """Delete array files of ours that the manifest does not name."""
        kept = manifest.files()
        for path in [*self.path.iterdir(), *(self.path / SPEAKERS).glob("*")]:
            if _is_ours(path) and path.relative_to(self.path).as_posix() not in kept:
                path.unlink(missing_ok=True)


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
    return arrays
