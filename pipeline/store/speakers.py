"""Speakers of a model, and the speaker that a name stands for."""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pipeline.errors import UnknownSpeakerError, check_type

Role = Literal["speaker", "background"]
# The nearest names are searched if the letters of a name times those of all others are no more: about 0.1 s.
_NEAR_LETTERS = 300_000


@dataclass(frozen=True, slots=True)
class Speaker:
    """One enrolled speaker; one with the role "background" cannot be claimed, only compared with.

    ``seconds`` of speech in ``utterances`` recordings have ``frames`` feature vectors, represented by ``centroids``
    centroids. The ``id`` is random and says nothing about the name.
    """

    id: int
    name: str
    role: Role
    seconds: float
    frames: int
    utterances: int
    centroids: int


def number_of(name: str, speakers: Sequence[Speaker], roles: Sequence[Role]) -> int:
    """Return the index in ``speakers`` of ``name``, among those with one of the ``roles``.

    Raises UnknownSpeakerError, which names the most similar names among them.
    """
    check_type("name", name, str, "the name of a speaker")
    plain = unicodedata.normalize("NFC", name)
    for number, speaker in enumerate(speakers):
        if speaker.name == plain and speaker.role in roles:
            return number
    known = [speaker.name for speaker in speakers if speaker.role in roles]
    if len(name) * sum(map(len, known)) > _NEAR_LETTERS:
        raise UnknownSpeakerError(name, None)
    folded: dict[str, list[str]] = {}
    for one in known:
        folded.setdefault(one.casefold(), []).append(one)
    given = plain.casefold()
    near = difflib.get_close_matches(given, folded, n=3) or [key for key in folded if given and given in key]
    raise UnknownSpeakerError(name, tuple(one for key in near for one in folded[key])[:3], nobody=not folded)
