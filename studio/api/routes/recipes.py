"""Reads recipes from files over REST: turns a picture's or video's metadata into a recipe for this studio.

Nothing is stored. Not here: the formats of files (library/foreign).
"""

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import ValidationError

from pipelines.errors import ModelError, RecipeError
from pipelines.messages import say
from studio.api.answers import library as library_answers
from studio.api.upload_body import Expected, read_file_body
from studio.api.visitor import Visitor
from studio.jobs.many.axes import Axes
from studio.library import inputs
from studio.library.foreign import read_file, read_grid
from studio.library.foreign.containers import MAX_BYTES
from studio.library.foreign.errors import MetadataError, MetadataTooLargeError

router = APIRouter(tags=["recipes"])

FILE = Expected(
    what="picture, video or text",
    kinds=("image/", "video/mp4", "text/plain", "application/json"),
    example="image/png",
    max_bytes=MAX_BYTES,
    refuse=lambda detail, advice: MetadataError(detail, advice=advice),
    refuse_length=MetadataTooLargeError,
)
NONE = {"recipe": None, "source": None, "unusable": [], "notes": [], "grid": None}


@router.post("/recipes/read", openapi_extra=FILE.describe(), response_model=library_answers.ReadRecipe)
async def read_recipe(
    request: Request,
    visit: Visitor,
    model: Annotated[str | None, Query(description="the model to fit to where the file's own is not here")] = None,
) -> dict[str, Any]:
    """Reads the recipe in a PNG, JPEG, WebP, AVIF, GIF, MP4, text or JSON (20 MB at most) and stores nothing.

    It reads files of Lumesh, A1111 and its relatives, Fooocus and RuinedFooocus, InvokeAI, SwarmUI, NovelAI, Draw
    Things and ComfyUI (one sampler's chain); and A1111's settings as text, ComfyUI's graphs as JSON. `recipe` fits
    `POST /api/v1/jobs`; `unusable` lists what was left out ({`what`, `why`}), `notes` what was changed, `grid` the axes
    of a grid's sheet. A file that carries no recipe answers with `recipe` null; 413 when it is too large, 422 when it
    cannot be read.
    """
    try:
        chosen = visit.studio.catalog.get(model) if model else visit.studio.default_model
    except ModelError as error:
        raise RecipeError({"model": error.whole}) from error
    content = await read_file_body(request, FILE)

    def is_input(image: str) -> bool:
        return inputs.is_known(visit.database, image, owner=visit.owner)

    async with visit.studio.upload_turn.take(visit.person.client):
        found = await asyncio.to_thread(read_file, content, visit.studio.catalog, chosen, is_input)
        axes = await asyncio.to_thread(read_grid, content)
    return NONE if found is None else {**found.to_json(), "grid": _check_axes(axes)}


def _check_axes(axes: dict[str, Any] | None) -> dict[str, Any] | None:
    try:
        return None if axes is None else Axes.model_validate(axes).model_dump(mode="json")
    except ValidationError as error:
        raise MetadataError(say("Its grid is damaged: its axes cannot be read.")) from error
