"""Code on the pages: every block runs as it stands or says why not.

A page is run from its first block to its last in a folder that holds what pages name: ``recordings/``, ``verify/``,
``trials.txt``, ``call.wav``, ``other-results/`` and ``speakers.store``, made from six voices of data/demo. What the
page makes itself is left out, and everything where it copies the demo corpus. Python blocks share one session, and a
variable ``microphone``. Lines of HTML comment before a block, which no reader sees, say what is special about it:

    <!-- not run: REASON -->                  the block
    <!-- not run where "TEXT": REASON -->     the block's lines that hold TEXT
    <!-- fresh folder -->                     from here on the folder, and Python's names, are as at the start

A shell line that ends in ``# exit code N`` must give that code, all others 0. In a console block the lines after a
``$ command`` are what it prints: numbers within 5 percent or 0.05, anything for ``...``, and any white space.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import soundfile
import soxr
from filelock import FileLock
from pages import NOT_RUN, PAGES, ROOT, RUNNABLE, Block, blocks_of, page
from printed import as_printed

VOICES = ("anna", "bruno", "clara", "dexter", "ivan", "lars")
# What is shown and never run.
SHOWN = {"", "text", "toml", "json", "yaml", "ini", "http", "csv", "html", "javascript", "js", "diff", "nginx"}
# What no test may do: change the environment or the machine, wait for somebody to speak, or serve for ever.
HARMFUL = re.compile(
    r"\b(?:pip install|docker|sudo|apt|apt-get|systemctl|voiceclaim serve|arecord|ffmpeg|sox)\b|--mic\b"
)
EXIT_CODE = re.compile(r"^(?P<line>.*?)\s*#\s*exit code (?P<code>\d+)\b.*$")


def test_blocks_are_read_and_what_they_print_is_compared():
    text = (
        'a\n\n<!-- not run where "b": why -->\n<!-- fresh folder -->\n\n```sh\na\nb # c\n```\n'
        "1. x\n\n   <!-- not run: no -->\n   ```python\n   if x:\n\n       y\n   ```\n"
        "```json\n{}\n```\n```{eval-rst}\nz\n```\n"
    )
    shell, python, json, directive = blocks_of(text)
    assert (shell.kept, shell.fresh, shell.excuses, shell.line) == ("a\n", True, {"b": "why"}, 6)
    assert (python.excuses, python.kept, python.code) == ({None: "no"}, "", "if x:\n\n    y\n")
    assert json.language == "json" and not json.runnable and not json.comments
    assert directive.language == "" and directive.code == "z\n"
    assert session("$ a\nb\n\n$ c\n") == [("a", "b\n\n"), ("c", "")]
    assert as_printed("EER 1.00 %\n a ... c\n", "EER  1.02 %\na\nb\nc")
    assert not as_printed("EER 1.00 %", "EER 1.20 %") and not as_printed("a b", "a c")
    assert as_printed("{'anna' accepted, -5.2 (x)}", "{'anna' accepted, -5.23 (x)}")
    assert as_printed("s(3.6 f +0.50) + 1", "s(3.62 f +0.48) + 1") and not as_printed("a + b", "a  b")


# Without running anything


@pytest.mark.parametrize("name", PAGES)
def test_every_block_is_run_or_says_why_not(name):
    for block in page(name)[1]:
        where = f"{name}, line {block.line}"
        assert block.language in RUNNABLE | SHOWN, f"{where}: neither run nor shown: {block.language}"
        special = [comment for comment in block.comments if "not run" in comment]
        assert all(NOT_RUN.fullmatch(comment) for comment in special), f"{where}: {special}"
        for text, reason in block.excuses.items():
            assert text is None or text in block.code, f"{where}: no line has {text!r}"
            assert len(reason) > 10, f"{where}: a reason, please"
        if block.runnable and None not in block.excuses:
            assert block.kept.strip(), f"{where}: every line is left out; say so of the block"
            harm = block.language != "python" and HARMFUL.search(re.sub(r"#.*", "", block.kept))
            assert not harm, (
                f"{where}: {harm and harm[0]!r} cannot be run here; say why not (see this file's beginning)"
            )
            check_syntax(block, where)


def check_syntax(block: Block, where: str) -> None:
    if block.language == "python":
        compile(block.kept, where, "exec")
        return
    script = block.kept if block.language != "console" else "\n".join(command for command, _ in session(block.kept))
    done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{where}: {done.stderr}"


# Running the pages


@dataclass(frozen=True)
class Prepared:
    """Folders that hold what pages name."""

    inputs: Path
    made: Path

    def fill(self, folder: Path, code: str) -> None:
        """Put everything into ``folder`` but what ``code`` makes itself."""
        if "demo_folder()" in code:
            return
        shutil.copytree(self.inputs, folder, dirs_exist_ok=True)
        for name in ("speakers.store", "other-results"):
            makes = re.search(rf"--(?:store|out) {name}|enroll\(\s*\"{name}\"", code)
            if re.search(rf"\b{name}\b", code) and not makes:
                copy = shutil.copytree if (self.made / name).is_dir() else shutil.copyfile
                copy(self.made / name, folder / name)


@pytest.fixture(scope="session")
def prepared(tmp_path_factory, demo) -> Prepared:
    """Made once, whatever the number of test processes."""
    base = tmp_path_factory.getbasetemp()
    shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "pages"
    shared.mkdir(exist_ok=True)
    inputs, made = shared / "inputs", shared / "made"
    with FileLock(shared / "lock"):
        if not (shared / "done").exists():
            for voice in VOICES:
                shutil.copytree(demo / "enroll" / voice, inputs / "recordings" / voice)
            shutil.copytree(demo / "verify", inputs / "verify")
            lines = (demo / "trials.txt").read_text(encoding="utf-8").splitlines(keepends=True)
            (inputs / "trials.txt").write_text("".join(line for line in lines if line.split()[0] in VOICES))
            samples, rate = soundfile.read(next(iter(sorted((demo / "verify" / "anna").glob("*.flac")))))
            soundfile.write(inputs / "call.wav", samples, rate)
            shutil.copytree(inputs, made)
            for line in (
                "voiceclaim enroll recordings/ --store speakers.store --jobs 1",
                "voiceclaim evaluate speakers.store trials.txt --systems worst_rival --out other-results --jobs 1",
            ):
                subprocess.run(shlex.split(line), cwd=made, env=environment(), check=True, capture_output=True)
            (shared / "done").touch()
    return Prepared(inputs, made)


def environment() -> dict[str, str]:
    """Environment of a reader whose installed command is this checkout's."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PYTHONPATH": str(ROOT), "PATH": path}


