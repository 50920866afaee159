"""What trainings take, from those that were measured on the same device.

A step with twins (jobs/training.py) has twice the rows of one without, so they count as different programs. Pictures
that the model makes before it learns are measured by themselves, as every picture of that model is.
"""

from typing import Any

from pipelines.models.model import Model
from pipelines.recipes.recipe import Recipe
from studio.jobs.costs.cost import HOUR_S
from studio.jobs.costs.estimates import History, estimate_job_s
from studio.jobs.workers import WorkerRow

TWINS = "train"
ALONE = "train-alone"


def name_programs(*, has_twins: bool) -> str:
    """Returns the name of a training's programs in the history: the model tells its time far more than the rank."""
    return TWINS if has_twins else ALONE


def estimate_training_s(history: History, model: str, *, steps: int, programs: str) -> float | None:
    """Estimates a training's seconds, without pictures of its own; None when none of this model was measured."""
    recipe = Recipe(model=model, prompt="")
    return estimate_job_s(history, recipe, programs=programs, shape_state="warm", is_resident=True, steps=steps)


def estimate_picture_s(history: History, model: Model) -> float | None:
    """Estimates the seconds of one picture, or clip, as the model makes it when nothing else is asked."""
    shape = str(model.default_shape)
    recipe = Recipe(model=model.id, prompt="", shape=shape, steps=model.steps)
    return estimate_job_s(history, recipe, programs=shape, shape_state="warm", is_resident=True)


def describe_cost(seconds: float | None, worker: WorkerRow) -> dict[str, Any]:
    """Returns seconds, and what they cost where the chips have a price."""
    price = worker.chip_price
    cost = None if seconds is None or price is None else seconds * worker.chips * price / HOUR_S
    return {"seconds": seconds, "cost_usd": cost}
