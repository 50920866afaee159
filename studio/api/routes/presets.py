"""Presets over REST: list, save, import, export, delete; and the styles that combine with any prompt.

All imported or checked presets pass through library/presets/files.py; their origin is recorded by the server, never
taken from the file.
"""

import asyncio
import json
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from fastapi.responses import FileResponse, Response
from pydantic import BaseModel, ConfigDict

from pipelines.messages import add_codes, say
from pipelines.models.model_arrivals import Source, bring_lora
from studio.api.answers import library as library_answers
from studio.api.answers import models as model_answers
from studio.api.routes.media import CHECKED, IfNoneMatch, name_content, send_file
from studio.api.upload_body import read_body
from studio.api.visitor import Visitor, require_operator
from studio.jobs import trainings
from studio.library.presets import files, gallery, store
from studio.library.presets.files import MAX_PACK_BYTES, Found, Refusal
from studio.library.presets.preset import Preset, PresetError, PresetRecipe, clean_line, make_schema, read_preset
from studio.library.presets.store import Entry, Origin
from studio.library.presets.styles import read_styles
from studio.library.records import Output
from studio.services.downloads import name_arrival
from studio.visit import NotFoundError, Visit

router = APIRouter(tags=["presets"])

FILE_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": {"type": "object", "description": "GET /api/v1/preset.schema.json"}},
            "application/zip": {"schema": {"type": "string", "format": "binary"}},
        },
    }
}
SCHEMA = {"type": "object", "examples": [{"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object"}]}
Known = Literal["leave", "replace", "copy"]
Ids = Annotated[list[str] | None, Query(alias="id", max_length=100, description="which; none: all of one's own")]


class NewPreset(BaseModel):
    """A preset to save: from an output of yours, whose picture becomes its thumbnail, or from a recipe.

    Without `keep_seed` the preset has no seed, so every run makes a different picture.
    """

    model_config = ConfigDict(extra="forbid")

    title: str
    description: str = ""
    author: str = ""
    tags: list[str] = []
    licence: str = ""
    output: str | None = None
    recipe: PresetRecipe | None = None
    keep_seed: bool = True


@router.get("/presets", response_model=library_answers.Presets)
def list_presets(
    visit: Visitor,
    q: Annotated[str, Query(max_length=200, description="words of title, text, prompt, author, tags, model")] = "",
    tag: Annotated[str | None, Query(description="only presets with this tag")] = None,
    model: Annotated[str | None, Query(description="only presets of this model")] = None,
) -> dict[str, Any]:
    """Lists your own presets, newest first, then the shipped ones; `tags` and `models` have counts over all of them."""
    catalog = visit.studio.catalog
    entries = gallery.list_entries(visit.database, visit.presets_dir, catalog, owner=visit.owner)
    found = gallery.search(entries, catalog, words=q, tag=tag, model=model)
    return {
        "presets": [_describe(visit, entry) for entry in found],
        "tags": _count(tag for entry in entries for tag in entry.preset.tags),
        "models": _count(entry.preset.recipe.model for entry in entries),
    }


@router.post("/presets", status_code=201, response_model=library_answers.Preset)
def save_preset(new: NewPreset, visit: Visitor) -> dict[str, Any]:
    """Saves an output, or a recipe, as a preset of yours."""
    if (new.output is None) == (new.recipe is None):
        raise PresetError(
            say("Give either an output or a recipe."), fields={"output": say("or a recipe, one of the two")}
        )
    document = new.model_dump(exclude={"output", "keep_seed"})
    if new.output is not None:
        output = visit.get_output(new.output)
        document["recipe"] = output.recipe.model_dump(include=set(PresetRecipe.model_fields))
        document["thumbnail"] = _read_thumbnail(visit, output)
    if not new.keep_seed:
        document["recipe"]["seed"] = None
    preset = read_preset(json.dumps(document))
    gallery.require_runnable(preset, visit.studio.catalog)
    return _describe(visit, _keep(visit, preset, origin="made"))


