"""The files of one revision of a store: which there are, what each must hold, and its pair machines read from them."""

from __future__ import annotations

import threading
from functools import cached_property
from itertools import accumulate
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipeline.arrays import ArrayFile, HeldFiles
from pipeline.config import Config
from pipeline.errors import StoreFormatError
from pipeline.machines.pool import Pool
from pipeline.manifest import FileRecord, Manifest, Speaker
from pipeline.store_layout import CALIBRATION, ONE_VS_REST, POSTERIORS, RIVALS, SEGMENTS, SPEAKER, Layout

Array = NDArray[np.float64]


class StoreFiles:
    """Files that a ``manifest`` names, each opened and checked when it is first asked for, and then kept open.

    Every method raises StoreFormatError: for a file that the manifest does not name, or that is not what it must be.
    """

    def __init__(self, path: Path, manifest: Manifest, held: HeldFiles) -> None:
        self._path = path
        self._manifest = manifest
        self._held = held
        self._open: dict[str, ArrayFile] = {}
        self._opening = threading.Lock()

    @cached_property
    def config(self) -> Config:
        """Settings that the store was enrolled with."""
        return self._manifest.settings(self._path)

    def speakers(self) -> list[ArrayFile]:
        """The speakers' own, in order of enrollment."""
        return [self.speaker(number) for number in range(len(self._manifest.speakers))]

    def speaker(self, number: int) -> ArrayFile:
        """The file of one speaker; no other speaker's is touched."""
        speaker = self._manifest.speakers[number]
        lengths = {"d": self.config.features.dimension, "k": speaker.centroids}
        if self._manifest.posteriors is not None:
            lengths["P"] = len(self.posteriors().read("pair_map"))
        if self.config.machines.rivals == "all":  # else the file itself tells how many, see ``store_rivals``
            lengths |= {"n": number, "r": self._centroids_before[number]}
        return self._file(speaker.file, f"file of speaker {speaker.name!r}", SPEAKER, **lengths)

    @cached_property
    def _centroids_before(self) -> list[int]:
        return list(accumulate((speaker.centroids for speaker in self._manifest.speakers), initial=0))

    def one_vs_rest(self) -> ArrayFile:
        """One-vs-rest machines."""
        everybody = self._manifest.speakers
        lengths = {"M": sum(speaker.centroids for speaker in everybody), "N": len(everybody)}
        return self._file(self._manifest.one_vs_rest, "one-vs-rest machines", ONE_VS_REST, **lengths)

    def segments(self) -> ArrayFile:
        """Segment machines."""
        lengths = {"d": self.config.features.dimension, "N": len(self._manifest.speakers)}
        return self._file(self._manifest.segments, "segment machines", SEGMENTS, **lengths)

    def posteriors(self) -> ArrayFile:
        """Pooled maps of fitted posteriors."""
        return self._file(self._manifest.posteriors, "posteriors", POSTERIORS)

    def rivals(self) -> ArrayFile:
        """Everybody's hardest rivals, where pair machines are kept against these alone."""
        speakers, most = len(self._manifest.speakers), self.config.machines.rivals
        width = speakers - 1 if most == "all" else min(most, speakers - 1)
        return self._file(self._manifest.rivals, "hardest rivals", RIVALS, N=speakers, W=width)

    def trials(self) -> ArrayFile:
        """Held-out trials."""
        return self._file(self._manifest.calibration, "held-out trials", CALIBRATION)

    def all(self) -> list[ArrayFile]:
        """Every file that the manifest names."""
        manifest, files = self._manifest, self.speakers()
        files += [self.one_vs_rest()] if manifest.one_vs_rest else []
        files += [self.segments()] if manifest.segments else []
        files += [self.posteriors()] if manifest.posteriors else []
        files += [self.rivals()] if manifest.rivals else []
        return files + ([self.trials()] if manifest.calibration else [])

    def _file(self, record: FileRecord | None, what: str, layout: Layout, **lengths: int) -> ArrayFile:
        if record is None:
            raise StoreFormatError(f"{self._path}: the manifest names no {what}")
        with self._opening:
            if record.name not in self._open:
                file = ArrayFile(self._path, record, self._held.take(record.name))
                self._open[record.name] = file.expect(layout, **lengths)
            return self._open[record.name]


class StoredPairs:
    """The pair machines of a store (``machines.population.PairSource``), slice by slice from its files."""

    def __init__(self, speakers: tuple[Speaker, ...], files: list[ArrayFile], pool: Pool) -> None:
        self._files = files
        self._pool = pool
        self._family = files[0].read("bias").shape[1:]
        for number, (speaker, file) in enumerate(zip(speakers, files, strict=True)):
            expected = np.array([earlier.id for earlier in speakers[:number]], dtype=np.uint64)
            if not np.array_equal(file.read("earlier"), expected):
                raise StoreFormatError(
                    f"{file.path}: the pair machines of speaker {speaker.name!r} are not those of the"
                    " earlier speakers in the manifest; files of two stores mixed?"
                )

    def rows(self, speaker: int) -> Array:
        """See PairSource."""
        weights = np.zeros((len(self._pool.codebook(speaker)), len(self._pool), *self._family))
        weights[:, :speaker] = np.swapaxes(self._files[speaker].read("own"), 0, 1)
        for later in range(speaker + 1, len(self._pool)):
            weights[:, later] = self._files[later].read("rival", self._pool.rows(speaker))
        return weights

    def columns(self, claims: NDArray[np.int64]) -> Array:
        """See PairSource."""
        weights = np.zeros((len(self._pool.centroids), len(claims), *self._family))
        for slot, claim in enumerate(claims.tolist()):
            weights[: self._pool.offsets[claim], slot] = self._files[claim].read("rival")
            for later in range(claim + 1, len(self._pool)):
                weights[self._pool.rows(later), slot] = self._files[later].read("own", claim)
        return weights

    def bias(self, claims: NDArray[np.int64]) -> Array:
        """See PairSource."""
        own = [file.read("bias") for file in self._files]
        table = np.zeros((len(self._pool), len(self._pool), *self._family))
        for later, biases in enumerate(own):
            table[later, :later], table[:later, later] = biases, -biases
        return table[claims]
