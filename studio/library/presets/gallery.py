"""The gallery: shipped presets and the visitor's own in one searchable list, each with whether it can run here."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

from pipelines.errors import RecipeError, join_fields
from pipelines.messages import add_codes, join, say
from pipelines.models.catalog import Catalog, Model
from pipelines.recipes.recipe import NEEDS_PICTURE
from pipelines.recipes.resolving import resolve
from studio.database import Database
from studio.library.presets import store
from studio.library.presets.files import embed
from studio.library.presets.preset import MAX_TITLE_CHARS, LoraSource, Preset, PresetError, name_source
from studio.library.presets.shipped import read_shipped, thumb_of
from studio.library.presets.store import Entry


def list_entries(database: Database, presets_dir: Path, catalog: Catalog, *, owner: str) -> list[Entry]:
    """Lists the owner's presets, newest first, then the shipped ones in the catalogue's order of models."""
    place = {model.id: number for number, model in enumerate(catalog.models)}
    shipped = [_make_shipped(preset_id, preset) for preset_id, preset in read_shipped().items()]
    shipped.sort(key=lambda entry: (place.get(entry.preset.recipe.model, len(place)), entry.thumb is None))
    return store.list_own(database, presets_dir, owner=owner) + shipped


def find_entry(database: Database, presets_dir: Path, preset_id: str) -> Entry | None:
    """Finds a shipped preset or anybody's own; None when there is none."""
    shipped = read_shipped().get(preset_id)
    return _make_shipped(preset_id, shipped) if shipped else store.read_entry(database, presets_dir, preset_id)


def find_same(entries: Sequence[Entry], preset: Preset) -> Entry | None:
    """Finds the entry with this preset's title and recipe; its picture, words about it and tags may differ."""
    return next(
        (one for one in entries if (one.preset.title, one.preset.recipe) == (preset.title, preset.recipe)), None
    )


def name_copy(entries: Sequence[Entry], preset: Preset) -> Preset:
    """Returns the preset under the first free title of "Sunset (2)", "Sunset (3)", and so on."""
    taken = {entry.preset.title for entry in entries}
    copies = (f"{preset.title[: MAX_TITLE_CHARS - 6]} ({number})" for number in count(2))
    return preset.model_copy(update={"title": next(title for title in copies if title not in taken)})


def search(
    entries: Sequence[Entry], catalog: Catalog, *, words: str = "", tag: str | None = None, model: str | None = None
) -> list[Entry]:
    """Returns the entries that contain every word, in any order and case, and have the tag and the model."""
    titles = {one.id: one.title for one in catalog.models}
    wanted = words.casefold().split()
    return [
        entry
        for entry in entries
        if (tag is None or tag in entry.preset.tags)
        and (model is None or entry.preset.recipe.model == model)
        and all(word in _text_of(entry.preset, titles) for word in wanted)
    ]


def describe(entry: Entry, catalog: Catalog) -> dict[str, Any]:
    """Describes a preset for REST. `missing` names a missing model and how to add it; else the preset can run.

    `lacks` lists the LoRAs of its recipe that are not here, each with where it can be downloaded, if the preset says.
    """
    preset = entry.preset
    model = _find_model(preset, catalog)
    return {
        "id": entry.id,
        "title": preset.title,
        "description": preset.description,
        "author": preset.author,
        "tags": list(preset.tags),
        "licence": preset.licence,
        "recipe": preset.recipe.model_dump(mode="json"),
        "model": {"id": preset.recipe.model, "title": (model.title if model else preset.source.title)},
        "missing": None if model else _explain_missing(preset),
        "lacks": [_describe_lacking(ref, source) for ref, source in list_lacking(preset, catalog).items()],
        "needs_picture": bool(model and model.min_images),
        "origin": {"kind": entry.origin, "name": entry.origin_name},
        "thumb_url": f"/api/v1/presets/{entry.id}/thumb" if entry.thumb else None,
        "created_at": entry.created_at or None,
    }


