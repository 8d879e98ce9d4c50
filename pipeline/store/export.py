"""Export of everything that a store keeps of one speaker: a JSON file, and the arrays in an .npz file beside it."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from io import BytesIO
from pathlib import Path

import numpy as np

from pipeline.errors import InputError
from pipeline.files import obstacle
from pipeline.scoring.trials import CHANGED, OWN, RECORDED
from pipeline.store.layout import AnyArray
from pipeline.store.model import SpeakerModel

_TRIALS = {"held_out_trials": RECORDED, "changed_trials": CHANGED, "own_trials": OWN}


def export_speaker(model: SpeakerModel, name: str, path: Path) -> Path:
    """Write what ``model`` keeps of ``name``, and return the path of the arrays.

    ``path`` becomes JSON: the speaker's entry, the shape and type of every array, and all the trials in which
    the speaker is the one who spoke or the one who was claimed. Speakers are identified by their numbers, so that
    nobody else is named. The arrays themselves, pair machines among them, go to ``path`` with the suffix .npz. Both
    files must be new and become readable by their owner only. Raises UnknownSpeakerError and InputError.
    """
    speaker = model.speaker(name)
    number = model.speakers.index(speaker)
    arrays = dict(model.arrays[number]) | _pairs(model, number)
    table = {
        "speaker": {**asdict(speaker), "id": _hexadecimal(speaker.id)},
        "store": {"id": model.identity, "revision": model.revision},
        **{name: _trials(model, speaker.id, kind) for name, kind in _TRIALS.items()},
        "arrays": {key: {"shape": array.shape, "dtype": str(array.dtype)} for key, array in arrays.items()},
    }
    packed = BytesIO()
    np.savez(packed, **arrays)  # type: ignore[arg-type]  # numpy takes names for its own parameters
    beside = path.parent / f"{path.stem}.npz"
    if beside == path:
        raise InputError(f"{path}: JSON is written there and the arrays beside it as .npz; use another suffix")
    _write_new(beside, packed.getvalue())
    try:
        _write_new(path, (json.dumps(table, indent=1, ensure_ascii=False) + "\n").encode("utf-8", "surrogatepass"))
    except BaseException:
        beside.unlink()
        raise
    return beside


def _pairs(model: SpeakerModel, number: int) -> dict[str, AnyArray]:
    """Return the speaker's pair machines, named by the other speaker's id."""
    arrays: dict[str, AnyArray] = {}
    for other, machine in sorted((model.pairs.against(number) if model.pairs else {}).items()):
        where = f"pair.{_hexadecimal(model.speakers[other].id)}"
        arrays |= {f"{where}.own": machine.own, f"{where}.rival": machine.rival}
        arrays[f"{where}.bias"] = np.array(machine.bias)
    return arrays


def _trials(model: SpeakerModel, identity: int, kind: str) -> dict[str, list[object]]:
    """Return the columns of the trials of one ``kind`` in which the speaker spoke or was claimed."""
    trials = model.trials(kind=kind)
    if trials is None:
        return {}
    arrays = {name.removeprefix("trials."): array for name, array in trials.as_arrays().items()}
    rows = (trials.claims == identity) | (trials.speakers == identity)
    columns: dict[str, list[object]] = {name: array[rows].tolist() for name, array in arrays.items()}
    return columns | {name: list(map(_hexadecimal, columns[name])) for name in ("claims", "speakers")}


def _hexadecimal(identity: object) -> str:
    return f"{identity:016x}"  # JSON's numbers have 53 bits


def _write_new(path: Path, data: bytes) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600)
    except FileExistsError:
        raise InputError(f"{path}: an export needs a new file, and this one exists") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be written: {obstacle(path, error)}") from None
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
    except OSError as error:
        path.unlink(missing_ok=True)
        raise InputError(f"{path}: cannot be written: {obstacle(path, error)}") from None
