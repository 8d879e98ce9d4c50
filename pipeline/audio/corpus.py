"""Folders and lists on disk to utterances by speaker: speaker folders, Kaldi data directories, RTTM files, tables.

No audio is decoded here. Speaker names are any text, and never part of a path that this package makes. The same files
give the same corpus, in the same order.
"""

from __future__ import annotations

import os
import unicodedata
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from numbers import Real
from operator import attrgetter
from pathlib import Path
from typing import Literal

from pipeline.audio.downmix import check_channel_number
from pipeline.audio.folders import HIDDEN, TEXTGRID, Skipped, read_folders, read_names, reason_to_skip, yoho_enroll
from pipeline.audio.lists import read_kaldi, read_recordings_table
from pipeline.audio.rttm import read_marked
from pipeline.audio.utterance import Utterance
from pipeline.errors import InputError, check_type
from pipeline.resources import background_folder

__all__ = ["Corpus", "Recordings", "Utterance", "as_corpus", "background_voices", "read_corpus"]
Kind = Literal["folders", "kaldi", "names", "rttm", "table", "yoho"]
_TABLES = {".csv", ".tsv"}
_MOST_SHARED = 0.5  # seconds by which a speaker's turns may overlap, since their edges are rounded


@dataclass(frozen=True)
class Corpus:
    """Speakers and their utterances.

    Attributes
    ----------
    root : Path
        The folder that holds the speakers, for YOHO its ENROLL.
    kind : str
        The layout, one of those of ``read_corpus``.
    speakers : dict of str to tuple of Utterance
        At least one utterance by name; names are sorted, utterances by path, start and channel.
    skipped : tuple of (Path, str)
        Every file and folder without an utterance, and the reason.

    Examples
    --------
    >>> import pipeline
    >>> corpus = pipeline.read_corpus("recordings")
    >>> corpus.kind, sorted(corpus.speakers), corpus.left_out
    ('folders', ['anna', 'ivan'], ())
    >>> corpus.of_channel(2).speakers["anna"][0].channel
    2
    """

    root: Path
    kind: Kind
    speakers: dict[str, tuple[Utterance, ...]]
    skipped: tuple[Skipped, ...] = ()

    def __repr__(self) -> str:
        files = sum(map(len, self.speakers.values()))
        return (
            f"<Corpus of {self.root}: {len(self.speakers)} speakers, {files} utterances, {len(self.skipped)} skipped>"
        )

    @property
    def left_out(self) -> tuple[Skipped, ...]:
        """Return what was ``skipped``, without hidden files and folders, whose names begin with a dot."""
        return tuple(entry for entry in self.skipped if entry[1] != HIDDEN)

    def of_channel(self, channel: int | None) -> Corpus:
        """Return the corpus with one channel of each recording to be read.

        Parameters
        ----------
        channel : int or None
            Channel, from 1, for every utterance without one of its own; None changes nothing.

        Returns
        -------
        Corpus

        Raises
        ------
        AudioError
            For a channel that is not a whole number from 1. A recording that lacks it is refused only when it is read.
        """
        if channel is None:
            return self
        check_channel_number(channel, "recordings")
        speakers = {
            name: tuple(replace(one, channel=channel) if one.channel is None else one for one in its)
            for name, its in self.speakers.items()
        }
        return replace(self, speakers=speakers)


Recordings = Path | str | Corpus | Mapping[str, Path | str | Sequence[Utterance | Path | str]]
"""A folder, what ``read_corpus`` made of one, or recordings by speaker: utterances or paths of files."""


