"""What trainings take, from those that were measured on the same device.

A step with twins (jobs/training.py) has twice the rows of one without, so they count as different programs, and tell
each other's time where only one of them was measured. A training that was paused, cancelled or resumed tells only what
its steps took. Pictures
that the model makes before it learns are measured by themselves, as every picture of that model is.
"""

from dataclasses import dataclass
from typing import Any

from pipelines.models.model import Model
from pipelines.recipes.recipe import Recipe
from studio.jobs.costs.cost import HOUR_S
from studio.jobs.costs.estimates import ALONE, TWICE, TWINS, History, estimate_job_s
from studio.jobs.training import AskedTraining
from studio.jobs.workers import WorkerRow


def name_programs(*, has_twins: bool) -> str:
    """Returns the name of a training's programs in the history: the model tells its time far more than the rank."""
    return TWINS if has_twins else ALONE


def count_shown(programs: str) -> float:
    """Returns how many steps without twins one of these programs is worth."""
    return TWICE if programs == TWINS else 1.0


def estimate_training_s(history: History, model: str, *, steps: int, programs: str) -> float | None:
    """Estimates a training's seconds, without pictures of its own; None when none of this model was measured."""
    recipe = make_measure(model)
    return estimate_job_s(history, recipe, programs=programs, shape_state="warm", is_resident=True, steps=steps)


def make_measure(model: str) -> Recipe:
    """Returns the recipe under which the history keeps a model's trainings."""
    return Recipe(model=model, prompt="")


@dataclass(frozen=True, kw_only=True)
class Prior:
    """The pictures that a model makes before it learns: `count` of them, each like this recipe."""

    count: int
    recipe: Recipe


def describe_prior(asked: AskedTraining, model: Model) -> Prior | None:
    """Returns what a training makes before it learns, if anything."""
    count = asked.count_prior_pictures(model)
    return Prior(count=count, recipe=_describe_picture(model)) if count else None


def estimate_prior_s(history: History, prior: Prior | None) -> float | None:
    """Estimates the seconds of all of them; None when the model has made none of that size yet."""
    if prior is None:
        return 0.0
    picture_s = _estimate_s(history, prior.recipe)
    return None if picture_s is None else prior.count * picture_s


def estimate_picture_s(history: History, model: Model) -> float | None:
    """Estimates the seconds of one picture, or clip, as the model makes it when nothing else is asked."""
    return _estimate_s(history, _describe_picture(model))


def _describe_picture(model: Model) -> Recipe:
    return Recipe(model=model.id, prompt="", shape=str(model.default_shape), steps=model.steps)


def _estimate_s(history: History, picture: Recipe) -> float | None:
    return estimate_job_s(history, picture, programs=str(picture.shape), shape_state="warm", is_resident=True)


def describe_cost(seconds: float | None, worker: WorkerRow) -> dict[str, Any]:
    """Returns seconds, and what they cost where the chips have a price."""
    price = worker.chip_price
    cost = None if seconds is None or price is None else seconds * worker.chips * price / HOUR_S
    return {"seconds": seconds, "cost_usd": cost}
