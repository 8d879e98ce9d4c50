"""Enrollment checks: problems with new speakers' recordings, found before anything is written.

Seven checks, each of which is off, warns or refuses by the settings (``ChecksConfig``). Five measure the recordings:
clipping, noise, channels that differ and were mixed, a band that ends at 4 kHz where most speakers' does not, and
recordings shared with another speaker. Two use log-likelihood ratios of held-out trials by the default scoring system,
calibrated on the trials of the other speakers and divided by the median of these speakers' own ratios:

- ``consistency``: the ratios of a speaker's own held-out utterances.
- ``matches``: the ratios of these utterances claimed for anyone else, with the speaker left out of the machines.

Both are skipped with fewer than ``MIN_OTHERS`` other speakers, or less than ``MIN_HELD_OUT`` seconds held out; a check
that was to refuse speakers then warns that it was skipped. Two voices in one folder are found if the second follows the
first and is little more than what is held out; otherwise the machines contain both.

Too little speech is always refused (``pipeline.enrollment.speech.audible``). Where recordings are measured, samples far
from full scale and copies within one folder only give warnings. How often the checks are right is in
``benchmarks/ENROLLMENT_CHECKS.md``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from pipeline.audio.levels import OFF_SCALE
from pipeline.config import Action, ChecksConfig, Config, ThresholdConfig
from pipeline.enrollment.duplicates import copies, duplicates
from pipeline.enrollment.new_speakers import NewSpeaker
from pipeline.enrollment.quality import clipped_share, kept_of, median_snr
from pipeline.enrollment.speech import is_narrow_band
from pipeline.errors import MetricError
from pipeline.features.fingerprints import Prints
from pipeline.scoring.fitting import calibration_of
from pipeline.scoring.trials import HeldOutTrials
from pipeline.store.model import SpeakerModel

Array = NDArray[np.float64]

MIN_OTHERS = 5
MIN_HELD_OUT = 3.0  # seconds
# New speakers are split into at most this many groups, each judged by a calibration without the group's own trials.
MAX_GROUPS = 10


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem with one speaker; ``reason`` is a sentence that names the speaker and may name files.

    ``check`` is one of ``pipeline.config.CHECKS``, or "speech" (too little of it), or "scale".
    """

    speaker: str
    check: str
    refused: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Strength:
    """Mean log-likelihood ratios of a speaker's held-out utterances, as shares of the typical one; None if no trials.

    ``own`` is that of claims for the speaker, ``other`` the highest for anyone else: the speaker with the id ``claim``.
    """

    own: float | None
    other: float | None
    claim: int


def needs_recordings(settings: ChecksConfig) -> bool:
    """Return True if recordings must be measured while they are read."""
    measured = (settings.clipping, settings.noise, settings.channels, settings.narrow_band, settings.duplicates)
    return not set(measured) <= {"off"}


def check_recordings(settings: ChecksConfig, newcomers: Sequence[NewSpeaker], known: SpeakerModel) -> list[Finding]:
    """Check the recordings, also against the fingerprints of the recordings in the ``known`` model."""
    findings = [
        _finding(newcomer.name, check, action, reason)
        for newcomer in newcomers
        for check, action, reason in _failed(settings, newcomer)
        if action != "off"
    ]
    if settings.narrow_band != "off":
        findings += _narrow_band(settings, newcomers, known)
    if settings.duplicates == "off":
        return findings
    stored = {speaker.name: arrays for speaker, arrays in zip(known.speakers, known.arrays, strict=True)}
    # A speaker's added recordings may be in the store already.
    stored |= {newcomer.name: newcomer.earlier.arrays for newcomer in newcomers if newcomer.earlier}
    prints = {name: arrays["fingerprints"] for name, arrays in stored.items() if "fingerprints" in arrays}
    return findings + _duplicates(settings, newcomers, prints)


