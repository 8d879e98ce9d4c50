"""The speaker model: everything that enrollment learned, in memory or read from a store when it is asked for.

Training makes a model, verification and evaluation score with it, and the store loads and saves it. It holds arrays by
name (``store.layout``): those of each speaker, and those of the population.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, TypeVar, cast, get_args

import numpy as np
from numpy.typing import NDArray

from pipeline.config import Config
from pipeline.errors import InputError, MetricError, check_type
from pipeline.machines.branches import BACKGROUNDS, Background, Branch, UtteranceKind
from pipeline.machines.cohorts import CohortTable
from pipeline.machines.encoder import BackgroundModel, Encoder
from pipeline.machines.margins import Population, UtteranceMachines
from pipeline.machines.pairs import PairSource
from pipeline.machines.workers import in_order
from pipeline.metrics import OperatingPoint
from pipeline.notebooks import html_table
from pipeline.posteriors.sigmoid import FixedSigmoid
from pipeline.scoring.calibration import Calibration, SystemCalibration
from pipeline.scoring.calibrations import Calibrations
from pipeline.scoring.claims import ScoringSettings, is_judged_in_cohort, with_parts
from pipeline.scoring.conditions import ConditionClassifier
from pipeline.scoring.rules import RULES, systems_of
from pipeline.scoring.trials import OWN, RECORDED, TRIAL_KINDS, HeldOutTrials
from pipeline.store.arrays import Arrays, RenumberedPairs, UpdatedArrays
from pipeline.store.layout import COHORTS, PSEUDO, AnyArray
from pipeline.store.machines import read_cohorts, read_conditions, read_machines, read_ubm, read_utterance_machines
from pipeline.store.speakers import Role, Speaker, number_of
from pipeline.store.thresholds import fitted, threshold_of

Array = NDArray[np.float64]
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class SpeakerModel:
    """Settings, speakers in the order of their enrollment, and all that was trained on their speech.

    Parameters
    ----------
    config : Config
        Settings that the model was trained with.
    speakers : tuple of Speaker
        Background speakers included.
    arrays : tuple of mappings
        Arrays of each speaker by name (``store.layout.SPEAKER``).
    shared : mapping
        Arrays of the population by name (``store.layout.SHARED``).
    pairs : PairSource or None
        Pair machines; None where the settings ask for none.
    calibrations : Calibrations
        Fitted to the held-out trials among the shared arrays (``calibrated``).
    where, identity, version, revision, digest, sealed
        The store that the model was read from. Any two states of a store differ in ``digest``; their ``revision`` may
        be the same after a backup was restored.
    unknown_share : float or None
        Share of impostors who are not enrolled, in place of the settings' own.

    Examples
    --------
    >>> import pipeline
    >>> model = pipeline.Store("speakers.store").load()
    >>> model.names, model.competing("fused"), round(model.threshold("fused"), 3)
    (('anna', 'dexter', 'ivan', 'lars'), 3, 0.405)
    >>> "anna" in model
    True
    """

    config: Config
    speakers: tuple[Speaker, ...] = ()
    arrays: tuple[Arrays, ...] = ()
    shared: Arrays = field(default_factory=dict)
    pairs: PairSource | None = None
    calibrations: Calibrations = field(default_factory=Calibrations)
    where: str = "speaker model"
    identity: str = ""
    version: int = 0
    revision: int = 0
    digest: str = ""
    sealed: bool = False
    unknown_share: float | None = None

    def __post_init__(self) -> None:
        check_type("config", self.config, Config, "a Config")

    def __len__(self) -> int:
        return len(self.speakers)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and unicodedata.normalize("NFC", name) in self.names

    def __repr__(self) -> str:
        names = ", ".join(map(repr, self.names[:5])) + (", ..." if len(self.names) > 5 else "")
        return f"<SpeakerModel of {self.where}, revision {self.revision}: {len(self.names)} speakers ({names})>"

    def _repr_html_(self) -> str:
        rows = [(one.name, one.role, one.utterances, f"{one.seconds:.1f}") for one in self.speakers]
        return html_table(("speaker", "role", "files", "speech s"), rows, caption=self.where)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), tuple(getattr(self, field.name) for field in fields(self))  # without cached results

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names that can be claimed, in the order of enrollment; background speakers' names cannot."""
        return tuple(speaker.name for speaker in self.speakers if speaker.role == "speaker")

    def position(self, name: str) -> int:
        """Return the index in ``speakers`` of a name that can be claimed; raises UnknownSpeakerError."""
        return number_of(name, self.speakers, ("speaker",))

    def speaker(self, name: str) -> Speaker:
        """Return the entry of ``name``, a background speaker's too; raises UnknownSpeakerError."""
        return self.speakers[number_of(name, self.speakers, get_args(Role))]

    # Scoring systems

    @property
    def systems(self) -> tuple[str, ...]:
        """Return the scoring systems that the model has machines for."""
        return systems_of(self.config.machines.kinds, every_pair=self.has_every_pair)

    @property
    def evaluated_systems(self) -> tuple[str, ...]:
        """Return ``systems`` and the one-vs-rest systems, whose machines evaluation trains if enrollment did not."""
        kinds, every_pair = set(self.config.machines.kinds), self.has_every_pair
        more = {"one_vs_rest"} if "one_vs_one" in kinds and every_pair else set()
        return systems_of(kinds | more, every_pair=every_pair)

    @property
    def has_every_pair(self) -> bool:
        """Return True if every two speakers have a pair machine: every cohort includes everybody."""
        return self.config.machines.judged_among(len(self)) == len(self)

    def check_system(self, system: str | None, available: Sequence[str] | None = None) -> str:
        """Return ``system``, or the settings' own; raises InputError if it is not among those ``available``."""
        available = self.systems if available is None else available
        system = self.config.scoring.system if system is None else system
        check_type("system", system, str, "the name of a scoring system")
        cohort = self.config.machines.cohort
        if system in RULES and RULES[system].every_claim and system not in available and cohort != "all":
            raise InputError(
                f"{self.where}: scoring system {system!r} needs the pair machines of every two speakers, but each"
                f" speaker has only those against a cohort of {cohort} (machines.cohort); it has {', '.join(available)}"
            )
        if system not in available:
            what = "needs machines that are not there" if system in RULES else "is unknown"
            raise InputError(
                f"{self.where}: scoring system {system!r} {what}; it has {', '.join(available)}"
                f" (machines.kinds is {', '.join(self.config.machines.kinds)})"
            )
        return system

    def competing(self, system: str) -> int:
        """Return the number of other speakers against whom ``system`` judges a claim."""
        return (self.config.machines.judged_among(len(self)) if is_judged_in_cohort(system) else len(self)) - 1

    # Features and audio

    def fingerprints(self, name: str) -> NDArray[np.uint32] | None:
        """Return the fingerprints (F,) of the recordings of ``name``; None without any. Raises UnknownSpeakerError."""
        own = self.arrays[self.position(name)]
        if "fingerprints" not in own:
            return None
        return own["fingerprints"]

    def high_band(self, name: str) -> float | None:
        """Return the median ``SpeechMeter.high_db``, in dB, of the recordings of ``name``; None if unmeasured."""
        own = self.arrays[self.position(name)]
        return float(own["high_band"][0]) if "high_band" in own else None

    def segments(self, kind: UtteranceKind) -> list[AnyArray]:
        """Return each speaker's supervectors (S, D), on which the supervector machines of ``kind`` are trained."""
        return [arrays[kind.branch.segments] for arrays in self.arrays]

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

        Supervector machines and GMMs are always those of everybody. One-vs-rest machines are returned for everybody
        only, and are trained here if enrollment did not. Machines of everybody are read once.
        """
        asked = frozenset(kinds)
        return self._once(read_machines, asked, None) if numbers is None else read_machines(self, asked, numbers)

    @property
    def cohort_table(self) -> CohortTable | None:
        """Return each speaker's cohort, where ``machines.cohort`` is a number."""
        return read_cohorts(self)

    def ubm(self, background: Background) -> BackgroundModel | None:
        """Return a universal background model, or the encoder; None before anybody was enrolled."""
        if not background.is_trained:
            return Encoder(self.config.embedding) if len(self) else None
        return self._once(read_ubm, background)

    def ubms(self, branch: Branch) -> dict[Background, BackgroundModel]:
        """Return the universal background models of a ``branch`` that have been trained."""
        models = {one: self.ubm(one) for one in BACKGROUNDS if one.branch is branch}
        return {one: ubm for one, ubm in models.items() if ubm is not None}

    def utterance_machines(self, kind: UtteranceKind) -> UtteranceMachines:
        """Return everybody's machines of ``kind``, read once; raises StoreFormatError without a background model."""
        return self._once(read_utterance_machines, kind)

    def _once(self, read: Callable[..., T], *asked: object) -> T:
        """Return the result of ``read`` for this model and the arguments ``asked``, computed on the first call only."""
        if (read, *asked) not in self._made:
            self._made[read, *asked] = read(self, *asked)
        return cast(T, self._made[read, *asked])

    @cached_property
    def _made(self) -> dict[tuple[object, ...], object]:
        """Return the results of ``_once``, by the function and its arguments."""
        return {}

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

    def trials(self, systems: Sequence[str] | None = None, *, kind: str = RECORDED) -> HeldOutTrials | None:
        """Return the trials of a ``kind``, with the scores of ``systems`` (default: all); None without any.

        Held-out trials are ``RECORDED`` or, with augmented versions, ``CHANGED``; the user's own are ``OWN``.
        """
        return HeldOutTrials.from_arrays(self.shared, systems, kind=kind)

    def trial_arrays(self, change: Callable[[HeldOutTrials], HeldOutTrials]) -> dict[str, AnyArray]:
        """Return the arrays of the trials of every kind, after the ``change``."""
        kinds = {kind: self.trials(kind=kind) for kind in TRIAL_KINDS}
        made = (change(trials).as_arrays(kind=kind) for kind, trials in kinds.items() if trials is not None)
        return {name: array for arrays in made for name, array in arrays.items()}

    @property
    def fitted_to(self) -> str:
        """Return the kind of trials that calibrations and thresholds are fitted to.

        That is ``OWN`` if the user's trials have both classes (the removal of a speaker may leave one), else
        ``RECORDED``.
        """
        own = self.trials([], kind=OWN)
        return OWN if own is not None and own.has_both_classes else RECORDED

    def threshold(self, system: str, *, false_accept: float | None = None) -> float:
        """Return the lowest score that is accepted, on the scale of ``system``, by the trials ``fitted_to``.

        With ``false_accept``, a share from 0 to 1, at most that share of the nontarget trials is accepted. Without it,
        the threshold of log-likelihood ratios is that of least expected cost under the settings, and the threshold of
        other scores that of the equal error rate. Raises MetricError for too few trials and a share out of range,
        InputError for an unknown system.
        """
        return threshold_of(self, system, false_accept)

    def calibrated(self, *, jobs: int = 1) -> SpeakerModel:
        """Return the model with its default system calibrated, so that no claim waits for it."""
        system = self.config.scoring.system
        fits = in_order(lambda every: fitted(self, system, at_every_length=every), (False, True), jobs)
        whole, sequential = [{} if fit is None else {str(system): fit} for fit in fits]
        return replace(self, calibrations=Calibrations(whole, sequential))

    def condition(self) -> ConditionClassifier | None:
        """Return the classifier of conditions, trained once on everybody's speech; None without augmented versions."""
        return self._once(read_conditions)

    def calibration(self, system: str) -> SystemCalibration | None:
        """Return the map from scores of ``system`` to log-likelihood ratios; None where trials were too few.

        The default system's is stored; others are fitted on the first call. Raises InputError for an unknown system.
        """
        stored = self.calibrations.whole.get(system)
        fit = self._once(fitted, system) if stored is None else stored
        return None if fit is None else self._under_assumptions(fit)

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
        """Return True if scores of ``system`` are log-likelihood ratios, as those of weighted sums are."""
        return bool(RULES[system].parts) and len(self.speakers) > 1

    def llrs(self, system: str, scores: Array, frames: int) -> Array | None:
        """Return log-likelihood ratios, in nats, of ``scores`` (n,) over ``frames``; None without a calibration."""
        if self.scores_are_ratios(system):
            return scores
        calibration = self.calibration(system)
        return None if calibration is None else calibration.llr({system: scores}, frames)

    def scoring_settings(self, systems: Iterable[str]) -> ScoringSettings:
        """Return the settings of a ``ClaimScorer`` of ``systems``; raises MetricError for a sum without weights."""
        fusions = {}
        for name in systems:
            if self.scores_are_ratios(name):
                fusion = self.calibration(name)
                if fusion is None:
                    raise MetricError(
                        f"{self.where}: system {name!r} weights others by held-out trials, but the store has too few;"
                        f" enroll more speech, or name one of {', '.join(RULES[name].parts_among(self.systems))}"
                    )
                fusions[name] = fusion
        condition = self.condition() if any(fusion.changed for fusion in fusions.values()) else None
        ids = [speaker.id for speaker in self.speakers]
        scoring, sigmoid = self.config.scoring, FixedSigmoid(self.config.posterior.slope)
        return ScoringSettings(sigmoid, scoring.dtype, fusions, condition, ids, scoring.frame_subsampling)

    # Changes

    def changed(
        self, speakers: Sequence[Arrays], shared: Arrays, *, removed: Iterable[str] = (), **fields: Any
    ) -> SpeakerModel:
        """Return the model with some arrays of speakers and of the population replaced, added or removed.

        If there are fewer ``speakers`` than in the model, they are its last ones. Arrays named in ``removed`` are
        removed from every speaker and from the population; ``fields`` replace fields of the model.
        """
        gone, all_new = frozenset(removed), [*[{}] * (len(self) - len(speakers)), *speakers]
        arrays = tuple(UpdatedArrays(dict(new), old, gone) for new, old in zip(all_new, self.arrays, strict=True))
        return replace(self, arrays=arrays, shared=UpdatedArrays(dict(shared), self.shared, gone), **fields)

    def view_without(self, *names: str) -> SpeakerModel:
        """Return a model without the speakers ``names``, in which nothing is trained again.

        One-vs-rest machines, supervector machines and calibrations are still those trained on these speakers, too
        (``enrollment.removal.retrained_without`` trains them anew). The view has no cohorts: if pair machines were
        trained against cohorts only, it cannot judge claims by them. Raises UnknownSpeakerError.
        """
        gone = {self.speaker(name).id for name in names}
        kept = [number for number, speaker in enumerate(self.speakers) if speaker.id not in gone]
        return replace(
            self,
            speakers=tuple(self.speakers[number] for number in kept),
            arrays=tuple(self.arrays[number] for number in kept),
            shared=UpdatedArrays(self.trial_arrays(lambda its: its.without(*gone)), self.shared, COHORTS),
            pairs=None if self.pairs is None else RenumberedPairs(self.pairs, kept),
            calibrations=self.calibrations if len(kept) > 1 else Calibrations(),
        )
