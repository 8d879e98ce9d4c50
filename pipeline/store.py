"""The speaker store on disk, as its readers see it.

    store/
      manifest.json                          settings, speakers in enrollment order, every file with its checksum
      speakers/<id>-<revision>.safetensors   centroids (k, d); one_class (k,), one_class_bias (1,); its pair machines
                                             with every EARLIER speaker: earlier (n,) ids, own (n, k), rival (sum of
                                             the earlier k,), bias (n,)
                                             families of L reweighted machines have a last axis (L,) more
                                             with segment machines, stretches (S, D), what they are trained on,
                                             and stranger.<n> (S, D), the same at another speed
                                             with fitted posteriors, pair_map (n, P), one_class_map and
                                             one_vs_rest_map (1, P), NaN where the pooled map serves; and samples of
                                             held-out margins, <kind>_own_sample and <kind>_others_sample (64,)
      one_vs_rest-<revision>.safetensors     coef (M, N), bias (N,)
      segments-<revision>.safetensors        centre, scale (d,), means, variances (K, d), weights (K,), mean (D,),
                                             coef (D, N)
      posteriors-<revision>.safetensors      with fitted posteriors, the pooled maps, <kind>_map (P,)
      calibration-<revision>.safetensors     the held-out trials

Each pair machine is stored once, with the later of its two speakers: enrolling adds one file a speaker, and a claim
reads its own file and two slices of each later one. Names of people are data in the manifest, never parts of a path.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipeline.arrays import ArrayFile
from pipeline.calibration import HeldOutTrials
from pipeline.config import Config
from pipeline.errors import MetricError, StoreFormatError, SystemUnavailableError, UnknownSpeakerError
from pipeline.features.standardize import Standardizer
from pipeline.machines.pool import Pool
from pipeline.machines.population import Population
from pipeline.machines.segments import SegmentMachines, SegmentSpace, Vectors
from pipeline.manifest import Manifest, Speaker, read_manifest
from pipeline.posteriors.calibrated import LogisticCalibration
from pipeline.posteriors.coupling import RULES, Posterior, systems_of
from pipeline.posteriors.machine_posteriors import KINDS, MachinePosterior, map_name
from pipeline.posteriors.sigmoid import posterior_from
from pipeline.scoring import ScoringSettings, with_parts
from pipeline.store_layout import CALIBRATION, ONE_VS_REST, SEGMENTS, SPEAKER

Array = NDArray[np.float64]
SCORE_PREFIX = "score."
STRANGER_PREFIX = "stranger."


class SpeakerStore:
    """One revision of a store; open it again to see a later one."""

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path = path
        self.manifest = manifest
        self._calibrations: dict[str, LogisticCalibration | None] = {}

    @classmethod
    def open(cls, path: Path | str) -> SpeakerStore:
        """Open the store at ``path``; raises StoreMissingError or StoreFormatError."""
        path = Path(path)
        return cls(path, read_manifest(path))

    @cached_property
    def config(self) -> Config:
        """Settings that the store was enrolled with."""
        return self.manifest.settings(self.path)

    @cached_property
    def scaling(self) -> Standardizer | None:
        """Global standardisation, when the settings ask for it."""
        scaling = self.manifest.scaling
        return None if scaling is None else Standardizer(np.array(scaling.mean), np.array(scaling.scale))

    @property
    def speakers(self) -> tuple[Speaker, ...]:
        """Every speaker, background ones too, in enrollment order."""
        return self.manifest.speakers

    @property
    def names(self) -> tuple[str, ...]:
        """Names that can be claimed."""
        return tuple(speaker.name for speaker in self.speakers if speaker.role == "speaker")

    @property
    def systems(self) -> tuple[str, ...]:
        """Scoring systems that the store has machines for."""
        return systems_of(self.config.machines.kinds, asked=(self.config.scoring.system,))

    def check_system(self, system: str | None) -> str:
        """``system``, or the settings' own; raises SystemUnavailableError naming what can be had."""
        system = self.config.scoring.system if system is None else system
        if system not in systems_of(self.config.machines.kinds, asked=(system,)):
            what = "needs machines that this store has none of" if system in RULES else "is unknown"
            raise SystemUnavailableError(
                f"{self.path}: scoring system {system!r} {what}; it has {', '.join(self.systems)}"
                f" (machines.kinds is {', '.join(self.config.machines.kinds)})"
            )
        return system

    def position(self, name: str) -> int:
        """Number of the speaker claimed as ``name``; raises UnknownSpeakerError with the nearest names."""
        for number, speaker in enumerate(self.speakers):
            if speaker.name == name and speaker.role == "speaker":
                return number
        raise UnknownSpeakerError(name, tuple(difflib.get_close_matches(name, self.names, n=3, cutoff=0.0)))

    @cached_property
    def trials(self) -> HeldOutTrials | None:
        """Held-out trials; None in a store without any."""
        if self.manifest.calibration is None:
            return None
        file = ArrayFile(self.path, self.manifest.calibration).expect(CALIBRATION)
        names = [name for name in file.names() if name.startswith(SCORE_PREFIX)]
        return HeldOutTrials(
            file.read("claims"),
            file.read("speakers"),
            file.read("population"),
            {name.removeprefix(SCORE_PREFIX): file.read(name) for name in names},
            file.read("frames"),
            file.read("outsider"),
        )

    def threshold(self, system: str, *, false_accept: float | None = None) -> float:
        """Threshold from the held-out trials: see ``HeldOutTrials.threshold``. Raises MetricError."""
        if self.trials is None:
            raise MetricError(f"{self.path}: the store holds no held-out trials; give the threshold itself")
        return self.trials.threshold(
            system,
            population=len(self.speakers),
            false_accept=false_accept,
            prior=self.config.threshold.prior,
            outsiders=self.config.threshold.outsiders,
        )

    def calibration(self, system: str) -> LogisticCalibration | None:
        """Scores of ``system`` to log-likelihood ratios; None where held-out trials cannot say how."""
        if system not in self._calibrations:
            self._calibrations[system] = self._fit_calibration(system)
        return self._calibrations[system]

    def _fit_calibration(self, system: str) -> LogisticCalibration | None:
        if self.trials is None or len(self.speakers) < 2:
            return None
        try:
            settings = self.config.threshold
            comparable = self.trials.comparable(len(self.speakers))
            return comparable.calibration(system, prior=settings.prior, outsiders=settings.outsiders)
        except MetricError:
            return None

    def llrs(self, system: str, scores: Array, frames: int) -> Array | None:
        """Log-likelihood ratios (nats) of ``scores`` over ``frames`` of speech; None without a calibration."""
        if RULES[system].parts and len(self.speakers) > 1:
            return scores
        calibration = self.calibration(system)
        return None if calibration is None else calibration.llr({system: scores}, frames)

    def map_sources(self) -> list[ArrayFile]:
        """Files that hold the speakers' maps and samples; none where posteriors are not fitted."""
        return self._speaker_files() if self.config.posterior.fitted else []

    @cached_property
    def posterior(self) -> Posterior:
        """Margins to posteriors, as the settings have it and as it was fitted."""
        if not self.config.posterior.fitted:
            return posterior_from(self.config.posterior)
        if self.manifest.posteriors is None:
            raise StoreFormatError(f"{self.path}: the manifest names no posteriors")
        pooled = ArrayFile(self.path, self.manifest.posteriors)
        return MachinePosterior(self.map_sources(), {kind: pooled.read(map_name(kind)) for kind in KINDS})

    def scoring_settings(self, systems: Iterable[str]) -> ScoringSettings:
        """What a ``ClaimScorer`` of ``systems`` takes from this store; raises MetricError for a sum without weights."""
        fusions = {}
        for name in systems:
            if RULES[name].parts and len(self.speakers) > 1:
                fusion = self.calibration(name)
                if fusion is None:
                    raise MetricError(
                        f"{self.path}: system {name!r} weighs others by held-out trials, and the store has too few;"
                        f" enroll more speech, or name one of {', '.join(RULES[name].parts)}"
                    )
                fusions[name] = fusion
        return ScoringSettings(
            self.posterior,
            dtype=self.config.scoring.dtype,
            half_db=self.config.segments.half_db,
            fusions=fusions,
        )

    def stretches(self) -> list[Vectors]:
        """What the segment machines are trained on: (S, D) of each speaker."""
        return [np.asarray(file.read("stretches"), dtype=np.float32) for file in self._speaker_files()]

    def _speaker_files(self) -> list[ArrayFile]:
        """The speakers' files, each held to the lengths that the manifest gives it."""
        files, centroids = [], 0
        for number, speaker in enumerate(self.speakers):
            lengths = {"k": speaker.centroids, "d": self.config.features.dimension, "n": number, "r": centroids}
            files.append(ArrayFile(self.path, speaker.file).expect(SPEAKER, **lengths))
            centroids += speaker.centroids
        return files

    def strangers(self) -> list[list[Vectors]]:
        """Stretches (S, D) of the strangers made of each speaker's voice; none of those enrolled into a crowd."""
        found = []
        for file in self._speaker_files():
            names = sorted(name for name in file.names() if name.startswith(STRANGER_PREFIX))
            found.append([np.asarray(file.read(name), dtype=np.float32) for name in names])
        return found

    def population(self, systems: tuple[str, ...] | None = None) -> Population:
        """The machines that ``systems`` need (default: all there are); pair machines are read when asked for."""
        needs = frozenset[str]().union(*(RULES[name].needs for name in with_parts(systems or self.systems)))
        files = self._speaker_files()
        books = [file.read("centroids") for file in files]
        pool = Pool.of(books, self.config.machines.sigma)
        rest = None if "one_vs_rest" not in needs or len(pool) < 2 else self._one_vs_rest()
        return Population(
            pool,
            pairs=StoredPairs(self.speakers, files, pool) if "one_vs_one" in self.config.machines.kinds else None,
            one_class_coef=np.concatenate([file.read("one_class") for file in files]),
            one_class_bias=np.concatenate([file.read("one_class_bias") for file in files]),
            one_vs_rest_coef=None if rest is None else rest.read("coef"),
            one_vs_rest_bias=None if rest is None else rest.read("bias"),
            segments=self._segments() if "segment" in needs else None,
        )

    def _segments(self) -> SegmentMachines:
        if self.manifest.segments is None:
            raise StoreFormatError(f"{self.path}: the manifest names no segment machines")
        lengths = {"d": self.config.features.dimension, "N": len(self.speakers)}
        file = ArrayFile(self.path, self.manifest.segments).expect(SEGMENTS, **lengths)
        space = SegmentSpace(
            file.read("centre"),
            file.read("scale"),
            file.read("means"),
            file.read("variances"),
            file.read("weights"),
            self.config.segments.relevance,
        )
        return SegmentMachines(space, file.read("mean"), np.asarray(file.read("coef"), dtype=np.float64))

    def _one_vs_rest(self) -> ArrayFile:
        if self.manifest.one_vs_rest is None:
            raise StoreFormatError(f"{self.path}: the manifest names no one-vs-rest machines")
        lengths = {"M": sum(speaker.centroids for speaker in self.speakers), "N": len(self.speakers)}
        return ArrayFile(self.path, self.manifest.one_vs_rest).expect(ONE_VS_REST, **lengths)


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