def _failed(settings: ChecksConfig, newcomer: NewSpeaker) -> Iterator[tuple[str, Action, str]]:
    """Yield each check that a new speaker's recordings fail by themselves, the action that follows, and the reason."""
    recordings = newcomer.recordings
    of = f"of {len(recordings)} recordings"
    share, snr = clipped_share(recordings), median_snr(recordings)
    if share > settings.max_clipped:
        limit = f"at most {settings.max_clipped:.2%} expected"
        reason = f"{share:.2%} of the samples are clipped ({limit}). Was the recording level too high?"
        yield "clipping", settings.clipping, reason
    if snr is not None and snr < settings.min_snr_db:
        limit = f"at least {settings.min_snr_db:g} expected"
        reason = f"the signal-to-noise ratio is {snr:.1f} dB ({limit}). Use another microphone or a quieter room?"
        yield "noise", settings.noise, reason
    if wrong := [one for one in recordings if one.is_off_scale]:
        yield "scale", "warn", f"{len(wrong)} {of}, the first of them {wrong[0].path}: {OFF_SCALE}"
    if mixed := [one for one in recordings if one.channels_differ]:
        reason = (
            f"{len(mixed)} {of} are the mean of channels that differ, the first of them {mixed[0].path}."
            " Two people, or one channel inverted? Enroll one channel: --channel N (channel=N)"
        )
        yield "channels", settings.channels, reason
    if settings.duplicates != "off" and (pairs := copies(recordings)):
        first, second = (recordings[number].path for number in pairs[0])
        reason = (
            f"{len({second for _, second in pairs})} {of} are copies of others by the same speaker, the first of them"
            f" {second}, of {first}. Keep one of each: recordings both trained on and held out make the expected errors"
            " too low"
        )
        yield "duplicates", "warn", reason


def _narrow_band(settings: ChecksConfig, newcomers: Sequence[NewSpeaker], known: SpeakerModel) -> list[Finding]:
    """Return a finding for each new speaker whose recordings end at 4 kHz where those of most speakers do not."""
    narrow = [newcomer.name for newcomer in newcomers if is_narrow_band([newcomer.high_db])]
    others = (float(own["high_band"][0]) for own in known.arrays if "high_band" in own)
    if not narrow or is_narrow_band([*(newcomer.high_db for newcomer in newcomers), *others]):
        return []
    reason = (
        "the recordings end at about 4 kHz, as on a telephone, and those of most speakers do not. Record them with the"
        " same microphone or line as the others, or enroll telephone users in a store of their own?"
    )
    return [_finding(name, "narrow_band", settings.narrow_band, reason) for name in narrow]


def _duplicates(settings: ChecksConfig, newcomers: Sequence[NewSpeaker], known: Mapping[str, Prints]) -> list[Finding]:
    """Return a finding for each pair of a new and any other speaker who share a recording."""
    names = [*(newcomer.name for newcomer in newcomers), *known]
    recordings = [(number, recording) for number, newcomer in enumerate(newcomers) for recording in newcomer.recordings]
    # Enrolled speakers come last, so that a pair begins with a new one, whose loud frames are known.
    recordings += [(number, kept_of(prints)) for number, prints in enumerate(known.values(), start=len(newcomers))]
    shared: dict[tuple[int, int], set[int]] = {}
    for pair in duplicates(recordings):
        for one, other in (pair, pair[::-1]):
            if recordings[one][0] < len(newcomers):
                shared.setdefault((recordings[one][0], recordings[other][0]), set()).add(one)
    again = "Added before? Leave these out (enroll --new or new=True does)"
    shared_by_calls = "Wrong folder, or tones, music or an announcement in both, to be cut off?"
    return [
        _finding(
            names[own], "duplicates", settings.duplicates,
            f"{len(places)} of {len(newcomers[own].recordings)} recordings are duplicates of recordings of"
            f" {'enrolled speaker' if other >= len(newcomers) else 'speaker'} {names[other]!r}, the first of them"
            f" {recordings[min(places)][1].path}. {again if names[own] == names[other] else shared_by_calls}",
        )
        for (own, other), places in sorted(shared.items())
    ]  # fmt: skip


