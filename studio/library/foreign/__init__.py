"""Reads recipes from files, ours and other programs': bytes in, a recipe for this studio and a list of omissions out.

    bytes -> containers.py (texts by keyword) -> one file per program -> fit.py (the part that is usable here)

No file is trusted: it yields a recipe, has none, or ends as MetadataError. A file may carry texts of several programs,
and some of them broken: each is tried, the one that says most is used, and what could not be read is listed.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pipelines.errors import RecipeError
from pipelines.files.metadata import GRID_KEY, KEY
from pipelines.messages import say
from pipelines.models.catalog import Catalog, Model
from pipelines.recipes.recipe import Recipe, read_recipe
from studio.library.foreign.a1111 import read_a1111
from studio.library.foreign.bounded import Fields, clean, read_object, shorten
from studio.library.foreign.comfyui import read_comfyui
from studio.library.foreign.comfyui_graph import is_node
from studio.library.foreign.containers import TEXT, XMP, Texts, read_texts
from studio.library.foreign.errors import MetadataError
from studio.library.foreign.fit import IsInput, fit_found, fit_own
from studio.library.foreign.flat import read_draw_things, read_flat, read_novelai
from studio.library.foreign.fooocus import is_fooocus, read_fooocus
from studio.library.foreign.found import MAX_LISTED, Found, ReadRecipe, Unusable
from studio.library.foreign.invokeai import read_invokeai
from studio.library.foreign.swarmui import read_swarmui

Own = tuple[Recipe, tuple[Unusable, ...]]
"""A recipe of our own, and what of it could not be read."""
NEEDED = {"schema", "model", "prompt"}  # fields without which there is no recipe of our own
_GRAPH = re.compile(r'"(class_type|nodes)"\s*:')
NEARLY = 1  # facts that a text may lack and still be preferred to a later one


def read_file(content: bytes, catalog: Catalog, chosen: Model, is_input: IsInput) -> ReadRecipe | None:
    """Reads the recipe in a file; None when it carries none; raises MetadataError when it is unreadable.

    `chosen` is the model to use when the file's own is unknown here; `is_input` tells whether an input picture exists
    here, by its id.
    """
    texts = read_texts(content)
    found = find_recipe(texts)
    if found is None:
        return None
    recipe, left_out = found
    if isinstance(recipe, Recipe):
        fitted = fit_own(recipe, catalog, chosen, is_input)
    else:
        fitted = fit_found(recipe, catalog, chosen)
    return replace(fitted, unusable=(*left_out, *fitted.unusable)[: MAX_LISTED + 1])


def read_grid(content: bytes) -> dict[str, Any] | None:
    """Reads the axes in the sheet of a grid, unchecked; None when it carries none."""
    text = read_texts(content).get(GRID_KEY)
    return None if text is None else _require_object(text).values


def find_recipe(texts: Mapping[str, str]) -> tuple[Recipe | Found, tuple[Unusable, ...]] | None:
    """Finds a recipe in the texts of a file, and lists what could not be read; None when there is none.

    Raises MetadataError when there is one, but none that can be read.
    """
    errors: dict[str, MetadataError] = dict(texts.broken) if isinstance(texts, Texts) else {}
    candidates: list[Found] = []
    for keyword, read in _list_readers(texts):
        try:
            found = read()
        except MetadataError as error:
            errors.setdefault(keyword, error)
            continue
        if isinstance(found, tuple):
            return found[0], (*found[1], *_list_errors(errors))
        if found is not None:
            candidates.append(found)
    if not candidates:
        if errors:
            raise next(iter(errors.values()))
        return None
    most = max(map(_count_facts, candidates))
    best = next(found for found in candidates if _count_facts(found) >= most - NEARLY)
    return best, _list_errors(errors)


def _list_readers(texts: Mapping[str, str]) -> Iterator[tuple[str, Callable[[], Own | Found | None]]]:
    """Yields keywords and how to read the texts there, the richest formats first."""
    if KEY in texts:
        yield KEY, lambda: _read_own(_require_object(texts[KEY]))
    if "NovelAI" in texts.get("software", ""):
        yield "comment", lambda: read_novelai(texts.get("comment", ""), source=texts.get("source", ""))
    for keyword in ("invokeai_metadata", "sd-metadata", "dream"):
        if keyword in texts:
            yield keyword, lambda keyword=keyword: read_invokeai({keyword: texts[keyword]})
    for keyword in ("parameters", "comment", "metadata", TEXT):
        if keyword in texts:
            yield keyword, lambda keyword=keyword: _read_any(texts[keyword], needs_settings=keyword != "parameters")
    if XMP in texts:
        yield "XMP", lambda: read_draw_things(texts[XMP])
    for keyword in ("prompt", "workflow"):
        if keyword in texts:
            yield keyword, lambda keyword=keyword: read_comfyui({keyword: texts[keyword]})


def _list_errors(errors: Mapping[str, MetadataError]) -> tuple[Unusable, ...]:
    return tuple(
        Unusable(
            say("The text {keyword} in the file", keyword=repr(shorten(keyword)))
            if keyword
            else say("The rest of the file"),
            error.detail,
        )
        for keyword, error in errors.items()
    )


def _count_facts(found: Found) -> int:
    facts: Sequence[object] = (
        *(found.prompt or None, found.model, found.seed, found.steps, found.guidance_scale, found.sampler, found.width),
    )
    return sum(fact is not None for fact in facts)


def _read_any(text: str, *, needs_settings: bool) -> Own | Found | None:
    """Parses a text whose keyword does not tell the program, but whose format does."""
    try:
        fields = read_object(text, has_nan=True)
    except MetadataError:  # a prompt may begin with a brace, too
        found = read_a1111(text)
        if found is None:
            raise
        return found
    if fields is None:
        return read_a1111(text, needs_settings=needs_settings)
    if fields.values.keys() >= NEEDED:
        return _read_own(_require_object(text))
    if is_fooocus(fields):
        return read_fooocus(fields)
    if "positive_prompt" in fields.values:
        return read_invokeai({"invokeai_metadata": text})
    if any(is_node(value) for value in fields.values.values()):
        return read_comfyui({"prompt": text})
    if isinstance(fields.values.get("nodes"), list):
        return read_comfyui({"workflow": text})
    return read_swarmui(fields) or read_flat(fields) or _read_graphs(fields)


def _read_graphs(fields: Fields) -> Found | None:
    """Parses ComfyUI's graphs where an object holds them, as objects or as texts; its nodes for videos write such."""
    for keyword in ("prompt", "workflow"):
        value = fields.values.get(keyword)
        text = json.dumps(value) if isinstance(value, dict) else value
        if isinstance(text, str) and _GRAPH.search(text):
            return read_comfyui({keyword: text})
    return None


def _require_object(text: str) -> Fields:
    fields = read_object(text)
    if fields is None:
        raise MetadataError(say("Its recipe is damaged: it is not JSON."))
    return fields


def _read_own(fields: Fields) -> Own:
    """Reads a recipe of our own; a field that is none is left out and listed.

    Raises MetadataError when what makes it a recipe is missing.
    """
    values = dict(fields.values)
    left_out: list[Unusable] = []
    try:
        recipe = read_recipe(values)
    except RecipeError as error:
        odd = {path.partition(".")[0]: why for path, why in error.fields.items()}
        if odd.keys() & NEEDED or not odd.keys() <= values.keys():
            raise MetadataError(say("Its recipe is damaged: {reason}.", reason=error.detail)) from error
        left_out += [
            Unusable(say("{name}: {text}", name=shorten(name), text=_show(values.pop(name))), why)
            for name, why in odd.items()
        ]
        recipe = read_recipe(values)
    return recipe.model_copy(update={"prompt": clean(recipe.prompt)}), tuple(left_out)


def _show(value: object) -> str:
    return shorten(value) if isinstance(value, str | int | float) else "…"
