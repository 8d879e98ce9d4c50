"""benchmarks/run.py: every figure that it promises is there, and the exponents are those of the data."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
CONTRACT = (
    *("train.ratio_sklearn", "train.margin_difference", "train.alike"),
    *("claim.ratio_multiclass", "claim.ratio_loop", "claim.ratio_needed_loop", "gemm.fraction"),
    *("features.ratio_librosa", "features.realtime", "stream.rtf", "stream.p99_ms", "stream.growth_kib"),
    *("growth.claim_exponent", "growth.add_exponent", "growth.add_store_exponent"),
    *("enroll.seconds", "enroll.seconds_per_hour_of_audio", "add.seconds", "add.warm_seconds"),
    *("claim.ms", "claim.cold_ms", "identify.ms"),
)
TINY = ("--speakers", "4", "--centroids", "20", "--sizes", "4", "8", "--minutes", "0.03", "--patience", "0")


@pytest.fixture
def speed(monkeypatch):
    """The benchmark's modules can be imported."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(BENCHMARKS / "run.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_a_run_on_little_data_gives_every_figure_and_the_tables(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- figures -->\nearlier table\n<!-- end of figures -->\nafter\n")
    done = run("--quick", *TINY, "--json", str(tmp_path / "out.json"), "--markdown", str(page))
    assert done.returncode == 0, done.stderr
    filled = page.read_text()
    assert "| `gemm.fraction` |" in done.stdout and done.stdout.strip() in filled
    assert filled.startswith("before\n") and filled.endswith("after\n") and "earlier table" not in filled
    figures = json.loads((tmp_path / "out.json").read_text())
    assert set(CONTRACT) <= set(figures)
    for key, value in figures.items():
        if not isinstance(value, str):
            assert math.isfinite(value), key
            assert value > 0 or not ("seconds" in key or "ratio" in key), key
    # The machines that are timed are the same.
    assert figures["train.margin_difference"] < 1e-2
    assert figures["train.alike"] >= 0.999
    assert figures["claim.margin_difference_float64"] < 1e-9
    assert figures["claim.multiclass_margin_difference"] < 1e-2
    assert figures["claim.machines_looped"] == 6 and figures["claim.machines_needed"] == 7


def test_no_such_part_is_an_error(tmp_path):
    done = run("--only", "train,lunch", "--json", str(tmp_path / "out.json"))
    assert done.returncode == 2 and "no part lunch" in done.stderr


@pytest.mark.parametrize("power", [0.0, 1.0, 1.13, 2.0])
def test_exponents_are_those_of_a_power_law_from_fifty_speakers_on(speed, power):
    from speed.measuring import exponent

    sizes = [10, 50, 158, 500, 1000]
    seconds = np.array([3e-4 * n**power for n in sizes])
    assert exponent(sizes[1:], seconds[1:]) == pytest.approx(power, abs=1e-9)
    assert exponent(sizes, [1.0, *seconds[1:]]) == pytest.approx(power, abs=1e-9)
    noise = [0.1, -0.2, 0.05, 0.0]
    expected = np.polyfit(np.log(sizes[1:]), np.log(seconds[1:]) + noise, 1)[0]
    assert exponent(sizes, [1.0, *(seconds[1:] * np.exp(noise))]) == pytest.approx(expected, abs=1e-9)
    assert exponent([4, 8], [1.0, 2.0]) == pytest.approx(1.0)


def test_products_are_counted_as_the_scorer_makes_them(speed):
    """Every frame meets every centroid's coefficients against each other speaker and of its one-class machine, once."""
    from speed.gemm import KINDS, Timed, made_up, products

    from pipeline.machines.margins import MarginScorer
    from pipeline.machines.pool import Pool

    rng = np.random.default_rng(0)
    population = made_up(Pool.of([rng.standard_normal((30, 6)) for _ in range(5)], 1.0), seed=0)
    scorer = MarginScorer(population, np.arange(5), KINDS, dtype="float32")
    frames = rng.standard_normal((7, 6))
    pairwise, _ = products(scorer, frames.view(Timed), dimension=6)
    assert pairwise[0] == 2 * 7 * 5 * 30 * (4 + 1)
    plain, timed = scorer(frames), scorer(frames.view(Timed))
    np.testing.assert_array_equal(plain.pair, np.asarray(timed.pair))
