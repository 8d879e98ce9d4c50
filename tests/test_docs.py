"""The pages: every block of code runs as it stands or says why not, every link and every name leads somewhere.

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
import functools
import importlib
import io
import json
import os
import re
import runpy
import shlex
import shutil
import signal
import subprocess
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import attack_service
import attacks_on_time
import pytest
import soundfile
import soxr
from filelock import FileLock
from printed import as_printed
from typer.main import get_command

from pipeline.cli.main import app
from pipeline.verification.attempts import AttemptLimits

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PAGES = {
    str(path.relative_to(ROOT)): path
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    if not {"_build", "_ext"} & set(path.parts)
}
VOICES = ("anna", "bruno", "clara", "dexter", "ivan", "lars")
RUNNABLE = {"python", "sh", "bash", "console"}
# What is shown and never run.
SHOWN = {"", "text", "toml", "json", "yaml", "ini", "http", "csv", "html", "javascript", "js", "diff", "nginx"}
FENCE = re.compile(r"^(?P<indent> *)```(?P<language>[\w-]*)[^\n]*\n(?P<code>.*?)^(?P=indent)``` *$", re.M | re.S)
NOT_RUN = re.compile(r'<!-- not run(?: where "(?P<where>[^"]+)")?: (?P<reason>[^>]+?) -->')
# What no test may do: change the environment or the machine, wait for somebody to speak, or serve for ever.
HARMFUL = re.compile(
    r"\b(?:pip install|docker|sudo|apt|apt-get|systemctl|voiceclaim serve|arecord|ffmpeg|sox)\b|--mic\b"
)
EXIT_CODE = re.compile(r"^(?P<line>.*?)\s*#\s*exit code (?P<code>\d+)\b.*$")


@dataclass(frozen=True)
class Block:
    """A fenced block: its ``language``, where it begins (``line``), and the comments right before it."""

    language: str
    code: str
    line: int
    comments: tuple[str, ...]

    @property
    def runnable(self) -> bool:
        return self.language in RUNNABLE

    @property
    def excuses(self) -> dict[str | None, str]:
        """Reasons by what the lines hold that are not run; None stands for the whole block."""
        return {m["where"]: m["reason"] for comment in self.comments if (m := NOT_RUN.fullmatch(comment))}

    @property
    def fresh(self) -> bool:
        return "<!-- fresh folder -->" in self.comments

    @property
    def kept(self) -> str:
        """The code that is run: nothing of an excused block."""
        if None in self.excuses:
            return ""
        lines = self.code.splitlines(keepends=True)
        return "".join(line for line in lines if not any(text in line for text in self.excuses))


def blocks_of(text: str) -> list[Block]:
    """Every fenced block of a page, in order."""
    result = []
    for match in FENCE.finditer(text):
        before = text[: match.start()].rstrip().splitlines()
        comments: list[str] = []
        while before and re.fullmatch(r"\s*<!--.*-->\s*", before[-1]):
            comments.insert(0, before.pop().strip())
        width = len(match["indent"])
        code = "".join(line[width:] if line.strip() else line for line in match["code"].splitlines(keepends=True))
        line = text.count("\n", 0, match.start()) + 1
        result.append(Block(match["language"], code, line, tuple(comments)))
    return result


@functools.cache
def page(name: str) -> tuple[str, tuple[Block, ...]]:
    text = PAGES[name].read_text(encoding="utf-8")
    return text, tuple(blocks_of(text))


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


def command_lines(name: str) -> Iterator[tuple[str, list[str]]]:
    """Words of every call of the command on a page, run or not."""
    for block in page(name)[1]:
        if block.language in RUNNABLE - {"python"}:
            code = block.code.replace("\\\n", " ")
            for line in code.splitlines():
                for part in re.split(r"\||&&|;|\$\(", line.removeprefix("$ ")):
                    words = part.split("#")[0].split()
                    if words[:1] == ["voiceclaim"]:
                        yield f"{name}, line {block.line}: {part.strip()}", words[1:]


@pytest.mark.parametrize("name", PAGES)
def test_commands_and_options_exist(name):
    commands = get_command(app).commands
    for where, words in command_lines(name):
        if not words or words[0].startswith("-"):
            continue
        assert words[0] in commands, f"{where}: no such command"
        known = {option for p in commands[words[0]].params for option in (*p.opts, *p.secondary_opts)} | {"--help"}
        used = {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)}
        assert used <= known, f"{where}: no option {used - known}"


@pytest.mark.parametrize("name", PAGES)
def test_links_to_files_and_headings_lead_somewhere(name):
    text = re.sub(r"^```.*?^```", "", page(name)[0], flags=re.M | re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        aim = (PAGES[name].parent / path).resolve() if path else PAGES[name]
        assert aim.exists(), f"{name}: {target}"
        # Headings that are made at the build are looked for by scripts/docs.
        if anchor and aim.suffix == ".md" and "<!-- generated: " not in aim.read_text(encoding="utf-8"):
            assert anchor in anchors_of(aim), f"{name}: {target} is none of {sorted(anchors_of(aim))}"


@functools.cache
def anchors_of(path: Path) -> frozenset[str]:
    """Headings of a page as GitHub and MyST name them."""
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.M | re.S)
    titles = re.findall(r"^#{1,6} (.+)$", text, re.M)
    return frozenset(re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-") for title in titles)


@pytest.mark.parametrize("name", PAGES)
def test_functions_and_modules_that_a_page_names_exist(name):
    for dotted in sorted(set(re.findall(r"`(pipeline(?:\.\w+)+)`", page(name)[0]))):
        resolve(dotted, name)
    for path in re.findall(r"`(pipeline/[\w/]+\.py)`", page(name)[0]):
        assert (ROOT / path).is_file(), f"{name}: {path}"


def resolve(dotted: str, name: str) -> Any:
    """Fail, with the page's ``name``, unless ``dotted`` is a module or in one."""
    parts = dotted.split(".")
    for cut in range(len(parts), 0, -1):
        with contextlib.suppress(ModuleNotFoundError, AttributeError):
            return functools.reduce(getattr, parts[cut:], importlib.import_module(".".join(parts[:cut])))
    raise AssertionError(f"{name}: there is no {dotted}")


