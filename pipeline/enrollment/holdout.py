"""The hold-out pass: machines are trained without some utterances of every new speaker, and score these utterances.

Only the scores are kept: thresholds and calibrations are fitted to them. Speakers whose held-out scores fail an
enrollment check are left out, and the pass is run again for the others as if only they had been given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby, pairwise
from typing import Any

import numpy as np

from pipeline.config import ChecksConfig, Config
from pipeline.enrollment.checks import Finding, check_recordings, check_trials
from pipeline.enrollment.heldout_scoring import SPEAKERS_A_DRAW, HeldOutScoring, score_together
from pipeline.enrollment.new_speakers import NewSpeaker
from pipeline.enrollment.training import Provisional, Trainer
from pipeline.errors import EnrollmentRefusedError
from pipeline.features.stream import FeatureBlock, joined_to
from pipeline.machines.memory import give_back
from pipeline.machines.workers import in_order
from pipeline.scoring.trials import HeldOutTrials
from pipeline.store.model import SpeakerModel

# A held-out utterance as long as this many trials is cut into them. Shorter ones stay whole: the rules for small stores
# were chosen beside background speakers with such utterances.
LONG = 4
# A held-out utterance is claimed for at most this many other speakers, drawn at random if there are more.
MOST_OTHERS = 60
# Each of up to FEW speakers has more trials than there are machines, so machines are made without the speaker
# (``SupervectorTraining.held_out_margins``), for TOGETHER_OF_FEW speakers at once.
FEW, TOGETHER_OF_FEW = 64, 4
# Whole utterances are held out if they make up at least the first share of the speech wanted for it, and at most the
# second share of all speech.
LEAST_WHOLE, MOST_WHOLE = 0.25, 0.75


@dataclass(frozen=True)
class HeldOut:
    """Speakers that the checks let in, all findings, and held-out trials: as recorded, and of augmented versions.

    The trials were scored by the ``provisional`` model. The ``final`` one is None where it is still to be trained.
    """

    newcomers: list[NewSpeaker]
    findings: list[Finding]
    trials: HeldOutTrials
    changed: HeldOutTrials | None
    provisional: Provisional
    final: SpeakerModel | None


def hold_out_pass(trainer: Trainer, newcomers: list[NewSpeaker], checks: ChecksConfig) -> HeldOut:
    """Score held-out utterances of ``newcomers`` by machines trained without them, and run the enrollment checks.

    Raises EnrollmentRefusedError if nobody is left.
    """
    known, settings, progress = trainer.known, trainer.settings, trainer.progress
    before = known.trials()
    findings = check_recordings(checks, newcomers, known)
    may_refuse = "refuse" in {checks.consistency, checks.matches}
    while True:
        newcomers = _accepted(newcomers, findings)
        cuts = [cut_of(newcomer.utterances, settings) for newcomer in newcomers]
        trials, changed, provisional, final = _scored(trainer, newcomers, cuts, once=not may_refuse)
        names = {one.id: one.name for one in known.speakers} | {one.id: one.name for one in newcomers}
        new = check_trials(checks, newcomers, trials.after(before), names, settings)
        if not any(finding.refused for finding in new):
            return HeldOut(newcomers, findings + new, trials, changed, provisional, final)
        findings += [finding for finding in new if finding.refused]  # the others are found again
        trainer = replace(trainer, progress=lambda stage, *steps: progress(f"again, {stage}", *steps))


def _scored(
    trainer: Trainer, newcomers: list[NewSpeaker], cuts: list[Cut], *, once: bool
) -> tuple[HeldOutTrials, HeldOutTrials | None, Provisional, SpeakerModel | None]:
    """Return the held-out trials of the new speakers, as recorded and of augmented versions (None without any).

    The machines that scored them are the third result. If the pass is run only ``once``, the newcomers keep only what
    the final pass reads; if threads would be idle, the final pass runs at the same time, and its model is the fourth
    result.
    """
    settings = trainer.settings
    kept = [newcomer.speech.mapped(cut.kept) for newcomer, cut in zip(newcomers, cuts, strict=True)]
    held_out = [newcomer.speech.mapped(cut.held) for newcomer, cut in zip(newcomers, cuts, strict=True)]
    frames = settings.threshold.trial_seconds / settings.features.step_seconds
    held = [
        [trials_of(speech.versions[number], frames) for number in (0, *newcomer.scored)]
        for newcomer, speech in zip(newcomers, held_out, strict=True)
    ]
    prepared = trainer.prepared(newcomers, kept, held_out)
    if once:
        del kept, held_out
        held = [[[trial.copied() for trial in version] for version in versions] for versions in held]
        for newcomer in newcomers:
            newcomer.keep_frame_vectors()
        give_back()
    provisional = trainer.provisional(prepared)
    model, solvers = provisional.model, provisional.solvers
    population, condition = model.population(), model.condition()
    claims, ids = list(range(len(model))), [speaker.id for speaker in model.speakers]
    scoring = partial(
        HeldOutScoring, settings, population, solvers, claims, ids, condition=condition, most_others=MOST_OTHERS
    )
    scorings = [scoring()]
    if condition is not None and len(model) > 1:  # a single speaker is judged by the frames as recorded
        scorings.append(scoring(changed=True))
    of_each = [
        (recorded, [trial for version in versions for trial in version])[: len(scorings)]
        for recorded, *versions in held
    ]
    tasks: list[Callable[[], Any]] = [partial(_scores, trainer, scorings, of_each)]
    if once and trainer.leaves_idle(len(newcomers)):
        tasks.append(partial(trainer.final, newcomers, provisional))
    (trials, *changed), *final = in_order(lambda task: task(), tasks, len(tasks))
    return trials, changed[0] if changed else None, provisional, final[0] if final else None


def _scores(
    trainer: Trainer, scorings: Sequence[HeldOutScoring], trials: Sequence[Sequence[list[FeatureBlock]]]
) -> list[HeldOutTrials]:
    """Return, for each of ``scorings``, its trials of every speaker with their scores."""
    total = sum(len(its_trials) for of_speaker in trials for its_trials in of_speaker)

    def score(group: Sequence[tuple[int, Sequence[list[FeatureBlock]]]]) -> list[list[HeldOutTrials]]:
        parts = [
            (scoring, [(speaker, of_speaker[which]) for speaker, of_speaker in group])
            for which, scoring in enumerate(scorings)
        ]
        scored = [[trial for of_speaker in made for trial in of_speaker] for made in score_together(parts)]
        trainer.progress("thresholds: scoring", sum(map(len, scored)), total)
        return scored

    # Trials as recorded and changed ones together: machines without a speaker are made once.
    speakers = enumerate(trials, start=len(trainer.known))
    size = SPEAKERS_A_DRAW if len(trials) > FEW else TOGETHER_OF_FEW
    groups = [tuple(its) for _, its in groupby(speakers, key=lambda one: one[0] // size)]
    by_group = list(in_order(score, groups, trainer.workers.jobs))
    return [
        HeldOutTrials.joined([scoring.none(), *(trial for of_group in by_group for trial in of_group[which])])
        for which, scoring in enumerate(scorings)
    ]


def _accepted(newcomers: Sequence[NewSpeaker], findings: Sequence[Finding]) -> list[NewSpeaker]:
    """Return the speakers whom no finding refuses; raises EnrollmentRefusedError if there are none."""
    refused = [finding for finding in findings if finding.refused]
    names = {finding.speaker for finding in refused}
    accepted = [newcomer for newcomer in newcomers if newcomer.name not in names]
    if not accepted:
        checks = {name: ", ".join(f.check for f in refused if f.speaker == name) for name in sorted(names)}
        raise EnrollmentRefusedError(refused[0].reason, checks)
    return accepted


@dataclass(frozen=True, slots=True)
class Cut:
    """A hold-out split: utterance ``first`` is held out except for its leading ``share``, and so are all after it."""

    first: int
    share: float

    def kept(self, utterances: Sequence[FeatureBlock]) -> list[FeatureBlock]:
        """Return the utterances, or augmented versions of them, that are left to train on."""
        whole = list(utterances[: self.first])
        if self.share > 0.0:
            whole.append(utterances[self.first].part(slice(0, self._frames(utterances))))
        return whole

    def held(self, utterances: Sequence[FeatureBlock]) -> list[FeatureBlock]:
        """Return the utterances that are held out."""
        head = utterances[self.first].part(slice(self._frames(utterances), None))
        return [block for block in (head, *utterances[self.first + 1 :]) if len(block.vectors)]

    def _frames(self, utterances: Sequence[FeatureBlock]) -> int:
        return round(self.share * len(utterances[self.first].vectors))


def cut_of(utterances: Sequence[FeatureBlock], settings: Config) -> Cut:
    """Hold out whole utterances that make up about the share ``threshold.holdout`` of the speech.

    The last utterances are held out, not random ones: names sort by session or by text, and a threshold must hold for
    sessions and texts that were not enrolled. Where whole utterances would be far too much or too little, as with a
    single utterance, the end of one is held out instead, with all utterances after it.
    """
    sizes = [len(block.vectors) for block in utterances]
    wanted = settings.threshold.holdout * sum(sizes)
    from_the_end = np.cumsum(sizes[::-1])
    first = len(sizes) - 1 - int(np.searchsorted(from_the_end, wanted))
    whole = sum(sizes[max(1, first) :])
    if LEAST_WHOLE * wanted <= whole <= MOST_WHOLE * sum(sizes):
        return Cut(max(1, first), 0.0)
    more = round(wanted) - sum(sizes[first + 1 :])
    return Cut(first, max(1, sizes[first] - max(1, more)) / sizes[first])


def trials_of(utterances: Sequence[FeatureBlock], frames: float) -> list[FeatureBlock]:
    """Return held-out utterances as trials of about ``frames`` vectors: long utterances are cut, short ones joined.

    Claims are about as long as a trial, and thresholds that hold for trials of half a minute do not hold for them.
    """
    pieces = []
    for block in utterances:
        length = len(block.vectors)
        count = int(length / frames)
        if count < LONG:
            pieces.append(block)
            continue
        ends = [length * number // count for number in range(count + 1)]
        pieces += [block.part(slice(*piece)) for piece in pairwise(ends)]
    return joined_to(pieces, frames)
