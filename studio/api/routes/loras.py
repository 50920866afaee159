"""LoRAs over REST: everybody lists and downloads them, admins add and delete them, and so does who trained one.

They are `.safetensors` files in `loras/` of the data directory, and may be put there by hand too: each request reads
the folder anew. A recipe names them by their `ref`.
Not here: names and files (library/loras.py), which of them a recipe may name (pipelines/recipes/resolving.py).
"""

import asyncio
from collections.abc import Container
from pathlib import PurePosixPath
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import FileResponse

from pipelines.errors import ModelError, RecipeError
from pipelines.loras.files import SUFFIX, LoraFile
from pipelines.loras.fit import find_misfit
from pipelines.loras.settings import ADAPTER_MODEL
from pipelines.messages import add_codes, say
from studio.api.answers import library as library_answers
from studio.api.answers.errors import refuses
from studio.api.routes.media import CHECKED, IfNoneMatch, name_content, send_file
from studio.api.upload_body import FILE_BODY, receive_into
from studio.api.visitor import Visitor, only_operators, require_operator
from studio.jobs import trainings
from studio.library import loras
from studio.library.arrivals import arrive
from studio.library.loras import MAX_BYTES, LoraError, LoraTooLargeError
from studio.visit import NotFoundError, Visit

router = APIRouter(tags=["loras"])

Keeper = Annotated[Visit, only_operators(say("Only admins add LoRAs."))]


@router.get("/loras", response_model=library_answers.Loras)
def list_loras(
    visit: Visitor, model: Annotated[str | None, Query(description="only those that fit this model")] = None
) -> dict[str, list[dict[str, Any]]]:
    """Lists LoRAs that recipes may name in `loras` as `{"ref", "scale"}`, with the `models` that each fits.

    `unusable` are files of the folder that no recipe can name, or none of this model, each with the reason. With a
    model of two experts a recipe may say `{"ref", "scale", "expert"}`: `high`, `low` or `both`; `expert` here is the
    one that the file says it is for. `may_delete`: you are an admin, or a training of yours made it.
    """
    catalog = visit.studio.catalog
    try:
        chosen = None if model is None else catalog.get(model)
    except ModelError as error:
        raise RecipeError({"model": error.whole}) from error
    judged = [
        (lora, lora.problem if chosen is None else find_misfit(lora, chosen)) for lora in catalog.list_lora_files()
    ]
    own = trainings.list_loras_of(visit.database, owner=visit.owner)
    return {
        "loras": [_describe(lora, visit, own) for lora, problem in judged if not problem],
        "unusable": [add_codes({"ref": lora.ref, "reason": problem}) for lora, problem in judged if problem],
    }


@router.post(
    "/loras",
    status_code=201,
    openapi_extra=FILE_BODY,
    response_model=library_answers.LoraFile,
    responses=refuses(403, 409, 413, 507),
)
async def add_lora(
    request: Request,
    keeper: Keeper,
    name: Annotated[str, Query(max_length=1000, description="its file name; without the suffix it becomes its `ref`")],
) -> dict[str, Any]:
    """Stores the request's body, a `.safetensors` file (4 GB at most), as a LoRA, usable at once. For admins.

    What no file name can have is replaced: the answer has the `ref`. 409 when the name is taken, 413 when the file is
    too large, 422 when it is damaged or no LoRA of a family here.
    """
    ref = loras.clean_name(name)
    if request.headers.get("content-type", "").lower().startswith("multipart/"):
        raise LoraError(
            say("A form is no LoRA."), advice=say("Send the file itself as the body, as curl --data-binary does.")
        )
    folder = keeper.studio.settings.loras_dir
    with arrive(folder) as file:
        await receive_into(request, file, limit=MAX_BYTES, too_large=LoraTooLargeError())
        lora = await asyncio.to_thread(loras.keep, file, folder, ref)
    trainings.disown_lora(keeper.database, ref)  # of an earlier one, whose file somebody took away by hand
    keeper.note("lora.added", ref=ref)
    return _describe(lora, keeper, ())


@router.head("/loras/{ref:path}/file", include_in_schema=False)
@router.get("/loras/{ref:path}/file", response_class=FileResponse, responses=refuses(404))
def get_lora_file(ref: str, visit: Visitor, if_none_match: IfNoneMatch = None) -> Response:
    """Returns a LoRA as the `.safetensors` file that it is, for use in other programs; honours Range.

    Of a folder of peft's it is the weights, called as the folder is; the alpha, which `adapter_config.json` says, is
    not in it.
    """
    lora = next((one for one in visit.studio.catalog.list_lora_files() if one.ref == ref and not one.problem), None)
    if lora is None:
        raise _find_none(ref)
    is_of_peft = lora.path.name == ADAPTER_MODEL
    name = f"{PurePosixPath(lora.ref).name}{SUFFIX}" if is_of_peft else lora.path.name
    headers = {**CHECKED, **name_content(name)}
    return send_file(lora.path, if_none_match=if_none_match, headers=headers, media_type="application/octet-stream")


@router.delete("/loras/{ref:path}", status_code=204, responses=refuses(403, 404))
def delete_lora(ref: str, visit: Visitor) -> Response:
    """Deletes a LoRA; waiting jobs that name it fail, and its outputs cannot be made again.

    For admins, and for the owner of the training that made it.
    """
    if ref not in trainings.list_loras_of(visit.database, owner=visit.owner):
        require_operator(visit, say("Only admins delete LoRAs, and whoever trained one deletes that one."))
    if not loras.delete(visit.studio.settings.loras_dir, ref):
        raise _find_none(ref)
    trainings.disown_lora(visit.database, ref)
    visit.note("lora.deleted", ref=ref)
    return Response(status_code=204)


def _find_none(ref: str) -> NotFoundError:
    return NotFoundError(
        say("There is no LoRA {ref}.", ref=repr(ref[:80])), advice=say("GET /api/v1/loras lists them.")
    )


def _describe(lora: LoraFile, visit: Visit, own: Container[str]) -> dict[str, Any]:
    return {
        "ref": lora.ref,
        "title": lora.title,
        "family": lora.family,
        "kind": lora.kind,
        "rank": lora.rank,
        "expert": lora.expert or None,
        "size": lora.size,
        "models": [model.id for model in visit.studio.catalog.models if not find_misfit(lora, model)],
        "may_delete": visit.is_operator or lora.ref in own,
    }
