"""The harness that breaks stores in earnest, run for a moment: what it finds, and that it would find it."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import hostile
import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="fork and /proc")


@pytest.fixture
def harness(monkeypatch):
    """The modules of the harness, which is no part of the package."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import torture
    from torture import damage

    return torture, damage


@pytest.mark.slow
def test_a_few_kills_three_seconds_of_eight_processes_and_some_damage_break_nothing(tmp_path):
    paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    limits = ["--kills", "4", "--seconds", "3", "--mutations", "80", "--seed", "1"]
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "break_store.py", "--json", tmp_path / "report.json", *limits],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env=os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    )
    assert "Traceback" not in done.stderr, done.stderr[-2000:]
    report = json.loads((tmp_path / "report.json").read_text())
    assert (done.returncode, report["wrong"]) == (0, [])
    assert report["kills"] == report["kills_survived"] == sum(report["kill_states"].values()) == 4
    assert report["concurrent_errors"] == 0
    processes = report["processes"]
    assert sum(outcome.get("enrolled", 0) for outcome in processes.values()) > 0
    assert all(outcome["read"] > 0 for name, outcome in processes.items() if name.startswith("reader"))
    assert len(processes) == 8
    assert report["mutations"] == 100
    assert sum(sum(part.values()) for part in report["outcomes"].values()) == 100
    assert (report["crashes"], report["hangs"], report["accepted_tampered"]) == (0, 0, 0)
    assert 0 <= report["peak_mib_over_baseline"] < 200


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # the child does nothing but Python
def test_crashes_and_hangs_are_seen_and_the_rest_goes_on(harness, tmp_path, monkeypatch):
    _, damage = harness
    monkeypatch.setattr(damage, "GIVE_UP", 1.0)

    class Victim:
        """Falls over in several ways, at mutations that are known."""

        def __init__(self, folder: Path) -> None:
            self.calls = 0

        def one(self, chance: random.Random) -> str:
            number = {random.Random(f"7 {n}").random(): n for n in range(8)}.get(chance.random())  # noqa: S311
            if number == 2:
                raise ValueError("a traceback")
            if number == 4:
                os._exit(3)
            if number == 6:
                while True:
                    pass
            return "fine"

    report = damage.mutate(tmp_path / "m", Victim, 8, 7)
    assert dict(report["outcomes"]) == {"fine": 5}
    assert report["crashes"] == ["mutation 2: CRASH ValueError: a traceback", "mutation 4: died"]
    assert report["hangs"] == ["mutation 6: hung"]


def test_a_tampered_store_that_were_read_would_be_counted(harness, tmp_path, monkeypatch):
    """With the checks taken out of it, the program under attack gives way, and that is said."""
    _, damage = harness
    from pipeline.store import reading

    def miscount(_chance: random.Random, path: Path, _which: str) -> str:
        hostile.edit(path, "UPDATE speaker SET seconds = seconds + 1", vouch=False)
        return "row"

    stores = damage.DamagedStores(tmp_path)
    assert "the same model" in stores.one(Unchanged(3))
    monkeypatch.setattr(reading, "_check_digest", lambda *given: None)
    monkeypatch.setattr(stores, "damage", miscount)
    assert "ACCEPTED" in stores.one(random.Random(3))  # noqa: S311


class Unchanged(random.Random):
    """Chance that chooses the plain store, and bytes of a log that nothing is made of."""

    def choice(self, given):
        return next((one for one in given if one in ("plain", "log")), given[0])


def test_damaged_is_never_what_it_was(harness):
    _, damage = harness
    for number in range(300):
        chance = random.Random(number)  # noqa: S311
        sound = chance.randbytes(chance.randint(1, 500))
        assert damage.damaged(chance, sound) != sound
