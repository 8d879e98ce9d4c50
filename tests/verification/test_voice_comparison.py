"""Two recordings compared against a background: the same whichever is first, nothing is written, and the command."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import soundfile

from pipeline.config import NO_CHECKS
from pipeline.enrollment.enroll import enroll
from pipeline.errors import AudioError, MetricError, NotEnoughSpeechError
from pipeline.verification.verifier import Verifier
from pipeline.verification.voice_comparison import compare_voices


@pytest.fixture(scope="module")
def longer(tmp_path_factory, demo):
    """longer(voice, part): half of a demo voice's verification files in one."""
    folder = tmp_path_factory.mktemp("longer")

    def join(voice: str, part: int):
        files = sorted((demo / "verify" / voice).glob("*.flac"))[part::2]
        path = folder / f"{voice}{part}.wav"
        soundfile.write(path, np.concatenate([soundfile.read(file)[0] for file in files]), 8000)
        return path

    return join


def test_one_voice_and_two_are_told_apart_either_way_round(opened, longer):
    pairs = {
        (a, b): compare_voices(opened, longer(a, 0), longer(b, 1)) for a in ("clara", "hugo") for b in ("clara", "hugo")
    }
    for (a, b), found in pairs.items():
        assert found.same == (a == b), (a, b, found)
        assert found.llr == pytest.approx((found.first_enrolled + found.second_enrolled) / 2)
        odds = found.prior / (1 - found.prior) * np.exp(found.llr)
        assert found.probability == pytest.approx(odds / (1 + odds))
    swapped = compare_voices(opened, longer("hugo", 1), longer("clara", 0))
    once = pairs["clara", "hugo"]
    assert (swapped.first_enrolled, swapped.second_enrolled) == pytest.approx(
        (once.second_enrolled, once.first_enrolled), abs=1e-6
    )


def test_each_direction_is_the_ratio_of_an_enrollment_in_a_store(copied, longer):
    first, second = longer("clara", 0), longer("clara", 1)
    found = compare_voices(copied, first, second)
    model = enroll(copied, {"clara": [first]}, quality=NO_CHECKS).model
    stranger = replace(model, unknown_share=1.0)  # no impostor is in the background
    assert found.first_enrolled == Verifier(stranger, "clara").verify_file(second).llr
    assert found.first_enrolled != Verifier(model, "clara").verify_file(second).llr


def test_what_cannot_be_compared_is_an_error(opened, longer, silence, garbage):
    with pytest.raises(NotEnoughSpeechError):
        compare_voices(opened, longer("clara", 0), silence)
    with pytest.raises(AudioError, match=r"garbage\.wav"):
        compare_voices(opened, garbage, longer("clara", 0))
    with pytest.raises(MetricError, match="too few"):
        compare_voices(opened.view_without("anna", "dexter", "ivan", "lars"), longer("clara", 0), longer("clara", 1))


def test_the_command_prints_it_ends_in_its_code_and_leaves_the_store(inside, copied, longer):
    before = copied.read_bytes()
    same = inside("compare-voices", longer("clara", 0), longer("clara", 1), "--background", copied)
    assert (same.code, same.out.startswith("one voice ")) == (0, True)
    pair = (longer("clara", 0), longer("hugo", 1))
    other = inside("compare-voices", *pair, "--background", copied, "--json")
    assert other.code == 1
    assert other.lines[0]["same"] is False
    assert other.lines[0]["llr"] == pytest.approx(compare_voices(copied, *pair).llr, abs=1e-6)
    assert copied.read_bytes() == before
