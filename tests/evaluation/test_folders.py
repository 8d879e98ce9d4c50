"""Trials of a folder tree: who is claimed in which file, and what cannot be read."""

from __future__ import annotations

import json

import pytest
import soundfile

from pipeline.errors import InputError
from pipeline.evaluation import Trial, read_list, read_trials, trials_of_folder
from pipeline.evaluation.assess import assess
from pipeline.evaluation.report import FAMILIES, FIGURES


@pytest.fixture
def tree(tmp_path, heard):
    """A folder with two files each of two enrolled speakers and one who is not, and one file that is not audio."""
    for voice in ("anna", "ivan", "clara"):
        (tmp_path / "tree" / voice).mkdir(parents=True)
        for number in range(2):
            (tmp_path / "tree" / voice / f"{number}.flac").write_bytes(heard(voice, number).read_bytes())
    (tmp_path / "tree" / "notes.txt").touch()
    return tmp_path / "tree"


def test_every_file_is_claimed_for_every_name_and_true_in_its_own_folder(tree):
    found = trials_of_folder(tree, ["anna", "ivan", "lars"])
    assert len(found.trials) == 6 * 3
    assert {trial.speaker for trial in found.trials} == {"anna", "ivan", "lars"}
    assert all(trial.target == (f"/{trial.speaker}/" in trial.path) for trial in found.trials)
    assert sum(trial.target for trial in found.trials) == 4
    assert found.unknown_impostors == ("clara",)
    assert [path.name for path, _ in found.skipped] == ["notes.txt"]
    assert {trial.speaker for trial in trials_of_folder(tree).trials} == {"anna", "clara", "ivan"}


def test_one_name_may_be_given_as_a_text_and_a_model_is_none(tree, opened):
    assert trials_of_folder(tree, "anna") == trials_of_folder(tree, ["anna"])
    with pytest.raises(InputError, match=r"names: a collection of names, as SpeakerModel\.names is, was expected"):
        trials_of_folder(tree, opened)
    with pytest.raises(InputError, match="names: a name was expected, got int"):
        trials_of_folder(tree, [1, 2])
    with pytest.raises(InputError, match="a trial list was expected, got a folder; trials_of_folder makes"):
        assess(opened, tree, tree)


def test_a_recording_that_cannot_be_decoded_here_is_a_trial_without_a_score(tree, monkeypatch):
    monkeypatch.setenv("PATH", "")  # no ffmpeg
    (tree / "anna" / "memo.m4a").write_bytes(b"\0\0\0\x20ftypM4A " + bytes(100))
    (tree / "lars").mkdir()
    (tree / "lars" / "memo.m4a").touch()
    found = trials_of_folder(tree, ["anna", "lars"])
    assert Trial("anna", str(tree / "anna" / "memo.m4a"), True) in found.trials
    assert Trial("lars", str(tree / "lars" / "memo.m4a"), True) in found.trials


def test_folders_that_are_no_tree_of_speakers_are_refused(tree, tmp_path, demo):
    with pytest.raises(InputError, match="no folder in it has the name of an enrolled speaker"):
        trials_of_folder(tree, ["Anna"])
    (tmp_path / "kaldi").mkdir()
    (tmp_path / "kaldi" / "wav.scp").write_text(f"u {tree / 'anna' / '0.flac'}\n")
    (tmp_path / "kaldi" / "utt2spk").write_text("u anna\n")
    with pytest.raises(InputError, match="layout 'kaldi'"):
        trials_of_folder(tmp_path / "kaldi", ["anna"])
    with pytest.raises(InputError, match="VERIFY"):
        trials_of_folder(demo, ["anna"])


