"""Files of a multipart request: read within bounds, decoded within bounds, kept no longer than needed."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import BinaryIO

from starlette.datastructures import FormData, UploadFile
from starlette.requests import Request

from pipeline.audio import open_audio
from pipeline.errors import AudioError, ServiceError
from pipeline.server.training import Recording
from pipeline.updates import Update
from pipeline.verification import Verifier

_MOST_FIELDS = 8
_MOST_FIELD_BYTES = 8192
Skipped = dict[str, str]


@asynccontextmanager
async def form_of(request: Request, *, files: int) -> AsyncIterator[FormData]:
    """The form in the body of ``request``, with at most so many ``files``; raises ServiceError."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "multipart/form-data":
        raise ServiceError(415, "a body of the type multipart/form-data was expected", kind="InputError")
    form = request.form(max_files=files, max_fields=_MOST_FIELDS, max_part_size=_MOST_FIELD_BYTES)
    async with form as found:
        yield found


def text_in(form: FormData, name: str) -> str | None:
    """The text field ``name``, None where there is none; raises ServiceError for a file of that name, or for two."""
    values = form.getlist(name)
    if not values:
        return None
    if len(values) > 1 or not isinstance(values[0], str):
        raise ServiceError(422, f"the field {name!r} must be text, once", kind="InputError")
    return values[0]


def files_in(form: FormData, name: str) -> list[UploadFile]:
    """The files of the field ``name``, at least one; raises ServiceError."""
    values = form.getlist(name)
    files = [value for value in values if isinstance(value, UploadFile)]
    if not files or len(files) < len(values):
        raise ServiceError(422, f"at least one file in the field {name!r} was expected", kind="InputError")
    return files


def verify_upload(verifier: Verifier, file: BinaryIO, *, seconds: float) -> Update:
    """Score a whole ``file`` of at most so many ``seconds``; raises AudioError or ServiceError."""
    with open_audio(file) as audio:
        stream = verifier.stream(audio.rate)
        heard = 0
        for block in audio.blocks():
            heard = _within(heard + len(block), audio.rate, seconds)
            stream.push(block)
    return stream.close()


def save_uploads(files: Sequence[UploadFile], folder: Path, *, seconds: float) -> tuple[list[Recording], list[Skipped]]:
    """Copy those of ``files`` that can be decoded into ``folder``, and tell why the others cannot.

    Raises AudioError if none can, ServiceError for one of more than so many ``seconds``.
    """
    recordings: list[Recording] = []
    skipped: list[Skipped] = []
    for number, upload in enumerate(files, start=1):
        shown = upload.filename or f"file {number}"
        try:
            _check(upload.file, seconds)
        except AudioError as error:
            skipped.append({"file": shown, "reason": str(error)})
            continue
        path = folder / f"{number:04d}"
        upload.file.seek(0)
        with path.open("wb") as copy:
            shutil.copyfileobj(upload.file, copy)
        recordings.append(Recording(path, shown))
    if not recordings:
        raise AudioError(f"none of the {len(files)} files can be used; the first: {skipped[0]['reason']}")
    return recordings, skipped


def _check(file: BinaryIO, seconds: float) -> None:
    """Decode ``file`` to its end."""
    with open_audio(file) as audio:
        heard = 0
        for block in audio.blocks():
            heard = _within(heard + len(block), audio.rate, seconds)


def _within(samples: int, rate: int, seconds: float) -> int:
    if samples > seconds * rate:
        raise ServiceError(413, f"a file has at most {seconds:g} s of audio; cut it into parts", kind="InputError")
    return samples
