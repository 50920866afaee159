"""Clips over REST, for trainings to learn from; read back as any upload.

Not here: what is in the file (library/uploaded_clips.py).
"""

import asyncio
import threading
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request

from pipelines.messages import say
from studio.api.answers import library as library_answers
from studio.api.answers.errors import refuses
from studio.api.upload_body import FILE_BODY, receive_into, while_here
from studio.api.visitor import Visitor
from studio.library import uploaded_clips
from studio.library.arrivals import arrive
from studio.library.uploaded_clips import MAX_BYTES, ClipError, ClipTooLargeError
from studio.library.uploads import Upload, check_room

router = APIRouter(tags=["uploads"])


@router.post(
    "/clips",
    status_code=201,
    openapi_extra=FILE_BODY,
    response_model=library_answers.Upload,
    responses=refuses(403, 413, 429, 507),
)
async def create_clip(request: Request, visit: Visitor) -> dict[str, Any]:
    """Stores a video of at most 300 MB to learn from; the body is the file itself. Deleted after a day if unused.

    It is written anew as an MP4 without sound, at most 15 s and 1920 px long, upright and with square pixels; `notes`
    say what was changed. Its `url` and `thumb_url` are those of an upload. 413 when it is too large, 422 when it is no
    video, 429 when you have too many unused uploads, or too many clips under way; 403 for somebody who may not train
    (`--who-may-train`). Of a request that ends before the answer nothing is kept.
    """
    visit.require_trainer()
    studio = visit.studio
    folder = studio.settings.uploads_dir
    if request.headers.get("content-type", "").lower().startswith("multipart/"):
        raise ClipError(
            say("A form is no video."),
            advice=say("Send the file itself as the body, as curl --data-binary @wave.mp4 does."),
        )
    await asyncio.to_thread(check_room, studio.database, owner=visit.owner, quota=visit.upload_quota)
    too_large = ClipTooLargeError(say("It has more than {size} MB.", size=MAX_BYTES // 1_000_000))
    given_up = threading.Event()

    async def read(file: Path) -> Upload:
        async with studio.clip_turn.take(visit.person.client):
            return await asyncio.to_thread(
                uploaded_clips.add,
                studio.database,
                folder,
                file,
                owner=visit.owner,
                quota=visit.upload_quota,
                given_up=given_up,
            )

    async with studio.clip_room.take(visit.person.client):
        with arrive(folder) as file:
            await receive_into(request, file, limit=MAX_BYTES, too_large=too_large)
            file.flush()
            try:
                upload = await while_here(request, read(Path(file.name)))
            finally:
                given_up.set()  # nobody waits for the thread where the client left or the server stops
    return upload.to_json()
