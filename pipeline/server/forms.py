"""Multipart forms: their description in OpenAPI, their fields, and their files on disk while they are needed."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, BinaryIO

from fastapi import Request
from python_multipart.multipart import parse_options_header
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException, MultiPartParser

from pipeline.errors import InputError, ServiceError
from pipeline.server.callers import Caller, Turns
from pipeline.server.service import Service
from pipeline.server.utterances import Recordings

FILE = {"type": "string", "format": "binary"}
CHANNEL = "channel"
NUMBER = {"type": "integer", "minimum": 1}
_CHARSETS = (b"utf-8", b"utf8", b"iso-8859-1", b"latin-1")  # Python's other codecs may fail, or not give text
_MOST_DIGITS = 9
_MAX_FIELDS = 8
_MAX_FIELD_BYTES = 8192
_PIECE_BYTES = 2**14


def described(fields: dict[str, Any], *required: str) -> dict[str, Any]:
    """Return the part of an operation's OpenAPI that describes a form of ``fields``."""
    schema = {"type": "object", "properties": fields, "required": list(required)}
    return {"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": schema}}}}


@asynccontextmanager
async def saved(
    request: Request, service: Service, caller: Caller, field: str, *, files: int, texts: tuple[str, ...] = ()
) -> AsyncIterator[tuple[Recordings, FormData]]:
    """Save the files in a ``field`` of the form of ``caller``, at most ``files``, until the end of the block.

    Raises InputError for a form with fields other than ``field`` and ``texts``.
    """
    async with service.private_folder() as folder, _form_of(request, service, caller, files=files) as form:
        if unknown := set(form).difference({field, *texts}):
            fields = ", ".join(map(repr, (*texts, field)))
            raise InputError(f"the field {min(unknown)!r:.80} has no meaning here; the fields are {fields}")
        uploads = _files_in(form, field)
        yield await service.run("disk", _save, uploads, folder), form


def _save(uploads: list[tuple[str, BinaryIO]], folder: Path) -> Recordings:
    recordings: dict[Path, str] = {}
    for number, (name, file) in enumerate(uploads, start=1):
        path = folder / f"{number:04d}"
        with path.open("wb") as copy:
            shutil.copyfileobj(file, copy)
        recordings[path] = name
    return recordings


class _Parser(MultiPartParser):
    """A parser that knows whether the form has ``ended``: without its end, the last part would be missing unnoticed."""

    ended = False

    def on_end(self) -> None:
        """See MultiPartParser."""
        self.ended = True


@asynccontextmanager
async def _form_of(request: Request, service: Service, caller: Caller, *, files: int) -> AsyncIterator[FormData]:
    """Parse the form in the body of ``request``, with at most ``files`` files; raises ServiceError."""
    kind, parameters = parse_options_header(request.headers.get("content-type"))
    if kind != b"multipart/form-data" or parameters.get(b"charset", b"utf-8").lower() not in _CHARSETS:
        raise ServiceError(415, "a body of the type multipart/form-data was expected, in UTF-8", kind="InputError")
    pieces = _in_turn(request, service.parsing, caller)
    parser = _Parser(request.headers, pieces, max_files=files, max_fields=_MAX_FIELDS, max_part_size=_MAX_FIELD_BYTES)
    try:
        form = await parser.parse()
    except MultiPartException as error:
        raise HTTPException(400, error.message) from None
    try:
        if not parser.ended:
            reason = "the form does not end with its boundary: the body was cut short, or the boundary is another one"
            raise ServiceError(400, reason, kind="InputError")
        yield form
    finally:
        await form.close()


async def _in_turn(request: Request, parsing: Turns, caller: Caller) -> AsyncGenerator[bytes, None]:
    """Yield the body in pieces, and let the event loop do something else before each one is parsed.

    Data that nearly holds the boundary takes long to parse, and many forms may arrive at once.
    """
    async for chunk in request.stream():
        for at in range(0, len(chunk), _PIECE_BYTES):
            async with parsing.place(caller):
                await asyncio.sleep(0)
            yield chunk[at : at + _PIECE_BYTES]


def text_in(form: FormData, name: str) -> str | None:
    """Return the text field ``name``, if any; raises InputError for a file of that name, or for two fields."""
    values = form.getlist(name)
    if not values:
        return None
    if len(values) > 1 or not isinstance(values[0], str):
        raise InputError(f"the field {name!r} must be text, once")
    return values[0]


def channel_in(form: FormData) -> int | None:
    """Return the number in the field 'channel', if any; raises InputError unless it is a whole number from 1."""
    text = text_in(form, CHANNEL)
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and 1 <= len(text) <= _MOST_DIGITS and int(text) > 0):
        raise InputError(f"the field 'channel' must be the number of a channel, from 1, got {text!r:.80}")
    return int(text)


def _files_in(form: FormData, name: str) -> list[tuple[str, BinaryIO]]:
    """Return names and contents of the files in the field ``name``, at least one; raises InputError."""
    values = form.getlist(name)
    files = [value for value in values if isinstance(value, UploadFile)]
    if len(files) < len(values):
        raise InputError(f"the field {name!r} must be a file, got text (with curl: -F {name}=@call.wav)")
    if not files:
        raise InputError(f"at least one file in the field {name!r} was expected")
    return [(upload.filename or f"file {number}", upload.file) for number, upload in enumerate(files, start=1)]