def as_corpus(recordings: Recordings) -> Corpus:
    """Return ``recordings`` as a corpus, names in Unicode's normal form C; raises InputError for anything else."""
    if isinstance(recordings, Path | str):
        recordings = read_corpus(recordings)
    if isinstance(recordings, Corpus):
        return _checked(recordings)
    if not isinstance(recordings, Mapping):
        raise InputError(
            "recordings: a folder, a corpus, or a dictionary of names to lists of files was expected, got"
            f" {type(recordings).__name__}"
        )
    speakers = {}
    for name, given in recordings.items():
        files = list(given) if isinstance(given, Iterable) and not isinstance(given, str) else [given]
        if not isinstance(name, str) or not files or not all(isinstance(one, Utterance | Path | str) for one in files):
            kinds = " ".join(sorted({type(one).__name__ for one in files} or {"nothing"}))
            raise InputError(
                f"recordings of {name!r}: a name and paths of audio files were expected, got {type(name).__name__} and"
                f" {kinds}; arrays are enrolled from files: soundfile.write"
            )
        paths = [one for one in files if not isinstance(one, Utterance)]
        if folder := next(filter(os.path.isdir, paths), None):  # of too long a name it is False
            raise InputError(
                f"recordings of {name!r}: paths of audio files were expected, got the folder {folder}; list its files,"
                " or give the folder above it, which holds one folder per speaker, in place of the dictionary"
            )
        speakers[name] = tuple(one if isinstance(one, Utterance) else Utterance(name, Path(one)) for one in files)
    return _checked(Corpus(Path(), "folders", speakers))


def _checked(corpus: Corpus) -> Corpus:
    """Return the corpus with names in normal form C; some file systems store an accent as a separate character.

    Raises InputError for a name that occurs in two encodings, and for a recording given twice.
    """
    speakers: dict[str, tuple[Utterance, ...]] = {}
    for name, its in corpus.speakers.items():
        plain = unicodedata.normalize("NFC", name)
        if plain in speakers:
            raise InputError(
                f"{corpus.root}: {plain!r} is there twice, with its accents encoded in two ways; rename one of them"
            )
        _check_parts(its)
        if (twice := _given_twice(its)) is not None:
            where = "" if not twice.start else f", from {twice.start:g} s on,"
            raise InputError(
                f"recordings of {plain!r}: {twice.path}{where} is given twice; give it once, or it would be trained on"
                " and held out too, and the calibration be wrong"
            )
        speakers[plain] = its
    return corpus if speakers == corpus.speakers else replace(corpus, speakers=speakers)


def _check_parts(utterances: Sequence[Utterance]) -> None:
    """Raise InputError for a start, an end or a channel that is no number."""
    for one in utterances:
        for name, value in (("start", one.start), ("end", one.end), ("channel", one.channel)):
            check_type(f"{name} of a part of {one.path}", value, Real | None, "a number")


def _given_twice(utterances: Sequence[Utterance]) -> Utterance | None:
    """Return the first utterance that shares more than ``_MOST_SHARED`` seconds with an earlier one, or None."""
    ends: dict[tuple[Path, int | None], float] = {}
    for one in sorted(utterances, key=lambda one: one.start or 0.0):
        start, end = one.start or 0.0, float("inf") if one.end is None else one.end
        recording = one.path.absolute(), one.channel
        before = ends.get(recording, 0.0)
        if min(before, end) - start > min(_MOST_SHARED, (end - start) / 2.0):
            return one
        ends[recording] = max(before, end)
    return None


def read_corpus(root: Path | str, *, speaker_pattern: str | None = None) -> Corpus:
    """Find the utterances under ``root``, whose layout is detected from its content.

    - "kaldi": a ``wav.scp`` is there, with ``utt2spk`` (or ``spk2utt``) and maybe ``segments``.
    - "rttm": files ``*.rttm`` are there, with speaker segments of the audio files at any depth.
    - "yoho": a folder ENROLL (in any case) holds the speaker folders; VERIFY beside it is left alone.
    - "folders": otherwise, one folder per speaker with audio files at any depth.
    - "table": ``root`` is a CSV or TSV file with the columns path and speaker, and maybe start and end in
      seconds, and channel.
    - "names": ``speaker_pattern`` finds the speakers in the names of the audio files, at any depth.

    Raises ``InputError`` for a root that is none of these, has no utterance or breaks the rules of its layout.
    Warns (``UserWarning``) where the folders in a speaker's folder may be the speakers, as in the root of VCTK.

    Parameters
    ----------
    root : path
        The folder or the table.
    speaker_pattern : str, optional
        Regular expression, matched from the start of a file's name; its group is the speaker: ``([^_-]+)`` for what
        is before the first ``_`` or ``-``. A group called ``speaker`` counts before the first one. With a slash in it,
        it is matched to the path from ``root`` on: ``[^/]+/([^/]+)/`` for the folders in the folders of ``root``.

    Returns
    -------
    Corpus

    Examples
    --------
    >>> import pipeline
    >>> len(pipeline.read_corpus("recordings").speakers["anna"])
    3
    """
    check_type("root", root, os.PathLike | str, "the path of a folder")
    check_type("speaker_pattern", speaker_pattern, str | None, "a regular expression")
    root = Path(root)
    try:
        if root.suffix.lower() in _TABLES and root.is_file() and speaker_pattern is None:
            return _by_speaker(root.parent, "table", read_recordings_table(root))
        if not root.is_dir():
            kind = "a file" if root.exists() else "nothing"
            raise InputError(f"{root}: a corpus must be a folder, got {kind}; {_why_no_corpus(root)}")
        if speaker_pattern is not None:
            return _by_speaker(root, "names", *read_names(root, speaker_pattern))
        if (root / "wav.scp").exists():
            return _by_speaker(root, "kaldi", read_kaldi(root))
        if marked := sorted(path for path in root.glob("[!.]*") if path.suffix.lower() == ".rttm" and path.is_file()):
            return _by_speaker(root, "rttm", *read_marked(root, marked))
        if (enroll := yoho_enroll(root)) is not None:
            return _by_speaker(enroll, "yoho", *read_folders(enroll))
        corpus = _by_speaker(root, "folders", *read_folders(root))
    except (OSError, ValueError) as error:
        raise InputError(f"{root}: the corpus cannot be read ({error})") from error
    if doubt := _doubt_of_folders(corpus):
        warnings.warn(doubt, stacklevel=2)
    return corpus


