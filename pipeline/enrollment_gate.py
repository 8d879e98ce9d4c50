"""The enrollment gate: what speaks against enrolling somebody, found before anything is written.

Five checks, each off, a warning or a refusal by the settings (``QualityConfig``); too little speech is always refused
(``pipeline.voices.audible``). Clipping, noise and copies of a recording under two names are told from the recordings.
The rest is told by the held-out trials, in log-likelihood ratios under the default scoring system, calibrated on the
trials of the others: how strongly a speaker's own utterances speak for them, and how strongly, with the speaker left
out of the machines, for anybody else. Both are measured against what is typical, the median of the others' own. With
fewer than ``LEAST_OTHERS`` other speakers there is nothing typical, a few seconds held out say little, and these two
checks are silent. Two voices are found where they come one after the other, since the last utterances are held out:
where they alternate, both are in the machines, and what is held out speaks for them. See ``benchmarks/GATE.md``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pipeline.calibration import HeldOutTrials
from pipeline.config import Action, QualityConfig, ThresholdConfig
from pipeline.duplicates import alike_stretches, copies
from pipeline.errors import MetricError
from pipeline.fingerprint import Prints
from pipeline.machines.segments import Vectors
from pipeline.recording_quality import Recording, clipped_share, median_snr
from pipeline.voices import Voice

Array = NDArray[np.float64]
Check = Literal["speech", "clipping", "noise", "duplicates", "consistency", "matches"]

LEAST_OTHERS = 5
# Seconds of speech held out of a speaker who is judged by it.
LEAST_HELD_OUT = 3.0
# Newcomers are judged in as many groups, each by a calibration that none of its trials had a part in.
MOST_GROUPS = 10


@dataclass(frozen=True, slots=True)
class Finding:
    """What speaks against one speaker; ``reason`` is a sentence that names them and may name files."""

    speaker: str
    check: Check
    refused: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Strength:
    """How strongly held-out utterances speak, as shares of what is typical; None where there are no such trials.

    ``own`` for their speaker; ``other`` for the one of the others, ``claim`` by id, that they speak for most.
    """

    own: float | None
    other: float | None
    claim: int


class EnrollmentGate:
    """The checks of one enrollment under ``settings``."""

    def __init__(self, settings: QualityConfig) -> None:
        self.settings = settings

    @property
    def listens(self) -> bool:
        """Whether recordings must be measured while they are read."""
        return not {self.settings.clipping, self.settings.noise, self.settings.duplicates} <= {"off"}

    def recordings(self, voices: Sequence[Voice], known: Mapping[str, Prints]) -> list[Finding]:
        """What the recordings themselves tell; ``known`` are fingerprints (F,) of those who are enrolled, by name."""
        settings = self.settings
        found: list[Finding] = []
        for voice in voices:
            share, snr = clipped_share(voice.recordings), median_snr(voice.recordings)
            if settings.clipping != "off" and share > settings.most_clipped:
                found.append(
                    _finding(
                        voice.name, "clipping", settings.clipping,
                        f"{share:.2%} of the samples are clipped, at most {settings.most_clipped:.2%} should be;"
                        " recorded too loud?",
                    )
                )  # fmt: skip
            if settings.noise != "off" and snr is not None and snr < settings.least_snr_db:
                found.append(
                    _finding(
                        voice.name, "noise", settings.noise,
                        f"speech is {snr:.1f} dB above the noise, it should be at least {settings.least_snr_db:g};"
                        " another microphone, or a quieter room?",
                    )
                )  # fmt: skip
        return found + (self._copies(voices, known) if settings.duplicates != "off" else [])

    def _copies(self, voices: Sequence[Voice], known: Mapping[str, Prints]) -> list[Finding]:
        """One finding for each newcomer and each other who has a recording of theirs: whose it is, it does not tell."""
        names = [*(voice.name for voice in voices), *known]
        heard = [(number, recording) for number, voice in enumerate(voices) for recording in voice.recordings]
        # Last, so that a pair begins with a newcomer, whose loud frames are known.
        heard += [
            (number, Recording(Path(), 0, 0, None, prints, prints != 0))
            for number, prints in enumerate(known.values(), start=len(voices))
        ]
        shared: dict[tuple[int, int], set[int]] = {}
        for pair in copies(heard):
            for one, other in (pair, pair[::-1]):
                if heard[one][0] < len(voices):
                    shared.setdefault((heard[one][0], heard[other][0]), set()).add(one)
        return [
            _finding(
                names[own], "duplicates", self.settings.duplicates,
                f"{len(places)} of {len(voices[own].recordings)} recordings are also those of {names[other]!r}"
                f"{', who is enrolled' * (other >= len(voices))}: the first is {heard[min(places)][1].path};"
                " put into the wrong folder?",
            )
            for (own, other), places in sorted(shared.items())
        ]  # fmt: skip

    def stretches(
        self, voices: Sequence[Voice], stretches: Sequence[Vectors], known: Mapping[str, Vectors]
    ) -> list[Finding]:
        """Newcomers whose ``stretches`` (S, D), one array each, a speaker ``known`` without fingerprints has too."""
        found = []
        for voice, own in zip(voices, stretches, strict=True) if self.settings.duplicates != "off" else ():
            for name, vectors in known.items():
                if share := alike_stretches(own, vectors):
                    reason = (
                        f"{share:.0%} of the stretches of speech are also those of {name!r}, who is enrolled;"
                        " the same recordings under two names?"
                    )
                    found.append(_finding(voice.name, "duplicates", self.settings.duplicates, reason))
        return found

    def trials(
        self,
        voices: Sequence[Voice],
        trials: HeldOutTrials,
        names: Mapping[int, str],
        system: str,
        settings: ThresholdConfig,
        step_seconds: float,
    ) -> list[Finding]:
        """What held-out ``trials`` of the newcomers, and of those before them, tell; ``names`` of all by id.

        ``system`` is the scoring system, a frame lasts ``step_seconds``.
        """
        quality, found = self.settings, []
        if quality.consistency == quality.matches == "off":
            return []
        seconds = held_out_seconds(trials, step_seconds)
        judged = [voice.id for voice in voices if seconds.get(voice.id, 0.0) >= LEAST_HELD_OUT]
        strengths = strengths_of(judged, trials, system, settings, population=len(names))
        for voice in voices:
            strength = strengths.get(voice.id, Strength(None, None, 0))
            is_another = strength.other is not None and strength.other > quality.most_match
            if quality.matches != "off" and is_another:
                reason = (
                    f"held-out utterances speak for {names[strength.claim]!r} {_times(strength.other)} as strongly as"
                    f" is typical of a speaker's own, at most {quality.most_match:g} times is expected; the same voice"
                    " under two names?"
                )
                found.append(_finding(voice.name, "matches", quality.matches, reason))
            is_weak = strength.own is not None and strength.own < quality.least_consistency
            # A voice that is there twice speaks weakly for either: that is another finding.
            if quality.consistency != "off" and is_weak and not is_another:
                reason = (
                    f"held-out utterances speak for them {_times(strength.own)} as strongly as is typical, at least"
                    f" {quality.least_consistency:g} times is expected; two voices in one folder, or recordings of very"
                    " different quality?"
                )
                found.append(_finding(voice.name, "consistency", quality.consistency, reason))
        return found


def _finding(speaker: str, check: Check, action: Action, reason: str) -> Finding:
    return Finding(speaker, check, action == "refuse", f"speaker {speaker!r}: {reason}")


def _times(share: float | None) -> str:
    return f"{share or 0.0:.2f} times"


def held_out_seconds(trials: HeldOutTrials, step_seconds: float) -> dict[int, float]:
    """Seconds of speech that each speaker's ``trials`` hold, by id."""
    found = {}
    for speaker in np.unique(trials.speakers).tolist():
        spoken = (trials.speakers == speaker) & ~trials.outsider
        claim = trials.claims[np.argmax(spoken)]  # each utterance is there once for each claim
        found[speaker] = float(trials.frames[spoken & (trials.claims == claim)].sum()) * step_seconds
    return found