def list_lacking(preset: Preset, catalog: Catalog) -> dict[str, LoraSource | None]:
    """Maps each LoRA of a preset's recipe that is not here to where it is on the hub; None where nobody says."""
    if not preset.recipe.loras:
        return {}
    here = {lora.ref for lora in catalog.find_loras()}
    sources = {source.ref: source for source in preset.loras}
    return {lora.ref: sources.get(lora.ref) for lora in preset.recipe.loras if lora.ref not in here}


def _describe_lacking(ref: str, source: LoraSource | None) -> dict[str, Any]:
    if source is None:
        advice = say("Put the LoRA {ref} into the loras folder of the data directory.", ref=ref)
        return add_codes({"ref": ref, "repo": None, "url": None, "licence": "", "size_bytes": None, "advice": advice})
    advice = say("It is {file} of {repo} on the Hugging Face Hub.", file=source.file, repo=source.repo)
    return add_codes(
        {
            "ref": ref,
            "repo": source.repo,
            "url": f"https://huggingface.co/{source.repo}/blob/{source.revision or 'main'}/{source.file}",
            "licence": source.licence,
            "size_bytes": source.size_bytes,
            "advice": advice,
        }
    )


def complete(entry: Entry, catalog: Catalog) -> Preset:
    """Returns the preset for sharing, with its thumbnail and the name of its model's source."""
    has_thumb = entry.thumb is not None and entry.thumb.is_file()
    thumbnail = embed(entry.thumb.read_bytes()) if entry.thumb and has_thumb else None
    return name_source(entry.preset.model_copy(update={"thumbnail": thumbnail}), catalog)


def require_runnable(preset: Preset, catalog: Catalog) -> None:
    """Raises PresetError when the model is here and refuses this recipe; missing models and LoRAs may come later.

    An input picture is never part of a preset, so it may be missing.
    """
    model = _find_model(preset, catalog)
    if model is None:
        return
    without_pictures = replace(catalog, models=(replace(model, min_images=0),))
    here = {lora.ref for lora in catalog.find_loras()}
    recipe = preset.recipe.to_recipe()
    recipe = recipe.model_copy(update={"loras": tuple(lora for lora in recipe.loras if lora.ref in here)})
    try:
        resolve(recipe, without_pictures)
    except RecipeError as error:
        fields = {f"recipe.{name}": message for name, message in error.fields.items() if message != NEEDS_PICTURE}
        if not fields:
            return
        advice = say("{model} cannot run it.", model=model.title)
        raise PresetError(join_fields(fields), advice=advice, fields=fields) from error


def _make_shipped(preset_id: str, preset: Preset) -> Entry:
    thumb = thumb_of(preset_id)
    return Entry(id=preset_id, owner="", preset=preset, origin="shipped", thumb=thumb if thumb.is_file() else None)


def _find_model(preset: Preset, catalog: Catalog) -> Model | None:
    return next((model for model in catalog.models if model.id == preset.recipe.model), None)


def _explain_missing(preset: Preset) -> dict[str, Any]:
    model, source = preset.recipe.model, preset.source
    folder = f"models/{model}"
    advice = say(
        "Put the model, as a folder in diffusers layout, at {folder} in the data directory, and start Lumesh again.",
        folder=folder,
    )
    if source.repo:
        hint = say(
            "The preset names {repo} on the Hugging Face Hub as its source, which nobody here has checked: {command}",
            repo=source.repo,
            command=f"hf download {source.repo} --local-dir {folder}",
        )
        advice = join((advice, hint))
    return add_codes({"model": model, "title": source.title, "repo": source.repo, "advice": advice})


def _text_of(preset: Preset, titles: dict[str, str]) -> str:
    model = preset.recipe.model
    parts = (preset.title, preset.description, preset.author, preset.recipe.prompt, model, titles.get(model, ""))
    return " ".join((*parts, *preset.tags)).casefold()