def session(code: str) -> list[tuple[str, str]]:
    """Commands of a console block, and what each prints."""
    result: list[tuple[str, str]] = []
    for line in code.splitlines():
        if line.startswith("$ "):
            result.append((line[2:], ""))
        elif line.startswith("> ") and result and not result[-1][1]:
            result[-1] = (f"{result[-1][0]}\n{line[2:]}", "")
        elif result:
            result[-1] = (result[-1][0], f"{result[-1][1]}{line}\n")
    return result


def with_exit_codes(script: str) -> str:
    """``script`` with lines that end in ``# exit code N`` made to give 0 for N."""
    lines = []
    for line in script.splitlines():
        marked = EXIT_CODE.match(line)
        lines.append(f"code=0; {marked['line']} || code=$?; [ $code -eq {marked['code']} ]" if marked else line)
    return "\n".join(lines) + "\n"


def run_shell(script: str, folder: Path, where: str) -> str:
    """Run a script, every command of which must do what it says, and return both outputs."""
    process = subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", with_exit_codes(script)],
        cwd=folder,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        out, _ = process.communicate(timeout=300)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, f"{where}: exit code {process.returncode} of\n{script}\n{out[-2000:]}"
    assert "Traceback" not in out, f"{where}: {out[-2000:]}"
    return out


def run_block(block: Block, folder: Path, names: dict[str, Any], where: str) -> None:
    assert block.language == "python" or not HARMFUL.search(re.sub(r"#.*", "", block.kept)), where
    if block.language == "python":
        exec(compile(block.kept, where, "exec"), names)  # noqa: S102
    elif block.language == "console":
        for command, expected in session(block.kept):
            result = run_shell(command, folder, where)
            assert as_printed(expected, result), f"{where}: {command} printed\n{result}"
    else:
        run_shell(block.kept, folder, where)


def microphone(inputs: Path) -> list[Any]:
    """Tenths of a second of call.wav at 48 kHz, in a list."""
    samples, rate = soundfile.read(inputs / "call.wav")
    samples = soxr.resample(samples, rate, 48_000)
    return [samples[start : start + 4800] for start in range(0, len(samples), 4800)]


def blocks_to_run(name: str) -> list[Block]:
    return [block for block in page(name)[1] if block.runnable and block.kept.strip()]


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in PAGES if blocks_to_run(name)])
def test_the_code_on_the_page_runs(name, tmp_path, prepared, monkeypatch):
    acts: list[list[Block]] = [[]]
    for block in blocks_to_run(name):
        if block.fresh and acts[-1]:
            acts.append([])
        acts[-1].append(block)
    for number, act in enumerate(acts):
        here = tmp_path / str(number)
        here.mkdir()
        prepared.fill(here, "".join(block.kept for block in act))
        monkeypatch.chdir(here)
        names: dict[str, Any] = {"__name__": "__main__", "microphone": microphone(prepared.inputs)}
        for block in act:
            with contextlib.redirect_stdout(io.StringIO()):
                run_block(block, here, names, f"{name}, line {block.line}")


@pytest.mark.slow
def test_the_first_page_shows_what_a_claim_prints(prepared):
    printed = run_shell("voiceclaim verify speakers.store --claim anna call.wav\n", prepared.made, "README.md")
    assert f"\n    {printed}" in (ROOT / "README.md").read_text(encoding="utf-8")
