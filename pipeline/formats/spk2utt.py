"""Kaldi's ``spk2utt``: a speaker a line, followed by the utterances that are the speaker's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pipeline.errors import TrialListError
from pipeline.evaluation.lines import Decoder, bad_line, numbered_lines
from pipeline.formats.writing import check_words, replacing


def read_spk2utt(path: Path) -> dict[str, tuple[str, ...]]:
    """Utterances by speaker, in file order.

    Raises TrialListError, naming file and line, for a line without utterances, a speaker or an utterance that comes
    twice, text that is not UTF-8, an empty file, and a file as ``numbered_lines`` does.
    """
    text = Decoder(path)
    found: dict[str, tuple[str, ...]] = {}
    seen: set[str] = set()
    for number, line in numbered_lines(path):
        words = line.split()
        if not words:
            continue
        text.line = number
        speaker, *utterances = (text[word] for word in words)
        if not utterances:
            raise bad_line(path, number, line, "a line must read 'speaker utterance ...'", "an empty speaker")
        if speaker in found:
            raise bad_line(path, number, line, "a speaker may have one line", "two lists in one file")
        if len(set(utterances)) < len(utterances) or not seen.isdisjoint(utterances):
            raise bad_line(path, number, line, "an utterance may be given once", "an utterance of two speakers")
        seen.update(utterances)
        found[speaker] = tuple(utterances)
    if not found:
        raise TrialListError(f"{path}: a spk2utt needs at least one speaker, got none; the file is empty")
    return found


def owners(spk2utt: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """The speaker of each utterance."""
    return {utterance: speaker for speaker, utterances in spk2utt.items() for utterance in utterances}


def write_spk2utt(path: Path, spk2utt: Mapping[str, Sequence[str]]) -> None:
    """Write such a list, replacing any file at ``path``; raises TrialListError for what the format cannot hold."""
    if not spk2utt or not all(spk2utt.values()):
        raise TrialListError(f"{path}: a spk2utt needs a speaker, and each an utterance or more")
    own = owners(spk2utt)
    if len(own) < sum(map(len, spk2utt.values())):
        raise TrialListError(f"{path}: an utterance of a spk2utt may be given once, got one of two speakers")
    check_words(path, "spk2utt", [*spk2utt, *own])
    with replacing(path) as file:
        for speaker, utterances in spk2utt.items():
            file.write(f"{' '.join([speaker, *utterances])}\n".encode())
