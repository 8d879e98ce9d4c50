"""The speaker model: everything that enrollment learned, in memory or read from a store when it is asked for.

Training makes a model, verification and evaluation score with it, and the store loads and saves it. It holds arrays by
name (``store.layout``): those of each speaker, and those of the population.
"""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pipeline.config import Config
from pipeline.errors import InputError, MetricError, StoreFormatError, UnknownSpeakerError
from pipeline.machines.branches import BACKGROUNDS, Background, Branch, UtteranceKind, utterance_kinds_of
from pipeline.machines.cohorts import CohortTable
from pipeline.machines.encoder import BackgroundModel, Encoder
from pipeline.machines.gmm import AdaptedMixtures
from pipeline.machines.margins import Population
from pipeline.machines.pairs import PairSource
from pipeline.machines.pool import Pool
from pipeline.machines.supervectors import SupervectorMachines
from pipeline.machines.ubm import UniversalBackgroundModel
from pipeline.machines.workers import run_parallel
from pipeline.metrics import OperatingPoint
from pipeline.notebooks import html_table
from pipeline.posteriors.sigmoid import FixedSigmoid
from pipeline.scoring.calibration import Calibration, Calibrations, SystemCalibration
from pipeline.scoring.claims import ScoringSettings, is_judged_in_cohort, with_parts
from pipeline.scoring.conditions import SIDE_INFORMATION, ConditionClassifier, train_conditions
from pipeline.scoring.rules import RULES, systems_of
from pipeline.scoring.trials import CHANGED, KEPT, OWN, HeldOutTrials, fit_system
from pipeline.scoring.typical import Typicality
from pipeline.store.arrays import Arrays, Changed, Renumbered
from pipeline.store.layout import AnyArray

Array = NDArray[np.float64]
Role = Literal["speaker", "background"]
PSEUDO = "pseudo."
CONDITIONS = ("condition.recorded", "condition.changed")
UBM_ARRAYS = ("centre", "scale", "means", "variances", "weights")
ALL_CORES = -1
_COHORTS = frozenset({"cohort.nearest", "cohort.similarity"})  # they number the speakers


@dataclass(frozen=True, slots=True)
class Speaker:
    """One enrolled speaker; ``background`` speakers are in cohorts only and cannot be claimed.

    ``seconds`` of speech in ``frames`` feature vectors of ``utterances`` recordings made ``centroids`` centroids. The
    ``id`` is random and says nothing of the name.
    """

    id: int
    name: str
    role: Role
    seconds: float
    frames: int
    utterances: int
    centroids: int


