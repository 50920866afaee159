"""Models' files over REST, for admins: what is on this machine, downloads, the hub's token, the default.

Not here: what a model can make (routes/models.py).
"""

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field

from pipelines.errors import ModelError
from pipelines.messages import say
from pipelines.models import model_manager
from pipelines.models.catalog import Model
from pipelines.runtime.weights import hub, hub_cache, hub_token
from pipelines.runtime.weights.hub_pins import choose_revision
from studio.api.answers import models as model_answers
from studio.api.visitor import only_operators
from studio.jobs.workers import WorkerRow, read_worker
from studio.library.models import refusing
from studio.services import first_model
from studio.services.fit import describe_fit
from studio.storage import count_free
from studio.visit import NotFoundError, Visit

router = APIRouter(tags=["models"])

HUB_PAGE = "https://huggingface.co/"

Keeper = Annotated[Visit, only_operators(say("Only admins look after models."))]


class Token(BaseModel):
    """A token of the hub."""

    model_config = ConfigDict(extra="forbid")
    token: Annotated[str, Field(max_length=1000)]


class Choice(BaseModel):
    """A model to start with, or none."""

    model_config = ConfigDict(extra="forbid")
    model: Annotated[str, Field(max_length=1000)] | None


@router.get("/models/files", response_model=model_answers.ModelFiles)
async def list_model_files(keeper: Keeper) -> dict[str, Any]:
    """Lists every model with its files on this machine, its licence, and whether it fits the worker's chips.

    `fit` is an estimate, and null where none ships for these devices. `download` is null unless somebody asked for one
    since the studio started; with `partial_bytes` a stopped one goes on. For admins.
    """
    return await asyncio.to_thread(_list, keeper)


def _list(keeper: Visit) -> dict[str, Any]:
    studio = keeper.studio
    worker = read_worker(keeper.database)
    chosen = first_model.read_choice(studio.settings, studio.catalog)
    return {
        "models": [_describe(keeper, model, worker) for model in studio.catalog.models],
        "arrivals": [one.describe_arrival() for one in studio.downloads.list_arrivals()],
        "default": chosen.id if chosen else None,
        "fixed_default": studio.settings.model,
        "token": hub_token.find_origin(),
        "free_bytes": count_free(hub.find_cache()),
        "models_dir": str(studio.settings.models_dir),
    }


@router.get("/models/{model_id}/access", response_model=model_answers.Access)
async def ask_access(model_id: str, keeper: Keeper) -> dict[str, bool | None]:
    """Asks the hub whether the model's repository is gated, and whether this studio's token may read it. For admins.

    Both are null where the hub cannot be asked, and for models that are no repository.
    """
    model = _find(keeper, model_id)
    access = await keeper.studio.hub_turns.run(lambda: hub.ask_access(model.repo)) if model.repo else None
    if access is None:
        return {"is_gated": None, "is_granted": None}
    return {"is_gated": access.is_gated, "is_granted": access.is_granted}


@router.post("/models/{model_id}/download", status_code=202, response_model=model_answers.DownloadState)
def start_download(model_id: str, keeper: Keeper) -> dict[str, Any]:
    """Downloads a model, after those that were asked for before; a stopped download goes on. For admins."""
    model = _find(keeper, model_id)
    keeper.note("model.download", model=model.id)
    return keeper.studio.downloads.start(model).to_json()


@router.delete("/models/{model_id}/download", status_code=204)
def pause_download(model_id: str, keeper: Keeper) -> Response:
    """Stops a download; what has arrived is kept, and the next one goes on with it. For admins."""
    keeper.studio.downloads.pause(_find(keeper, model_id).id)
    return Response(status_code=204)


@router.delete("/models/{model_id}/files", response_model=model_answers.Freed)
def delete_files(model_id: str, keeper: Keeper) -> dict[str, int]:
    """Deletes a hub model's weights, and what arrived of its download; the model stays, and downloads them again.

    Zero for models that are no repository. For admins.
    """
    model = _find(keeper, model_id)
    keeper.studio.downloads.forget(model.id)
    freed = hub_cache.delete(model)
    keeper.note("model.files_deleted", model=model.id)
    return {"bytes": freed}