def test_the_explanation_says_where_each_equation_is():
    rows = [
        line for line in page("docs/explanation.md")[0].splitlines() if line.startswith("|") and "`pipeline." in line
    ]
    marked = " ".join(row.split("|")[1] for row in rows)
    assert {"10", "12", "13", "14", "15", "16", "17", "18"} <= set(re.findall(r"\d+", marked))


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
    """That of a reader whose installed command is this checkout's."""
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


# What pages are made of at the build


def extension(name: str) -> types.SimpleNamespace:
    """Names of a module of docs/_ext."""
    return types.SimpleNamespace(**runpy.run_path(str(ROOT / "docs" / "_ext" / f"{name}.py")))


def test_tables_of_results_are_those_of_the_files_and_the_page_quotes_them():
    made, folder = extension("benchmark_results"), RESULTS
    rows = [cells(row) for row in made.systems(folder).splitlines()[2:]]
    result = json.loads((folder / "real_speech.json").read_text(encoding="utf-8"))
    for row, truth in zip(rows, result, strict=True):
        assert row[:3] == [truth["corpus"], truth["config"], truth["list"]]
        for system, shown in zip(made.SYSTEMS, row[3 : 3 + len(made.SYSTEMS)], strict=True):
            rate = truth["systems"].get(system, {}).get("eer_percent")
            assert shown == ("-" if rate is None else f"{rate:.2f}")
        own = truth["systems"][made.DEFAULTS[truth["config"]]]
        errors = [f"{own[f'false_{kind}_percent']:.2f}" for kind in ("reject", "accept")]
        assert row[3 + len(made.SYSTEMS) :] == [*errors, f"{truth['enroll_seconds']:.0f}"]
    quoted = [
        row for line in page("docs/results.md")[0].splitlines() if (row := cells(line))[:3] in [r[:3] for r in rows]
    ]
    assert sorted(quoted) == sorted(rows)
    for name, make in made.TABLES.items():
        text = make(folder)
        assert "nan" not in text.lower().split() and len(text) > 100, name
    assert len({line.count("|") for line in made.accuracy(folder).splitlines()}) == 1