def strengths_of(
    newcomers: Sequence[int], trials: HeldOutTrials, system: str, settings: ThresholdConfig, *, population: int
) -> dict[int, Strength]:
    """The strength of each of ``newcomers``, by id, where there are enough others to tell what is typical."""
    comparable = trials.comparable(population)
    found: dict[int, Strength] = {}
    for first in range(min(MOST_GROUPS, len(newcomers))):
        group = newcomers[first::MOST_GROUPS]
        others = reduce(HeldOutTrials.without, group, comparable)
        try:
            calibration = others.calibration(system, prior=settings.prior, outsiders=settings.outsiders)
        except MetricError:
            continue
        typical = _typical(others, calibration.llr(others.scores, others.frames.astype(np.float64)))
        if typical is None:
            continue
        llrs = calibration.llr(comparable.scores, comparable.frames.astype(np.float64)) / typical
        found |= {speaker: _strength(speaker, comparable, llrs) for speaker in group}
    return found


def _typical(trials: HeldOutTrials, llrs: Array) -> float | None:
    """The median over speakers of the mean of ``llrs`` (n,) of their own trials; None where that tells nothing."""
    own = trials.claims == trials.speakers
    speakers = np.unique(trials.speakers[own])
    if len(speakers) < LEAST_OTHERS:
        return None
    median = float(np.median([llrs[own & (trials.speakers == speaker)].mean() for speaker in speakers]))
    return median if median > 0.0 else None


def _strength(speaker: int, trials: HeldOutTrials, llrs: Array) -> Strength:
    spoken = trials.speakers == speaker
    own, absent = spoken & (trials.claims == speaker), spoken & trials.outsider
    claims = np.unique(trials.claims[absent]).tolist()
    others = [(float(llrs[absent & (trials.claims == claim)].mean()), claim) for claim in claims]
    most, claim = max(others, default=(None, 0))
    return Strength(float(llrs[own].mean()) if own.any() else None, most, claim)