@router.put("/models/default", response_model=model_answers.DefaultModel)
def choose_default(choice: Choice, keeper: Keeper) -> dict[str, str | None]:
    """Sets the model that the studio starts with, and that new visitors' pages open with; null undoes that.

    `--model` comes before it. For admins.
    """
    model = _find(keeper, choice.model) if choice.model is not None else None
    first_model.keep_choice(keeper.studio.settings, model)
    keeper.note("model.default", model=choice.model)
    return {"default": choice.model}


@router.put("/models/token", response_model=model_answers.TokenOrigin)
def keep_token(wanted: Token, keeper: Keeper) -> dict[str, str]:
    """Keeps a token of the hub for gated models, readable for the server's account alone; nobody is shown it again.

    For admins.
    """
    with refusing():
        hub_token.keep_token(keeper.studio.settings.hub_token_file, wanted.token)
    keeper.note("hub.token")
    return {"token": hub_token.find_origin()}


@router.delete("/models/token", response_model=model_answers.TokenOrigin)
def forget_token(keeper: Keeper) -> dict[str, str]:
    """Deletes the token that was entered; HF_TOKEN counts again, if there is one. For admins."""
    hub_token.forget_token(keeper.studio.settings.hub_token_file)
    keeper.note("hub.token_deleted")
    return {"token": hub_token.find_origin()}


@router.delete("/models/{model_id}", response_model=model_answers.Freed)
def remove_model(model_id: str, keeper: Keeper) -> dict[str, int]:
    """Removes a model that was added here: its entry, its weights, and its file or folder in `models/`. For admins.

    Waiting jobs that use it fail. 422 for a model that comes with Lumesh; what lies outside of the data directory and
    the hub's cache stays.
    """
    model = _find(keeper, model_id)
    keeper.studio.downloads.forget(model.id)
    freed = hub_cache.measure_disk(model) + hub_cache.measure_partial(model)
    with refusing():
        if not model_manager.is_own(model):
            raise ModelError(
                say("{model} comes with Lumesh and cannot be removed.", model=model.id),
                advice=say("DELETE /api/v1/models/{id}/files deletes what was downloaded.", id=model.id),
            )
        hub_cache.delete(model)
        model_manager.remove_model(keeper.studio.settings.data_dir, model.id)
    keeper.note("model.removed", model=model.id)
    return {"bytes": freed}


def _find(visit: Visit, model_id: str) -> Model:
    found = next((model for model in visit.studio.catalog.models if model.id == model_id), None)
    if found is None:
        raise NotFoundError(say("There is no model {model}.", model=repr(model_id)))
    return found


def _name_origin(model: Model) -> str:
    if model.is_demo and not model_manager.is_own(model):
        return "demo"
    return "file" if model.file else "folder" if model.path else "hub"


def _describe(keeper: Visit, model: Model, worker: WorkerRow) -> dict[str, Any]:
    settings = keeper.studio.settings
    download = keeper.studio.downloads.find(model.id)
    return {
        "id": model.id,
        "title": model.title,
        "licence": model.licence,
        "origin": _name_origin(model),
        "repo": model.repo or None,
        "revision": choose_revision(model) if model.repo else None,
        "url": f"{HUB_PAGE}{model.repo}" if model.repo else model.source or None,
        "is_here": hub.is_here(model),
        "is_resident": worker.model == model.id,
        "disk_bytes": hub_cache.measure_disk(model),
        "partial_bytes": hub_cache.measure_partial(model),
        "is_own": model_manager.is_own(model),
        "weights": model.weights,
        "fit": describe_fit(settings, model, worker.devices, chips=worker.chips),
        "download": download.to_json() if download else None,
    }