def test_bars_are_those_of_the_files():
    made = extension("benchmark_results")
    text = made.chart(RESULTS)
    peers = json.loads((RESULTS / "peers.json").read_text(encoding="utf-8"))["rows"]
    wanted = ("trials_test_tel", "CAM++", "less its best rival")
    (peer,) = [row["eer_percent"] for row in peers if (row["list"], row["system"], row["normalisation"]) == wanted]
    result = json.loads((RESULTS / "real_speech.json").read_text(encoding="utf-8"))
    (own,) = [row["systems"] for row in result if (row["list"], row["config"]) == ("trials_test_tel", "default")]
    paper = min(own[rule]["eer_percent"] for rule in ("boar", "poar", "boao", "poao", "rpoao"))
    bars = made.bars_of(RESULTS)["commands30, trials_test_tel"]
    assert [*bars.values()] == [peer, paper, own["fused"]["eer_percent"]]
    shown = re.findall(r'class="rate"[^>]*>([\d.]+)<', text)
    assert shown == [f"{rate:.2f}" for group in made.bars_of(RESULTS).values() for rate in group.values()]


def test_the_comparison_of_the_first_page_is_that_of_the_files():
    made = extension("benchmark_results")
    shown = made.comparison(RESULTS).replace(made.NO_BREAK, " ")
    assert shown in page("README.md")[0]
    bold = [line for line in shown.splitlines() if "**" in line]
    assert bold == []
    # The default's rows of the encoders' file are those of the run that the other tables are of.
    rows = json.loads((RESULTS / "real_speech.json").read_text(encoding="utf-8"))
    run = {(row["corpus"], row["list"]): row["systems"]["fused"] for row in rows if row["config"] == "default"}
    paired = [
        row
        for row in json.loads((RESULTS / "peers.json").read_text(encoding="utf-8"))["rows"]
        if row["system"] == "default"
    ]
    assert len(paired) >= 5
    for row in paired:
        for rate in ("eer_percent", "false_accept_percent", "false_reject_percent"):
            assert row[rate] == pytest.approx(run[row["corpus"], row["list"]][rate])


def test_rates_quoted_on_other_pages_are_those_of_the_file():
    result = json.loads((RESULTS / "real_speech.json").read_text(encoding="utf-8"))
    rows = [row for row in result if (row["corpus"], row["config"]) == ("commands30", "default")]
    rate = {row["list"]: row["systems"]["fused"]["eer_percent"] for row in rows}
    explanation = " ".join(page("docs/explanation.md")[0].split())
    assert f"from {rate['trials_test']:.1f} to {rate['trials_test_tel']:.0f} percent" in explanation


def test_rates_of_identification_in_the_reference_are_those_of_the_file():
    rows = json.loads((RESULTS / "identification.json").read_text(encoding="utf-8"))["rows"]
    (row,) = [row for row in rows if (row["list"], row["system"]) == ("trials_open", "fused")]
    text = " ".join(page("docs/reference/commands.md")[0].split())
    for key in ("rank1_error_percent", "fpir_percent", "fnir_percent", "fnir_at_fpir1_percent"):
        assert f"{row[key]:.2f} %" in text, key
    for peer, words in (
        ("Resemblyzer", "is wrong in {:.2f} %, and at 1 % it misses {:.2f} %"),
        ("CAM++", "in {:.2f} % and {:.2f} %"),
    ):
        (row,) = [row for row in rows if (row["list"], row["system"]) == ("trials_open", f"{peer}, cosine")]
        assert words.format(row["rank1_error_percent"], row["fnir_at_fpir1_percent"]) in text, peer


def test_the_table_of_readings_of_reuters_is_that_of_the_file():
    errors = json.loads((RESULTS / "reuters_readings.json").read_text(encoding="utf-8"))["errors"]
    base = next(iter(errors.values()))
    rows = [f"| {name} | {count} | {count - base:+d} |" for name, count in errors.items()]
    assert "\n".join(rows) in (ROOT / "benchmarks" / "REPRODUCE.md").read_text(encoding="utf-8")


def test_the_table_of_kinds_left_out_is_that_of_the_file():
    from benchmarks.left_out import markdown

    result = json.loads((RESULTS / "left_out.json").read_text(encoding="utf-8"))
    assert markdown(result["rows"]) in (ROOT / "benchmarks" / "ROBUSTNESS.md").read_text(encoding="utf-8")
    rates = [row["left_out"]["eer_percent"] for row in result["rows"]]
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert f"have {min(rates):.2f} to {max(rates):.2f} percent, {fmean(rates):.2f} in the mean" in readme


