"""More recordings of enrolled speakers: these are enrolled anew, from the new recordings and from what the store keeps.

A store keeps no audio and no frames of anybody, so this is not quite what enrolling everything at once would give:

- The codebook is trained on the new frames and the old centroids, each weighted by the number of frames it stands for.
- Old segments, segments of pseudo-speakers, condition vectors and fingerprints are kept beside the new ones. Where
  there are more segments than the settings allow, some are left out, evenly.
- A GMM's mean offsets are the mean of the old and the new ones, weighted by frames: a little nearer to the UBM than
  from all frames at once.
- A pitch histogram is such a weighted mean, too.
- Old and new held-out trials are kept. The speaker gets a new id, and the last place in the order.
"""

from __future__ import annotations

import secrets
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace

from pipeline.enrollment.checks import Finding
from pipeline.enrollment.new_speakers import Earlier, NewSpeaker
from pipeline.enrollment.removal import in_cohorts_without
from pipeline.errors import EnrollmentRefusedError, InputError
from pipeline.store.arrays import UpdatedArrays
from pipeline.store.model import SpeakerModel
from pipeline.store.speakers import Role


@dataclass(frozen=True)
class TakenOut:
    """A model without the speakers who are enrolled again, and by name what it kept of each: None if nothing.

    Trials of speakers to whom recordings are added stay in the model.
    """

    rest: SpeakerModel
    earlier: dict[str, Earlier | None]

    def returned(self, newcomer: NewSpeaker) -> NewSpeaker:
        """Return ``newcomer`` with the arrays that the store kept of the speaker, if there are any."""
        earlier = self.earlier.get(newcomer.name)
        return newcomer if earlier is None else replace(newcomer, id=earlier.speaker.id, earlier=earlier)

    def check(self, findings: Sequence[Finding]) -> None:
        """Raise EnrollmentRefusedError if a speaker who was taken out is refused, and would be lost."""
        refused = [finding for finding in findings if finding.refused and finding.speaker in self.earlier]
        if refused:
            raise EnrollmentRefusedError(refused[0].reason, {finding.speaker: finding.check for finding in refused})


def taken_out(model: SpeakerModel, names: Container[str], role: Role, *, jobs: int) -> TakenOut:
    """Take the speakers called ``names`` out of ``model``; raises InputError for one whose role is not ``role``."""
    earlier: dict[str, Earlier | None] = {}
    ids: dict[int, int] = {}
    for speaker, arrays in zip(model.speakers, model.arrays, strict=True):
        if speaker.name not in names:
            continue
        if speaker.role != role:
            raise InputError(
                f"{model.where}: {speaker.name!r} is enrolled as a {speaker.role}, but recordings were to be added to a"
                f" {role} of that name"
            )
        ids[speaker.id] = secrets.randbits(63)
        earlier[speaker.name] = Earlier(replace(speaker, id=ids[speaker.id]), arrays)
    if not earlier:
        return TakenOut(model, earlier)
    rest = model  # training goes on from this model, and solves the machines of everybody
    for name in earlier:
        rest = in_cohorts_without(rest, name, jobs=jobs)
    trials = model.trial_arrays(lambda its: its.renumbered(ids))
    return TakenOut(replace(rest, shared=UpdatedArrays(trials, rest.shared)), earlier)
