"""The gallery over REST: search, read, mark, throw away, restore, delete for ever, download many.

Only outputs in the trash can be deleted for ever. Not here: the files themselves (media.py).
"""

from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Form, Query
from fastapi.responses import StreamingResponse
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from studio.api.answers import jobs as jobs_answers
from studio.api.answers import library as library_answers
from studio.api.routes.media import find_output_file
from studio.api.visitor import Visitor
from studio.library import records, trash
from studio.library.archive import stream_zip
from studio.library.pixels import compare
from studio.library.presets import gallery
from studio.library.presets.preset import Tag, clean_tags
from studio.library.search import Filters, PresetMark, count_presets, count_values, find_outputs
from studio.visit import Visit

router = APIRouter(tags=["outputs"])
NOTED_IDS = 20
MAX_IDS = 1000
MAX_TAGS = 20
MAX_NUMBER = 2**53  # the largest exact integer in JSON clients; SQLite allows up to 2**63

OutputIds = Annotated[list[str], Field(min_length=1, max_length=MAX_IDS)]
Everyone = Annotated[bool, Query(description="everybody's outputs, for admins and in a shared gallery")]
Time = Annotated[float | None, Query(ge=0, allow_inf_nan=False)]


class Change(BaseModel):
    """The changes to an output; fields not given stay."""

    model_config = ConfigDict(extra="forbid")

    favourite: bool | None = None
    tags: Annotated[tuple[Tag, ...], Field(max_length=MAX_TAGS), AfterValidator(clean_tags)] | None = None


class Chosen(BaseModel):
    """Outputs by id; unknown ids and other people's are ignored."""

    model_config = ConfigDict(extra="forbid")

    ids: OutputIds


class Purged(BaseModel):
    """Selects what to delete from the trash; null is all of it."""

    model_config = ConfigDict(extra="forbid")

    ids: OutputIds | None


@router.get("/outputs", response_model=library_answers.Outputs)
def list_outputs(
    visit: Visitor,
    *,
    q: Annotated[str, Query(max_length=200, description="words of prompt or tags, in any order")] = "",
    model: Annotated[str | None, Query(description="only outputs of this model")] = None,
    family: Annotated[str | None, Query(description="only of models of this family, such as sdxl")] = None,
    shape: Annotated[str | None, Query(description="only this size, such as 1024x1024")] = None,
    kind: Annotated[Literal["image", "video"] | None, Query(description="only pictures, or only videos")] = None,
    favourite: Annotated[bool | None, Query(description="only marked ones, or only others")] = None,
    tag: Annotated[str | None, Query(description="only outputs with this tag")] = None,
    preset: Annotated[
        str | None,
        Query(description="only outputs whose settings came from this preset, or that have its model and prompt"),
    ] = None,
    after: Time = None,
    before: Time = None,
    state: Annotated[Literal["kept", "trashed"], Query(description="the gallery, or its trash")] = "kept",
    cursor: Annotated[int | None, Query(ge=0, le=MAX_NUMBER, description="`start` or `next` of an answer")] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 60,
    offset: Annotated[int, Query(ge=0, le=MAX_NUMBER, description="how many to pass over, from there on")] = 0,
    everyone: Everyone = False,
) -> dict[str, Any]:
    """Lists outputs, newest first, with recipes and the URLs of file and thumbnail; `total` counts all matches.

    `next` is the cursor of the next page; `start` repeats this page, whatever was made since. `after` and `before` are
    seconds since 1970.
    """
    wanted = _mark(visit.get_preset(preset)) if preset is not None else None
    filters = Filters(
        words=q,
        models=_choose_models(visit, family, model),
        shape=shape,
        kind=kind,
        tag=tag,
        is_favourite=favourite,
        after=after,
        before=before,
        preset=wanted,
        is_trashed=state == "trashed",
    )
    owner = visit.choose_owner(is_everyone=everyone, is_shared=visit.shares_gallery and not filters.is_trashed)
    page = find_outputs(visit.database, filters, owner=owner, cursor=cursor, limit=limit, offset=offset)
    return {
        "outputs": [output.to_json() for output in page.outputs],
        "total": page.total,
        "start": page.start,
        "next": page.next,
    }


@router.get("/outputs/filters", response_model=library_answers.Filters)
def list_filters(visit: Visitor, *, everyone: Everyone = False) -> dict[str, Any]:
    """Lists the values to filter by, each with its number of outputs."""
    owner = visit.choose_owner(is_everyone=everyone, is_shared=visit.shares_gallery)
    counts = count_values(visit.database, owner=owner)
    families = {model.id: model.family for model in visit.studio.catalog.models}
    return {
        **vars(counts),
        "models": [{"id": model, "family": families.get(model), "count": n} for model, n in counts.models.items()],
        "presets": _count_presets(visit, owner),
    }


