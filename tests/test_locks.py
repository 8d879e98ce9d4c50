"""Lock files: they pin what pyproject.toml asks for, and the container installs nothing else."""

from __future__ import annotations

import csv
import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def pinned(name: str) -> dict[str, str]:
    lines = (ROOT / "locks" / name).read_text(encoding="utf-8").splitlines()
    found = (re.match(r"([A-Za-z0-9._-]+)==([^\s;]+)", line) for line in lines)
    return {canonicalize_name(match[1]): match[2] for match in found if match}


@pytest.mark.parametrize(("lock", "extra"), [("server.txt", "server"), ("dev.txt", "dev")])
def test_a_lock_has_a_version_in_range_of_every_dependency(lock, extra):
    versions = pinned(lock)
    wanted = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"][extra]]
    for requirement in map(Requirement, wanted):
        if requirement.name != "voiceclaim" and (requirement.marker is None or requirement.marker.evaluate()):
            assert requirement.specifier.contains(versions[canonicalize_name(requirement.name)]), requirement.name


def test_every_package_of_the_container_has_hashes_and_a_licence():
    text = (ROOT / "locks" / "server.txt").read_text(encoding="utf-8")
    packages = re.split(r"^(?=[A-Za-z0-9])", text, flags=re.MULTILINE)[1:]
    assert all("--hash=sha256:" in package for package in packages)
    with (ROOT / "locks" / "licences.csv").open(encoding="utf-8", newline="") as file:
        listed = {canonicalize_name(row["Name"]) for row in csv.DictReader(file)}
    assert listed == set(pinned("server.txt"))
    assert "--require-hashes" in (ROOT / "Dockerfile").read_text(encoding="utf-8")
