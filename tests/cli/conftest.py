"""Fixtures for tests of evaluations: claims on the session's store, and their evaluation by the command."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def evaluated(run_in, store, demo, trial_lines, silence, tmp_path_factory):
    """The folder and result of an evaluation of every system, with three trials that cannot be scored."""
    folder = tmp_path_factory.mktemp("evaluated")
    failing = [("anna", str(silence), False), ("ivan", str(silence), False), ("anna", "verify/missing.flac", True)]
    text = "".join(
        f"{claim} {path} {'target' if own else 'nontarget'}\n" for claim, path, own in [*trial_lines, *failing]
    )
    (folder / "kaldi.txt").write_text(f"# claims\n\n{text}", encoding="utf-8")
    result = run_in(folder, "evaluate", store, "kaldi.txt", "--root", demo, "--out", "results", "--json")
    assert result.code == 4
    return folder / "results", result