@router.post("/outputs/trash", response_model=jobs_answers.Ids)
def throw_away_outputs(chosen: Chosen, visit: Visitor) -> dict[str, list[str]]:
    """Moves outputs to the trash; `ids` are those that were not in it yet."""
    throw_away = partial(trash.throw_away, visit.database, chosen.ids, owner=visit.whose_to_change)
    return {"ids": visit.studio.reserve.do(throw_away)}


@router.post("/outputs/restore", response_model=jobs_answers.Ids)
def restore_outputs(chosen: Chosen, visit: Visitor) -> dict[str, list[str]]:
    """Takes outputs out of the trash; `ids` are those that were in it."""
    return {"ids": trash.restore(visit.database, chosen.ids, owner=visit.whose_to_change)}


@router.post("/outputs/purge", response_model=jobs_answers.Ids)
def purge_outputs(purged: Purged, visit: Visitor) -> dict[str, list[str]]:
    """Deletes outputs in the trash for ever, with their files; `ids` are those that were deleted."""
    outputs_dir = visit.studio.settings.outputs_dir
    owner = visit.owner if purged.ids is None else visit.whose_to_change  # "all of it" is never other people's
    ids = visit.studio.reserve.do(partial(trash.purge, visit.database, outputs_dir, purged.ids, owner=owner))
    visit.note("outputs.purged", count=len(ids), ids=ids[:NOTED_IDS])
    return {"ids": ids}


@router.post("/outputs/zip", response_class=StreamingResponse)
def download_outputs(
    visit: Visitor, ids: Annotated[list[str], Form(min_length=1, max_length=MAX_IDS, description="once for each")]
) -> StreamingResponse:
    """Streams the files of several outputs as one zip. It takes a form, so that browsers save the zip as it arrives."""
    outputs = [visit.get_output(output_id) for output_id in dict.fromkeys(ids)]
    return StreamingResponse(
        stream_zip(visit.studio.settings.outputs_dir, outputs),
        media_type="application/zip",
        headers={"Content-Disposition": 'attachment; filename="lumesh-outputs.zip"'},
    )


@router.get("/outputs/{output_id}", response_model=library_answers.Output)
def get_output(output_id: str, visit: Visitor) -> dict[str, Any]:
    """Returns an output with its recipe; also from the trash."""
    return visit.get_output(output_id).to_json()


@router.get("/outputs/{output_id}/compare/{other_id}", response_model=library_answers.Likeness)
def compare_outputs(output_id: str, other_id: str, visit: Visitor) -> dict[str, Any]:
    """Compares the pixels of two outputs: `identical`, or `psnr_db`; outputs of different sizes are not compared.

    To check whether an output is reproducible, queue its recipe and compare the result.
    """
    one, other = visit.get_output(output_id), visit.get_output(other_id)
    for output in (one, other):
        find_output_file(visit, output, output.file)
    return vars(compare(visit.studio.settings.outputs_dir, one, other))


@router.patch("/outputs/{output_id}", response_model=library_answers.Output)
def change_output(output_id: str, change: Change, visit: Visitor) -> dict[str, Any]:
    """Sets an output's favourite mark and tags. Answers with the changed output."""
    visit.get_own_output(output_id)
    output = records.change(visit.database, output_id, is_favourite=change.favourite, tags=change.tags)
    return output.to_json()


@router.delete("/outputs/{output_id}", response_model=library_answers.Output)
def throw_away_output(output_id: str, visit: Visitor) -> dict[str, Any]:
    """Moves an output to the trash, where it stays until it is restored or purged. Answers with the changed output."""
    output = visit.get_own_output(output_id)
    visit.studio.reserve.do(partial(trash.throw_away, visit.database, [output_id], owner=output.owner))
    return visit.get_output(output_id).to_json()


def _choose_models(visit: Visit, family: str | None, model: str | None) -> list[str] | None:
    """Returns the ids of models that satisfy both filters; None when neither is given."""
    asked = [{model}] if model is not None else []
    if family is not None:
        asked.append({one.id for one in visit.studio.catalog.models if one.family == family})
    return sorted(set.intersection(*asked)) if asked else None


def _count_presets(visit: Visit, owner: str | None) -> list[dict[str, Any]]:
    """Counts outputs by the preset that they were made from."""
    entries = gallery.list_entries(visit.database, visit.presets_dir, visit.studio.catalog, owner=visit.owner)
    counts = count_presets(visit.database, [_mark(entry) for entry in entries], owner=owner)
    found = ((entry, counts[entry.id]) for entry in entries)
    return [{"id": entry.id, "title": entry.preset.title, "count": count} for entry, count in found if count]


def _mark(entry: gallery.Entry) -> PresetMark:
    recipe = entry.preset.recipe
    return PresetMark(id=entry.id, model=recipe.model, prompt=recipe.prompt)