def test_the_list_that_trials_writes_gives_what_the_folder_gives(inside, store, tree, tmp_path):
    written = inside("trials", "tree", "--store", store, "--out", "t.txt")
    assert (written.code, written.out) == (
        0, "written: t.txt (4 target and 20 nontarget trials, 1 unknown impostors)\n",
    )  # fmt: skip
    assert "skipped tree/notes.txt" in written.err
    for name, begin in (("t.csv", b"model,segment,label\n"), ("t.Parquet", b"PAR1")):
        inside("trials", "tree", "--store", store, "--out", name)
        assert (tmp_path / name).read_bytes().startswith(begin)
        assert set(read_trials(str(tmp_path / name))) == set(read_trials(tmp_path / "t.txt"))
    assert ".csv, .parquet, or text in Kaldi's format, got .xlsx" in inside("trials", "tree", "--out", "t.xlsx").err
    assert not (tmp_path / "t.xlsx").exists()
    words = ("--systems", "poao", "--json")
    by_list = inside("evaluate", store, "t.txt", "--out", "a", *words)
    by_tree = inside("evaluate", store, "tree", "--out", "b", *words)
    assert (by_list.code, by_tree.code) == (0, 0)
    assert "not enrolled, so their files are those of impostors: clara" in by_tree.err
    assert by_list.lines[0]["systems"] == by_tree.lines[0]["systems"]


def test_a_flat_folder_gives_what_a_folder_for_each_speaker_gives(inside, copied, heard, voices, tmp_path):
    for folder in ("tree", "flat"):
        for voice, number in ((voice, number) for voice in (*voices, "clara") for number in range(3)):
            file = tmp_path / folder / (f"{voice}/{number}.flac" if folder == "tree" else f"{voice}_{number}.flac")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(heard(voice, number).read_bytes())
    pattern = ("--speaker-pattern", "([^_]+)_")
    (tmp_path / "flat" / "noise.flac").write_bytes(b"")
    by_tree = inside("evaluate", copied, "tree", "--out", "a", "--systems", "poar", "--json")
    by_name = inside("evaluate", copied, "flat", *pattern, "--out", "b", "--systems", "poar", "--json")
    assert (by_name.code, by_name.lines[0]["systems"]) == (0, by_tree.lines[0]["systems"])
    assert "noise.flac: an audio file whose name the speaker pattern does not match" in by_name.err
    written = inside("trials", "flat", *pattern, "--store", copied, "--out", "t.txt")
    assert written.out == "written: t.txt (12 target and 48 nontarget trials, 1 unknown impostors)\n"
    by_tree = inside("calibrate", copied, "tree", "--json").lines[0]["after"]
    assert inside("calibrate", copied, "flat", *pattern, "--json").lines[0]["after"] == by_tree
    nobody = inside("evaluate", copied, "flat", "--speaker-pattern", "[a-z]+_([0-9])", "--out", "c").err
    assert "no file in it has the name of an enrolled speaker; it has 0, 1, 2" in nobody


@pytest.mark.parametrize("command", ["evaluate", "calibrate"])
def test_a_speaker_pattern_for_a_list_is_refused(refused, command, store, tree, tmp_path):
    (tmp_path / "t.txt").write_text(f"anna {tree}/anna/0.flac target\n")
    out = ("--out", "out") if command == "evaluate" else ()
    words = (command, store, "t.txt", "--speaker-pattern", "([^_]+)", *out)
    assert "--speaker-pattern is for a folder, and t.txt is none" in refused(*words)


def test_a_list_in_another_folder_finds_its_files(inside, store, tree, tmp_path):
    (tmp_path / "lists" / "mine").mkdir(parents=True)
    (tmp_path / "linked").symlink_to("lists/mine")
    for words, out in ((("tree",), "lists/t.txt"), (("tree",), "linked/t.csv"), ((tree,), "lists/absolute.txt")):
        assert inside("trials", *words, "--store", store, "--out", out).code == 0
        listed = [trial.path for trial in read_trials(tmp_path / out)]
        assert all((tmp_path / out).parent.joinpath(path).is_file() for path in listed)
        assert listed[0] == {"lists/t.txt": "../tree/anna/0.flac", "linked/t.csv": "../../tree/anna/0.flac"}.get(
            out, str(tree / "anna" / "0.flac")
        )
    assert inside("evaluate", store, "lists/t.txt", "--out", "out", "--systems", "poao").code == 0


def test_an_accent_of_two_characters_is_that_of_the_enrolled_name(tree):
    """File systems, and tools that list them, may write an accent as a character of its own."""
    (tree / "ivan").rename(tree / "jose\u0301")
    (tree / "zoe\u0308").mkdir()
    (tree / "zoe\u0308" / "memo.m4a").touch()
    found = trials_of_folder(tree, ["jos\u00e9", "zo\u00eb"])
    assert found.unknown_impostors == ("anna", "clara")
    assert {trial.path for trial in found.trials if trial.target} == {
        *(str(tree / "jose\u0301" / f"{number}.flac") for number in range(2)), str(tree / "zoe\u0308" / "memo.m4a"),
    }  # fmt: skip
    assert "jos\u00e9" in {trial.speaker for trial in trials_of_folder(tree).trials}


