"""Mistakes of new users: each answer names the thing, the rule or the way on, in one line."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import soundfile

ENROLL = ("enroll", "recordings", "--store", "new.store")
VERIFY = ("verify", "s.store", "--claim", "anna")
LONG = "x" * 300
EVALUATE = ("--out", "out", "--systems", "poao")

# Words, exit code, and what the answer says (on either output).
MISTAKES: dict[str, tuple[tuple[str, ...], int, str]] = {
    "a file that looks like an option": (
        (*VERIFY, "-probe.wav"), 2, "-p; a file whose name begins with - is given as ./-probe.wav, or after --; see"
    ),
    # Folders
    "wrong folder": (("enroll", "recordingz", "--store", "n"), 2, "recordingz: a corpus must be a folder, got nothing"),
    "a file for a folder": (("enroll", "call.flac", "--store", "n"), 2, "got a file; of a recording, give the folder"),
    "empty folder": (("enroll", "empty", "--store", "n"), 2, "one folder per speaker with audio files in it, got none"),
    "the folder of one speaker": (("enroll", "recordings/anna", "--store", "n"), 2, "above it. Or are speakers in"),
    "only phone memos, no ffmpeg": (("enroll", "memos", "--store", "n"), 2, "ffmpeg -i"),
    "samples without a header": (("enroll", "raw", "--store", "n"), 2, "without a header, ffmpeg -f mulaw -ar 8000"),
    "one short file each": (("enroll", "short", "--store", "n"), 3, "the same for 1 more speakers"),
    "broken files alone": (("enroll", "broken", "--store", "n"), 3, ": 1 of the files cannot be used, the first:"),
    "no speaker matches": ((*ENROLL, "--only", "zz*"), 2, "no speaker among 2 matches --only zz*"),
    "one of two matches none": ((*ENROLL, "--only", "ivan", "--only", "ana"), 2, "matches --only ana; nearest: 'anna'"),
    "a list of a data directory": (
        ("enroll", "kaldi/utt2spk", "--store", "n"), 2, "got a file; the Kaldi data directory is kaldi, or a table"
    ),
    "RTTM without its folder": (
        ("enroll", "call.rttm", "--store", "n"), 2, "got a file; give the folder that RTTM files and their audio"
    ),
    "TextGrids beside audio": (("enroll", "praat", "--store", "n"), 2, "folder; a TextGrid of Praat is not read: "),
    "times in milliseconds": (("enroll", "ms.csv", "--store", "n"), 3, "of 3.631 s; times in milliseconds, or of an"),
    "a TextGrid enrolled": (
        ("enroll", "call.TextGrid", "--store", "n"), 2, "a TextGrid of Praat is not read: write its intervals as RTTM"
    ),
    "offset into an archive": (("enroll", "kaldi", "--store", "n"), 2, "offsets into archives are not read"),
    "folders of speakers": (
        ("enroll", "recordings/anna", "recordings/ivan", "--store", "n"), 2, "give the folder above them"
    ),
    "no store named": (("enroll", "recordings"), 2, "Missing option '--store'"),
    "enrolled already": (
        ("enroll", "recordings", "--store", "s.store"), 2, "(enroll --add, add=True, or PUT at a service)"
    ),
    "a recording as the store": (("enroll", "recordings", "--store", "call.flac"), 2, "not a speaker store"),
    "a store below no folder": (
        ("enroll", "recordings", "--store", "nowhere/s.store"), 2,
        "nowhere/s.store: no store can be made here: there is no folder nowhere",
    ),
    "a folder as the store": (("enroll", "recordings", "--store", "empty"), 2, "a speaker store is one file"),
    "added to no store": ((*ENROLL, "--add"), 2, "new.store: no speaker store here; enroll somebody first"),
    "two ways of enrolling": (("enroll", "recordings", "--store", "s.store", "--add", "--anew"), 2, "not both"),
    # Settings
    "preset misspelt": ((*ENROLL, "--config", "defualt"), 2, "neither a file nor a preset (default, lean, paper)"),
    "settings file missing": ((*ENROLL, "--config", "my.toml"), 2, "my.toml"),
    "settings as JSON": ((*ENROLL, "--config", "set.json"), 2, "set.json: not TOML, lines key = value under [section]"),
    "setting in lower case": ((*ENROLL, "--set", "machines.c=1"), 2, "did you mean machines.C"),
    "section misspelt": ((*ENROLL, "--set", "machine.C=1"), 2, "did you mean machines"),
    "value in words": ((*ENROLL, "--set", "codebook.centroids=eight"), 2, "codebook.centroids: must be a whole"),
    "no value": ((*ENROLL, "--set", "codebook.centroids"), 2, "must read section.key=value"),
    "no key": ((*ENROLL, "--set", "=3"), 2, "must read section.key=value"),
    "check misspelt": ((*ENROLL, "--check", "nois=off"), 2, "CHECK=off|warn|refuse"),
    "action misspelt": ((*ENROLL, "--check", "noise=of"), 2, "checks.noise"),
    "a list in words": ((*ENROLL, "--set", "augmentation.kinds=babble,noise"), 2, 'a list is written ["a", "b"]'),
    "two settings files": ((*ENROLL, "--config", "lean", "--config=paper"), 2, "--config takes one value, and is giv"),
    "two stores": ((*ENROLL, "--store", "s.store"), 2, "--store takes one value, and is given 2 times"),
    "two numbers of threads": ((*ENROLL, "--jobs", "1", "-j", "2"), 2, "--jobs takes one value, and is given 2 times"),
    "two exports": (
        ("speakers", "export", "s.store", "anna", "--out", "a", "--out", "b"), 2, "--out takes one value, and is given"
    ),
    # Audio
    "home folder in quotes": ((*VERIFY, "~/call.wav"), 2, "no such file; only a shell knows ~ as the home folder"),
    "no such file": ((*VERIFY, "nothere.wav"), 2, "nothere.wav: no such file; a mistyped or moved path?"),
    "a glob that matches nothing": ((*VERIFY, "calls/*.wav"), 2, "calls/*.wav: no such file; a pattern stands for fi"),
    "identify, a glob": (("identify", "s.store", "*.mp3"), 2, "*.mp3: no such file; a pattern stands for files in a"),
    "a path of Windows": ((*VERIFY, "calls\\call.wav"), 2, "no such file; folders are separated by / here, not by \\"),
    "empty file": ((*VERIFY, "empty.wav"), 2, "empty.wav: an audio file cannot be empty"),
    "text as audio": ((*VERIFY, "text.wav"), 2, "it holds text, not audio"),
    "a folder as audio": ((*VERIFY, "recordings/anna"), 2, "an audio file was expected, got a folder"),
    "phone memo, no ffmpeg": ((*VERIFY, "memo.m4a"), 2, "ffmpeg -i memo.m4a memo.wav"),
    "silence": ((*VERIFY, "silence.wav"), 3, "not enough speech 'anna' silence.wav: no score (0.5 s needed)"),
    "clipped": ((*VERIFY, "clipped.wav"), 0, "clipping: the audio is clipped"),
    "NaN": ((*VERIFY, "nan.wav"), 2, "samples must be finite"),
    "out of phase": ((*VERIFY, "phase.wav"), 2, "the channels cancel each other"),
    "pipe that is no WAV": ((*VERIFY, "-"), 2, "WAV on the way; or did the program before the pipe fail?"),
    "a pipe for a recording": (
        ("compare-voices", "-", "call.flac", "--background", "s.store"), 2, "-: no such file; a pipe is read by verify"
    ),
    "an address": ((*VERIFY, "https://example.com/call.wav"), 2, "nothing is fetched from an address"),
    # Claims
    "claim misspelt": (("verify", "s.store", "--claim", "amna", "call.flac"), 2, "nearest enrolled: 'anna'"),
    "claim in capitals": (("verify", "s.store", "--claim", "ANNA", "call.flac"), 2, "nearest enrolled: 'anna'"),
    "two claims": ((*VERIFY, "--claim", "ivan", "call.flac"), 2, "voiceclaim identify STORE AUDIO"),
    "claim of anybody": (("verify", "s.store", "--claim", "*", "call.flac"), 2, "voiceclaim identify STORE AUDIO"),
    "no audio": (VERIFY, 2, "give audio files, - for a pipe, or --mic"),
    "file and microphone": ((*VERIFY, "--mic", "call.flac"), 2, "give audio files, - for a pipe, or --mic"),
    "an unset variable for a folder": (("enroll", "", "--store", "n"), 2, "AUDIO_DIR is empty; a variable of the"),
    "an unset variable for a store": (("enroll", "recordings", "--store", ""), 2, "--store is empty; a variable of"),
    "an unset variable for one of two files": ((*VERIFY, "call.flac", ""), 2, "AUDIO is empty; a variable of the"),
    "an unset variable in =": ((*VERIFY, "call.flac", "--log="), 2, "--log is empty; a variable of the shell"),
    "a folder of trials unset": (("trials", "", "--out", "n"), 2, "DIR is empty; a variable of the shell that is not"),
    "a store left out": (("enroll", "recordings", "--store"), 2, "--store' requires an argument; see voiceclaim"),
    "the store as an option": (("verify", "--store", "s.store", "--claim", "anna"), 2, "store is the first argument"),
    "no store yet": (("verify", "nostore", "--claim", "anna", "call.flac"), 2, "enroll somebody first"),
    "store and audio swapped": (("verify", "call.flac", "--claim", "anna", "s.store"), 2, "first argument is the"),
    "identify, swapped": (("identify", "call.flac", "s.store"), 2, "first argument is the store"),
    "percent for a rate": ((*VERIFY, "--far", "1", "call.flac"), 2, "got 1 (1 % is 0.01)"),
    "percent sign": ((*VERIFY, "--far", "0.1%", "call.flac"), 2, "; one percent is 0.01; see voiceclaim verify"),
    "decimal comma": ((*VERIFY, "--prior", "0,5", "call.flac"), 2, "got '0,5'; a decimal comma; numbers are writ"),
    "rate beyond the trials": ((*VERIFY, "--far", "0.000001", "call.flac"), 0, "cannot show a false-accept rate"),
    "threshold in words": ((*VERIFY, "--threshold", "high", "call.flac"), 2, "'--threshold'"),
    "prior of one": ((*VERIFY, "--prior", "1", "call.flac"), 2, "between 0 and 1"),
    "two rules": ((*VERIFY, "--far", "0.1", "--prior", "0.5", "call.flac"), 2, "decisions follow one rule"),
    "system misspelt": ((*VERIFY, "--system", "fusd", "call.flac"), 2, "scoring system 'fusd' is unknown; it has "),
    "certain that nobody speaks": (("identify", "s.store", "--nobody", "1", "call.flac"), 2, "from 0 to below 1"),
    "key of no log": ((*VERIFY, "--log-key", "k", "call.flac"), 2, "--log-key requires --log"),
    "key of no log, enrolling": ((*ENROLL, "--log-key", "k"), 2, "--log-key requires --log"),
    "key of no log, fitting": (("calibrate", "s.store", "--reset", "--log-key", "k"), 2, "--log-key requires --log"),
    "key of no log, removing": (
        ("speakers", "remove", "s.store", "anna", "--log-key", "k"), 2, "--log-key requires --log"
    ),
    "key of no log, serving": (("serve", "s.store", "--log-key", "k"), 2, "--log-key requires --log"),
    "paths in no log": (("identify", "s.store", "--log-paths", "call.flac"), 2, "--log-paths requires --log"),
    "raw file": (("identify", "s.store", "--raw", "8000", "call.flac"), 2, "--raw is for a pipe: give - as AUDIO"),
    "raw microphone": ((*VERIFY, "--raw", "8000", "--mic"), 2, "--raw is for a pipe: give - as AUDIO"),
    # Lists
    "columns swapped": (("evaluate", "s.store", "swapped.txt", *EVALUATE), 2, "the columns look swapped"),
    "CSV without a header": (("evaluate", "s.store", "bare.txt", *EVALUATE), 2, "need a header: speaker,path,label"),
    "a store for trials": (("evaluate", "s.store", "s.store", *EVALUATE), 2, "the file is a speaker store: it is"),
    "a recording for trials": (
        ("calibrate", "s.store", "call.flac"), 2, "the file is a recording: a folder of recordings, or a list of them"
    ),
    "one recording compared": (
        ("compare-voices", "call.flac", "./call.flac", "--background", "s.store"), 2, "got the same file twice"
    ),
    "one recording by two names compared": (
        ("compare-voices", "call.flac", "link.flac", "--background", "s.store"), 2, "link.flac: two recordings were ex"
    ),
    "RTTM for trials": (("evaluate", "s.store", "call.rttm", *EVALUATE), 2, "the file is RTTM, which has no trials"),
    "one of two scores is not a number": (
        ("convert", "failed.txt", "new.csv", "--to", "csv"), 2, "failed.txt, line 1: a score must be a finite number"
    ),
    "a TextGrid for trials": (
        ("evaluate", "s.store", "call.TextGrid", *EVALUATE), 2, "a TextGrid of Praat, which has no trials: write them"
    ),
    "header between blanks": (
        ("evaluate", "s.store", "blanks.txt", *EVALUATE), 2, "names of a header must be separated by commas"
    ),
    "data directory of a test set": (
        ("evaluate", "s.store", "test", *EVALUATE), 2, "got no utt2spk; of a test set, give the trial list: its trials"
    ),
    "scores under another name": (
        ("evaluate", "--scores", "prob.csv", "--key", "true.txt", "--out", "out"), 2,
        "In a table, the column of scores is called score or llr",
    ),
    "decimal commas": (
        ("evaluate", "--scores", "comma.txt", "--key", "true.txt", "--out", "out"), 2,
        "got 'anna call.flac 1,25'; likely cause: a decimal comma; numbers are written with a point",
    ),
    "decimal commas, scores first": (
        ("evaluate", "--scores", "first.txt", "--key", "true.txt", "--out", "out"), 2, "likely cause: a decimal comma"
    ),
    "a decimal comma in a table": (
        ("evaluate", "--scores", "comma.csv", "--key", "true.txt", "--out", "out"), 2,
        "comma.csv, line 2: a score must be a finite number, got '-1,25'; likely cause: a decimal comma",
    ),
    "scores and key exchanged": (
        ("evaluate", "--scores", "true.txt", "--key", "comma.txt", "--out", "out"), 2, "were scores and key exchanged?"
    ),
    "a file for the root": (
        ("evaluate", "s.store", "true.txt", "--root", "call.flac", *EVALUATE), 2,
        "call.flac/call.flac: a part of its path is a file; was one given for a folder?",
    ),
    "label misspelt": (("evaluate", "s.store", "label.txt", *EVALUATE), 2, "line 1"),
    "no system named": (("evaluate", "s.store", "true.txt", "--out", "out", "--systems", ","), 2, "at least one"),
    "claims of strangers": (
        ("evaluate", "s.store", "strangers.txt", *EVALUATE), 2,
        "'hugo': no such speaker is enrolled; 3 of 4 trials claim people who are not enrolled (names: 2); where"
        " enrollment refused them, --not-enrolled NAME",
    ),
    "names of two words": (("trials", "others", "--out", "t.txt"), 2, "CSV holds it (trials --out FILE.csv, convert"),
    "list below no folder": (("trials", "recordings", "--out", "nowhere/t.txt"), 2, "there is no folder nowhere"),
    "true claims alone": (("evaluate", "s.store", "true.txt", *EVALUATE), 0, "need claims of both classes"),
    "missing files": (("evaluate", "s.store", "missing.txt", *EVALUATE), 2, "none of the 1 trials could be scored"),
    "list missing": (("evaluate", "s.store", "nolist.txt", *EVALUATE), 2, "nolist.txt: cannot read it"),
    "other people's folders": (("evaluate", "s.store", "others", *EVALUATE), 2, "must be named as at enrollment"),
    "trials of one speaker": (("trials", "broken", "--out", "t.txt"), 0, "need target and nontarget trials"),
    "folder with a root": (("evaluate", "s.store", "recordings", "--root", ".", *EVALUATE), 2, "--root is for a trial"),
    "nowhere to write": (("evaluate", "s.store", "recordings"), 2, "Missing option '--out'"),
    "plot of a file": (("plot", "true.txt", "--out", "x.png"), 2, "true.txt: it holds no scores.txt; name a folder"),
    "plot of no folder": (("plot", "nowhere", "--out", "x.png"), 2, "nowhere: no such folder; name a folder"),
    "plot of nothing": (("plot", "empty", "--out", "x.png"), 2, "voiceclaim evaluate"),
    # Places to write to
    "a file for the demo's folder": (("demo", "--out", "call.flac"), 2, "call.flac: a folder to write to was expected"),
    "trials into a folder": (("trials", "recordings", "--out", "."), 2, ".: cannot write the list: a file was exp"),
    "trials below a file": (("trials", "recordings", "--out", "call.flac/x"), 2, "call.flac/x: cannot write the list"),
    "list into a folder": (("convert", "true.txt", ".", "--to", "csv"), 2, ".: cannot write the list: a file was exp"),
    "list into itself": (("convert", "true.txt", "./true.txt", "--to", "csv"), 2, "OUT needs a new file"),
    "list over another": (("convert", "true.txt", "comma.txt", "--to", "csv"), 2, "comma.txt: OUT needs a new file"),
    "trials over a list": (("trials", "recordings", "--out", "true.txt"), 2, "needs a new file, and this one exists"),
    "trials to the output": (("trials", "recordings", "--out", "-"), 2, "a list names files relative to its folder"),
    "export into a folder": (("speakers", "export", "s.store", "anna", "--out", "."), 2, "needs a new file"),
    "export into the output": (("speakers", "export", "s.store", "anna", "--out", "-"), 2, "an export is two files"),
    "a log in no folder": ((*VERIFY, "--log", "nowhere/l", "call.flac"), 2, "nowhere/l: no audit log can be kept here"),
    "no backup": (("store", "restore", "nowhere", "s.store"), 2, "nowhere: no backup of a store here; a mistyped"),
    "a folder as the log": ((*VERIFY, "--log", ".", "call.flac"), 2, ".: the audit log cannot be written: a file"),
    "backup into a folder": (("store", "backup", "s.store", "."), 2, ".: no backup can be made here: a file was exp"),
    "backup below no folder": (("store", "backup", "s.store", "nowhere/b"), 2, "there is no folder nowhere"),
    "backup of too long a name": (("store", "backup", "s.store", LONG), 2, f"{LONG}: no backup can be made here"),
    "settings of too long a name": ((*ENROLL, "--config", LONG), 2, "neither a file nor a preset (default, lean"),
    "plot of too long a name": (("plot", LONG, "--out", "x.png"), 2, f"{LONG}: cannot be read"),
    "list of too long a name": (("evaluate", "s.store", LONG, *EVALUATE), 2, f"{LONG}: "),
    # Commands
    "object before verb": (("speakers", "s.store", "list"), 2, "'s.store'; see voiceclaim speakers --help"),
    "removal of a stranger": (("speakers", "remove", "s.store", "Ana"), 2, "'anna'"),
    "removal of nobody": (("speakers", "remove", "s.store", "zz"), 2, "voiceclaim: 'zz': no such speaker is enrolled"),
    "raw record by microphone": (("record", "hugo", "--store", "n", "--raw", "8000"), 2, "give - as AUDIO"),
    "recorded already": (("record", "anna", "--store", "s.store"), 2, "enrolled already: 'anna'; add to them"),
    "recorded alike": (("record", "Anna", "--store", "s.store"), 2, "'Anna' looks like 'anna'"),
    "recorded without a name": (("record", "an\u200bna", "--store", "n"), 2, "a name has visible characters"),
    "recordings kept in a file": (("record", "hugo", "--store", "n", "--keep", "call.flac"), 2, "a folder to write to"),
    "a name that is taken": (("speakers", "rename", "s.store", "anna", "ivan"), 2, "'ivan' is enrolled already"),
    "service without a folder": (("serve", "nowhere/s.store"), 2, "there is no folder nowhere"),
    "service with other settings": (("serve", "s.store", "--set", "machines.C=7"), 2, "enrolled with other settings"),
    "service with no evaluation": (("serve", "s.store", "--evaluation", "empty"), 2, "empty/metrics.json: cannot be"),
    "proxy by its name": (("serve", "s.store", "--proxy", "nginx"), 2, "--proxy must be an IP address or network"),
    "port out of range": (("serve", "s.store", "--port", "99999"), 2, "--port"),
    "key without certificate": (("serve", "s.store", "--tls-key", "k"), 2, "--tls-key requires --tls-cert"),
}  # fmt: skip


@pytest.fixture
def folder(tmp_path, store, demo, heard, garbage, monkeypatch):
    """A folder with a store, recordings and everything that goes wrong; no ffmpeg is on PATH."""
    monkeypatch.setenv("PATH", str(tmp_path / "no programs"))
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "1")
    shutil.copy(store, tmp_path / "s.store")
    shutil.copy(heard("anna"), tmp_path / "call.flac")
    (tmp_path / "empty").mkdir()
    samples, rate = soundfile.read(heard("anna"))
    for name in ("anna", "ivan"):
        (tmp_path / "recordings" / name).mkdir(parents=True)
        shutil.copy(heard(name, 1), tmp_path / "recordings" / name)
        (tmp_path / "others" / f"{name} k").mkdir(parents=True)
        shutil.copy(heard(name), tmp_path / "others" / f"{name} k")
        (tmp_path / "short" / name).mkdir(parents=True)
        soundfile.write(tmp_path / "short" / name / "a.wav", samples[:rate], rate)
    for name in ("memos/hugo", "broken/anna"):
        (tmp_path / name).mkdir(parents=True)
    shutil.copy(garbage, tmp_path / "broken" / "anna")
    memo = b"\0\0\0\x20ftypM4A " + bytes(100)
    for name in ("memo.m4a", "memos/hugo/memo.m4a"):
        (tmp_path / name).write_bytes(memo)
    (tmp_path / "empty.wav").touch()
    (tmp_path / "text.wav").write_text("hello, this is no audio\n" * 9)
    sounds = {
        "silence": np.zeros(2 * rate),
        "clipped": np.clip(30 * samples, -1, 1),
        "nan": np.full(rate, np.nan),
        "phase": np.stack([samples, -samples], axis=1),
    }
    for name, sound in sounds.items():
        soundfile.write(tmp_path / f"{name}.wav", sound, rate, subtype="FLOAT")
    lists = {
        "swapped": "call.flac anna target\ncall.flac ivan nontarget",
        "bare": "anna,call.flac,target",
        "blanks": "speaker path label\nanna call.flac target",
        "label": "anna call.flac maybe",
        "true": "anna call.flac target",
        "comma": "anna call.flac 1,25",
        "first": "1,25 anna call.flac",
        "failed": "anna call.flac nan\nivan call.flac 1.25",
        "missing": "anna nope.flac target",
        "strangers": "anna call.flac target\nhugo call.flac nontarget\nnoah call.flac nontarget\nhugo b.flac target",
    }
    for name, text in lists.items():
        (tmp_path / f"{name}.txt").write_text(f"{text}\n")
    (tmp_path / "set.json").write_text('{"codebook": {"centroids": 8}}')
    (tmp_path / "raw" / "anna").mkdir(parents=True)
    (tmp_path / "raw" / "anna" / "call.ul").write_bytes(bytes(range(256)) * 99)
    (tmp_path / "call.rttm").write_text("SPEAKER call 1 0.0 2.0 <NA> <NA> anna <NA> <NA>\n")
    (tmp_path / "call.TextGrid").write_text('File type = "ooTextFile"\nObject class = "TextGrid"\n\nxmin = 0\n')
    (tmp_path / "praat").mkdir()
    for name in ("call.flac", "call.TextGrid"):
        shutil.copy(tmp_path / name, tmp_path / "praat")
    (tmp_path / "link.flac").symlink_to("call.flac")
    (tmp_path / "ms.csv").write_text("path,speaker,start,end\ncall.flac,anna,200,900\n")
    (tmp_path / "prob.csv").write_text("speaker,path,prob\nanna,call.flac,0.5\n")
    (tmp_path / "comma.csv").write_text('speaker,path,score\nanna,call.flac,"-1,25"\n')
    for name, recording in (("kaldi", "raw.ark:17"), ("test", "call.flac")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "wav.scp").write_text(f"call {recording}\n")
    (tmp_path / "kaldi" / "utt2spk").write_text("call anna\n")
    (tmp_path / "test" / "trials").write_text("anna call target\n")
    return tmp_path


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_has_an_answer(inside, folder, mistake):
    words, code, answer = MISTAKES[mistake]
    before = [(folder / name).read_bytes() for name in ("s.store", "true.txt")]
    result = inside(*words, data=b"this is no WAV file" * 10)
    said = " ".join((result.out + result.err).split())
    assert answer in said
    assert result.code == code, said
    assert "Traceback" not in said and "Error(" not in said
    assert [(folder / name).read_bytes() for name in ("s.store", "true.txt")] == before
    assert not (folder / "new.store").exists() and not (folder / "n").exists()
    if code == 2:
        assert result.err.splitlines()[-1].startswith("voiceclaim: ")


def test_a_service_without_a_folder_names_that_as_its_only_reason(inside):
    result = inside("serve", "nowhere/s.store")
    assert result.err == "voiceclaim: nowhere/s.store: no store can be made here: there is no folder nowhere\n"


def test_a_run_that_enrolls_only_some_names_the_others_last(inside, folder):
    shutil.copytree(folder / "memos" / "hugo", folder / "recordings" / "hugo")
    shutil.copy(folder / "broken" / "anna" / "garbage.wav", folder / "recordings" / "anna" / "broken.wav")
    words = ("--set", "features.rate=8000", "--set", "codebook.min_seconds=1", "--set", "codebook.centroids=8")
    result = inside(*ENROLL, *words, "--set", "supervector.speeds_below=0")
    assert result.code == 4
    assert "skipped recordings/hugo/memo.m4a: this format" in result.err
    assert "skipped recordings/anna/broken.wav: cannot be decoded" in result.err  # its path once
    assert result.err.splitlines()[-1].startswith("voiceclaim: not everything was enrolled: 0 speakers refused, ")


def test_recordings_added_of_somebody_new_are_noted(inside, folder, heard):
    shutil.rmtree(folder / "recordings")
    (folder / "recordings" / "bruno").mkdir(parents=True)
    for number in range(3):
        shutil.copy(heard("bruno", number), folder / "recordings" / "bruno")
    result = inside("enroll", "recordings", "--store", "s.store", "--add")
    assert "of speakers not enrolled so far: 'bruno'" in result.err
    assert result.code == 0, result.err
    assert "1 enrolled" in result.out


def test_names_unlike_what_was_typed_are_not_suggested(inside, folder):
    for words in ((*ENROLL, "--only", "zzzz"), ("verify", "s.store", "--claim", "zzzz", "call.flac")):
        result = inside(*words)
        assert (result.code, "nearest" in result.err) == (2, False)


@pytest.mark.filterwarnings("default")
def test_folders_that_may_be_speakers_are_noted(inside, folder, heard):
    """A folder too high is given; sessions of one person in folders are recordings as any."""
    (folder / "disk").mkdir()
    shutil.copytree(folder / "recordings", folder / "disk" / "recordings")
    words = ("--set", "features.rate=8000", "--set", "codebook.min_seconds=1", "--set", "codebook.centroids=8")
    noted = "note: 2 folders (anna, ivan) count as the one speaker 'recordings'; if they are speakers"
    high = inside("enroll", "disk", "--store", "high.store", *words)
    assert f"{noted}, give the folder that they are in: disk/recordings\n" in high.err
    shutil.copytree(folder / "recordings", folder / "disk" / "others")
    shutil.copytree(folder / "recordings" / "ivan", folder / "disk" / "others" / "lars")
    several = inside("enroll", "disk", "--store", "several.store", *words)
    noted = noted.replace("2 folders (anna, ivan)", "3 folders (anna, ivan, lars)").replace("'recordings'", "'others'")
    assert several.err.count("if they are speakers") == 1
    assert f"{noted}, give --speaker-pattern '[^/]+/([^/]+)/' (speaker_pattern=)\n" in several.err
    shutil.rmtree(folder / "disk" / "others")
    shutil.copy(heard("anna"), folder / "disk" / "recordings")
    mixed = inside("enroll", "disk", "--store", "mixed.store", *words)
    assert (high.code, mixed.code) == (0, 0)
    assert "if they are speakers" not in mixed.err + inside(*ENROLL, *words).err