@router.post(
    "/presets/import", status_code=201, openapi_extra=FILE_BODY, response_model=library_answers.ImportedPresets
)
async def import_presets(
    request: Request,
    visit: Visitor,
    *,
    name: Annotated[str, Query(max_length=200, description="of the file, shown as where the preset came from")] = "",
    origin: Annotated[Literal["file", "link"], Query(description="what it came in")] = "file",
    known: Annotated[Known, Query(description="what to do with presets of a title and recipe that are here")] = "leave",
    titles: Annotated[
        list[str] | None, Query(alias="title", max_length=100, description="only these of a pack")
    ] = None,
) -> dict[str, Any]:
    """Imports the body: a preset's JSON (1 MB at most) or a pack of them (zip, 16 MB at most).

    `known` lists presets that are here already, with the same title and recipe, and are left as they are, unless the
    query says to `replace` yours or to keep a `copy` under another title. `refused` lists the files of a pack that were
    left out, and why; 422 when nothing is left.
    """
    found = await _read_found(request, visit)
    if titles is not None:
        found = replace(found, presets=tuple(preset for preset in found.presets if preset.title in titles))
        if not found.presets:
            raise PresetError(
                say("It holds no preset of this title."), advice=say("Leave the title out to import all.")
            )
    return await asyncio.to_thread(keep_found, visit, found, origin=origin, name=clean_line(name)[-80:], known=known)


@router.post("/presets/check", openapi_extra=FILE_BODY, response_model=library_answers.Preset)
async def check_preset(request: Request, visit: Visitor) -> dict[str, Any]:
    """Checks what importing the body would give, without storing it; used to open links that contain a preset."""
    found = await _read_found(request, visit)
    preset = found.presets[0]
    gallery.require_runnable(preset, visit.studio.catalog)
    entry = Entry(id="", owner=visit.owner, preset=preset.without_thumbnail(), origin="link")
    return _describe(visit, entry)


@router.get("/presets.zip", response_class=Response)
def export_pack(visit: Visitor, ids: Ids = None) -> Response:
    """Exports presets as one pack, a zip of their JSON files."""
    catalog = visit.studio.catalog
    if ids:
        entries = [visit.get_preset(preset_id) for preset_id in ids]
    else:
        entries = store.list_own(visit.database, visit.presets_dir, owner=visit.owner)[:100]
    if not entries:
        raise NotFoundError(say("You have no presets yet."), advice=say("Save one from an output, or name some by id."))
    pack = files.write_pack(gallery.complete(entry, catalog) for entry in entries)
    return _download(pack, "lumesh-presets.zip", "application/zip")


@router.get("/preset.schema.json", responses={200: {"content": {"application/json": {"schema": SCHEMA}}}})
def get_schema() -> dict[str, Any]:
    """Returns the JSON Schema of a preset's file."""
    return make_schema()


@router.get("/styles", response_model=library_answers.Styles)
def list_styles() -> dict[str, Any]:
    """Lists prompt templates: `{prompt}` in `prompt` stands for your prompt; `negative_prompt` is added to yours."""
    return {"styles": [style.to_json() for style in read_styles()]}


@router.get("/presets/{preset_id}", response_model=library_answers.Preset)
def get_preset(preset_id: str, visit: Visitor) -> dict[str, Any]:
    """Returns a preset, shipped or your own."""
    return _describe(visit, visit.get_preset(preset_id))


@router.get("/presets/{preset_id}/thumb", response_class=FileResponse)
def get_thumb(preset_id: str, visit: Visitor, if_none_match: IfNoneMatch = None) -> Response:
    """Returns the thumbnail, a WebP of at most 384 px; 404 when the preset has no picture."""
    thumb = visit.get_preset(preset_id).thumb
    if thumb is None or not thumb.is_file():
        raise NotFoundError(say("Preset {id} has no picture.", id=repr(preset_id)))
    # Revalidated, because shipped thumbnails are redrawn when a model's weights change.
    return send_file(thumb, if_none_match=if_none_match, headers=CHECKED)


@router.get("/presets/{preset_id}/file", response_class=Response)
def export_preset(preset_id: str, visit: Visitor) -> Response:
    """Exports the preset as one JSON file with its thumbnail inside."""
    preset = gallery.complete(visit.get_preset(preset_id), visit.studio.catalog)
    return _download(files.write_document(preset), files.name_file(preset), "application/json")


