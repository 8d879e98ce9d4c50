"""Examples in docstrings: every public name has one, and all run in a folder with a store, audio and a trial list."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
import shutil

import numpy as np
import pytest
import soundfile

import pipeline

NAMES = sorted(set(pipeline.__all__) - {"__version__"})


@pytest.fixture(scope="module")
def folder(tmp_path_factory, store, demo, heard):
    folder = tmp_path_factory.mktemp("examples")
    shutil.copy(store, folder / "speakers.store")
    shutil.copy(heard("anna"), folder / "call.wav")
    for name, parts in (("letter", (1, 2)), ("reply", (3, 4))):
        read = [soundfile.read(heard("anna", n)) for n in parts]
        soundfile.write(folder / f"{name}.wav", np.concatenate([samples for samples, _ in read]), read[0][1])
    for name in ("anna", "ivan"):
        (folder / "recordings" / name).mkdir(parents=True)
        for file in sorted((demo / "enroll" / name).glob("*.flac"))[:3]:
            shutil.copy(file, folder / "recordings" / name)
    (folder / "trials.txt").write_text("anna call.wav target\nivan call.wav nontarget\n")
    own = [(name, heard(name, n)) for name in ("anna", "ivan") for n in range(6)]
    lines = [
        f"{claim} {file} {'target' if claim == name else 'nontarget'}\n"
        for name, file in own
        for claim in ("anna", "ivan")
    ]
    (folder / "own.txt").write_text("".join(lines))
    return folder


def all_examples() -> list[doctest.DocTest]:
    """The examples of every function, class and method in the package."""
    modules = [importlib.import_module(one.name) for one in pkgutil.walk_packages(pipeline.__path__, "pipeline.")]
    finder = doctest.DocTestFinder(exclude_empty=True)
    found = [examples for module in modules for examples in finder.find(module, extraglobs={})]
    return sorted({examples.name: examples for examples in found if examples.examples}.values())


@pytest.mark.parametrize("examples", all_examples(), ids=lambda examples: examples.name)
def test_examples_run(examples, folder, tmp_path, monkeypatch):
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    examples.globs = {}  # an example imports what it uses
    flags = doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL
    assert doctest.DocTestRunner(optionflags=flags, verbose=False).run(examples).failed == 0
    assert not any(doctest.SKIP in example.options for example in examples.examples), "an example is skipped"


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_has_an_example(name):
    assert ">>> " in (inspect.getdoc(getattr(pipeline, name)) or "")


@pytest.mark.parametrize("name", NAMES)
def test_a_public_function_documents_each_of_its_parameters(name):
    value = getattr(pipeline, name)
    if inspect.isclass(value):
        return
    text = inspect.getdoc(value) or ""
    parameters = inspect.signature(value).parameters
    assert "Parameters\n-----" in text or not parameters
    assert "Returns\n-----" in text
    for parameter in parameters:
        assert parameter in text.split("Parameters\n")[1], parameter