def test_names_with_blanks_go_into_csv(inside, tree, tmp_path):
    (tree / "anna").rename(tree / "anna k")
    assert inside("trials", "tree", "--out", "t.csv").code == 0
    assert "anna k" in read_list(tmp_path / "t.csv").models.used


def test_trials_without_a_score_are_said_last_and_by_the_exit_code(inside, store, tree, tmp_path, silence):
    soundfile.write(tree / "anna" / "2.wav", soundfile.read(silence)[0], 8000)
    result = inside("evaluate", store, "tree", "--out", "out", "--systems", "poao")
    assert result.code == 4
    assert result.err.splitlines()[-1] == (
        "voiceclaim: 4 trials (14.3 %) have no score; EER and costs are those of the others"
    )
    assert "with those as rejected" in result.out
    entry = json.loads((tmp_path / "out" / "metrics.json").read_text())["systems"]["poao"]
    assert entry["generalised"]["false_reject_percent"] == pytest.approx(20.0)  # one true claim in five


def test_figures_of_an_earlier_evaluation_do_not_stay(inside, store, tree, tmp_path):
    inside("evaluate", store, "tree", "--out", "out")
    first = {path.stem for path in (tmp_path / "out").glob("*.png")}
    assert first >= {*FAMILIES, "det", "score_histogram"}
    (tmp_path / "out" / "mine.png").touch()
    inside("evaluate", store, "tree", "--out", "out", "--systems", "poao")
    second = {path.stem for path in (tmp_path / "out").glob("*.png")}
    assert second == {"mine", "fa_fr_one_vs_one", "det", "score_histogram", "reliability", "bayes_error"}
    assert second - {"mine"} <= {*FAMILIES, *FIGURES}


def test_many_missing_files_are_one_line_with_the_folder_that_was_looked_in(inside, store, heard, tmp_path):
    kept = f"anna {heard('anna')} target\nivan {heard('anna')} nontarget\n"
    for count, lines in ((10, 10), (11, 1)):
        (tmp_path / "t.txt").write_text(kept + "".join(f"anna {n}.wav target\n" for n in range(count)))
        result = inside("evaluate", store, "t.txt", "--out", "out", "--systems", "poao")
        assert (result.code, result.err.count("not scored (")) == (4, lines)
    where = f"11 files are missing, the first is 0.wav; paths are relative to {tmp_path}; give the folder"
    assert f"not scored (11 trials): {where} of the audio with --root" in " ".join(result.err.split())
    (tmp_path / "t.txt").write_text("anna nope.flac target\nivan nope.flac nontarget\n")
    assert "1 files are missing, the first is nope.flac" in inside("evaluate", store, "t.txt", "--out", "out").err
    (tmp_path / "nope.flac.wav").touch()
    hint = "nope.flac.wav is there: files are listed with their suffixes"
    assert hint in inside("evaluate", store, "t.txt", "--out", "out").err


def test_trials_listed_twice_and_many_files_skipped_are_counted(inside, store, heard, tmp_path):
    rows = [f"{name} {heard('anna')} {'target' if name == 'anna' else 'nontarget'}\n" for name in ("anna", "ivan")]
    for text, said in (("".join(rows), False), ("".join([*rows, *rows, rows[0]]), True)):
        (tmp_path / "t.txt").write_text(text)
        result = inside("evaluate", store, "t.txt", "--out", "out", "--systems", "poao")
        assert (result.code, "note: 3 trials repeat earlier ones" in result.err) == (0, said)
    for n in range(11):
        (tmp_path / "own" / "anna").mkdir(parents=True, exist_ok=True)
        (tmp_path / "own" / "anna" / f"{n:02}.PHN").touch()
    (tmp_path / "own" / "anna" / "a.flac").write_bytes(heard("anna").read_bytes())
    result = inside("trials", "own", "--store", store, "--out", "list.txt")
    assert (result.code, result.err.count("skipped")) == (0, 1)
    assert "skipped 11 files, the first own/anna/00.PHN: not the name of an audio file" in result.err
