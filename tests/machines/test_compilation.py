"""Compilation of the solver where nothing that numba compiles can be kept on disk."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import pipeline
from pipeline.machines import smo_kernels


def test_kernels_compile_where_nothing_can_be_kept_on_disk():
    """The source of this function is in no file, so numba has nowhere to cache it."""
    namespace: dict = {}
    exec("def twice(x):\n    return 2.0 * x\n", namespace)  # noqa: S102
    with pytest.raises(RuntimeError, match="cannot cache"):
        smo_kernels.njit("f8(f8)", cache=True)(namespace["twice"])
    assert smo_kernels.compiled("f8(f8)")(namespace["twice"])(21.0) == 42.0


@pytest.mark.slow
def test_machines_are_trained_where_what_numba_compiles_cannot_be_kept(tmp_path):
    """Neither in the folder that is named for it, nor beside the code, nor in the user's own: files are in the way."""
    code = shutil.copytree(Path(pipeline.__file__).parent, tmp_path / "pipeline", ignore=lambda *_: ["__pycache__"])
    for name in ("named", "home", code / "machines" / "__pycache__"):
        (tmp_path / name).touch()
    away = {
        "NUMBA_CACHE_DIR": f"{tmp_path}/named/x",
        "HOME": f"{tmp_path}/home",
        "XDG_CACHE_HOME": f"{tmp_path}/home/x",
    }
    script = (
        "import numpy as np; from pipeline.machines.pool import Pool; from pipeline.machines.smo import PoolSolver;"
        "_, made, _ = next(PoolSolver(Pool.of([np.zeros((1, 1)), np.ones((1, 1))], 1.0)).pairs([(0, 1)], C=100.0));"
        "print(made.bias, made.own[0])"
    )
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, env=os.environ | away, check=False
    )
    assert (run.returncode, run.stderr) == (0, "")
    bias, coef = map(float, run.stdout.split())
    assert bias == pytest.approx(0.0, abs=1e-9)
    assert coef == pytest.approx(1.0 / (1.0 - np.exp(-0.5)), rel=1e-6)
    assert not list(tmp_path.rglob("*.nb[ci]"))
