"""Recordings that somebody was enrolled with, in the lists of evaluations and calibrations."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import soundfile
from html_outline import check_self_contained

from pipeline.enrollment.enroll import enroll
from pipeline.errors import InputError
from pipeline.evaluation import Trial, trials_of_folder
from pipeline.evaluation.assess import assess
from pipeline.evaluation.calibrate import calibrate
from pipeline.store.store import Store


def copied_to(folder: Path, *files: Path) -> None:
    """Copy ``files`` to the folders of their speakers in ``folder``."""
    for file in files:
        (folder / file.parent.name).mkdir(parents=True, exist_ok=True)
        shutil.copy(file, folder / file.parent.name)


@pytest.fixture
def own(tmp_path, demo, voices) -> Path:
    """Three verification files of each voice and of two strangers, in a folder each."""
    for name in (*voices, "marta", "bruno"):
        copied_to(tmp_path / "own", *sorted((demo / "verify" / name).glob("*.flac"))[:3])
    return tmp_path / "own"


def test_every_enrolled_recording_of_a_list_is_named_and_no_other(opened, recordings, demo, voices):
    enrolled = {str(one.path) for name in voices for one in recordings[name]}
    for part, expected in (("enroll", enrolled), ("verify", set())):
        found = assess(opened, trials_of_folder(demo / part, opened.names).trials, "", systems="poar")
        assert set(found.enrolled) == expected


@pytest.mark.parametrize("change", ["quieter", "after silence", "by MP3", "a part", "with other speech after it"])
def test_a_copy_is_found_as_long_as_all_of_it_is_known(opened, recordings, heard, tmp_path, change):
    samples, rate = soundfile.read(recordings["anna"][0].path)
    file = tmp_path / ("copy.mp3" if change == "by MP3" else "copy.wav")
    samples = {
        "quieter": samples / 3,
        "after silence": np.concatenate((np.zeros(10 * rate), samples)),
        "a part": samples[len(samples) // 3 :],
        "with other speech after it": np.concatenate((samples, soundfile.read(heard("marta"))[0])),
    }.get(change, samples)
    soundfile.write(file, samples, rate)
    found = assess(opened, [Trial("anna", file.name, True)], tmp_path, systems="poar")
    assert found.enrolled == (() if change == "with other speech after it" else (file.name,))


def test_a_store_without_fingerprints_can_name_none(tmp_path, recordings, voices, tiny_with):
    speakers = {name: recordings[name] for name in voices}
    model = enroll(tmp_path / "s", speakers, tiny_with("duplicate_audio.keep=false")).model
    assert assess(model, [Trial("anna", str(recordings["anna"][0].path), True)], "", systems="poar").enrolled == ()


def test_evaluate_says_last_that_recordings_were_enrolled_and_the_page_says_it_too(
    inside, store, own, recordings, tmp_path
):
    clean = inside("evaluate", store, own, "--out", "out")
    assert "copies of enrolled" not in clean.err
    first, second = (one.path for one in recordings["anna"][:2])
    copied_to(own, first, second)
    result = inside("evaluate", store, own, "--out", "out", "--systems", "poar")
    last = result.err.splitlines()[-1]
    assert last.startswith("voiceclaim: 2 of the 20 recordings in the list are copies of enrolled ones, the first of")
    assert f"{own / 'anna' / first.name}: these error rates are too low" in last
    table = json.loads((tmp_path / "out/metrics.json").read_text(encoding="utf-8"))
    assert table["enrolled_files"] == [str(own / "anna" / path.name) for path in (first, second)]
    page = check_self_contained((tmp_path / "out/report.html").read_text(encoding="utf-8"))
    facts = dict(page.table("The list")[1:])
    assert facts["Files that somebody was enrolled with, which makes error rates too low"] == "2"


def test_calibrate_leaves_enrolled_recordings_out_and_refuses_a_list_of_nothing_else(
    copied, own, recordings, voices, demo, inside
):
    alone = calibrate(copied, trials_of_folder(own, voices).trials, "").after
    first = recordings["anna"][0].path
    copied_to(own, first)
    with_one = calibrate(copied, trials_of_folder(own, voices).trials, "")
    (failed,) = with_one.failed
    assert (failed.path, failed.trials) == (str(own / "anna" / first.name), len(voices))
    assert failed.reason.endswith("it is a copy of an enrollment recording; leave it out, or give another recording")
    assert with_one.after == alone
    assert f"not scored ({len(voices)} trials): {failed.reason}" in inside("calibrate", copied, own).err
    before = copied.read_bytes()
    enrolled = [
        trial for trial in trials_of_folder(demo / "enroll", voices).trials if f"/{trial.speaker}/" in trial.path
    ]
    listed = [Trial(claim, one.path, claim == one.speaker) for one in enrolled for claim in voices]
    with pytest.raises(
        InputError, match=r"got 0 target trials .*; 48 files could not be scored, the first: .* a copy of"
    ):
        calibrate(copied, listed, "")
    assert copied.read_bytes() == before
    assert Store(copied).load().names == voices
