"""How long things take here, from what was measured on this machine.

Every finished job leaves its seconds; a new one is promised the median of the last few like it. What was never measured
is None, never a guess.
Not here: the time left of a running job (worker/progress.py sees its steps).
"""

import statistics
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pipelines.catalog import Catalog, Model, Shape
from pipelines.recipe import MAX_FLOW_SHIFT, MAX_FPS, Recipe
from studio.database import Database, Transaction
from studio.jobs.engine import Engine, read_engine

READ_ROWS = 500
SAMPLES = 5


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Seconds of one run; None where the run did not include that part.

    A shape becomes warm in `compile_s`, or in `cache_s` when its programs are in the compilation cache; `fixed_s` is
    encode, decode and save.
    """

    model: str
    shape: str
    batch_size: int
    load_s: float | None = None
    compile_s: float | None = None
    cache_s: float | None = None
    step_s: float | None = None
    fixed_s: float | None = None


@dataclass(frozen=True)
class History:
    """The newest measurements, newest first."""

    rows: tuple[Measured, ...]

    def load_s(self, model: str) -> float | None:
        return _median(row.load_s for row in self.rows if row.model == model)

    def warm_s(self, model: str, shape: str, *, shape_state: str) -> float | None:
        """What making the shape warm takes from where it is."""
        rows = [row for row in self.rows if (row.model, row.shape) == (model, shape)]
        if shape_state == "warm":
            return 0.0
        return _median((row.cache_s if shape_state == "disk" else row.compile_s) for row in rows)

    def step_s(self, recipe: Recipe) -> float | None:
        return _median(row.step_s for row in self._like(recipe))

    def fixed_s(self, recipe: Recipe) -> float | None:
        return _median(row.fixed_s for row in self._like(recipe))

    def has_run(self, model: str, shape: str) -> bool:
        """Whether the shape's programs were compiled here before, so that the compilation cache has them."""
        return any((row.model, row.shape) == (model, shape) for row in self.rows)

    def _like(self, recipe: Recipe) -> list[Measured]:
        same = [row for row in self.rows if (row.model, row.shape) == (recipe.model, recipe.shape)]
        return [row for row in same if row.batch_size == recipe.batch_size] or same


def record(tx: Transaction, measured: Measured) -> None:
    """Remembers what a run took."""
    tx.execute(
        "INSERT INTO timings (model, shape, batch_size, load_s, compile_s, cache_s, step_s, fixed_s, at) "
        "VALUES (:model, :shape, :batch_size, :load_s, :compile_s, :cache_s, :step_s, :fixed_s, :at)",
        {**vars(measured), "at": time.time()},
    )


def read_history(database: Database) -> History:
    """What was measured on this machine, newest first."""
    rows = database.read(
        "SELECT model, shape, batch_size, load_s, compile_s, cache_s, step_s, fixed_s FROM timings "
        "ORDER BY id DESC LIMIT ?",
        (READ_ROWS,),
    )
    return History(tuple(Measured(**row) for row in rows))


def estimate_job_s(history: History, recipe: Recipe, *, shape_state: str, is_resident: bool) -> float | None:
    """Seconds from start to end of a job; None when this shape was never run here."""
    step_s, fixed_s = history.step_s(recipe), history.fixed_s(recipe)
    if step_s is None or fixed_s is None:
        return None
    assert recipe.steps is not None, "resolve the recipe first"
    assert recipe.shape is not None, "resolve the recipe first"
    load_s = 0.0 if is_resident else history.load_s(recipe.model) or 0.0
    warm_s = history.warm_s(recipe.model, recipe.shape, shape_state=shape_state) or 0.0
    return load_s + warm_s + recipe.steps * step_s + fixed_s


def read_shape_state(engine: Engine, history: History, model: str, shape: str) -> str:
    """`warm`, `disk` or `cold`: the worker's word for the resident model, the history's for the others."""
    if engine.model == model and shape in engine.shapes:
        return engine.shapes[shape]
    return "disk" if history.has_run(model, shape) else "cold"


def describe_models(catalog: Catalog, database: Database) -> list[dict[str, Any]]:
    """The catalogue with what each shape costs here: what REST lists and the size picker shows."""
    engine, history = read_engine(database), read_history(database)
    return [
        {
            "id": model.id,
            "title": model.title,
            "family": model.family,
            "description": model.description,
            "knows": model.knows,
            "licence": model.licence,
            "examples": list(model.examples),
            "is_demo": model.is_demo,
            "is_resident": engine.model == model.id,
            "load_s": history.load_s(model.id),
            "defaults": {
                "shape": str(model.default_shape),
                "negative_prompt": model.negative_prompt,
                "steps": model.steps,
                "guidance_scale": model.guidance_scale,
                "scheduler": model.scheduler,
                "flow_shift": model.flow_shift,
                "fps": model.fps,
            },
            "limits": {
                "steps": model.max_steps,
                "guidance_scale": model.max_guidance_scale,
                "batch_size": model.max_batch_size,
                "min_images": model.min_images,
                "images": model.max_images,
                "flow_shift": MAX_FLOW_SHIFT,
                "fps": MAX_FPS,
            },
            "schedulers": list(model.schedulers),
            "shapes": [_describe_shape(engine, history, model, shape) for shape in model.shapes],
        }
        for model in catalog.models
    ]


def _describe_shape(engine: Engine, history: History, model: Model, shape: Shape) -> dict[str, Any]:
    """`seconds` is a default picture from now on, with load and compilation as they stand."""
    recipe = Recipe(model=model.id, prompt="", shape=str(shape), steps=model.steps)
    state = read_shape_state(engine, history, model.id, str(shape))
    return {
        "shape": str(shape),
        "width": shape.width,
        "height": shape.height,
        "frames": shape.frames,
        "flow_shift": model.choose_flow_shift(str(shape)),
        "state": state,
        "warm_s": history.warm_s(model.id, str(shape), shape_state=state),
        "step_s": history.step_s(recipe),
        "seconds": estimate_job_s(history, recipe, shape_state=state, is_resident=engine.model == model.id),
    }


def _median(values: Iterable[float | None]) -> float | None:
    newest = [value for value in values if value is not None][:SAMPLES]
    return round(statistics.median(newest), 4) if newest else None
