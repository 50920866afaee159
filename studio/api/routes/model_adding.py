"""Models that admins add over REST: a checkpoint in one file, a URL of one, or a repository of the hub or a file in it.

Not here: what is recognised and written (pipelines/models/model_manager.py), downloads and deleting (model_files.py).
"""

import asyncio
import functools
import os
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from pipelines.messages import say
from pipelines.models import model_arrivals, model_manager
from pipelines.web.web_files import OnBytes, Web
from studio.api.answers import models as model_answers
from studio.api.upload_body import FILE_BODY, receive_into
from studio.api.visitor import only_operators
from studio.library import models
from studio.library.arrivals import arrive
from studio.library.models import MAX_BYTES, ModelFilesError, ModelTooLargeError, refusing
from studio.services.downloads import Download, name_arrival
from studio.visit import NotFoundError, Visit

router = APIRouter(tags=["models"])

Keeper = Annotated[Visit, only_operators(say("Only admins add and delete models."))]


class Repository(BaseModel):
    """A repository of the hub, at a branch, tag or commit; `variant` is of its weights, such as fp16."""

    model_config = ConfigDict(extra="forbid")
    repo: Annotated[str, Field(max_length=200, description="owner/name")]
    revision: Annotated[str, Field(max_length=200)] = "main"
    name: Annotated[str, Field(max_length=120)] = ""
    variant: Annotated[str, Field(max_length=40)] = ""


class Arrival(BaseModel):
    """A file to download: a URL, or a repository of the hub and a file in it at a branch, tag or commit."""

    model_config = ConfigDict(extra="forbid")
    place: Annotated[str, Field(max_length=2000, description="https://..., or owner/name of the hub")]
    file: Annotated[str, Field(max_length=500, description="of a repository")] = ""
    revision: Annotated[str, Field(max_length=200)] = "main"
    name: Annotated[str, Field(max_length=120)] = ""


@router.post("/models", status_code=201, openapi_extra=FILE_BODY, response_model=model_answers.AddedModel)
async def add_model(
    request: Request,
    keeper: Keeper,
    name: Annotated[str, Query(max_length=200, description="its file name; without the suffix it names the model")],
) -> dict[str, Any]:
    """Stores the request's body, a checkpoint in one `.safetensors` file, as a model; usable at once. For admins.

    Its family, layout and sizes are read from its header. 413 when the file is too large, 422 when it is damaged, no
    checkpoint of a family here (the reason says what it is), or its name is taken. The id is empty for one of two
    experts, which is kept until the other one comes.
    """
    if request.headers.get("content-type", "").lower().startswith("multipart/"):
        raise ModelFilesError(
            say("A form is no model."), advice=say("Send the file itself as the body, as curl --data-binary does.")
        )
    settings = keeper.studio.settings
    with arrive(settings.models_dir) as file:
        await receive_into(request, file, limit=MAX_BYTES, too_large=ModelTooLargeError())
        file.flush()
        os.fsync(file.fileno())
        with refusing():
            add = functools.partial(model_manager.add_file, name=models.clean_name(name), moves=True)
            model_id = await asyncio.to_thread(add, settings.data_dir, models.part_of(file))
    keeper.note("model.added", model=model_id)
    return {"id": model_id}


@router.post("/models/repositories", status_code=201, response_model=model_answers.AddedModel)
async def add_repository(wanted: Repository, keeper: Keeper) -> dict[str, Any]:
    """Adds a repository of the hub as a model, pinned to the commit that its revision is now. For admins.

    Only its configs are downloaded; its weights come with the first job, or by POST /api/v1/models/{id}/download. 422
    with the reason when the hub does not have it, it is gated, or no model of a family here.
    """
    with refusing():
        model_id = await keeper.studio.hub_turns.run(
            lambda: model_manager.add_repository(
                keeper.studio.settings.data_dir,
                wanted.repo.strip(),
                revision=wanted.revision.strip() or "main",
                name=wanted.name.strip(),
                variant=wanted.variant.strip(),
            )
        )
    keeper.note("model.added", model=model_id, repo=wanted.repo)
    return {"id": model_id}


@router.post("/models/arrivals", status_code=202, response_model=model_answers.Arrival)
def bring_model(wanted: Arrival, keeper: Keeper) -> dict[str, Any]:
    """Downloads a checkpoint in one file, after what was asked for before; then it is a model. For admins.

    GET /api/v1/models/files says how far it is, under `arrivals`. What it is is told from its first bytes, so that one
    that no code here runs fails before it has come. 422 for what is no address, or none on the public internet.
    """
    settings = keeper.studio.settings
    with refusing():
        source = model_arrivals.read_source(
            wanted.place,
            file=wanted.file,
            revision=wanted.revision.strip(),
            allows_private=settings.allow_private_downloads,
        )
    tokens = {model_arrivals.CIVITAI: settings.civitai_token} if settings.civitai_token else {}
    web = Web(allows_private=settings.allow_private_downloads, tokens=tokens)

    def bring(on_bytes: OnBytes) -> str:
        return model_arrivals.bring_model(settings.data_dir, source, name=wanted.name, web=web, on_bytes=on_bytes)

    arrival = name_arrival("model", source.told, f"{source.revision} {wanted.name}")
    keeper.note("model.arrival", source=source.told)
    return keeper.studio.downloads.bring(arrival, bring).describe_arrival()


@router.post("/models/arrivals/{arrival_id}", status_code=202, response_model=model_answers.Arrival)
def continue_arrival(arrival_id: str, keeper: Keeper) -> dict[str, Any]:
    """Lets a stopped or failed download of a file go on. For admins."""
    found = keeper.studio.downloads.go_on(_find(keeper, arrival_id).id)
    assert found is not None, "it is in the list"
    return found.describe_arrival()


@router.delete("/models/arrivals/{arrival_id}", status_code=204)
def stop_arrival(arrival_id: str, keeper: Keeper) -> Response:
    """Stops the download of a file; one that is not under way leaves the list. What has arrived is kept. For admins."""
    found = _find(keeper, arrival_id)
    if found.state in ("waiting", "running"):
        keeper.studio.downloads.pause(found.id)
    else:
        keeper.studio.downloads.forget(found.id)
    return Response(status_code=204)


def _find(visit: Visit, arrival_id: str) -> Download:
    found = next((one for one in visit.studio.downloads.list_arrivals() if one.id == arrival_id), None)
    if found is None:
        raise NotFoundError(say("There is no download {id}.", id=repr(arrival_id)))
    return found
