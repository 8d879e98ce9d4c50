"""Removal: no byte of a removed speaker is left, in the file or in its log, and nothing else changes."""

from __future__ import annotations

import contextlib
import json
import random
import re
import shutil
import subprocess
import sys
from string import ascii_lowercase

import numpy as np
import pytest
from populations import NAMES, add, assert_same, cohorts_of, model_of, numbers_of

from pipeline.enrollment.removal import remove_speaker
from pipeline.errors import StoreMissingError, UnknownSpeakerError
from pipeline.store.store import Store


@pytest.mark.parametrize("gone", [0, 2, 4])
def test_no_byte_of_a_removed_speaker_is_left_in_the_file_or_its_log(five, gone):
    model = Store(five).load()
    name, identity = NAMES[gone], model.speakers[gone].id.to_bytes(8, "big")
    own = {
        array.tobytes()[at : at + 8 * array.itemsize]
        for key, array in numbers_of(model).items()
        if (key.startswith((f"{name}: ", f"{name} against")) or key.endswith(f"against {name}: own"))
        and array.size >= 8
        for at in range(0, array.nbytes - 8 * array.itemsize + 1, 8 * array.itemsize)
    }
    others = [array.tobytes() for n in range(5) if n != gone for array in model.arrays[n].values()]
    own = {trace for trace in own if trace.strip(b"\0") and not any(trace in one for one in others)}
    biases = [sign * machine.bias for machine in model.pairs.against(gone).values() for sign in (1, -1)]
    own |= {name.encode() + b"speaker", identity, *(np.float64(bias).tobytes() for bias in biases)}
    del model

    def traces() -> set[bytes]:
        data = b"".join(path.read_bytes() for path in five.parent.iterdir())
        return {trace for trace in own if trace in data or trace[::-1] in data}  # SQLite's own numbers are big-endian

    before = traces()
    assert len(before) > 20
    assert {name.encode() + b"speaker", identity} <= before
    model = remove_speaker(five, name)
    assert traces() == set(), "though the new model is open"
    del model
    assert traces() == set()


def test_the_progress_of_a_removal_begins_at_once_and_adds_up_to_what_was_announced(five):
    steps = []
    remove_speaker(five, NAMES[1], progress=lambda *step: steps.append(step))
    ((stage, total),) = {(stage, total) for stage, _, total in steps}
    assert (steps[0], sum(done for _, done, _ in steps)) == ((stage, 0, total), total)
    assert total > 2


@pytest.mark.parametrize("seed", [26, 131])
def test_no_copy_of_a_name_is_left_where_pages_of_rows_were_divided_and_joined(tmp_path, seed):
    """With ``secure_delete`` alone SQLite leaves copies of moved rows there: at these seeds, among others."""
    chance, there, gone, path = random.Random(seed), [], [], tmp_path / "s"  # noqa: S311
    for _ in range(3):
        names = ["".join(chance.choices(ascii_lowercase, k=chance.choice([300, 900]))) for _ in range(8)]
        add(path, tuple(names), cohorts_of(1))
        there += names
        for _ in range(3):
            gone.append(there.pop(chance.randrange(len(there))))
            remove_speaker(path, gone[-1])
            data = path.read_bytes()
            assert not any(name[at : at + 16].encode() in data for name in gone for at in range(0, len(name) - 16, 8))


def test_what_a_reader_still_holds_is_erased_when_the_reader_is_done(five):
    reader = Store(five).load()
    remove_speaker(five, "cyd")
    assert_same(reader, model_of(NAMES))
    del reader
    with contextlib.suppress(UnknownSpeakerError), Store(five).writing():
        pass
    assert not any(b"cydspeaker" in path.read_bytes() for path in five.parent.iterdir())


@pytest.mark.skipif(sys.platform == "win32", reason="limits of POSIX")
@pytest.mark.parametrize(
    ("words", "code", "decision", "names"),
    [
        (("speakers", "rename", "copy.store", "anna", "zoe"), 2, "renamed", {"zoe", "dexter", "ivan", "lars"}),
        (("speakers", "remove", "copy.store", "lars"), 2, "removed", {"anna", "dexter", "ivan"}),
        (("enroll", "more", "--store", "copy.store", "--add"), 0, "enrolled", {"anna", "dexter", "ivan", "lars"}),
    ],
)
def test_a_change_without_room_to_rewrite_the_file_is_logged_as_made(copied, heard, words, code, decision, names):
    (copied.parent / "more" / "anna").mkdir(parents=True)
    shutil.copy(heard("anna"), copied.parent / "more" / "anna")
    most = copied.stat().st_size - 4096
    room = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({most}, resource.RLIM_INFINITY))"
    words = (sys.executable, "-c", f"{room}; from pipeline.cli.main import main; main()", *words, "--log", "log")
    ended = subprocess.run(words, check=False, capture_output=True, text=True, cwd=copied.parent)
    assert ended.returncode == code, ended.stderr
    traces = "the change was made, but traces of the speaker removed or renamed are left"
    assert (traces in ended.stderr) == (decision != "enrolled")
    entry = json.loads((copied.parent / "log").read_text().splitlines()[-1])
    assert (entry.get("decision"), entry.get("store_revision")) == (decision, 2), entry
    assert set(Store(copied).check().names) == names


def test_removed_speakers_take_their_held_out_trials_along(copied):
    before = Store(copied).load()
    gone, trials = before.speakers[1].id, before.trials()
    kept = (trials.claims != gone) & (trials.speakers != gone)
    after = remove_speaker(copied, before.speakers[1].name).trials()
    assert gone not in {*after.claims.tolist(), *after.speakers.tolist()}
    np.testing.assert_array_equal(after.scores["poar"], trials.scores["poar"][kept])


def test_where_there_is_no_store_none_is_made_by_reading_or_removing(tmp_path):
    (tmp_path / "empty").touch()
    for path in (tmp_path / "a" / "b", tmp_path / "nowhere", tmp_path / "empty"):
        for attempt in (lambda path=path: remove_speaker(path, "anna"), Store(path).load):
            with pytest.raises(StoreMissingError, match=re.escape(str(path))):
                attempt()
        assert Store(path).state() is None
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]
