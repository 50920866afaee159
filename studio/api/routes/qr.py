"""Links as QR codes, to open them on a phone."""

import io
from typing import Annotated

import segno
from fastapi import APIRouter
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field
from segno import DataOverflowError

from pipelines.messages import say
from studio.library.presets.preset import PresetError

router = APIRouter(tags=["presets"])
# A code holds 2953 bytes at most, but beyond this a phone's camera no longer reads it off a screen.
MAX_LINK_CHARS = 1200


class Link(BaseModel):
    """A web address."""

    model_config = ConfigDict(extra="forbid")

    link: Annotated[str, Field(pattern=r"^https?://[!-~]+$", max_length=10_000)]


@router.post("/qr", response_class=Response, responses={200: {"content": {"image/svg+xml": {}}}})
def draw_qr(link: Link) -> Response:
    """Draws the link as a QR code in SVG; 422 when it is too long for a camera to read."""
    too_long = PresetError(
        say("The link is too long for a QR code."), advice=say("Share the link itself, or the file.")
    )
    if len(link.link) > MAX_LINK_CHARS:
        raise too_long
    try:
        code = segno.make_qr(link.link, error="l", boost_error=True)
    except DataOverflowError as error:
        raise too_long from error
    svg = io.BytesIO()
    code.save(svg, kind="svg", border=4, dark="#000", light="#fff", xmldecl=False, omitsize=True)
    return Response(svg.getvalue(), media_type="image/svg+xml")