def _doubt_of_folders(corpus: Corpus) -> str | None:
    """Return which folders of one speaker may be speakers, where they are more than the speakers; else None.

    In TIMIT's and AISHELL's parts and in the root of VCTK they are; in VoxCeleb and LibriSpeech they are not.
    """
    for name, utterances in corpus.speakers.items():
        places = [one.path.parent for one in utterances]
        above = Path(os.path.commonpath(places))
        inner = sorted({"".join(place.relative_to(above).parts[:1]) for place in places})
        if "" in inner or len(inner) <= len(corpus.speakers):
            continue
        remedy = f"the folder that they are in: {above}"
        if len(corpus.speakers) > 1:
            depth = len(above.relative_to(corpus.root).parts)
            remedy = f"--speaker-pattern '{'[^/]+/' * depth}([^/]+)/' (speaker_pattern=)"
        shown = ", ".join(inner[:3]) + (" ..." if len(inner) > 3 else "")
        return f"{len(inner)} folders ({shown}) count as the one speaker {name!r}; if they are speakers, give {remedy}"
    return None


def _why_no_corpus(root: Path) -> str:
    """Return the likely reason why ``root`` is given, which is no folder."""
    if root.suffix.lower() == ".rttm":
        return "give the folder that RTTM files and their audio files are in"
    if root.suffix.lower() == ".textgrid":
        return TEXTGRID
    if root.is_file() and reason_to_skip(root) is None:
        return "of a recording, give the folder that holds one folder per speaker"
    if root.is_file() and (root.parent / "wav.scp").is_file():
        return f"the Kaldi data directory is {root.parent}, or a table that is not called .csv or .tsv?"
    return "a mistyped or moved path, or a table that is not called .csv or .tsv?"


def background_voices() -> Corpus:
    """Return the synthetic voices that come with the package, to enroll as background speakers.

    Text-to-speech in several languages, 36 voices of 11 to 32 s. Where few speakers are enrolled, they serve as a
    background of impostors that claims are compared with.

    Returns
    -------
    Corpus

    Examples
    --------
    >>> import pipeline
    >>> len(pipeline.background_voices().speakers)
    36
    """
    root = background_folder()
    return _by_speaker(root, "folders", [Utterance(f"synthetic {path.stem}", path) for path in root.glob("*.opus")])


def _by_speaker(root: Path, kind: Kind, utterances: Iterable[Utterance], skipped: Iterable[Skipped] = ()) -> Corpus:
    owned = groupby(sorted(utterances, key=_place), key=attrgetter("speaker"))
    return Corpus(root, kind, {speaker: tuple(its) for speaker, its in owned}, tuple(sorted(skipped)))


def _place(one: Utterance) -> tuple[str, str, float, float, int]:
    return one.speaker, str(one.path), one.start or 0.0, one.end or float("inf"), one.channel or 0
