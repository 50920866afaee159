"""Pictures to start from over REST: bring one along, look at it again.

A body is read only as far as a picture may be long, whatever its headers promise; what is in it, library/uploads.py
finds out.
"""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import FileResponse, Response
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from studio.api.access import NotFoundError, Visit, Visitor
from studio.api.media import IfNoneMatch, send_file
from studio.library import uploads
from studio.library.uploads import MAX_BYTES, Upload, UploadError, UploadTooLargeError

router = APIRouter(tags=["uploads"])

FORM_BYTES = 10_000  # the form around the file: boundaries, headers, a long file name
PICTURE = {"type": "string", "format": "binary"}
BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {"type": "object", "properties": {"file": PICTURE}, "required": ["file"]}
            },
            "image/*": {"schema": PICTURE},
        },
    }
}


@router.post("/uploads", status_code=201, openapi_extra=BODY)
async def create_upload(request: Request, visit: Visitor) -> dict[str, Any]:
    """Keeps a PNG, JPEG or WebP (20 MB, 40 megapixels at most) for a recipe's `images`; unused, it goes after a day.

    The form field `file`, or the picture itself as the body with its content type. 413 when it is too large, 422 when
    it is no picture.
    """
    content = await _read_content(request)
    async with visit.studio.upload_turn:
        upload = await asyncio.to_thread(
            uploads.add, visit.database, visit.studio.settings.uploads_dir, content, owner=visit.owner
        )
    return upload.to_json()


@router.get("/uploads/{upload_id}", response_class=FileResponse)
def get_upload(upload_id: str, visit: Visitor, if_none_match: IfNoneMatch = None) -> Response:
    """The picture as it is kept: a PNG, upright, without metadata."""
    upload = visit.get_upload(upload_id)
    return send_file(_find(visit, upload, upload.file), if_none_match=if_none_match)


@router.get("/uploads/{upload_id}/thumb", response_class=FileResponse)
def get_upload_thumb(upload_id: str, visit: Visitor, if_none_match: IfNoneMatch = None) -> Response:
    """A WebP of at most 384 px."""
    upload = visit.get_upload(upload_id)
    return send_file(_find(visit, upload, upload.thumb), if_none_match=if_none_match)


def _find(visit: Visit, upload: Upload, name: str) -> Path:
    file = visit.studio.settings.uploads_dir / name
    if not file.is_file():
        raise NotFoundError(f"The file of {upload.id} is gone from the uploads folder.", advice="Upload it again.")
    return file


async def _read_content(request: Request) -> bytes:
    kind = request.headers.get("content-type", "").lower()
    if kind.startswith("image/"):
        return await _read_body(request, limit=MAX_BYTES)
    if not kind.startswith("multipart/form-data"):
        raise UploadError(
            f"A body of type {kind or 'unknown'} is no picture.",
            advice="Send the form field `file`, or the picture with its own content type, such as image/png.",
        )
    return await _read_form(request, await _read_body(request, limit=MAX_BYTES + FORM_BYTES))


async def _read_body(request: Request, *, limit: int) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            raise UploadTooLargeError(f"It has more than {MAX_BYTES // 1_000_000} MB.")
    return bytes(body)


async def _read_form(request: Request, body: bytes) -> bytes:
    async def stream() -> AsyncGenerator[bytes, None]:
        yield body

    try:
        form = await MultiPartParser(request.headers, stream(), max_files=1).parse()
    except MultiPartException as error:
        raise UploadError(f"The form cannot be read: {error.message}") from error
    try:
        file = form.get("file")
        if not isinstance(file, UploadFile):
            raise UploadError("The form has no file in its field `file`.")
        return await file.read()
    finally:
        await form.close()
