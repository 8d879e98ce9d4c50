"""Data of a person in a store and an export: everything that docs/privacy.md says, no name elsewhere and no audio."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from pipeline.audio.corpus import Utterance
from pipeline.audio.files import read_samples
from pipeline.cli.speakers import export, remove
from pipeline.enrollment.enroll import enroll
from pipeline.errors import InputError, UnknownSpeakerError
from pipeline.store.export import export_speaker


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


# An export


def test_an_export_holds_every_array_that_the_store_keeps_of_the_speaker(opened, tmp_path):
    beside = export_speaker(opened, "dexter", tmp_path / "x.json")
    table = json.loads((tmp_path / "x.json").read_text(encoding="utf-8"))
    speaker, own = opened.speakers[1], opened.arrays[1]
    assert table["speaker"] == {**asdict(speaker), "id": f"{speaker.id:016x}"}
    assert beside == tmp_path / "x.npz"
    with np.load(beside, allow_pickle=False) as arrays:
        shapes = {name: {"shape": list(array.shape), "dtype": str(array.dtype)} for name, array in arrays.items()}
        assert table["arrays"] == shapes
        for name in own:
            np.testing.assert_array_equal(arrays[name], own[name], err_msg=name)
        pairs = opened.pairs.against(1)
        for other, machine in pairs.items():
            where = f"pair.{opened.speakers[other].id:016x}"
            np.testing.assert_array_equal(arrays[f"{where}.own"], machine.own)
            np.testing.assert_array_equal(arrays[f"{where}.rival"], machine.rival)
            assert arrays[f"{where}.bias"] == machine.bias
        assert len(arrays) == len(own) + 3 * len(pairs) == len(own) + 9


def test_an_export_holds_the_trials_that_the_speaker_spoke_or_was_claimed_in_and_names_nobody_else(opened, tmp_path):
    export_speaker(opened, "dexter", tmp_path / "x.json")
    text = (tmp_path / "x.json").read_text(encoding="utf-8")
    columns, trials = json.loads(text)["held_out_trials"], opened.trials()
    rows = (trials.claims == opened.speakers[1].id) | (trials.speakers == opened.speakers[1].id)
    assert 0 < rows.sum() < len(trials)
    assert columns["claims"] == [f"{number:016x}" for number in trials.claims[rows].tolist()]
    assert columns["speakers"] == [f"{number:016x}" for number in trials.speakers[rows].tolist()]
    for system, scores in trials.scores.items():
        assert columns[f"score.{system}"] == scores[rows].tolist()
    assert all(len(column) == rows.sum() for column in columns.values())
    assert not any(other in text for other in ("anna", "ivan", "lars"))


def test_an_export_is_for_its_owner_and_never_written_over_something(opened, tmp_path):
    (tmp_path / "x").write_bytes(b"mine")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    (tmp_path / "half.npz").write_bytes(b"mine")
    for path, words in (
        ("x", "exists"), ("link", "exists"), ("half.json", "exists"), ("no/x", "cannot be written"),
        ("a\0b", "cannot be written"), ("a.npz", "another suffix"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=words):
            export_speaker(opened, "anna", tmp_path / path)
    with pytest.raises(UnknownSpeakerError, match="'annna'"):
        export_speaker(opened, "annna", tmp_path / "y")
    assert contents(tmp_path) == {"x": b"mine", "half.npz": b"mine"}
    export_speaker(opened, "anna", tmp_path / "y")
    assert all((tmp_path / name).stat().st_mode & 0o077 == 0 for name in ("y", "y.npz"))


def test_the_command_exports_and_logs(copied, tmp_path, capsys):
    log, file = tmp_path / "changes.jsonl", tmp_path / "x.json"
    export(copied, "lars", file, log=log, as_json=True)
    arrays = str(tmp_path / "x.npz")
    assert json.loads(capsys.readouterr().out) == {"exported": "lars", "file": str(file), "arrays": arrays}
    remove(copied, "lars", log=log, as_json=True)
    assert json.loads(capsys.readouterr().out) == {"removed": "lars", "left": 3}
    with pytest.raises(UnknownSpeakerError):
        remove(copied, "larss", log=log)
    with pytest.raises(UnknownSpeakerError):
        export(copied, "lars", tmp_path / "y", log=log)
    lines = [json.loads(line) for line in log.read_bytes().splitlines()[1:]]
    assert [(line["event"], line["speaker"], line["decision"], line.get("error")) for line in lines] == [
        ("export", "lars", "exported", None),
        ("remove", "lars", "removed", None),
        ("remove", "larss", None, "UnknownSpeakerError"),
        ("export", "lars", None, "UnknownSpeakerError"),
    ]
    assert (lines[1]["left"], lines[1]["store_revision"], lines[1]["settings"]) == (3, 2, lines[0]["settings"])


def test_options_that_contradict_each_other_are_refused(refused, copied, tmp_path):
    before = contents(tmp_path)
    for words in (
        ("export", copied, "anna"), ("export", copied, "--out", "x"), ("remove", copied), ("list", copied, "anna"),
        ("show", copied, "anna", "--out", "x"), ("list", copied, "--log", "x"),
    ):  # fmt: skip
        assert "voiceclaim speakers" in refused("speakers", *words)
    assert contents(tmp_path) == before


# Privacy: docs/privacy.md


def test_no_audio_and_no_name_of_a_file_is_kept(tmp_path, recordings, tiny):
    names = {"Zoe Wanamaker": "anna", "Yngwie Malmsteen": "ivan"}
    speakers = {name: tuple(Utterance(name, one.path) for one in recordings[voice]) for name, voice in names.items()}
    (tmp_path / "s").mkdir()
    model = enroll(tmp_path / "s" / "voices.store", speakers, tiny).model
    for number, name in enumerate(names):
        export_speaker(model, name, tmp_path / "s" / f"{number}.json")
    kept = contents(tmp_path / "s")
    for number, name in enumerate(names):
        assert {file for file, data in kept.items() if name.encode() in data} == {"voices.store", f"{number}.json"}
        assert not any(name.split()[0].lower() in file.lower() for file in kept)
    for utterances in speakers.values():
        for one in utterances:
            stem = one.path.stem.encode()
            assert not any(stem in data or str(one.path).encode() in data for data in kept.values())
            samples, _ = read_samples(one)
            loud = int(np.argmax(np.abs(samples)))
            part = samples[loud - 8 : loud + 8]  # two milliseconds of speech
            assert len(set(part)) > 8
            for coded in (part, part.astype("<f4"), (part * 2**15).astype("<i2"), (part * 2**31).astype("<i4")):
                assert not any(coded.tobytes() in data for data in kept.values())
