"""The notebooks: executed, small, without traces of a machine, and reproducible.

To execute them again: ``.venv/bin/python tests/test_notebooks.py``
"""

from __future__ import annotations

import json
import os
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from printed import as_printed

NOTEBOOKS = sorted((Path(__file__).resolve().parents[1] / "notebooks").glob("*.ipynb"))
MOST_BYTES = 100_000


@cache
def notebook(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text(encoding="utf-8")))


def code_cells(content: Any) -> list[Any]:
    return [cell for cell in content["cells"] if cell["cell_type"] == "code"]


def printed(cell: Any) -> str:
    """Return the text output of a cell."""
    return "".join("".join(output["text"]) for output in cell["outputs"] if output["output_type"] == "stream")


def pictures(cell: Any) -> int:
    return sum("image/png" in output.get("data", {}) for output in cell["outputs"])


def test_there_are_two():
    assert [path.stem for path in NOTEBOOKS] == ["enroll_to_det", "sigmoid_and_margin"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_executed_from_its_first_cell_to_its_last_and_small(path):
    cells = code_cells(notebook(path))
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert not [output for output in outputs if output["output_type"] == "error" or output.get("name") == "stderr"]
    assert sum(printed(cell) != "" for cell in cells) >= 4
    assert sum(map(pictures, cells)) >= 1
    assert path.stat().st_size < MOST_BYTES


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_has_no_trace_of_the_machine_that_made_it(path):
    content = notebook(path)
    assert set(content["metadata"]) <= {"kernelspec", "language_info"}
    assert content["metadata"]["kernelspec"]["name"] == "python3"
    assert all(set(cell["metadata"]) <= {"tags"} for cell in content["cells"])
    text = "".join(
        "".join(part) if isinstance(part, list) else str(part)
        for cell in code_cells(content)
        for output in cell["outputs"]
        for part in [output.get("text", ""), output.get("data", {}).get("text/plain", "")]
    )
    assert not re.search(r"(?:^|[\s'\"(])(?:/\w+/|[A-Z]:\\|~/)", text, re.M), text


def executed(path: Path, folder: Path) -> Any:
    """Execute a notebook in ``folder`` and drop times and versions."""
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    content = nbformat.read(path, as_version=4)
    options = {"timeout": 500, "record_timing": False, "coalesce_streams": True, "kernel_name": "python3"}
    nbclient.NotebookClient(content, resources={"metadata": {"path": str(folder)}}, **options).execute()
    content.metadata = {"kernelspec": content.metadata["kernelspec"], "language_info": {"name": "python"}}
    return content


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_prints_the_same_when_it_is_executed_again(path, tmp_path, monkeypatch):
    root = str(path.parents[1])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])]))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    again = executed(path, tmp_path)
    for before, after in zip(code_cells(notebook(path)), code_cells(again), strict=True):
        assert as_printed(printed(before), printed(after)), f"{printed(before)}\nis now\n{printed(after)}"
        assert pictures(before) == pictures(after)


if __name__ == "__main__":
    import nbformat

    for each in NOTEBOOKS:
        nbformat.write(executed(each, each.parent), each)
