"""The command among hostile files, names and outputs: each is named, none is scored, and nothing moves the cursor."""

from __future__ import annotations

import io
import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import hostile
import pytest
from hostile import content_of, hostile_folder

from pipeline.cli.terminal import print_error, print_json, print_line, print_table

pytestmark = hostile.POSIX_ONLY


def test_the_command_refuses_every_hostile_file_by_name_and_scores_none(run, copied, tmp_path):
    files = hostile_folder(tmp_path / "mallory")
    before = content_of(copied)
    paths = [*files, tmp_path / "mallory" / "pipe.wav", tmp_path / "mallory" / "loop.wav", "/dev/zero", tmp_path]
    result = run("verify", copied, "--claim", "anna", "--json", *paths)
    assert result.code == 2
    lines = [json.loads(line) for line in result.out.splitlines()]
    assert [line["file"] for line in lines] == [str(path) for path in paths]
    assert all(line.get("score") is None and line["decision"] in (None, "not_enough_speech") for line in lines)
    for line in lines:
        assert line["decision"] or line["file"] in line["error"]
        assert line["decision"] or f"voiceclaim: {line['error']}" in result.err.splitlines()
    assert content_of(copied) == before


def test_what_a_decoder_prints_does_not_get_into_the_commands_output(run, store, tmp_path):
    whole = bytearray(hostile.encoded("CAF", "ALAC_16", 0.5))
    at = whole.index(b"pakt")
    last = at + 12 + struct.unpack(">Q", whole[at + 4 : at + 12])[0] - 1
    whole[last] = 0xFF  # the size of the last packet goes on behind the table
    (tmp_path / "a.caf").write_bytes(whole)
    result = run("verify", store, "--claim", "anna", "--json", tmp_path / "a.caf")
    assert "alac" in result.err, "this libsndfile is silent about it: find another file that makes it talk"
    assert len(result.out.splitlines()) == 1
    assert json.loads(result.out)["decision"] in (None, "not_enough_speech")


def test_names_cannot_move_the_cursor_or_add_lines(capsys):
    plain = ("🧑‍🚀", "Zoë", "山田\u3000太郎")
    names = ("anna\nbert  9", "\x1b[2J\x1b[H", "\u202eanna", "a\x9bb", "a\u2028b", "\udcff", *plain)
    print_table(("speaker", "seconds"), [(name, 1.5) for name in names])
    shown = capsys.readouterr().out
    assert len(shown.splitlines()) == 1 + len(names)
    assert not set(shown) & set("\x1b\u202e\x9b\u2028\udcff")
    assert all(name in shown for name in plain)
    print_error(f"{names[1]}: no such file\nand more")
    assert capsys.readouterr().err == "voiceclaim: \\x1b[2J\\x1b[H: no such file\nand more\n"


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "ascii"])
def test_output_is_json_whatever_it_can_hold(monkeypatch, encoding):
    buffer = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(buffer, encoding=encoding))
    value = {"name": "🧑‍🚀 Zoë", "file": os.fsdecode(b"M\xfcller.wav")}
    print_json(value)
    print_line(value["file"])
    line, words = buffer.getvalue().decode(encoding).splitlines()
    assert json.loads(line) == value
    assert words == "M\\udcfcller.wav"


@pytest.mark.parametrize("encoding", ["ascii", "ascii:surrogateescape", "latin-1"])  # as of LC_ALL=C, and others
def test_help_is_printed_in_encodings_without_its_characters(run_in, tmp_path, monkeypatch, encoding):
    monkeypatch.setenv("PYTHONIOENCODING", encoding)
    result = run_in(tmp_path, "verify", "--help")
    assert (result.code, result.err) == (0, "")
    assert "voiceclaim verify speakers.store --claim anna call.wav" in result.out


OUTPUTS = [("--help",), ("enroll", "--help"), ("--version",), ("--show-completion", "bash"), ("speakers", "list", "{}")]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no full device")
@pytest.mark.parametrize("words", OUTPUTS, ids=" ".join)
def test_output_that_cannot_be_written_is_said_so_once(command, store, words):
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*command, *(word.format(store) for word in words)],
            stdout=full, stderr=subprocess.PIPE, text=True, timeout=120, check=False,
        )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr == "voiceclaim: the output cannot be written: No space left on device\n"


@pytest.mark.parametrize("words", OUTPUTS, ids=" ".join)
def test_a_reader_that_is_gone_is_no_rejection_and_no_words(command, store, words):
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as gone:
        done = subprocess.run(
            [*command, *(word.format(store) for word in words)],
            stdout=gone, stderr=subprocess.PIPE, text=True, timeout=120, check=False,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (2, "")


def test_output_into_a_full_pipe_that_does_not_block_waits_for_the_reader(command):
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    full = os.write(writer, b" " * 2**20)
    with os.fdopen(writer, "w") as out, os.fdopen(reader) as text:
        running = subprocess.Popen([*command, "--version"], stdout=out, stderr=subprocess.PIPE)
        with pytest.raises(subprocess.TimeoutExpired):
            running.wait(2)
        out.close()
        assert text.read()[full:].startswith("voiceclaim ")
        assert (running.communicate(timeout=60)[1], running.returncode) == (b"", 0)


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_a_closed_output_changes_no_exit_code(command, closed):
    program = " ".join(f"'{word}'" for word in command)
    for words, code in (("--help", 0), ("--version", 0), ("verify no.store --claim anna a.wav", 2)):
        done = subprocess.run(
            ["sh", "-c", f"{program} {words} {closed}"], stdout=subprocess.DEVNULL, timeout=120, check=False
        )
        assert done.returncode == code


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no full device")
@pytest.mark.parametrize("out", [subprocess.DEVNULL, None], ids=["errors", "both"])
def test_an_error_that_cannot_be_written_is_not_taken_for_a_rejection(command, store, out):
    with Path("/dev/full").open("w") as full:
        words = [*command, "verify", str(store), "--claim", "nobody", "a.wav"]
        done = subprocess.run(words, stdout=full if out is None else out, stderr=full, timeout=120, check=False)
    assert done.returncode == 2


@pytest.mark.parametrize(
    ("error", "last"),
    [
        ("OSError(\"cannot load library 'a.so': a.so: cannot open shared object file\")", "shared object file"),
        (
            "ImportError('\\nPLEASE READ THIS\\n\\nb.so: failed to map segment from shared object\\n')",
            ": b.so: failed to map",
        ),
    ],
)
def test_a_library_that_cannot_be_loaded_is_no_traceback(run, tmp_path, demo, monkeypatch, error, last):
    (tmp_path / "soundfile.py").write_text(f"raise {error}\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    result = run("enroll", demo / "enroll", "--store", "n.store")
    assert (result.code, result.out, len(result.err.splitlines())) == (2, "", 1)
    assert result.err.startswith("voiceclaim: a library cannot be loaded: ")
    assert last in result.err
    assert result.err.endswith("; too little memory (ulimit -v), or a damaged installation?\n")


def test_a_closed_input_is_no_traceback(command, store):
    words = " ".join(f"'{word}'" for word in (*command, "verify", str(store), "--claim", "anna", "-"))
    done = subprocess.run(["sh", "-c", f"{words} <&-"], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "voiceclaim: -: the standard input is closed; pipe audio into the command\n"
