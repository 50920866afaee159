"""What a request's body is checked for once its fields are what is expected, by the type of the body.

The routes do the same checks (studio/asking.py); here they are looked at for a body of which some fields are wrong, so
that the answer names all of it. Nothing is queued or written.
Not here: the shape of the answer (errors.py).
"""

import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from pipelines.field_errors import list_fields
from pipelines.recipes.recipe import Recipe
from studio import asking, asking_to_train
from studio.jobs.many.grid_spec import Grid
from studio.jobs.many.sweep import Sweep
from studio.jobs.training import AskedTraining
from studio.visit import Visit

_RECIPE = {"prompt": "-"}


@dataclass(frozen=True, kw_only=True)
class Body:
    """A type of body: its fields' names, and its further checks, which raise RecipeError; None without any."""

    names: frozenset[str]
    check: Callable[[Visit, dict[str, Any]], object] | None


def find_body(endpoint: object) -> Body | None:
    """Returns the type of body that a route takes, None where that is no type of ours."""
    hints = typing.get_type_hints(endpoint).values() if callable(endpoint) else ()
    kind = next((one for one in hints if isinstance(one, type) and issubclass(one, BaseModel)), None)
    return None if kind is None else Body(names=frozenset(list_fields(kind)), check=_CHECKS.get(kind))


def _check_recipe(visit: Visit, fields: dict[str, Any]) -> None:
    asking.prepare(visit, Recipe.model_validate(_RECIPE | fields))


def _check_sweep(visit: Visit, fields: dict[str, Any]) -> None:
    swept = Sweep.model_validate(_fill_recipe(fields))
    expanded = asking.expand_sweep(visit, swept)
    asking.prepare(visit, swept.recipe.model_copy(update={"prompt": expanded.template.list_prompts(1)[0]}))


def _check_grid(visit: Visit, fields: dict[str, Any]) -> None:
    asking.expand_grid(visit, Grid.model_validate(_fill_recipe(fields)))


def _check_training(visit: Visit, fields: dict[str, Any]) -> None:
    visit.require_trainer()
    asking_to_train.prepare(visit, AskedTraining.model_validate({"name": "training", "pictures": ()} | fields))


def _fill_recipe(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields with what their recipe needs, where that was left out as wrong."""
    recipe = fields.get("recipe")
    return {**fields, "recipe": _RECIPE | recipe} if isinstance(recipe, dict) else {**fields}


_CHECKS: Mapping[type[BaseModel], Callable[[Visit, dict[str, Any]], object]] = {
    Recipe: _check_recipe,
    Sweep: _check_sweep,
    Grid: _check_grid,
    AskedTraining: _check_training,
}
