"""Recordings that trials name: files below a folder, or utterances of a Kaldi data directory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pipeline.audio.corpus import Utterance
from pipeline.audio.lists import read_kaldi_parts
from pipeline.machines.workers import LocalThreads, Workers, path_for


@dataclass(frozen=True)
class Recordings:
    """Recordings by the names that trials give them: ``utterances``, or else paths below ``root``."""

    root: Path
    utterances: Mapping[str, Utterance]

    @classmethod
    def under(cls, root: Path | str | Recordings, workers: Workers | None = None) -> Recordings:
        """Return the recordings below ``root`` as ``workers`` name them; raises InputError for lists of bad lines.

        Where ``root`` has a ``wav.scp``, names of its utterances stand for them.
        """
        if isinstance(root, Recordings):
            return root
        home, workers = Path(root), LocalThreads(1) if workers is None else workers
        parts = read_kaldi_parts(home) if (home / "wav.scp").is_file() else {}
        utterances = {name: Utterance("", path_for(path, workers), *ends) for name, (path, *ends) in parts.items()}
        return cls(path_for(home, workers), utterances)

    def find(self, name: str) -> Utterance:
        """Return the recording, or the part of one, that a trial calls ``name``; its file may be missing."""
        return self.utterances.get(name) or Utterance("", self.root / name)
