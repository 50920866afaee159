"""Serves bytes: finished files with ranges and entity tags, thumbnails, and the latest preview of a running job.

Paths come from our own rows, never from a client. Outputs never change under their id, so browsers cache them.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from fastapi import APIRouter, Header, Query
from fastapi.responses import FileResponse, Response

from pipelines.files.video import encode_animation, read_mp4
from pipelines.messages import say
from studio.api.visitor import Visitor
from studio.library.files import poster_of
from studio.library.records import Output
from studio.visit import NotFoundError, Visit

FOREVER = {"Cache-Control": "private, max-age=31536000, immutable"}
CHECKED = {"Cache-Control": "private, no-cache"}  # cached, but revalidated every time

router = APIRouter(tags=["media"])
Animation = Literal["gif", "webp"]
IfNoneMatch = Annotated[str | None, Header(include_in_schema=False)]


@router.get("/jobs/{job_id}/preview.jpg", response_class=Response)
def get_preview(job_id: str, visit: Visitor) -> Response:
    """Returns the latest small preview; 404 before the first one and after the job's end."""
    visit.get_job(job_id)
    row = visit.database.read_one("SELECT jpeg FROM previews WHERE job_id = ?", (job_id,))
    if row is None:
        raise NotFoundError(
            say("Job {id} has no preview now.", id=repr(job_id)),
            advice=say("Previews exist while a job is denoising."),
        )
    return Response(row["jpeg"], media_type="image/jpeg", headers={"Cache-Control": "no-store"})


@router.head("/outputs/{output_id}/file", include_in_schema=False)
@router.get("/outputs/{output_id}/file/{_name}", include_in_schema=False)  # for programs that save as the URL ends
@router.get("/outputs/{output_id}/file", response_class=FileResponse)
def get_file(
    output_id: str,
    visit: Visitor,
    download: Annotated[bool, Query(description="save under its name instead of showing it")] = False,  # noqa: FBT002
    as_: Annotated[Animation | None, Query(alias="as", description="of a video: an endless animation instead")] = None,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Returns the full file with its recipe inside; honours Range."""
    output = visit.get_output(output_id)
    disposition = "attachment" if download else "inline"
    if as_ is not None:
        return _animate(visit, output, as_, disposition=disposition)
    return send_file(find_output_file(visit, output, output.file), if_none_match=if_none_match, disposition=disposition)


@router.get("/outputs/{output_id}/poster", response_class=FileResponse)
def get_poster(output_id: str, visit: Visitor, if_none_match: IfNoneMatch = None) -> Response:
    """Returns a video's middle frame as WebP, in full size."""
    output = visit.get_output(output_id)
    _require_video(output)
    return send_file(find_output_file(visit, output, poster_of(output.file)), if_none_match=if_none_match)


@router.get("/outputs/{output_id}/thumb", response_class=FileResponse)
def get_thumb(output_id: str, visit: Visitor, if_none_match: IfNoneMatch = None) -> Response:
    """Returns the thumbnail, a WebP of at most 384 px."""
    output = visit.get_output(output_id)
    return send_file(find_output_file(visit, output, output.thumb), if_none_match=if_none_match)


def send_file(
    file: Path, *, if_none_match: str | None, disposition: str = "inline", headers: Mapping[str, str] = FOREVER
) -> Response:
    """Sends a file that never changes unless `headers` say otherwise; 304 if the client has it already."""
    response = FileResponse(
        file,
        filename=file.name,
        stat_result=file.stat(),
        content_disposition_type=disposition,
        headers=headers,
    )
    if if_none_match == response.headers["etag"]:
        return Response(status_code=304, headers={"ETag": response.headers["etag"], **headers})
    return response


def _animate(visit: Visit, output: Output, suffix: str, *, disposition: str) -> Response:
    """Encodes the animation on demand and does not store it: it is seldom requested, and larger than its video."""
    _require_video(output)
    file = find_output_file(visit, output, output.file)
    frames = read_mp4(file, width=output.width, height=output.height)
    name = f"{file.stem}.{suffix}"
    return Response(
        encode_animation(frames, output.recipe, suffix=f".{suffix}"),
        media_type=f"image/{suffix}",
        headers={"Content-Disposition": f'{disposition}; filename="{name}"', **FOREVER},
    )


def _require_video(output: Output) -> None:
    if output.kind != "video":
        raise NotFoundError(say("Output {id} is a picture, not a video.", id=repr(output.id)))


def find_output_file(visit: Visit, output: Output, name: str) -> Path:
    """Finds one of an output's files; raises NotFoundError when somebody deleted it from the folder."""
    file = visit.studio.settings.outputs_dir / name
    if not file.is_file():
        raise NotFoundError(say("The file of output {id} is gone from the outputs folder.", id=repr(output.id)))
    return file
