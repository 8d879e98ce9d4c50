"""The public names: each has an example, and the examples run in a folder with a store, recordings and a trial list."""

from __future__ import annotations

import doctest
import inspect
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
    read = [soundfile.read(heard("anna", n)) for n in (1, 2)]
    soundfile.write(folder / "letter.wav", np.concatenate([samples for samples, _ in read]), read[0][1])
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


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_has_an_example_that_runs(name, folder, tmp_path, monkeypatch):
    value = getattr(pipeline, name)
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    flags = doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL
    examples = doctest.DocTestParser().get_doctest(inspect.getdoc(value) or "", {}, name, None, 0)
    assert examples.examples, f"{name}: no example"
    results = doctest.DocTestRunner(optionflags=flags, verbose=False).run(examples)
    assert results.failed == 0
    assert not any(doctest.SKIP in example.options for example in examples.examples), f"{name}: an example is skipped"


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
