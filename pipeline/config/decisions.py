"""Settings of decisions: posteriors, scores, thresholds and enrollment checks."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import Field

from pipeline.config.values import Action, Finite, NonNegative, Positive, Section, Share, System


class PosteriorConfig(Section):
    """Margins to binary posteriors s(``slope`` * margin) (Xin, Wu and Pan 2002, eq. 10)."""

    slope: Positive = 1.0


class ScoringConfig(Section):
    """Scoring of a claim: the default ``system``, and the least speech that may be scored.

    Machines over frames score every n-th frame of speech, with n = ``frame_subsampling``.
    """

    system: System = "fused"
    dtype: Literal["float64", "mixed", "float32"] = "mixed"
    frame_subsampling: Annotated[int, Field(ge=1, le=100)] = 3
    min_seconds: Annotated[float, Field(ge=0, le=86400)] = 0.5


class ThresholdConfig(Section):
    """The default threshold, and the utterances held out at enrollment for calibration.

    ``holdout`` is the share of each speaker's speech that is held out while the hold-out pass trains on the rest, and
    ``trial_seconds`` the length of speech in a held-out trial. Log-likelihood ratios are decided at the least expected
    cost, given the ``prior`` of a target trial and the costs of the two errors. These ratios depend on two assumptions.
    ``unknown_impostors`` is the share of impostors who are not enrolled. ``unfamiliar_impostors`` is how many times as
    likely an impostor is as a target speaker to come through an unfamiliar condition: a channel, room or noise unlike
    those of the enrollment speech and its augmented versions.
    """

    holdout: Annotated[float, Field(gt=0, le=0.5)] = 0.2
    trial_seconds: Positive = 2.0
    prior: Annotated[float, Field(gt=0, lt=1)] = 0.4
    cost_miss: Positive = 1.0
    cost_false_accept: Positive = 1.0
    unknown_impostors: Share = 0.5
    unfamiliar_impostors: Annotated[float, Field(ge=1, le=1000)] = 5.0


class ChecksConfig(Section):
    """Enrollment checks (``pipeline.enrollment.checks``): each is off, warns or refuses.

    ``clipping``: the share of a speaker's samples that are clipped exceeds ``max_clipped``. ``noise``: the
    signal-to-noise ratio is below ``min_snr_db``. ``channels``: a recording is the mean of channels that hold different
    sounds, or cancel each other. ``narrow_band``: a speaker's recordings end at 4 kHz, those of most speakers do not.
    ``duplicates``: a recording duplicates one of another speaker. ``consistency``: the mean log-likelihood ratio of a
    speaker's held-out utterances is below ``min_consistency`` times the typical one. ``matches``: that of the
    utterances claimed for another speaker is more than ``max_match`` times the typical one. Verification warns of
    ``clipping``, ``noise`` and ``channels``, too, unless they are off.
    """

    clipping: Action = "warn"
    max_clipped: Share = 0.001
    noise: Action = "warn"
    min_snr_db: Finite = 10.0
    channels: Action = "warn"
    narrow_band: Action = "warn"
    duplicates: Action = "refuse"
    consistency: Action = "warn"
    min_consistency: NonNegative = 0.55
    matches: Action = "warn"
    max_match: NonNegative = 0.5


CHECKS: tuple[str, ...] = tuple(
    name for name, field in ChecksConfig.model_fields.items() if get_args(field.annotation) == get_args(Action)
)
"""Names of the enrollment checks, each a setting."""
NO_CHECKS = ChecksConfig.model_validate(dict.fromkeys(CHECKS, "off"))


class DuplicateAudioConfig(Section):
    """Duplicate-audio detection (``pipeline.features.fingerprints``): ``keep`` fingerprints of enrolled recordings."""

    keep: bool = True
