"""Reader of Reuters-21578 from its SGML: text and topics of the documents of the ModApte split."""

from __future__ import annotations

import html
import re
import tarfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.papers.source import FILES, REUTERS_SHA256, TableSource, bounded
from pipeline.errors import InputError

_MEMBERS = tuple(f"reut2-{number:03d}.sgm" for number in range(22))
_DOCUMENT = re.compile(r"<REUTERS ([^>]*)>(.*?)</REUTERS>", re.DOTALL)
_ATTRIBUTE = re.compile(r'(\w+)="([^"]*)"')
_TOPICS = re.compile(r"<TOPICS>(.*?)</TOPICS>")
_ITEM = re.compile(r"<D>(.*?)</D>")
_TEXT = re.compile(r"<TEXT[^>]*>(.*?)</TEXT>", re.DOTALL)
_PARTS = tuple(re.compile(rf"<{part}>(.*?)</{part}>", re.DOTALL) for part in ("TITLE", "BODY"))
_TAG = re.compile(r"<[^>]*>")


@dataclass(frozen=True, eq=False)
class Documents:
    """News stories in the order of their numbers.

    ``numbers`` (n,) are the collection's NEWID; ``texts`` hold title and body, a line break between them, and may be
    empty; ``topics`` the categories of each, possibly none; ``train`` (n,) is True for training documents.
    """

    numbers: NDArray[np.int64]
    texts: tuple[str, ...]
    topics: tuple[tuple[str, ...], ...]
    train: NDArray[np.bool_]

    @property
    def categories(self) -> tuple[str, ...]:
        """Return every topic that a training or test document has, sorted: 118 in the ModApte split."""
        return tuple(sorted({topic for topics in self.topics for topic in topics}))

    def of(self, category: str) -> NDArray[np.bool_]:
        """Return True for each document (n,) with the topic."""
        return np.array([category in topics for topics in self.topics])


def read_reuters(source: TableSource) -> Documents:
    """Return the ModApte split of Reuters-21578, Distribution 1.0: 9603 and 3299 documents, 118 categories.

    Copyright Reuters Ltd, free for research. The archive is not unpacked to disk. Raises InputError.
    """
    path = source.path(FILES["reuters21578.tar.gz"])
    parts = _members(path)
    source.check(path, b"".join(parts), REUTERS_SHA256)
    documents = [document for part in parts for document in _documents(part.decode("latin-1"))]
    if not documents:
        raise InputError(f"{path}: documents of the ModApte split expected, got none")
    numbers, texts, topics, train = zip(*sorted(documents), strict=True)
    return Documents(np.array(numbers), texts, topics, np.array(train))


def _members(path: Path) -> list[bytes]:
    try:
        with tarfile.open(path) as archive:
            files = {Path(member.name).name: member for member in archive if member.isreg()}
            missing = [name for name in _MEMBERS if name not in files]
            if missing:
                raise InputError(
                    f"{path}: an archive of {_MEMBERS[0]} to {_MEMBERS[-1]} expected, {missing[0]} missing"
                )
            return [_member(archive, files[name]) for name in _MEMBERS]
    except (OSError, EOFError, tarfile.TarError) as error:
        raise InputError(f"{path}: cannot be read as an archive ({error}); an interrupted download?") from None


def _member(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    stream = archive.extractfile(member)
    assert stream is not None  # noqa: S101  # a regular file
    return bounded(stream, member.name)


def _documents(sgml: str) -> list[tuple[int, str, tuple[str, ...], bool]]:
    documents = []
    for header, content in _DOCUMENT.findall(sgml):
        attributes = dict(_ATTRIBUTE.findall(header))
        if attributes.get("TOPICS") == "YES" and attributes.get("LEWISSPLIT") in {"TRAIN", "TEST"}:
            topics = _TOPICS.search(content)
            names = tuple(_ITEM.findall(topics.group(1))) if topics else ()
            documents.append((int(attributes["NEWID"]), _text(content), names, attributes["LEWISSPLIT"] == "TRAIN"))
    return documents


def _text(content: str) -> str:
    """Return title and body; all text of unprocessed stories."""
    text = _TEXT.search(content)
    if text is None:
        return ""
    parts = [match.group(1) for match in (part.search(text.group(1)) for part in _PARTS) if match]
    return html.unescape("\n".join(parts) if parts else _TAG.sub(" ", text.group(1))).strip()
