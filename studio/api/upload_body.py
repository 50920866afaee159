"""Reads one file from the body of a request: a form with the field `file`, or the file itself with its content type.

A body is read only up to the size limit, whatever its headers claim. Not here: what is in the file.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, BinaryIO, TypeVar

from fastapi import Request
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect

from pipelines.errors import LumeshError
from pipelines.messages import Message, english, say

T = TypeVar("T")

WRITTEN_BYTES = 4_000_000  # bytes per write, because each write is a round trip to another thread
FILE_BODY = {
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}
FORM_BYTES = 10_000  # the form around the file: boundaries, headers, a long file name


@dataclass(frozen=True, kw_only=True)
class Expected:
    """The file that a route accepts: content type prefixes, the maximal bytes, and the errors for anything else."""

    what: str
    kinds: tuple[str, ...]
    example: str
    max_bytes: int
    refuse: Callable[[Message, Message], LumeshError]
    refuse_length: Callable[[Message], LumeshError]

    def describe(self) -> dict[str, Any]:
        """Describes the body for the OpenAPI document."""
        file = {"type": "string", "format": "binary"}
        form = {"schema": {"type": "object", "properties": {"file": file}, "required": ["file"]}}
        whole = {f"{kind}*" if kind.endswith("/") else kind: {"schema": file} for kind in self.kinds}
        return {"requestBody": {"required": True, "content": {"multipart/form-data": form, **whole}}}


async def read_file_body(request: Request, expected: Expected) -> bytes:
    """Reads the file's bytes; raises the route's own errors."""
    kind = request.headers.get("content-type", "").lower()
    too_long = expected.refuse_length(say("It has more than {size} MB.", size=expected.max_bytes // 1_000_000))
    if kind.startswith(expected.kinds):
        return await read_body(request, limit=expected.max_bytes, too_long=too_long)
    if not kind.startswith("multipart/form-data"):
        raise expected.refuse(
            english(f"A body of type {kind or 'unknown'} is no {expected.what}."),
            english(
                f"Send the form field `file`, or the {expected.what} with its content type, such as {expected.example}."
            ),
        )
    body = await read_body(request, limit=expected.max_bytes + FORM_BYTES, too_long=too_long)
    return await _read_form(request, body, expected)


async def read_body(request: Request, *, limit: int, too_long: LumeshError) -> bytes:
    """Reads the whole body; raises `too_long` as soon as it exceeds `limit`."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            raise too_long
    return bytes(body)


async def receive_into(request: Request, file: BinaryIO, *, limit: int, too_large: LumeshError) -> None:
    """Writes the body into the file in parts; raises `too_large` as soon as it is longer than `limit`."""
    waiting, count = bytearray(), 0
    async for chunk in request.stream():
        waiting += chunk
        count += len(chunk)
        if count > limit:
            raise too_large
        if len(waiting) >= WRITTEN_BYTES:
            await asyncio.to_thread(file.write, bytes(waiting))
            waiting.clear()
    await asyncio.to_thread(file.write, bytes(waiting))


async def while_here(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Returns what the work on a body that has arrived results in.

    Ends the work and raises ClientDisconnect once the client leaves.
    """
    working = asyncio.ensure_future(work)
    watching = asyncio.create_task(_see_off(request))
    try:
        await asyncio.wait((working, watching), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ClientDisconnect
    finally:
        for task in (working, watching):
            task.cancel()
        await asyncio.gather(working, watching, return_exceptions=True)


async def _see_off(request: Request) -> None:
    """Returns when the client has left."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _read_form(request: Request, body: bytes, expected: Expected) -> bytes:
    async def stream() -> AsyncGenerator[bytes, None]:
        yield body

    advice = english(f"Send one {expected.what} in the form field `file`.")
    try:
        form = await MultiPartParser(request.headers, stream(), max_files=1).parse()
    except MultiPartException as error:
        raise expected.refuse(english(f"The form cannot be read: {error.message}"), advice) from error
    try:
        file = form.get("file")
        if not isinstance(file, UploadFile):
            raise expected.refuse(english("The form has no file in its field `file`."), advice)
        return await file.read()
    finally:
        await form.close()