@dataclass(frozen=True, eq=False)
class SpeakerModel:
    """Settings, speakers in the order of their enrollment, and all that was trained on their speech.

    Parameters
    ----------
    config : Config
        Settings that the model was trained with.
    speakers : tuple of Speaker
        Background speakers too.
    arrays : tuple of mappings
        Arrays of each speaker by name (``store.layout.SPEAKER``).
    shared : mapping
        Arrays of the population by name (``store.layout.SHARED``).
    pairs : PairSource or None
        Pair machines, where the settings ask for any.
    calibrations : Calibrations
        Fitted to the held-out trials among the shared arrays (``calibrated``).
    where, identity, revision, sealed
        The store that the model was read from.
    unknown_share : float or None
        Share of impostors who are not enrolled, in place of the settings' own.

    Examples
    --------
    >>> import pipeline
    >>> model = pipeline.SpeakerModel(pipeline.Config())
    >>> model.names
    ()
    """

    config: Config
    speakers: tuple[Speaker, ...] = ()
    arrays: tuple[Arrays, ...] = ()
    shared: Arrays = field(default_factory=dict)
    pairs: PairSource | None = None
    calibrations: Calibrations = field(default_factory=Calibrations)
    where: str = "speaker model"
    identity: str = ""
    revision: int = 0
    sealed: bool = False
    unknown_share: float | None = None

    def __len__(self) -> int:
        return len(self.speakers)

    def __repr__(self) -> str:
        names = ", ".join(map(repr, self.names[:5])) + (", ..." if len(self.names) > 5 else "")
        return f"<SpeakerModel of {self.where}, revision {self.revision}: {len(self.names)} speakers ({names})>"

    def _repr_html_(self) -> str:
        rows = [(one.name, one.role, one.utterances, f"{one.seconds:.1f}") for one in self.speakers]
        return html_table(("speaker", "role", "files", "speech s"), rows, caption=self.where)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), tuple(getattr(self, field.name) for field in fields(self))  # what was cached stays here

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names that can be claimed."""
        return tuple(speaker.name for speaker in self.speakers if speaker.role == "speaker")

    def position(self, name: str) -> int:
        """Return the number of the speaker claimed as ``name``; raises UnknownSpeakerError with the nearest names."""
        plain = unicodedata.normalize("NFC", name)
        for number, speaker in enumerate(self.speakers):
            if speaker.name in (name, plain) and speaker.role == "speaker":
                return number
        raise self._unknown(name)

    def speaker(self, name: str) -> Speaker:
        """Return the entry of ``name``, a background speaker's too; raises UnknownSpeakerError."""
        for speaker in self.speakers:
            if speaker.name == name:
                return speaker
        raise self._unknown(name)

    def _unknown(self, name: str) -> UnknownSpeakerError:
        folded: dict[str, list[str]] = {}
        for known in self.names:
            folded.setdefault(known.casefold(), []).append(known)
        near = difflib.get_close_matches(name.casefold(), folded, n=3, cutoff=0.0)
        return UnknownSpeakerError(name, tuple(known for key in near for known in folded[key])[:3])

    # Scoring systems

    @property
    def systems(self) -> tuple[str, ...]:
        """Return the scoring systems that the model has machines for."""
        return systems_of(self.config.machines.kinds, every_pair=self.has_every_pair)

    @property
    def evaluated_systems(self) -> tuple[str, ...]:
        """Return these and the systems of one-vs-rest machines, which an evaluation trains where enrollment did not."""
        kinds, every_pair = set(self.config.machines.kinds), self.has_every_pair
        more = {"one_vs_rest"} if "one_vs_one" in kinds and every_pair else set()
        return systems_of(kinds | more, every_pair=every_pair)

    @property
    def has_every_pair(self) -> bool:
        """Return True where pair machines are of every two speakers: everybody's cohort is everybody."""
        cohort = self.config.machines.cohort
        return cohort == "all" or len(self) <= cohort + 1

    def check_system(self, system: str | None, available: Sequence[str] | None = None) -> str:
        """Return ``system``, or the settings' own; raises InputError naming those ``available``, if it is none of them.

        By default these are ``systems``.
        """
        available = self.systems if available is None else available
        system = self.config.scoring.system if system is None else system
        cohort = self.config.machines.cohort
        if system in RULES and RULES[system].every_claim and system not in available and cohort != "all":
            raise InputError(
                f"{self.where}: scoring system {system!r} needs the pair machines of every two speakers, and there are"
                f" those against each speaker's cohort of {cohort} (machines.cohort); it has {', '.join(available)}"
            )
        if system not in available:
            what = "needs machines that are not there" if system in RULES else "is unknown"
            raise InputError(
                f"{self.where}: scoring system {system!r} {what}; it has {', '.join(available)}"
                f" (machines.kinds is {', '.join(self.config.machines.kinds)})"
            )
        return system

    def competing(self, system: str) -> int:
        """Return how many other speakers a claim is judged among under ``system``."""
        others, cohort = len(self.speakers) - 1, self.config.machines.cohort
        return others if cohort == "all" or not is_judged_in_cohort(system) else min(others, cohort)

    # Features and audio

    def fingerprints(self, name: str) -> NDArray[np.uint32] | None:
        """Return the fingerprints (F,) of the enrollment recordings of ``name``; None where none are kept."""
        own = self.arrays[self.position(name)]
        if "fingerprints" not in own:
            return None
        return own["fingerprints"]

    def high_band(self, name: str) -> float | None:
        """Return the median ``SpeechMeter.high_db`` of the enrollment recordings of ``name``; None if unmeasured."""
        own = self.arrays[self.position(name)]
        return float(own["high_band"][0]) if "high_band" in own else None

    def segments(self, kind: UtteranceKind) -> list[AnyArray]:
        """Return the supervectors (S, D) of each speaker that supervector machines of ``kind`` are trained on."""
        return [arrays[f"{kind.branch.prefix}segments"] for arrays in self.arrays]

    def pseudo_segments(self) -> list[list[AnyArray]]:
        """Return the supervectors (S, D) of the pseudo-speakers made of each speaker's voice."""
        return [[arrays[name] for name in sorted(arrays) if name.startswith(PSEUDO)] for arrays in self.arrays]

    # Machines

    def population(self, systems: Iterable[str] | None = None, numbers: Sequence[int] | None = None) -> Population:
        """Return the machines that ``systems`` need, of the speakers ``numbers``; by default all that were enrolled."""
        if systems is None:
            return self.machines(self.config.machines.kinds, numbers)
        rules = (RULES[name] for name in with_parts(systems, self.systems))
        return self.machines(frozenset[str]().union(*(rule.needs for rule in rules)), numbers)

    def machines(self, kinds: Iterable[str], numbers: Sequence[int] | None = None) -> Population:
        """Return the machines of ``kinds`` and the one-class machines, of ``numbers`` (default: everybody).

        Supervector machines and GMMs are always everybody's, one-vs-rest machines only come with everybody; they are
        trained here where enrollment did not. Machines of everybody are read once.
        """
        asked = frozenset(kinds)
        if numbers is not None:
            return self._read_machines(asked, numbers)
        if asked not in self._populations:
            self._populations[asked] = self._read_machines(asked, None)
        return self._populations[asked]

    @cached_property
    def _populations(self) -> dict[frozenset[str], Population]:
        """Return the machines of everybody that were read so far, by kinds."""
        return {}

    def _read_machines(self, kinds: frozenset[str], numbers: Sequence[int] | None) -> Population:
        everybody = numbers is None
        chosen = range(len(self.speakers)) if numbers is None else numbers
        arrays = [self.arrays[number] for number in chosen]
        pool = Pool.of([own["centroids"] for own in arrays], self.config.machines.sigma)
        has_rest = everybody and "one_vs_rest" in kinds and len(arrays) > 1
        rest_coef, rest_bias = self._one_vs_rest(pool) if has_rest else (None, None)
        pairs = self.pairs if "one_vs_one" in kinds else None
        return Population(
            pool,
            pairs=pairs if pairs is None or everybody else Renumbered(pairs, list(chosen)),
            one_class_coef=np.concatenate([np.empty(0), *(own["one_class"] for own in arrays)]),
            one_class_bias=np.concatenate([np.empty(0), *(own["one_class_bias"] for own in arrays)]),
            one_vs_rest_coef=rest_coef,
            one_vs_rest_bias=rest_bias,
            utterance={kind.name: self.utterance_machines(kind) for kind in utterance_kinds_of(kinds)},
            cohort_table=self.cohort_table if everybody else None,
            numbers=None if everybody else np.array(chosen, dtype=np.int64),
        )

    def _one_vs_rest(self, pool: Pool) -> tuple[Array, Array]:
        """Return coefficients (M, N) and biases (N,) of everybody's one-vs-rest machines, trained now if need be."""
        if "one_vs_rest" not in self.config.machines.kinds:
            from pipeline.machines.training import one_vs_rest  # scikit-learn, which a claim need not wait for

            return one_vs_rest(pool, self.config.machines, jobs=ALL_CORES)
        coef = np.stack([own["one_vs_rest"] for own in self.arrays], axis=1)
        return coef, np.concatenate([own["one_vs_rest_bias"] for own in self.arrays])

    @property
    def cohort_table(self) -> CohortTable | None:
        """Return each speaker's cohort, where ``machines.cohort`` is a number."""
        if "cohort.nearest" not in self.shared:
            return None
        nearest = self.shared["cohort.nearest"].astype(np.int64)
        ordered = np.sort(nearest, axis=1)
        is_other = bool(np.all(nearest < len(self))) and not bool(np.any(nearest == np.arange(len(self))[:, None]))
        if len(nearest) != len(self) or not is_other or bool(np.any(ordered[:, 1:] == ordered[:, :-1])):
            raise StoreFormatError(
                f"{self.where}: array 'cohort.nearest' must name other speakers, each once a row; damaged?"
            )
        return CohortTable(nearest, self.shared["cohort.similarity"])

    def ubm(self, background: Background) -> BackgroundModel | None:
        """Return a universal background model, or the encoder; None before anybody was enrolled."""
        if not background.is_trained:
            return Encoder(self.config.embedding) if len(self) else None
        if background not in self._ubms and f"{background.name}.means" in self.shared:
            settings = background.settings(self.config)
            parts = {name: self.shared[f"{background.name}.{name}"] for name in UBM_ARRAYS}
            self._ubms[background] = UniversalBackgroundModel(
                **parts,
                relevance=settings.relevance,
                half_db=settings.half_db,
                mean_prior=background.branch.mean_prior(self.config),
            )
        return self._ubms.get(background)

    def ubms(self, branch: Branch) -> dict[Background, BackgroundModel]:
        """Return the universal background models of a ``branch`` that there are."""
        models = {one: self.ubm(one) for one in BACKGROUNDS if one.branch is branch}
        return {one: ubm for one, ubm in models.items() if ubm is not None}

    @cached_property
    def _ubms(self) -> dict[Background, UniversalBackgroundModel]:
        """Return the background models that were read so far."""
        return {}

    def utterance_machines(self, kind: UtteranceKind) -> SupervectorMachines | AdaptedMixtures:
        """Return everybody's machines of ``kind``, read once; raises StoreFormatError without a background model."""
        if kind not in self._utterance_machines:
            self._utterance_machines[kind] = self._read_utterance_machines(kind)
        return self._utterance_machines[kind]

    @cached_property
    def _utterance_machines(self) -> dict[UtteranceKind, SupervectorMachines | AdaptedMixtures]:
        """Return the machines over utterances that were read so far."""
        return {}

    def _read_utterance_machines(self, kind: UtteranceKind) -> SupervectorMachines | AdaptedMixtures:
        ubms = tuple(ubm for background in kind.backgrounds if (ubm := self.ubm(background)) is not None)
        if len(ubms) < len(kind.backgrounds):
            raise StoreFormatError(f"{self.where}: there is no background model for {kind.name} machines")
        rows = np.stack([arrays[kind.array] for arrays in self.arrays])
        if kind.machine == "gmm":
            return AdaptedMixtures(ubms, rows)
        return SupervectorMachines(ubms, self.shared[f"{kind.array}.mean"], rows)

    @cached_property
    def posterior(self) -> FixedSigmoid:
        """Return the map from margins to posteriors."""
        return FixedSigmoid(self.config.posterior.slope)

    # Trials, calibrations and thresholds

    @property
    def unknown(self) -> float:
        """Return the share of impostors taken to be people who are not enrolled."""
        return self.config.threshold.unknown_impostors if self.unknown_share is None else self.unknown_share

    @property
    def operating_point(self) -> OperatingPoint:
        """Return the prior and the costs that claims are decided by."""
        costs = self.config.threshold
        return OperatingPoint(costs.prior, costs.cost_miss, costs.cost_false_accept)

    def trials(self, systems: Sequence[str] | None = None, *, before: str = "") -> HeldOutTrials | None:
        """Return the held-out trials, with the scores of ``systems`` (default: all); None without any.

        With ``before`` = ``CHANGED``, those of augmented versions; with ``OWN``, the user's own.
        """
        return HeldOutTrials.from_arrays(self.shared, systems, before=before)

    @property
    def fitted_to(self) -> str:
        """Return which trials calibrations and thresholds are fitted to: ``OWN`` where they have both classes, or "".

        Removals of speakers may leave one class only.
        """
        own = self.trials([], before=OWN)
        return OWN if own is not None and own.has_both_classes else ""

    def threshold(self, system: str, *, false_accept: float | None = None) -> float:
        """Return the threshold from the trials ``fitted_to``: see ``HeldOutTrials.threshold``. Raises MetricError.

        Where scores are log-likelihood ratios, and no false-accept rate is asked for, that at the least expected cost
        by the settings.
        """
        rule = RULES[system]
        if false_accept is None and self.scores_are_ratios(system) and self.calibration(system) is not None:
            return self.operating_point.threshold
        trials = self.trials([system, *rule.parts, f"alone.{rule.alone}", *SIDE_INFORMATION], before=self.fitted_to)
        if trials is None:
            raise MetricError(f"{self.where}: the store holds no held-out trials; give the threshold itself")
        trials, population = self._judged(trials, system)
        return trials.threshold(
            system,
            population=population,
            calibration=self.calibration(system) if rule.parts else None,
            false_accept=false_accept,
            unknown_share=self.unknown,
        )

    def _judged(self, trials: HeldOutTrials, system: str) -> tuple[HeldOutTrials, int]:
        """Return ``trials`` and today's number of speakers as ``system`` counts them: of cohorts, where it has any."""
        cohort = self.config.machines.cohort
        if cohort != "all" and is_judged_in_cohort(system):
            trials = trials.in_cohorts(cohort + 1)
        return trials, self.competing(system) + 1

    def calibrated(self, *, jobs: int = 1) -> SpeakerModel:
        """Return the same model with calibrations of its default system, which a claim need not wait for."""
        system = self.config.scoring.system
        fits = run_parallel(lambda every: self._fitted(system, at_every_length=every), [(False,), (True,)], jobs=jobs)
        whole, sequential = [{} if fit is None else {str(system): fit} for fit in fits]
        return replace(self, calibrations=Calibrations(whole, sequential))

    def _fitted(self, system: str, *, at_every_length: bool = False) -> SystemCalibration | None:
        """Fit the calibration of ``system`` to the trials ``fitted_to``; None where these are too few.

        The user's own are of the condition in use, and leave none to tell from it.
        """
        before = self.fitted_to
        read = [system, *RULES[system].parts, *SIDE_INFORMATION]
        trials = self.trials(read, before=before)
        if trials is None:
            return None
        return fit_system(
            system,
            self._judged(trials, system),
            changed=None if before else self.trials(read, before=CHANGED),
            typical=None if before else Typicality(self.operating_point.threshold, len(self.names)),
            at_every_length=at_every_length,
        )

    def condition(self) -> ConditionClassifier | None:
        """Return the classifier of conditions by everybody's speech; None without augmented versions. Made once."""
        return self._condition

    @cached_property
    def _condition(self) -> ConditionClassifier | None:
        return train_conditions(*([own[name] for own in self.arrays if name in own] for name in CONDITIONS))

    def calibration(self, system: str) -> SystemCalibration | None:
        """Return the map from scores of ``system`` to log-likelihood ratios; None where trials were too few.

        That of the default system is stored; others are fitted here, once.
        """
        if system not in self._calibrations:
            self._calibrations[system] = self._fitted(system)
        fit = self._calibrations[system]
        return None if fit is None else self._under_assumptions(fit)

    @cached_property
    def _calibrations(self) -> dict[str, SystemCalibration | None]:
        """Return the calibrations that were read or fitted so far."""
        return dict(self.calibrations.whole)

    def sequential_calibration(self, system: str) -> Calibration:
        """Return the map from scores over speech of any length to log-likelihood ratios; raises MetricError."""
        fit = self.calibrations.sequential.get(system)
        if fit is None:
            raise MetricError(
                f"{self.where}: sequential test: {system!r} has no calibration over short speech; it is fitted for the"
                f" system of the settings ({self.config.scoring.system}), to held-out trials of at least two speakers"
            )
        return self._under_assumptions(fit)

    def _under_assumptions(self, fit: SystemCalibration) -> SystemCalibration:
        return fit.at(self.unknown, self.config.threshold.unfamiliar_impostors)

    def scores_are_ratios(self, system: str) -> bool:
        """Return True where scores of ``system`` are log-likelihood ratios: those of sums of others."""
        return bool(RULES[system].parts) and len(self.speakers) > 1

    def llrs(self, system: str, scores: Array, frames: int) -> Array | None:
        """Return log-likelihood ratios (nats) of ``scores`` over ``frames`` of speech; None without a calibration."""
        if self.scores_are_ratios(system):
            return scores
        calibration = self.calibration(system)
        return None if calibration is None else calibration.llr({system: scores}, frames)

    def scoring_settings(self, systems: Iterable[str]) -> ScoringSettings:
        """Return what a ``ClaimScorer`` of ``systems`` needs; raises MetricError for a sum without weights."""
        fusions = {}
        for name in systems:
            if RULES[name].parts and len(self.speakers) > 1:
                fusion = self.calibration(name)
                if fusion is None:
                    raise MetricError(
                        f"{self.where}: system {name!r} weighs others by held-out trials, and the store has too few;"
                        f" enroll more speech, or name one of {', '.join(RULES[name].parts_among(self.systems))}"
                    )
                fusions[name] = fusion
        condition = self.condition() if any(fusion.changed for fusion in fusions.values()) else None
        ids = [speaker.id for speaker in self.speakers]
        return ScoringSettings(self.posterior, self.config.scoring.dtype, fusions, condition, ids)

    # Changes

    def changed(
        self, speakers: Sequence[Arrays], shared: Arrays, *, removed: Iterable[str] = (), **fields: Any
    ) -> SpeakerModel:
        """Return the model with these arrays in place of some of each speaker's and of the population's.

        Arrays that are ``removed`` by name go from everybody and from the population; ``fields`` replace those of the
        model.
        """
        gone = frozenset(removed)
        arrays = tuple(Changed(dict(new), old, gone) for new, old in zip(speakers, self.arrays, strict=True))
        return replace(self, arrays=arrays, shared=Changed(dict(shared), self.shared, gone), **fields)

    def view_without(self, *names: str) -> SpeakerModel:
        """Return the same machines without those of ``names``: a view, in which nothing is trained again.

        One-vs-rest and supervector machines and calibrations keep what these contributed to them, and there are no
        cohorts; ``enrollment.removal.retrained_without`` gives a model that is rid of it. Raises
        UnknownSpeakerError.
        """
        ids = {speaker.name: speaker.id for speaker in self.speakers}
        for name in names:
            if name not in ids:
                raise self._unknown(name)
        gone = [ids[name] for name in names]
        kept = [number for number, speaker in enumerate(self.speakers) if speaker.id not in set(gone)]
        trials: dict[str, AnyArray] = {}
        for before in KEPT:
            held_out = self.trials(before=before)
            trials |= {} if held_out is None else held_out.without(*gone).as_arrays(before=before)
        return replace(
            self,
            speakers=tuple(self.speakers[number] for number in kept),
            arrays=tuple(self.arrays[number] for number in kept),
            shared=Changed(trials, self.shared, _COHORTS),
            pairs=None if self.pairs is None else Renumbered(self.pairs, kept),
        )
