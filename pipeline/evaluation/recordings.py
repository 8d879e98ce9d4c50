"""Recordings that trials name: files below a folder, or utterances of a Kaldi data directory."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pipeline.audio.corpus import Utterance
from pipeline.audio.downmix import check_channel_number
from pipeline.audio.lists import read_kaldi_utterances
from pipeline.errors import InputError, check_type
from pipeline.evaluation.lists import Trial
from pipeline.machines.workers import LocalThreads, Workers, path_for


@dataclass(frozen=True)
class Recordings:
    """Recordings by the names that trials give them: ``utterances``, or else paths below ``root``.

    ``channel``, from 1, is read from recordings that have none of their own; None is the mean of all.
    """

    root: Path
    utterances: Mapping[str, Utterance]
    channel: int | None = None

    @classmethod
    def under(cls, root: Path | str | Recordings, channel: int | None, workers: Workers | None = None) -> Recordings:
        """Return the recordings below ``root``, under paths that ``workers`` can open.

        Where ``root`` has a ``wav.scp``, trials name its utterances. Raises InputError for a bad line in Kaldi's lists,
        and AudioError for a ``channel`` that is not a whole number from 1.
        """
        if isinstance(root, Recordings):
            return root if channel is None else replace(root, channel=channel)
        check_type("root", root, os.PathLike | str, "the path of a folder")
        check_channel_number(channel, "recordings")
        home, workers = Path(root), LocalThreads(1) if workers is None else workers
        listed = read_kaldi_utterances(home) if (home / "wav.scp").is_file() else {}
        utterances = {name: replace(one, path=path_for(one.path, workers)) for name, one in listed.items()}
        return cls(path_for(home, workers), utterances, channel)

    def of(self, trials: Iterable[Trial]) -> Recordings:
        """Return these recordings with the channels that ``trials`` choose, named by the trials' segments.

        Raises InputError for a segment that names two channels, and for a channel of an utterance that has its own.
        """
        chosen: dict[str, tuple[str, int | None]] = {}
        utterances = dict(self.utterances)
        for segment, path, channel in dict.fromkeys((one.segment, one.path, one.channel) for one in trials):
            if chosen.setdefault(segment, (path, channel)) != (path, channel):
                raise InputError(
                    f"trials: {segment!r} stands for channel {channel} of {path!r} (None: all channels mixed), and for"
                    f" channel {chosen[segment][1]} of {chosen[segment][0]!r}; a list must choose channels throughout"
                )
            if channel is None:
                continue
            found = self.utterances.get(path) or Utterance("", self.root / path)
            if found.channel not in {None, channel}:
                raise InputError(
                    f"trials: channel {channel} of {path!r} is wanted, but the Kaldi data directory makes it channel"
                    f" {found.channel} of {found.path}; leave the channels out of one of them"
                )
            utterances[segment] = replace(found, channel=channel)
        return replace(self, utterances=utterances)

    def find(self, name: str) -> Utterance:
        """Return the recording, or the part of one, that a trial calls ``name``; its file may be missing."""
        found = self.utterances.get(name) or Utterance("", self.root / name)
        return found if found.channel is not None else replace(found, channel=self.channel)
