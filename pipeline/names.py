"""Names of people: checks for invisible characters, and for names that look alike.

A name is kept as given, in Unicode's normal form C. Two names are twins if a reader could take one for the other: they
differ only in case, in width, or in letters of another script that look the same.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

from pipeline.errors import InputError, SpeakerExistsError

MOST_CHARACTERS = 200
_INVISIBLE = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"})
# Fillers and variation selectors, which Unicode counts among letters and marks.
_SELECTORS = (*range(0x180B, 0x1810), *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))
_BLANKS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0").union(map(chr, _SELECTORS))
# Greek and Cyrillic letters and the Latin letters that look the same, in lower case; from Unicode's table of
# confusables.
_GREEK = "αορνικτυχγ", "aopviktuxy"
_CYRILLIC = "аеорсухіјѕԁԛԝһӏкмтнвгп", "aeopcyxijsdqwhlkmthbrn"
_LOOKS = str.maketrans(_GREEK[0] + _CYRILLIC[0] + "ıłøđ01", _GREEK[1] + _CYRILLIC[1] + "ilodol")


def normal(name: str) -> str:
    """Return ``name`` in normal form C; raises InputError if it is too long."""
    if len(name) <= 4 * MOST_CHARACTERS:  # normalising takes quadratic time in the number of marks
        name = unicodedata.normalize("NFC", name)
    if len(name) > MOST_CHARACTERS:
        raise InputError(f"a name has at most {MOST_CHARACTERS} characters, got {len(name)}")
    return name


def check_encodable(name: str) -> str:
    """Return ``name``; raises InputError if it has no encoding."""
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        raise InputError("a name must be text, got half a surrogate pair") from None
    return name


def checked_name(name: str) -> str:
    """Return ``name`` in normal form C; raises InputError if it is empty, too long, or not entirely visible."""
    name = normal(check_encodable(name))
    if name in ("", ".", ".."):
        raise InputError("a name must not be empty, and not . or .., which cannot be part of a URL")
    for character in name:
        blank = character != " " and unicodedata.category(character) == "Zs"
        if blank or _is_invisible(character) or character == "\ufffd":
            raise InputError(
                f"a name has visible characters and spaces, got U+{ord(character):04X}"
                f" ({unicodedata.name(character, 'control')}); copied from a formatted text?"
            )
    if name != name.strip() or "  " in name:
        raise InputError("a name has no space at its ends, and no two in a row; a slip of the keyboard?")
    return name


def twin_of(name: str, others: Iterable[str]) -> str | None:
    """Return the first of ``others`` that a reader could take for ``name``, if there is one."""
    looks = _looks_of(name)
    return next((other for other in others if _looks_of(other) == looks), None)


def check_new_names(names: Iterable[str], enrolled: Iterable[str]) -> None:
    """Raise InputError for an invalid name, or SpeakerExistsError for one that looks like another.

    ``names`` must be in normal form C, and not among ``enrolled``.
    """
    looks = {_looks_of(name): name for name in enrolled}
    for name in names:
        try:
            checked_name(name)
        except InputError as error:
            raise InputError(f"name {name!r}: {error}") from None
        twin = looks.setdefault(_looks_of(name), name)
        if twin != name:
            raise SpeakerExistsError(
                f"{name!r} looks like {twin!r}: a reader could take one for the other; rename one of them"
            )


def _looks_of(name: str) -> str:
    plain = unicodedata.normalize("NFKC", name).casefold().translate(_LOOKS)
    return "".join(character for character in plain if not _is_invisible(character))


def _is_invisible(character: str) -> bool:
    return character in _BLANKS or unicodedata.category(character) in _INVISIBLE
