"""Reads recipes from files, ours and other programs': bytes in, a recipe for this studio and a list of omissions out.

    bytes -> containers.py (texts by keyword) -> one file per program -> fit.py (the part that is usable here)

No file is trusted: it yields a recipe, has none, or ends as MetadataError.
"""

from collections.abc import Mapping
from typing import Any

from pipelines.catalog import Catalog, Model
from pipelines.errors import RecipeError
from pipelines.files.metadata import GRID_KEY
from pipelines.messages import say
from pipelines.recipe import Recipe, read_recipe
from studio.library.foreign.a1111 import read_a1111
from studio.library.foreign.bounded import Fields, clean, read_object, shorten
from studio.library.foreign.comfyui import read_comfyui
from studio.library.foreign.comfyui_graph import is_node
from studio.library.foreign.containers import read_texts
from studio.library.foreign.errors import MetadataError
from studio.library.foreign.fit import IsInput, fit_found, fit_own
from studio.library.foreign.fooocus import is_fooocus, read_fooocus
from studio.library.foreign.found import Found, ReadRecipe
from studio.library.foreign.invokeai import read_invokeai
from studio.library.foreign.swarmui import read_swarmui


def read_file(content: bytes, catalog: Catalog, chosen: Model, is_input: IsInput) -> ReadRecipe | None:
    """Reads the recipe in a picture or video; None when it carries none; raises MetadataError when it is unreadable.

    `chosen` is the model to use when the file's own is unknown here; `is_input` tells whether an input picture exists
    here, by its id.
    """
    found = find_recipe(read_texts(content))
    if isinstance(found, Recipe):
        return fit_own(found, catalog, chosen, is_input)
    return None if found is None else fit_found(found, catalog, chosen)


def read_grid(content: bytes) -> dict[str, Any] | None:
    """Reads the axes in the sheet of a grid, unchecked; None when it carries none."""
    text = read_texts(content).get(GRID_KEY)
    return None if text is None else _require_object(text).values


def find_recipe(texts: Mapping[str, str]) -> Recipe | Found | None:
    """Finds a recipe in the texts of a file, trying the richest format first."""
    if "lumesh" in texts:
        return _read_own(_require_object(texts["lumesh"]))
    found = read_invokeai(texts)
    for keyword in ("parameters", "comment"):
        if found is None and keyword in texts:
            found = _read_any(texts[keyword])
    return found or read_comfyui(texts)


def _read_any(text: str) -> Recipe | Found | None:
    """Parses a text whose keyword does not tell the program, but whose format does."""
    fields = read_object(text, has_nan=True) if text.lstrip().startswith("{") else None
    if fields is None:
        return read_a1111(text)
    if {"schema", "model", "prompt"} <= fields.values.keys():
        return _read_own(_require_object(text))
    if is_fooocus(fields):
        return read_fooocus(fields)
    if "positive_prompt" in fields.values:
        return read_invokeai({"invokeai_metadata": text})
    if any(is_node(value) for value in fields.values.values()):
        return read_comfyui({"prompt": text})
    return read_swarmui(fields)


def _require_object(text: str) -> Fields:
    fields = read_object(text)
    if fields is None:
        raise MetadataError(say("Its recipe is damaged: it is not JSON."))
    return fields


def _read_own(fields: Fields) -> Recipe:
    try:
        recipe = read_recipe(fields.values)
    except RecipeError as error:
        raise MetadataError(say("Its recipe is damaged: {reason}.", reason=shorten(error.detail))) from error
    return recipe.model_copy(update={"prompt": clean(recipe.prompt)})
