"""The speaker store on disk, as its readers see it.

    store/
      manifest.json                          settings, speakers in enrollment order, every file with its checksum
      speakers/<id>-<revision>.safetensors   centroids (k, d); one_class (k,), one_class_bias (1,); its pair machines
                                             with every EARLIER speaker: earlier (n,) ids, own (n, k), rival (sum of
                                             the earlier k,), bias (n,)
                                             families of L reweighted machines have a last axis (L,) more
                                             with segment machines, stretches (S, D), what they are trained on,
                                             and stranger.<n> (S, D), the same at another speed
                                             where kept, fingerprints (F,) of the recordings, every 10 ms
                                             with fitted posteriors, pair_map (n, P), one_class_map and
                                             one_vs_rest_map (1, P), NaN where the pooled map serves; and samples of
                                             held-out margins, <kind>_own_sample and <kind>_others_sample (64,)
      one_vs_rest-<revision>.safetensors     coef (M, N), bias (N,)
      rivals-<revision>.safetensors          where machines.rivals is a number R, nearest (N, W) and hardness (N, W):
                                             the W = min(R, N - 1) hardest rivals of each speaker, hardest first
      segments-<revision>.safetensors        centre, scale (d,), means, variances (K, d), weights (K,), mean (D,),
                                             coef (D, N); with speaker models, their shifts (N, K, d)
      posteriors-<revision>.safetensors      with fitted posteriors, the pooled maps, <kind>_map (P,)
      calibration-<revision>.safetensors     the held-out trials

Each pair machine is stored once, with the later of its two speakers: enrolling adds one file a speaker, and a claim
reads its own file and two slices of each later one. Where machines.rivals is a number, a file has the pair machines
with some of the earlier speakers (``machines.rivals``), and a claim opens its own file and its rivals' alone. Names of
people are data in the manifest, never parts of a path.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from pipeline.arrays import ArrayFile, HeldFiles
from pipeline.calibration import HeldOutTrials
from pipeline.config import Config
from pipeline.errors import (
    InputError,
    MetricError,
    StoreBusyError,
    SystemUnavailableError,
    UnknownSpeakerError,
)
from pipeline.features.standardize import Standardizer
from pipeline.machines.mixtures import SpeakerModels
from pipeline.machines.panels import Panels
from pipeline.machines.pool import Pool
from pipeline.machines.population import Population
from pipeline.machines.segments import SegmentMachines, SegmentSpace, Vectors
from pipeline.manifest import Key, Manifest, Speaker, key_in_use, read_manifest, stamp_of
from pipeline.panel_scoring import is_of_panel
from pipeline.posteriors.calibrated import Calibration
from pipeline.posteriors.coupling import RULES, Posterior, systems_of
from pipeline.posteriors.machine_posteriors import KINDS, MachinePosterior, map_name
from pipeline.posteriors.sigmoid import posterior_from
from pipeline.scoring import ScoringSettings, with_parts
from pipeline.store_files import StoredPairs, StoreFiles
from pipeline.store_rivals import StoredMachines, read_panels, read_table
from pipeline.store_trials import read_trials

Array = NDArray[np.float64]
STRANGER_PREFIX = "stranger."

_MOST_TRIES = 100  # at a store that is changed each time before its files are open


class SpeakerStore:
    """One revision of a store, whole, for as long as it is in use, though writers change the store meanwhile.

    Its files are opened with it (the first 256) and read, checked and mapped when they are asked for. ``is_current``
    tells when to open it again.
    """

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path = path
        self.manifest = manifest
        self.files = StoreFiles(path, manifest, HeldFiles(path))
        self.sealed = False
        self._stamp: tuple[int, ...] | None = None
        self._outsiders: float | None = None
        self._calibrations: dict[str, Calibration | None] = {}
        self._early_calibrations: dict[str, Calibration] = {}

    @classmethod
    def open(cls, path: Path | str, *, key: Key = None, outsiders: float | None = None) -> Self:
        """Open the store at ``path``; one that is sealed needs its ``key``, or the one in VOICECLAIM_STORE_KEY.

        A key opens no store that is not sealed. ``outsiders`` stands in for the settings' share of false claims that
        people make whom nobody enrolled, from 0 to 1: log-likelihood ratios and thresholds depend on it. Raises
        InputError, StoreMissingError, StoreFormatError or StoreSealError.
        """
        if outsiders is not None and not 0.0 <= outsiders <= 1.0:
            raise InputError(f"outsiders: a share of false claims lies between 0 and 1, got {outsiders:g}")
        path = Path(path)
        for _ in range(_MOST_TRIES):
            stamp = stamp_of(path)
            store = cls(path, read_manifest(path, key))
            store.sealed, store._stamp, store._outsiders = key_in_use(key) is not None, stamp, outsiders
            try:
                store.files = StoreFiles(path, store.manifest, HeldFiles(path, store.manifest.records()))
            except FileNotFoundError:
                if stamp_of(path) != stamp:
                    continue  # a writer has been at it since
            return store  # where a file is missing all the same, whoever reads it will say so
        raise StoreBusyError(f"{path}: the store changes faster than it can be opened; try again")

    def __reduce__(self) -> tuple[object, ...]:
        """The same revision for a process elsewhere that sees the folder: files are checked by this manifest."""
        stated = {"sealed": self.sealed, "_outsiders": self._outsiders}
        return (type(self), (self.path.absolute(), self.manifest), stated)

    def is_current(self) -> bool:
        """Whether the store on disk is still this revision. Costs one look at the manifest's entry in its folder."""
        return self._stamp is not None and stamp_of(self.path) == self._stamp

    def check_files(self) -> None:
        """Read every array of every file; raises StoreFormatError for the first that is not as it must be."""
        for file in self.files.all():
            for name in file.names():
                file.read(name)

    @cached_property
    def config(self) -> Config:
        """Settings that the store was enrolled with."""
        return self.files.config

    @property
    def outsiders(self) -> float:
        """Share of false claims taken to be made by people whom nobody enrolled."""
        return self.config.threshold.outsiders if self._outsiders is None else self._outsiders

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
        return self._systems(self.config.scoring.system)

    def _systems(self, asked: str) -> tuple[str, ...]:
        return systems_of(self.config.machines.kinds, (asked,), self.config.machines.rivals)

    def check_system(self, system: str | None) -> str:
        """``system``, or the settings' own; raises SystemUnavailableError naming what can be had."""
        system = self.config.scoring.system if system is None else system
        rivals = self.config.machines.rivals
        if system in RULES and RULES[system].every_claim and rivals != "all":
            raise SystemUnavailableError(
                f"{self.path}: scoring system {system!r} wants the pair machines of everybody with everybody, and the"
                f" store keeps those against each speaker's {rivals} hardest rivals (machines.rivals); it has"
                f" {', '.join(self.systems)}"
            )
        if system not in self._systems(system):
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
        return read_trials(self.files.trials())

    def threshold(self, system: str, *, false_accept: float | None = None) -> float:
        """Threshold from the held-out trials: see ``HeldOutTrials.threshold``. Raises MetricError."""
        if self.trials is None:
            raise MetricError(f"{self.path}: the store holds no held-out trials; give the threshold itself")
        trials, population = self._judged_among(system, self.trials)
        return trials.threshold(
            system,
            population=population,
            false_accept=false_accept,
            prior=self.config.threshold.prior,
            outsiders=self.outsiders,
        )

    def rivals(self, system: str) -> int:
        """How many others a claim is judged among under ``system``."""
        others, most = len(self.speakers) - 1, self.config.machines.rivals
        return others if most == "all" or not is_of_panel(system) else min(others, most)

    def _judged_among(self, system: str, trials: HeldOutTrials) -> tuple[HeldOutTrials, int]:
        """``trials`` and today's number of speakers, as ``system`` sees them: of panels where it judges in these."""
        most = self.config.machines.rivals
        if most != "all" and is_of_panel(system):
            trials = trials.in_panels(most + 1)
        return trials, self.rivals(system) + 1

    def calibration(self, system: str) -> Calibration | None:
        """Scores of ``system`` to log-likelihood ratios; None where held-out trials cannot say how."""
        if system not in self._calibrations:
            self._calibrations[system] = self._fit_calibration(system)
        return self._calibrations[system]

    def _fit_calibration(self, system: str) -> Calibration | None:
        if self.trials is None or len(self.speakers) < 2:
            return None
        try:
            settings = self.config.threshold
            trials, population = self._judged_among(system, self.trials)
            return trials.comparable(population).calibration(system, prior=settings.prior, outsiders=self.outsiders)
        except MetricError:
            return None

    def early_calibration(self, system: str) -> Calibration:
        """Scores of ``system`` over speech of any length to log-likelihood ratios, for early decisions.

        Raises MetricError where held-out trials cannot say how.
        """
        if self.trials is None or len(self.speakers) < 2:
            raise MetricError(f"{self.path}: early decision: held-out trials of at least two speakers are needed")
        if system not in self._early_calibrations:
            settings = self.config.threshold
            trials, population = self._judged_among(system, self.trials)
            self._early_calibrations[system] = trials.comparable(population).early_calibration(
                system, prior=settings.prior, outsiders=self.outsiders
            )
        return self._early_calibrations[system]

    def llrs(self, system: str, scores: Array, frames: int) -> Array | None:
        """Log-likelihood ratios (nats) of ``scores`` over ``frames`` of speech; None without a calibration."""
        if RULES[system].parts and len(self.speakers) > 1:
            return scores
        calibration = self.calibration(system)
        return None if calibration is None else calibration.llr({system: scores}, frames)

    def map_sources(self) -> list[ArrayFile]:
        """Files that hold the speakers' maps and samples; none where posteriors are not fitted."""
        return self.files.speakers() if self.config.posterior.fitted else []

    @cached_property
    def posterior(self) -> Posterior:
        """Margins to posteriors, as the settings have it and as it was fitted."""
        if not self.config.posterior.fitted:
            return posterior_from(self.config.posterior)
        pooled = self.files.posteriors()
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

    def fingerprints(self, name: str) -> NDArray[np.uint32] | None:
        """Fingerprints (F,) of the recordings that ``name`` was enrolled with (``pipeline.fingerprint``); None if none.

        Raises UnknownSpeakerError.
        """
        file = self.files.speaker(self.position(name))
        return np.asarray(file.read("fingerprints"), dtype=np.uint32) if "fingerprints" in file.names() else None

    def stretches(self) -> list[Vectors]:
        """What the segment machines are trained on: (S, D) of each speaker."""
        return [np.asarray(file.read("stretches"), dtype=np.float32) for file in self.files.speakers()]

    def strangers(self) -> list[list[Vectors]]:
        """Stretches (S, D) of the strangers made of each speaker's voice; none of those enrolled into a crowd."""
        found = []
        for file in self.files.speakers():
            names = sorted(name for name in file.names() if name.startswith(STRANGER_PREFIX))
            found.append([np.asarray(file.read(name), dtype=np.float32) for name in names])
        return found

    def population(self, systems: tuple[str, ...] | None = None) -> Population:
        """The machines that ``systems`` need (default: all there are); pair machines are read when asked for."""
        population = self.part(range(len(self.speakers)), systems)
        needs, settings = _needs(systems or self.systems), self.config.machines
        rest = None if "one_vs_rest" not in needs or len(population) < 2 else self.files.one_vs_rest()
        pairs, rivals = None, None
        if "one_vs_one" in settings.kinds and settings.rivals == "all":
            pairs = StoredPairs(self.speakers, self.files.speakers(), population.pool)
        elif "one_vs_one" in settings.kinds:
            rivals = read_table(self.files.rivals())
        return replace(
            population,
            pairs=pairs,
            rivals=rivals,
            one_vs_rest_coef=None if rest is None else rest.read("coef"),
            one_vs_rest_bias=None if rest is None else rest.read("bias"),
        )

    def part(self, numbers: Sequence[int], systems: tuple[str, ...] | None = None) -> Population:
        """The speakers ``numbers`` alone and the machines that ``systems`` need; no other speaker's file is touched.

        Pair machines against everybody and one-vs-rest machines are not among them; segment machines and
        speaker models are everybody's.
        """
        needs, settings = _needs(systems or self.systems), self.config.machines
        files = [self.files.speaker(number) for number in numbers]
        machines = None
        if "one_vs_one" in settings.kinds and settings.rivals != "all":
            machines = StoredMachines(self.speakers, self.files, numbers)
        return Population(
            Pool.of([file.read("centroids") for file in files], settings.sigma),
            one_class_coef=np.concatenate([file.read("one_class") for file in files]),
            one_class_bias=np.concatenate([file.read("one_class_bias") for file in files]),
            segments=self._segments() if needs & {"segment", "mixture"} else None,
            rival_machines=machines,
        )

    def panels(self, claims: Iterable[int]) -> Panels:
        """The panels that ``claims`` are judged in, where machines.rivals is a number."""
        return read_panels(self.files.rivals(), claims, len(self.speakers))

    def _segments(self) -> SegmentMachines:
        file = self.files.segments()
        space = SegmentSpace(
            file.read("centre"),
            file.read("scale"),
            file.read("means"),
            file.read("variances"),
            file.read("weights"),
            self.config.segments.relevance,
        )
        models = None
        if "mixture" in self.config.machines.kinds:
            models = SpeakerModels(np.asarray(file.read("shifts"), dtype=np.float32))
        return SegmentMachines(space, file.read("mean"), np.asarray(file.read("coef"), dtype=np.float64), models)


def _needs(systems: Iterable[str]) -> frozenset[str]:
    """Kinds of machines that ``systems`` need, or can do with."""
    return frozenset[str]().union(*(RULES[name].needs for name in with_parts(systems)))
