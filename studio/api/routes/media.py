"""Serves bytes: finished files with ranges and entity tags, thumbnails, and the latest preview of a running job.

Paths come from our own rows, never from a client. Outputs never change under their id, so browsers cache them.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import quote

from fastapi import APIRouter, Header, Query
from fastapi.responses import FileResponse, Response
from PIL import Image

from pipelines.files.still import QUALITY, StillKind, encode_still
from pipelines.files.video import encode_animation, read_mp4
from pipelines.messages import say
from studio.api.visitor import Visitor
from studio.library.download_names import name_download
from studio.library.files import poster_of
from studio.library.records import Output
from studio.visit import NotFoundError, Visit

FOREVER = {"Cache-Control": "private, max-age=31536000, immutable"}
CHECKED = {"Cache-Control": "private, no-cache"}  # cached, but revalidated every time

router = APIRouter(tags=["media"])
Kind = Literal["gif", "webp", "jpeg"]
IfNoneMatch = Annotated[str | None, Header(include_in_schema=False)]


@router.get("/jobs/{job_id}/preview.jpg", response_class=Response)
def get_preview(
    job_id: str,
    visit: Visitor,
    v: Annotated[str, Query(description="its version, so that browsers ask anew")] = "",  # noqa: ARG001
) -> Response:
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
def get_file(  # noqa: PLR0917 - parameters of the route
    output_id: str,
    visit: Visitor,
    download: Annotated[bool, Query(description="save under its name instead of showing it")] = False,  # noqa: FBT002
    as_: Annotated[
        Kind | None,
        Query(alias="as", description="of a video an endless animation, gif or webp; of a picture a jpeg or webp"),
    ] = None,
    quality: Annotated[int, Query(ge=0, le=100, description="of a jpeg or webp of a picture")] = QUALITY,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Returns the full file with its recipe inside; honours Range."""
    output = visit.get_output(output_id)
    disposition = "attachment" if download else "inline"
    if as_ is not None:
        make = _animate if output.kind == "video" else _convert
        return make(visit, output, as_, quality=quality, disposition=disposition)
    file = find_output_file(visit, output, output.file)
    name = name_download(output, file.suffix)
    return send_file(file, if_none_match=if_none_match, headers={**FOREVER, **name_content(name, disposition)})


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
    file: Path, *, if_none_match: str | None, headers: Mapping[str, str] = FOREVER, media_type: str | None = None
) -> Response:
    """Sends a file that never changes unless `headers` say otherwise; 304 if the client has it already.

    Without a `media_type` it is that of the file's ending.
    """
    named = {**name_content(file.name, "inline"), **headers}
    response = FileResponse(file, stat_result=file.stat(), headers=named, media_type=media_type)
    if if_none_match == response.headers["etag"]:
        return Response(status_code=304, headers={"ETag": response.headers["etag"], **headers})
    return response


def _animate(visit: Visit, output: Output, suffix: Kind, *, quality: int, disposition: str) -> Response:  # noqa: ARG001
    """Encodes the animation on demand and does not store it: it is seldom requested, and larger than its video."""
    if suffix == "jpeg":
        detail = say("Output {id} is a video, not a picture.", id=repr(output.id))
        raise NotFoundError(detail, advice=say("Ask for a gif or a webp."))
    file = find_output_file(visit, output, output.file)
    frames = read_mp4(file, width=output.width, height=output.height)
    content = encode_animation(frames, output.recipe, suffix=f".{suffix}")
    name = name_download(output, f".{suffix}")
    return _send_made(content, kind=suffix, headers=name_content(name, disposition))


def _convert(visit: Visit, output: Output, kind: Kind, *, quality: int, disposition: str) -> Response:
    """Encodes a picture in another format on demand."""
    if kind == "gif":
        detail = say("Output {id} is a picture, not a video.", id=repr(output.id))
        raise NotFoundError(detail, advice=say("Ask for a jpeg or a webp."))
    content = read_still(visit, output, kind, quality=quality)
    name = name_download(output, f".{'jpg' if kind == 'jpeg' else kind}")
    return _send_made(content, kind=kind, headers=name_content(name, disposition))


def read_still(visit: Visit, output: Output, kind: StillKind, *, quality: int) -> bytes:
    """Returns a picture as JPEG or WebP, with its recipe inside."""
    with Image.open(find_output_file(visit, output, output.file)) as picture:
        return encode_still(picture.convert("RGB"), output.recipe, kind=kind, quality=quality)


def _send_made(content: bytes, *, kind: Kind, headers: Mapping[str, str]) -> Response:
    return Response(content, media_type=f"image/{kind}", headers={**FOREVER, **headers})


def name_content(name: str, disposition: str = "attachment") -> dict[str, str]:
    """Returns the header that names what is sent; letters beyond ASCII as RFC 6266 says."""
    named = f'filename="{name}"' if name.isascii() else f"filename*=utf-8''{quote(name)}"
    return {"Content-Disposition": f"{disposition}; {named}"}


def _require_video(output: Output) -> None:
    if output.kind != "video":
        raise NotFoundError(say("Output {id} is a picture, not a video.", id=repr(output.id)))


def find_output_file(visit: Visit, output: Output, name: str) -> Path:
    """Finds one of an output's files; raises NotFoundError when somebody deleted it from the folder."""
    file = visit.studio.settings.outputs_dir / name
    if not file.is_file():
        raise NotFoundError(say("The file of output {id} is gone from the outputs folder.", id=repr(output.id)))
    return file