def check_trials(
    checks: ChecksConfig,
    newcomers: Sequence[NewSpeaker],
    trials: HeldOutTrials,
    names: Mapping[int, str],
    settings: Config,
) -> list[Finding]:
    """Check the held-out ``trials`` of new and enrolled speakers; ``names`` has the name of each by id."""
    findings: list[Finding] = []
    if checks.consistency == checks.matches == "off":
        return findings
    seconds = held_out_seconds(trials, settings.features.step_seconds)
    judged = [newcomer.id for newcomer in newcomers if seconds.get(newcomer.id, 0.0) >= MIN_HELD_OUT]
    system = settings.scoring.system
    strengths = strengths_of(judged, trials, system, settings.threshold, population=len(names))
    for newcomer in newcomers:
        strength = strengths.get(newcomer.id, Strength(None, None, 0))
        if newcomer.id not in strengths:
            findings += _not_judged(checks, newcomer.name, seconds.get(newcomer.id, 0.0))
        is_another = strength.other is not None and strength.other > checks.max_match
        if checks.matches != "off" and is_another:
            reason = (
                f"their held-out recordings match speaker {names[strength.claim]!r} ({strength.other:.2f} of a"
                f" typical match with oneself; at most {checks.max_match:g} expected). One voice under two names?"
            )
            findings.append(_finding(newcomer.name, "matches", checks.matches, reason))
        is_weak = strength.own is not None and strength.own < checks.min_consistency
        # A voice enrolled twice scores low for both names: that is the finding above.
        if checks.consistency != "off" and is_weak and not is_another:
            reason = (
                f"their own held-out recordings match poorly ({strength.own:.2f} of typical;"
                f" {checks.min_consistency:g} expected). Second voice in the folder, a day or line unlike the others,"
                " or bad recordings?"
            )
            findings.append(_finding(newcomer.name, "consistency", checks.consistency, reason))
    return findings


def _not_judged(checks: ChecksConfig, name: str, seconds: float) -> list[Finding]:
    """Return a warning for each check that was to refuse speakers, but cannot judge this one."""
    actions = {"consistency": checks.consistency, "matches": checks.matches}
    reason = (
        f"{seconds:.1f} s of their speech were held out; {MIN_HELD_OUT:g} s, and {MIN_OTHERS} other speakers, are"
        " needed. Enroll more speech?"
    )
    return [
        _finding(name, check, "warn", f"not checked ({check}): {reason}")
        for check, action in actions.items()
        if action == "refuse"
    ]


def _finding(speaker: str, check: str, action: Action, reason: str) -> Finding:
    return Finding(speaker, check, action == "refuse", f"speaker {speaker!r}: {reason}")


def held_out_seconds(trials: HeldOutTrials, step_seconds: float) -> dict[int, float]:
    """Return the seconds of speech in each speaker's ``trials``, by id."""
    seconds = {}
    for speaker in np.unique(trials.speakers).tolist():
        spoken = (trials.speakers == speaker) & ~trials.unknown
        claim = trials.claims[np.argmax(spoken)]  # each utterance occurs once per claim
        seconds[speaker] = float(trials.frames[spoken & (trials.claims == claim)].sum()) * step_seconds
    return seconds


def strengths_of(
    new: Sequence[int], trials: HeldOutTrials, system: str, settings: ThresholdConfig, *, population: int
) -> dict[int, Strength]:
    """Return the strength of each ``new`` speaker, by id, where there are enough others to define what is typical."""
    comparable = trials.comparable(population)
    strengths: dict[int, Strength] = {}
    for first in range(min(MAX_GROUPS, len(new))):
        group = new[first::MAX_GROUPS]
        others = reduce(HeldOutTrials.without, group, comparable)
        try:
            calibration = calibration_of(others, system).at(settings.unknown_impostors)
        except MetricError:
            continue
        typical = _typical(others, others.ratios(calibration))
        if typical is None:
            continue
        llrs = comparable.ratios(calibration) / typical
        strengths |= {speaker: _strength(speaker, comparable, llrs) for speaker in group}
    return strengths


def _typical(trials: HeldOutTrials, llrs: Array) -> float | None:
    """Return the median over speakers of the mean of ``llrs`` (n,) of their target trials; None if not meaningful."""
    own = trials.is_target
    speakers = np.unique(trials.speakers[own])
    if len(speakers) < MIN_OTHERS:
        return None
    median = float(np.median([llrs[own & (trials.speakers == speaker)].mean() for speaker in speakers]))
    return median if median > 0.0 else None


def _strength(speaker: int, trials: HeldOutTrials, llrs: Array) -> Strength:
    spoken = trials.speakers == speaker
    own, absent = spoken & (trials.claims == speaker), spoken & trials.unknown
    claims = np.unique(trials.claims[absent]).tolist()
    others = [(float(llrs[absent & (trials.claims == claim)].mean()), claim) for claim in claims]
    highest, claim = max(others, default=(None, 0))
    return Strength(float(llrs[own].mean()) if own.any() else None, highest, claim)