def test_the_load_and_the_attacks_are_those_of_the_files():
    load = json.loads((RESULTS / "load.json").read_text(encoding="utf-8"))
    text = " ".join((ROOT / "docs" / "deployment.md").read_text(encoding="utf-8").split())
    assert (load["streams"], load["seconds"], load["dropped"]) == (64, 600.0, 0)
    assert f"dropped nothing of {load['chunks']:,} chunks, kept its memory, and gave {load['p95_ms']:.0f} ms" in text
    assert f"half of the updates within {load['p50_ms']:.0f} ms" in text
    attacks = json.loads((RESULTS / "attacks.json").read_text(encoding="utf-8"))["attacks"]
    assert all(one["held"] for name, one in attacks.items() if name != "quiet")
    beside = [attack.__name__ for attack in attacks_on_time.ATTACKS]
    *some, last = (f"{attacks[name]['honest']['update_p95_ms']:.0f}" for name in beside)
    security = " ".join((ROOT / "SECURITY.md").read_text(encoding="utf-8").split())
    quiet = f"{attacks['quiet']['honest']['update_p95_ms']:.0f} ms in quiet"
    assert f"within {quiet}, and within {', '.join(some)} and {last} ms beside" in security
    slowest = max(attacks[name]["honest"]["healthz_p95_ms"] for name in beside)
    assert f"/healthz answered within {slowest:.0f} ms beside all of them" in security
    goals = max(attacks[name]["honest"]["update_p95_ms"] for name in beside) <= 150 and slowest <= 50
    assert goals and "The goals, 150 and 50 ms, are met there" in security


def test_the_table_of_duplicates_is_that_of_the_file_and_holds_what_is_promised():
    from benchmarks.duplicate_audio import COUNTED_ONLY, LEAST_FOUND, MOST_FLAGGED, markdown

    result = json.loads((RESULTS / "duplicate_audio.json").read_text(encoding="utf-8"))
    assert markdown(result) in page("docs/duplicate-audio.md")[0]
    for name, row in result["changed"].items():
        assert row["found"] >= LEAST_FOUND * row["tried"] or name == COUNTED_ONLY, name
    assert all(row["flagged"] <= MOST_FLAGGED * row["tried"] for row in result["genuine"].values())


def test_the_table_of_first_users_is_that_of_the_file():
    from benchmarks.first_users import markdown

    result = json.loads((RESULTS / "first_users.json").read_text(encoding="utf-8"))
    assert result["list"] == "trials_dev"
    assert markdown(result["rows"]) in page("docs/explanation.md")[0]


def test_security_says_what_was_measured():
    text = " ".join((ROOT / "SECURITY.md").read_text(encoding="utf-8").split())
    attacks = [attack.__name__ for module in attack_service.PARTS for attack in module.ATTACKS]
    assert [name for name in attacks if f"`{name}`" not in text] == []
    wolves = json.loads((RESULTS / "wolves.json").read_text(encoding="utf-8"))
    rate, stricter = wolves["false_accept_percent"], wolves["false_accept_percent_at_prior"]["0.1"]
    assert wolves["inputs"] >= 1000 and sum(row["inputs"] for row in wolves["rows"]) == wolves["inputs"]
    assert f"made {wolves['inputs']:,} sounds" in text
    assert f"at the default threshold {rate:.1f} % of the claims" in text
    assert f"At a prior of 0.1 it is {stricter:.2f} %" in text
    hill = json.loads((RESULTS / "hill_climb.json").read_text(encoding="utf-8"))
    accepted, count = hill["accepted_within"][str(hill["queries"])], hill["claims"]
    assert hill["queries"] == 250
    assert f"{accepted['anew']} of {count} claims accepted by tries drawn anew, {accepted['walk']} by steps" in text
    day = hill["accepted_within"]["34"]
    assert f"{day['anew']} and {day['walk']} by the 34 tries" in text
    assert f"{day['scores']} of {count} claims by the 34 tries of a day, about as many as by tries" in text
    assert abs(day["scores"] - day["anew"]) <= 2
    assert f"**{accepted['scores']} of {count}** by 250" in text
    assert f"{accepted['tenths']} of {count} claims by 250 tries" in text
    waits = [AttemptLimits().wait(failures) for failures in range(hill["queries"])]
    assert sum(waits[:34]) < 86_400 < sum(waits[:35])
    assert f"by 250, which take {sum(waits) / 86_400:.1f} days" in text


def cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip().strip("|").split("|")]


def test_the_reference_has_every_command_and_option():
    text = extension("command_line").markdown()
    for name, command in get_command(app).commands.items():
        section = text.split(f"\n## voiceclaim {name}\n" if name != "enroll" else f"## voiceclaim {name}\n")[1]
        section = section.split("\n## ")[0]
        for parameter in command.params:
            for option in parameter.opts if parameter.param_type_name == "option" else ():
                assert re.search(rf"`[^`\n]*{re.escape(option)}\b", section), f"{name}: {option}"


def test_links_of_built_pages_that_lead_nowhere_are_found(tmp_path):
    (tmp_path / "a.html").write_text('<p id="x"><a href="b.html#y">1</a><a href="b.html#z">2</a><a href="#x">3</a>')
    (tmp_path / "b.html").write_text(
        '<p id="y"><a href="c.html">4</a><a href="https://example.org/">5</a><img src="d.png">'
    )
    assert extension("check_built").broken(tmp_path) == ["a.html: b.html#z", "b.html: c.html", "b.html: d.png"]


def test_docstrings_are_shown_as_they_are_written():
    pytest.importorskip("sphinx")
    plain = extension("docstrings").plain
    assert plain(["``A_`` and B_, |x|, a * b, `c`."]) == ["``A_`` and B\\_, \\|x\\|, a \\* b, \\`c\\`."]
    assert plain(["A tree.", "", "    a", "    └── b_", "", "After."]) == [
        "A tree.", "", "::", "", "    a", "    └── b_", "", "After.",
    ]  # fmt: skip


def test_a_newcomers_commands_are_the_readmes():
    names = runpy.run_path(str(ROOT / "scripts" / "newcomer"), run_name="newcomer")
    lines = names["commands"](ROOT / "README.md", "voiceclaim enroll")
    assert lines[0].startswith("pip install")
    assert any(line.startswith("voiceclaim enroll") for line in lines)
    assert any(line.startswith("voiceclaim verify") and "call.wav" in line for line in lines)
    assert not any("ffmpeg" in line for line in lines)
    assert all(f"\n{line}\n" in page("README.md")[0] for line in lines)


def test_functions_that_the_page_on_architecture_names_are_where_it_says():
    """`Class.method` or `function`, one or more with commas between them, before (`folder/file.py`)."""
    named = re.findall(r"((?:`[\w.]+`(?:, )?)+) \(`([\w/]+\.py)`\)", page("docs/architecture.md")[0])
    assert len(named) > 30
    for names, path in named:
        source = (ROOT / "pipeline" / path).read_text(encoding="utf-8")
        for name in re.findall(r"\w+", names):
            assert re.search(rf"(?:def|class) {name}\b", source), f"{name} in {path}"


# The built pages


@pytest.mark.slow
def test_the_pages_are_built_without_a_warning_and_none_of_their_text_is_cut_off(tmp_path):
    pytest.importorskip("sphinx")
    pytest.importorskip("myst_nb")
    done = subprocess.run(
        [ROOT / "scripts" / "docs", tmp_path / "html"], capture_output=True, text=True, check=False, timeout=500
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    index = (tmp_path / "html" / "index.html").read_text(encoding="utf-8")
    assert "Voiceclaim" in index
    for name in PAGES:
        if name != "README.md":
            assert (tmp_path / "html" / Path(name).relative_to("docs")).with_suffix(".html").is_file()
    pytest.importorskip("selenium.webdriver")
    from browser import CHROMIUM, DRIVER, WIDTHS, browser

    if CHROMIUM is None or DRIVER is None:
        return
    with browser("") as seen:
        for path in sorted((tmp_path / "html").rglob("*.html")):
            for width in WIDTHS:
                seen.resize(width)
                seen.driver.get(f"file://{path}")
                assert seen.clipped() == [], f"{path.name} at {width}"
