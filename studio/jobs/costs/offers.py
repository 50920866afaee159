"""What the page and REST say that something would cost now: each model and size, a recipe, many of them.

The best of several workers counts (fleet.py). Not here: the estimates (estimates.py), a line of different jobs
(price.py).
"""

import math
from collections.abc import Collection, Iterable
from typing import Any

from pipelines.models.catalog import Catalog, Model, Shape
from pipelines.models.catalog_entries import MAX_FLOW_SHIFT, MAX_FPS
from pipelines.program_sets import list_variants
from pipelines.recipes.batching import find_kind
from pipelines.recipes.recipe import Recipe
from pipelines.recipes.resolving import reuse_steps
from pipelines.recipes.sigmas import list_takers
from pipelines.recipes.step_cache import MILD, STRONG
from pipelines.recipes.taylor import MANY_STEPS, TAYLOR
from studio.database import Database
from studio.jobs.costs.estimates import estimate_job_s
from studio.jobs.costs.fleet import Fleet, Member, read_fleet


def describe_recipe(database: Database, recipe: Recipe, *, programs: str) -> dict[str, Any]:
    """Estimates what a resolved recipe would cost if it ran now, for REST and the line below the page's sizes."""
    one, state = read_fleet(database).choose(recipe.model, programs)
    history, is_resident = one.history, one.holds(recipe.model)
    return {
        "programs": programs,
        "state": state,
        "warm_s": history.warm_s(recipe.model, programs, shape_state=state),
        "seconds": estimate_job_s(history, recipe, programs=programs, shape_state=state, is_resident=is_resident),
    }


def estimate_many_s(database: Database, recipe: Recipe, *, programs: str, count: int) -> float | None:
    """Estimates the seconds of `count` equal jobs for one worker, of which only the first loads and compiles.

    Jobs that the loaded model can make at once count as one run. Returns None when their programs never ran here.
    """
    one, state = read_fleet(database).choose(recipe.model, programs)
    worker, history, is_resident = one.worker, one.history, one.holds(recipe.model)
    first_s = estimate_job_s(history, recipe, programs=programs, shape_state=state, is_resident=is_resident)
    next_s = estimate_job_s(history, recipe, programs=programs, shape_state="warm", is_resident=True)
    at_once = worker.outputs_at_once // recipe.batch_size if is_resident and find_kind(recipe) is not None else 1
    runs = math.ceil(count / max(1, at_once))
    return None if first_s is None or next_s is None else first_s + (runs - 1) * next_s


def describe_models(catalog: Catalog, database: Database) -> list[dict[str, Any]]:
    """Returns the catalogue with the estimated cost of each shape, for REST and the size picker."""
    fleet = read_fleet(database)
    return [
        {
            "id": model.id,
            "title": model.title,
            "family": model.family,
            "family_title": model.traits.title,
            "description": model.description,
            "knows": model.knows,
            "licence": model.licence,
            "is_demo": model.is_demo,
            "weights": model.weights,
            "has_references": model.has_references,
            "is_resident": any(one.holds(model.id) for one in able),
            "load_s": _read_load_s(able, model),
            "defaults": {
                "shape": str(model.default_shape),
                "negative_prompt": model.negative_prompt,
                "steps": model.steps,
                "guidance_scale": model.guidance_scale,
                "guidance_scale_2": model.guidance_scale_2,
                "scheduler": model.scheduler,
                "flow_shift": model.flow_shift,
                "fps": model.fps,
                "strength": model.strength,
            },
            "limits": {
                "steps": model.max_steps,
                "useful_steps": model.useful_steps or model.max_steps,
                "guidance_scale": model.max_guidance_scale,
                "guidance_scale_2": model.max_guidance_scale,
                "batch_size": model.max_batch_size,
                "min_images": model.min_images,
                "images": model.max_images,
                "flow_shift": MAX_FLOW_SHIFT,
                "fps": MAX_FPS,
                "strength": 1,
            },
            "schedulers": list(model.schedulers),
            "take_sigmas": list_takers(model),
            "step_cache": _describe_step_cache(model),
            "shapes": [_describe_shape(fleet, model, shape, known) for shape in model.shapes],
        }
        for model in catalog.models
        for able in [fleet.list_able(model.id)]
        for known in [_list_known(able, model)]
    ]


def _describe_step_cache(model: Model) -> dict[str, float] | None:
    """Returns the share of the model's default steps that is computed, for each named strength; None without any."""
    recipe = Recipe(
        model=model.id,
        prompt="",
        steps=model.steps,
        scheduler=model.scheduler,
        flow_shift=model.choose_flow_shift(str(model.default_shape)),
    )
    offers_taylor = TAYLOR in model.cache_kinds and model.steps >= MANY_STEPS
    names = [*((MILD, STRONG) if model.step_cache else ()), *((TAYLOR,) if offers_taylor else ())]
    return {name: round(reuse_steps(recipe, name, model).computed_steps / model.steps, 3) for name in names} or None


def _read_load_s(able: Iterable[Member], model: Model) -> float | None:
    measured = (one.history.load_s(model.id) for one in able)
    return next((load_s for load_s in measured if load_s is not None), None)


def _list_known(able: Iterable[Member], model: Model) -> set[str]:
    programs = (
        one.history.list_programs(model.id).union(one.worker.shapes if one.holds(model.id) else ()) for one in able
    )
    return set[str]().union(*programs)


def _describe_shape(fleet: Fleet, model: Model, shape: Shape, known: Collection[str]) -> dict[str, Any]:
    """Describes a shape; `seconds` estimates a job with default settings now, load and compilation included.

    `known` are the names of all of the model's programs that some worker or the history tells something of.
    """
    recipe, name = Recipe(model=model.id, prompt="", shape=str(shape), steps=model.steps), str(shape)
    one, state = fleet.choose(model.id, name)
    history, is_resident = one.history, one.holds(model.id)
    return {
        "shape": name,
        "width": shape.width,
        "height": shape.height,
        "frames": shape.frames,
        "flow_shift": model.choose_flow_shift(name),
        "state": state,
        "warm_s": history.warm_s(model.id, name, shape_state=state),
        "step_s": history.step_s(recipe, name),
        "seconds": estimate_job_s(history, recipe, programs=name, shape_state=state, is_resident=is_resident),
        "variants": _describe_variants(fleet, model, shape, known),
    }


def _describe_variants(fleet: Fleet, model: Model, shape: Shape, known: Collection[str]) -> list[dict[str, Any]]:
    """Describes the shape's other programs that are warm or on disk: for more outputs at once, the other guidance."""
    found: list[dict[str, Any]] = []
    if not any(name.startswith(f"{shape} ") for name in known):
        return found
    for variant in list_variants(model, shape):
        name, count = variant.name_for(model), variant.batch_size
        one, state = fleet.choose(model.id, name)
        if state == "cold":
            continue
        history, is_resident = one.history, one.holds(model.id)
        recipe = Recipe(model=model.id, prompt="", shape=str(shape), steps=model.steps, batch_size=count)
        found.append(
            {
                "batch_size": count,
                "is_guided": variant.is_guided,
                "state": state,
                "warm_s": history.warm_s(model.id, name, shape_state=state),
                "seconds": estimate_job_s(history, recipe, programs=name, shape_state=state, is_resident=is_resident),
            }
        )
    return found
