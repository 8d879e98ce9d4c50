"""Trials of a folder: every audio file against every name, target where the file is that speaker's."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from pipeline.audio.corpus import as_corpus, read_corpus
from pipeline.audio.folders import HIDDEN, NO_AUDIO, Skipped
from pipeline.errors import InputError
from pipeline.evaluation.lists import Trial, names_given


@dataclass(frozen=True)
class FolderTrials:
    """The ``trials`` of a folder, the names of ``unknown_impostors``, who are not enrolled, and what was ``skipped``.

    Paths are relative to the current folder if the path of the folder is.
    """

    trials: tuple[Trial, ...]
    unknown_impostors: tuple[str, ...]
    skipped: tuple[Skipped, ...]


def trials_of_folder(
    folder: Path | str, names: Collection[str] | None = None, *, speaker_pattern: str | None = None
) -> FolderTrials:
    """Return the trials of ``folder``, one folder per speaker, against ``names`` (None: those of its folders).

    Folders are named in Unicode's normal form C, as at enrollment. An audio file that this machine cannot decode stays
    among the trials, which will have no score.

    Parameters
    ----------
    folder : path
        One folder per speaker, with recordings that nobody was enrolled with.
    names : collection of str, optional
        Names to claim, such as those of a store, or one name.
    speaker_pattern : str, optional
        Regular expression that finds the speakers in the names of files, as ``read_corpus`` has it. Audio files that
        this machine cannot decode are then skipped.

    Returns
    -------
    FolderTrials

    Raises
    ------
    InputError
        For a folder of another layout, and if none of the names has a folder in it.

    Examples
    --------
    >>> import pathlib, pipeline
    >>> found = pipeline.trials_of_folder(pathlib.Path("recordings"), ["anna", "lars"])
    >>> found.trials[0].speaker, found.trials[0].target, found.unknown_impostors
    ('anna', True, ('ivan',))
    """
    names = None if names is None else names_given("names", names, "a collection of names, as SpeakerModel.names is,")
    corpus = as_corpus(read_corpus(folder, speaker_pattern=speaker_pattern))
    if corpus.kind not in {"folders", "names"}:
        raise InputError(
            f"{folder}: one folder per speaker was expected, got the layout {corpus.kind!r}; of a YOHO tree give the"
            " folder VERIFY, for other layouts write a trial list"
        )
    files = [(name, one.path) for name, utterances in corpus.speakers.items() for one in utterances]
    unread = [(path, reason) for path, reason in corpus.left_out if path.is_file() and reason not in {NO_AUDIO, HIDDEN}]
    # The speaker of a file that was not read is known only from a folder.
    of_folders = corpus.kind == "folders"
    unread = [entry for entry in unread if of_folders and len(entry[0].relative_to(folder).parts) > 1]
    files = sorted(
        files + [(unicodedata.normalize("NFC", path.relative_to(folder).parts[0]), path) for path, _ in unread]
    )
    claimed = sorted(corpus.speakers) if names is None else names
    unknown = tuple(sorted({name for name, _ in files} - set(claimed)))
    if not {name for name, _ in files} & set(claimed):
        raise InputError(
            f"{folder}: no {'folder' if of_folders else 'file'} in it has the name of an enrolled speaker; it has"
            f" {', '.join(unknown[:3])}, and enrolled are {', '.join(claimed[:3])}; folders must be named as at"
            " enrollment"
        )
    trials = tuple(Trial(claim, str(path), claim == name) for name, path in files for claim in claimed)
    skipped = tuple(entry for entry in corpus.left_out if entry not in unread)
    return FolderTrials(trials, unknown, skipped)
