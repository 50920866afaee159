"""Uploads over REST: bring a picture, read back a picture or a clip.

Not here: how a file arrives (upload_body.py), what is in it (library/uploads.py), bringing clips (clips.py).
"""

import asyncio
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import FileResponse, Response

from pipelines.messages import say
from studio.api.answers import library as library_answers
from studio.api.routes.media import IfNoneMatch, send_file
from studio.api.upload_body import Expected, read_file_body
from studio.api.visitor import Visitor
from studio.library import uploads
from studio.library.uploads import MAX_BYTES, Upload, UploadError, UploadTooLargeError
from studio.visit import NotFoundError, Visit

router = APIRouter(tags=["uploads"])

PICTURE = Expected(
    what="picture",
    kinds=("image/",),
    example="image/png",
    max_bytes=MAX_BYTES,
    refuse=lambda detail, advice: UploadError(detail, advice=advice),
    refuse_length=UploadTooLargeError,
)


@router.post("/uploads", status_code=201, openapi_extra=PICTURE.describe(), response_model=library_answers.Upload)
async def create_upload(request: Request, visit: Visitor) -> dict[str, Any]:
    """Stores a picture of at most 20 MB for a recipe's `images`; deleted after a day if unused.

    Send the form field `file`, or the picture itself as the body with its content type: PNG, JPEG, WebP, AVIF, GIF, BMP
    or TIFF. `notes` say what was changed: transparent parts lie on white, colours become sRGB, more than 40 megapixels
    are scaled down. 413 when it is too large, 422 when it is no picture, 429 when you have too many unused pictures.
    """
    content = await read_file_body(request, PICTURE)
    studio = visit.studio
    async with studio.upload_turn.take(visit.person.client):
        upload = await asyncio.to_thread(
            uploads.add,
            studio.database,
            studio.settings.uploads_dir,
            content,
            owner=visit.owner,
            quota=visit.upload_quota,
        )
    return upload.to_json()


@router.get("/uploads/{upload_id}", response_class=FileResponse)
def get_upload(upload_id: str, visit: Visitor, if_none_match: IfNoneMatch = None) -> Response:
    """Returns the stored picture, a PNG in sRGB, or clip, an MP4: upright, without metadata."""
    upload = visit.get_upload(upload_id)
    return send_file(_find(visit, upload, upload.file), if_none_match=if_none_match)


@router.get("/uploads/{upload_id}/thumb", response_class=FileResponse)
def get_upload_thumb(upload_id: str, visit: Visitor, if_none_match: IfNoneMatch = None) -> Response:
    """Returns the thumbnail, a WebP of at most 384 px."""
    upload = visit.get_upload(upload_id)
    return send_file(_find(visit, upload, upload.thumb), if_none_match=if_none_match)


def _find(visit: Visit, upload: Upload, name: str) -> Path:
    file = visit.studio.settings.uploads_dir / name
    if not file.is_file():
        raise NotFoundError(
            say("The file of {id} is gone from the uploads folder.", id=upload.id), advice=say("Upload it again.")
        )
    return file
