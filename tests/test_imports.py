"""The architecture, read from the source: who may import whom, what an import costs, what is never used."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import pipeline

PACKAGE = Path(pipeline.__file__).resolve().parent

SLOW = {"numba", "matplotlib", "librosa", "sklearn", "scipy"}


def name_of(path: Path) -> str:
    """Dotted name of a source file inside the package; the package itself is the empty name."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


SOURCES = {name_of(path): path for path in sorted(PACKAGE.rglob("*.py"))}


@cache
def tree_of(module: str) -> ast.Module:
    return ast.parse(SOURCES[module].read_text(encoding="utf-8"))


def imported(tree: ast.AST, module: str = "", *, is_package: bool = False) -> set[str]:
    """Absolute dotted names that ``module`` imports: anywhere in it, for types only or when a function is called."""
    found = set()
    home = ["pipeline", *(module.split(".") if module else [])]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            up = node.level - (1 if is_package else 0)
            start = home[: len(home) - up] if node.level else []
            base = ".".join([*start, *([node.module] if node.module else [])])
            # What is imported from a package may itself be a module.
            found |= {f"{base}.{alias.name}" for alias in node.names}
    return found


def calls_of(tree: ast.AST) -> list[ast.Call]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call)]


def test_every_room_imports_only_from_the_rooms_below_it():
    found = subprocess.run(
        [Path(sys.executable).parent / "lint-imports"], cwd=PACKAGE.parent, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stdout


# What an import costs


def measured(statement: str) -> tuple[float, set[str]]:
    """Seconds that ``statement`` takes in a fresh process, and the top-level modules loaded after it."""
    code = (
        "import sys, time; started = time.perf_counter(); "
        f"{statement}\nprint(time.perf_counter() - started, *sys.modules, sep='\\n')"
    )
    seconds, *modules = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    return float(seconds), {name.partition(".")[0] for name in modules}


def test_importing_the_package_is_quick_and_loads_no_slow_library():
    runs = [measured("import pipeline") for _ in range(3)]
    assert min(seconds for seconds, _ in runs) < 0.3
    _, loaded = runs[0]
    assert "pipeline" in loaded
    assert not loaded & (SLOW | {"numpy", "pydantic"})


def test_the_command_line_says_its_help_without_loading_a_slow_library():
    _, loaded = measured("import pipeline.cli.app")
    assert not loaded & (SLOW | {"numpy"})


@pytest.mark.parametrize("words", ["enroll nowhere --store s", "plot nowhere --out x.png", "compare here there"])
def test_a_mistake_in_a_command_is_told_before_a_slow_library_is_loaded(words):
    command = f"sys.argv[1:] = {words.split()}; import contextlib; from pipeline.cli.main import main"
    _, loaded = measured(f"{command}\nwith contextlib.suppress(SystemExit): main()\n")
    assert "numpy" in loaded
    assert not loaded & SLOW


def test_every_public_name_is_there_and_documented():
    assert len(pipeline.__all__) == len(set(pipeline.__all__)) > 10
    for name in pipeline.__all__:
        value = getattr(pipeline, name)
        if name != "__version__":
            assert value.__name__ == name
            assert value.__doc__
    assert set(pipeline.__all__) <= set(dir(pipeline))


def test_a_name_that_is_not_public_is_an_attribute_error():
    with pytest.raises(AttributeError, match="No pipeline attribute enrol"):
        _ = pipeline.enrol


# What is never used


@pytest.mark.parametrize("module", SOURCES)
def test_no_module_runs_text_as_code_or_unpickles(module):
    tree = tree_of(module)
    roots = {name.partition(".")[0] for name in imported(tree)}
    forbidden = {"pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal", "subprocess", "socket"}
    allowed = {"server.run": {"socket"}, "audio.ffmpeg": {"subprocess"}}.get(module, set())
    assert not roots & (forbidden - allowed)
    for call in calls_of(tree):
        called = call.func
        if isinstance(called, ast.Name):
            assert called.id not in {"eval", "exec", "compile", "__import__"}, f"line {call.lineno}"
        if isinstance(called, ast.Attribute):
            assert (
                called.attr not in {"system", "popen"}
                or not isinstance(called.value, ast.Name)
                or (called.value.id != "os")
            ), f"line {call.lineno}"
        for keyword in call.keywords:
            assert not (keyword.arg in {"shell", "allow_pickle"} and getattr(keyword.value, "value", True)), call.lineno


def test_verifying_a_file_loads_no_library_that_it_does_not_need(store, heard):
    """Each of these takes a tenth of a second to a second to load."""
    code = (
        "import sys; from pipeline import Store, Verifier;"
        f" update = Verifier(Store({str(store)!r}).load(), 'anna').verify_file({str(heard('anna'))!r});"
        " slow = {'numba', 'scipy', 'sklearn', 'joblib', 'matplotlib', 'librosa', 'dask'};"
        " print(update.llr is not None, slow & set(sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (run.stdout, run.stderr) == ("True set()\n", "")