@router.post("/presets/{preset_id}/loras", status_code=202, response_model=model_answers.Arrivals)
def fetch_loras(preset_id: str, visit: Visitor) -> dict[str, Any]:
    """Downloads the LoRAs that the preset names and that are not here, from where it says they are. For admins.

    GET /api/v1/models/files says how far they are, under `arrivals`. 422 where the preset does not say where they are.
    """
    preset = visit.get_preset(preset_id).preset
    require_operator(visit, say("Only admins add LoRAs."))
    studio = visit.studio
    lacking = gallery.list_lacking(preset, studio.catalog)
    arrivals: list[dict[str, Any]] = []
    for ref, known in lacking.items():
        if known is None:
            raise PresetError(
                say("Nobody says where the LoRA {ref} is.", ref=ref),
                advice=say("Put it into the loras folder of the data directory."),
            )
        source = Source(repo=known.repo, file=known.file, revision=known.revision or "main")
        bring = partial(bring_lora, studio.settings.loras_dir, source, ref=ref)
        trainings.disown_lora(visit.database, ref)  # of an earlier one, whose file somebody took away by hand
        visit.note("lora.arrival", source=source.told)
        arrival = name_arrival("lora", source.told, ref)
        arrivals.append(
            studio.downloads.bring(arrival, lambda on_bytes, of=bring: of(on_bytes=on_bytes)).describe_arrival()
        )
    return {"arrivals": arrivals}


@router.delete("/presets/{preset_id}", status_code=204)
def delete_preset(preset_id: str, visit: Visitor) -> Response:
    """Deletes a preset of your own; shipped ones stay."""
    entry = visit.get_own_preset(preset_id)
    if entry.origin == "shipped":
        raise PresetError(say("{title} is shipped with Lumesh and stays.", title=repr(entry.preset.title)))
    store.remove(visit.database, visit.presets_dir, preset_id)
    return Response(status_code=204)


def _describe(visit: Visit, entry: Entry) -> dict[str, Any]:
    return gallery.describe(entry, visit.studio.catalog)


def _keep(visit: Visit, preset: Preset, *, origin: Origin, name: str = "") -> Entry:
    return store.add(visit.database, visit.presets_dir, preset, owner=visit.owner, origin=origin, origin_name=name)


def keep_found(visit: Visit, found: Found, *, origin: Origin, name: str, known: Known = "leave") -> dict[str, Any]:
    """Stores presets that can run, or could if their model were here; raises PresetError when none is left."""
    catalog = visit.studio.catalog
    here = gallery.list_entries(visit.database, visit.presets_dir, catalog, owner=visit.owner)
    entries: list[Entry] = []
    left: list[Entry] = []
    refused = list(found.refused)
    for preset in found.presets:
        try:
            gallery.require_runnable(preset, catalog)
        except PresetError as error:
            if len(found.presets) == 1:
                raise
            refused.append(Refusal(name=preset.title, detail=error.detail))
            continue
        same = gallery.find_same(here, preset)
        if same is None:
            entries.append(_keep(visit, preset, origin=origin, name=name))
        elif known == "copy":
            entries.append(_keep(visit, gallery.name_copy(here, preset), origin=origin, name=name))
        elif known == "replace" and same.origin != "shipped":
            entries.append(store.replace(visit.database, visit.presets_dir, same.id, preset))
        else:
            left.append(same)
        here = [*here, *entries[-1:]]
    if not entries and not left:
        raise PresetError(
            say(
                "None of the pack's presets can be used. {name}: {detail}",
                name=refused[0].name,
                detail=refused[0].detail,
            )
        )
    return {
        "presets": [_describe(visit, entry) for entry in entries],
        "known": [_describe(visit, entry) for entry in left],
        "refused": [add_codes(vars(one)) for one in refused],
    }


def _read_thumbnail(visit: Visit, output: Output) -> str | None:
    file = visit.studio.settings.outputs_dir / output.thumb
    return files.embed(file.read_bytes()) if file.is_file() else None


async def _read_found(request: Request, visit: Visit) -> Found:
    """Reads presets out of the body, one request at a time like uploads, because thumbnails are decoded."""
    too_long = PresetError(
        say("It has more than {size} MB.", size=MAX_PACK_BYTES // 1_000_000), advice=say("Split the pack.")
    )
    content = await read_body(request, limit=MAX_PACK_BYTES, too_long=too_long)
    async with visit.studio.upload_turn.take(visit.person.client):
        return await asyncio.to_thread(files.read_file, content)


def _download(content: bytes, name: str, media_type: str) -> Response:
    return Response(content, media_type=media_type, headers=name_content(name))


def _count(names: Iterable[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
