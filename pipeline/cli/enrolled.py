"""The report on an enrollment in a terminal and as JSON: speakers, warnings, and the errors to expect."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.cli.terminal import print_line, print_note, print_skipped, print_table

if TYPE_CHECKING:
    from pipeline.enrollment.expected import ErrorShare, ExpectedErrors
    from pipeline.enrollment.report import EnrollmentReport

# Thresholds of smaller stores say too little about people who are not enrolled.
FEW_SPEAKERS = 10


def report_json(store: Path, report: EnrollmentReport) -> dict[str, Any]:
    """Return the results of an enrollment into ``store``, for JSON."""
    return {
        "store": str(store),
        "enrolled": report.summaries,
        "refused": [{"name": name, "reason": reason} for name, reason in report.refused],
        "warnings": warnings_of(report),
        "skipped": [{"file": str(path), "reason": reason} for path, reason in report.skipped],
        "left_out": dict(report.left_out),
        "narrow_band": report.narrow_band,
        "machines": report.machines,
        "held_out_trials": report.held_out_trials,
        "expected": None if (expected := report.expected) is None else asdict(expected),
        "elapsed_seconds": report.elapsed_seconds,
    }


def warnings_of(report: EnrollmentReport) -> list[dict[str, str]]:
    """Return the warnings about enrolled speakers for JSON."""
    return [{"name": one.speaker, "check": one.check, "reason": one.reason} for one in report.warnings]


def print_warnings(report: EnrollmentReport) -> None:
    """Print the warnings about enrolled speakers."""
    for warning in report.warnings:
        print_note(f"warning: {warning.reason}")


def print_report(store: Path, report: EnrollmentReport) -> None:
    """Print who was enrolled into ``store`` and who was not, the warnings, and the errors to expect."""
    print_skipped(report.skipped)
    for _, reason in report.refused:
        print_note(f"refused {reason}")
    if report.left_out:
        counts = ", ".join(f"{count} of {name!r}" for name, count in report.left_out.items())
        print_note(f"left out, as they are enrolled already or have no speech: {counts}")
    if not report.enrolled:
        print_line(f"nothing new to enroll -> {store}")
        return
    print_warnings(report)
    _print_speakers(report)
    print_line(
        f"{len(report.enrolled)} enrolled, {len(report.refused)} refused, {len(report.skipped)} files skipped;"
        f" {report.machines} machines in {report.elapsed_seconds:.1f} s -> {store}"
    )
    if report.narrow_band:
        print_note(
            "note: the recordings end at 4 kHz, as on a telephone, so features are at 8 kHz and speech by any"
            " microphone can be verified; --set features.narrow_band=false keeps features.rate"
        )
    if (expected := report.expected) is not None:
        _print_expected(expected)
        if {speaker.utterances for speaker in report.enrolled if speaker.role == "speaker"} == {1}:
            print_note(
                "note: each speaker has one recording, whose end was held out: on another day, true claims are rejected"
                " more often than expected; enroll recordings of several days"
            )
    _note_few_speakers(len(report.model))


def _print_speakers(report: EnrollmentReport) -> None:
    print_table(
        ("speaker", "files", "speech s", "frames", "centroids"),
        [
            (
                s["name"],
                s["utterances"],
                f"{s['seconds']:.1f}",
                s["frames"],
                f"{s['centroids']}{' (few)' * s['short_of_centroids']}",
            )
            for s in report.summaries
        ],
    )


def _note_few_speakers(count: int) -> None:
    """Print a note on claims if ``count``, the number of speakers in the store, is too low."""
    if count == 1:
        print_note(
            "note: with one speaker in the store there is nobody to compare with, and no claim can be decided, except"
            " at a given --threshold; enroll a second speaker, or background speakers: enroll --background, or"
            " voiceclaim background"
        )
    elif count < FEW_SPEAKERS:
        print_note(
            f"note: with {count} speakers in the store, people who are not enrolled are accepted more often"
            " than held-out trials suggest; enroll background speakers before the users: enroll --background, or"
            " voiceclaim background"
        )


def _print_expected(expected: ExpectedErrors) -> None:
    rejected, accepted, unknown = expected.false_reject, expected.false_accept, expected.false_accept_unknown
    words = [f"{_percent(rejected)} of true claims rejected", f"{_percent(accepted)} of enrolled impostors accepted"]
    if unknown is not None:
        words.append(f"{_percent(unknown)} of unknown ones")
    print_line(
        f"expected on audio like this, from {rejected.trials} held-out true claims, at threshold"
        f" {expected.threshold:.4g} of {expected.system}: {', '.join(words)}"
    )
    for name in expected.often_rejected:
        print_note(f"warning: speaker {name!r} will often be rejected; enroll more recordings (enroll --add)")


def _percent(share: ErrorShare) -> str:
    return f"{100 * share.rate:.1f} % ({100 * share.low:.1f} to {100 * share.high:.1f})"
