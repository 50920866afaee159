"""Presets on the Hugging Face Hub over REST: list a dataset repository, pull from it, push to it.

The visitor's token comes in the header `X-Hub-Token` and is never stored. Pulled presets are imported like any file.
"""

from typing import Annotated, Any

from fastapi import APIRouter, Header, Path
from pydantic import BaseModel, ConfigDict, Field

from studio.api.answers import library as library_answers
from studio.api.routes.presets import Known, keep_found
from studio.api.visitor import Visitor
from studio.library.presets import gallery
from studio.library.presets.files import MAX_PACK_FILES
from studio.library.presets.hub import Hub
from studio.visit import Visit

router = APIRouter(prefix="/hub", tags=["presets"])

RepoPart = Annotated[str, Path(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,95}$")]
Token = Annotated[
    str | None, Header(alias="X-Hub-Token", max_length=200, pattern="^[!-~]+$", description="of your account")
]
Names = Annotated[list[Annotated[str, Field(max_length=200)]], Field(min_length=1, max_length=MAX_PACK_FILES)]


class Pull(BaseModel):
    """Names of presets, as in the list of the repository."""

    model_config = ConfigDict(extra="forbid")

    names: Names
    known: Known = "leave"


class Push(BaseModel):
    """Ids of presets."""

    model_config = ConfigDict(extra="forbid")

    ids: Names


@router.get("/{account}/{name}", response_model=library_answers.Names)
async def list_repository(account: RepoPart, name: RepoPart, visit: Visitor, token: Token = None) -> dict[str, Any]:
    """Lists the presets of a dataset repository by name."""
    hub = _open(visit, token)
    return {"names": await visit.studio.hub_turns.run(lambda: hub.list_files(f"{account}/{name}"))}


@router.post("/{account}/{name}/pull", status_code=201, response_model=library_answers.ImportedPresets)
async def pull_presets(
    account: RepoPart, name: RepoPart, wanted: Pull, visit: Visitor, token: Token = None
) -> dict[str, Any]:
    """Imports presets of a repository; `refused` lists which were left out, and why.

    `known` are those that are here already, as with `POST /api/v1/presets/import`.
    """
    hub, repo = _open(visit, token), f"{account}/{name}"

    def pull() -> dict[str, Any]:
        return keep_found(visit, hub.pull(repo, wanted.names), origin="hub", name=repo, known=wanted.known)

    return await visit.studio.hub_turns.run(pull)


@router.post("/{account}/{name}/push", status_code=201, response_model=library_answers.HubAddress)
async def push_presets(
    account: RepoPart, name: RepoPart, chosen: Push, visit: Visitor, token: Token = None
) -> dict[str, str]:
    """Uploads presets to a dataset repository of yours, creating it if missing; answers with its address."""
    hub, catalog = _open(visit, token), visit.studio.catalog

    def push() -> str:
        presets = [gallery.complete(visit.get_preset(preset_id), catalog) for preset_id in chosen.ids]
        url = hub.push(f"{account}/{name}", presets)
        visit.note("presets.pushed", url=url, ids=chosen.ids)
        return url

    return {"url": await visit.studio.hub_turns.run(push)}


def _open(visit: Visit, token: str | None) -> Hub:
    return Hub(endpoint=visit.studio.hub_endpoint, token=token)
