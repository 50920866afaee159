"""Estimates of how long jobs take, from measurements on the same device.

Every finished job stores its timings and the device that they are from; a new job's estimate is the median of the last
few similar runs on its worker's device. Unmeasured durations are None, never guessed.
Not here: the time left of a running job (worker/progress.py sees its steps).
"""

import math
import statistics
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any

from pipelines.batching import find_kind
from pipelines.catalog import Catalog, Model, Shape
from pipelines.program_sets import list_variants
from pipelines.recipe import MAX_FLOW_SHIFT, MAX_FPS, Recipe
from studio.database import Database, Transaction
from studio.jobs.workers import LOCAL, WorkerRow, read_worker

READ_ROWS = 500
_COLUMNS = "timings.model, shape, batch_size, load_s, compile_s, cache_s, step_s, fixed_s, estimated_s, took_s"
# Rows without a device are older than the column, and from the local worker. A worker that is still starting has no
# device yet; it will most likely have one that was measured before, so all rows match.
_ROWS = f"""
SELECT {_COLUMNS}, at > cache_cleared_at AS is_cached FROM timings JOIN workers ON workers.id = :worker
WHERE timings.device = workers.device OR workers.device = '' OR (timings.device = '' AND workers.id = '{LOCAL}')
ORDER BY timings.device = '', timings.id DESC LIMIT {READ_ROWS}
"""
SAMPLES = 5


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The timings of one run in seconds; None for a part that the run did not include.

    A shape becomes warm in `compile_s`, or in `cache_s` when its programs are in the compilation cache. `fixed_s`
    covers encode, decode and save. `estimated_s` is the estimate for the whole run, `took_s` its actual duration.
    `is_cached` tells whether the compilation cache has not been cleared since.
    """

    model: str
    shape: str
    batch_size: int
    load_s: float | None = None
    compile_s: float | None = None
    cache_s: float | None = None
    step_s: float | None = None
    fixed_s: float | None = None
    estimated_s: float | None = None
    took_s: float | None = None
    is_cached: bool = True


@dataclass(frozen=True)
class History:
    """The newest measurements of one device, newest first."""

    rows: tuple[Measured, ...]

    def load_s(self, model: str) -> float | None:
        return _median(row.load_s for row in self._groups.get((model,), ()))

    def warm_s(self, model: str, programs: str, *, shape_state: str) -> float | None:
        """Returns the seconds that it takes to make a shape warm from its current state."""
        if shape_state == "warm":
            return 0.0
        rows = self._groups.get((model, programs), ())
        return _median((row.cache_s if shape_state == "disk" else row.compile_s) for row in rows)

    def step_s(self, recipe: Recipe, programs: str) -> float | None:
        return _median(row.step_s for row in self._like(recipe, programs))

    def fixed_s(self, recipe: Recipe, programs: str) -> float | None:
        return _median(row.fixed_s for row in self._like(recipe, programs))

    def estimate_error(self, recipe: Recipe, programs: str) -> float | None:
        """Returns the median relative error of past estimates, in either direction; None when there were none."""
        return _median(
            abs(row.took_s - row.estimated_s) / row.estimated_s
            for row in self._like(recipe, programs)
            if row.took_s is not None and row.estimated_s
        )

    def list_programs(self, model: str) -> set[str]:
        """Returns the names of all programs of the model of which something was measured."""
        return {row.shape for row in self._groups.get((model,), ())}

    def has_run(self, model: str, programs: str) -> bool:
        """Tells whether these programs were compiled here and are still in the compilation cache."""
        return any(row.is_cached for row in self._groups.get((model, programs), ()))

    def _like(self, recipe: Recipe, programs: str) -> list[Measured]:
        key = (recipe.model, programs)
        return self._groups.get((*key, recipe.batch_size)) or self._groups.get(key) or []

    @cached_property
    def _groups(self) -> dict[tuple[str | int, ...], list[Measured]]:
        """Rows indexed by model, programs and batch size, because a long queue looks up each of its jobs."""
        groups: dict[tuple[str | int, ...], list[Measured]] = {}
        for row in self.rows:
            groups.setdefault((row.model,), []).append(row)
            groups.setdefault((row.model, row.shape), []).append(row)
            groups.setdefault((row.model, row.shape, row.batch_size), []).append(row)
        return groups


def record(tx: Transaction, measured: Measured, worker: str = LOCAL) -> None:
    """Stores a run's timings under the device of this worker."""
    tx.execute(
        "INSERT INTO timings (model, shape, batch_size, load_s, compile_s, cache_s, step_s, fixed_s, estimated_s, "
        "took_s, at, device) SELECT :model, :shape, :batch_size, :load_s, :compile_s, :cache_s, :step_s, :fixed_s, "
        ":estimated_s, :took_s, :at, device FROM workers WHERE id = :worker",
        {**vars(measured), "at": time.time(), "worker": worker},
    )


def read_history(database: Database, worker: str = LOCAL) -> History:
    """Reads the measurements from this worker's device, newest first."""
    return History(tuple(Measured(**row) for row in database.read(_ROWS, {"worker": worker})))


def estimate_job_s(
    history: History,
    recipe: Recipe,
    *,
    programs: str,
    shape_state: str,
    is_resident: bool,
    steps: int | None = None,
) -> float | None:
    """Estimates a job's seconds from start to end; None when its programs were never run here.

    `steps` are the job's own where they are not the recipe's, as those of a training.
    """
    step_s, fixed_s = history.step_s(recipe, programs), history.fixed_s(recipe, programs)
    if step_s is None or fixed_s is None:
        return None
    load_s = 0.0 if is_resident else history.load_s(recipe.model) or 0.0
    warm_s = history.warm_s(recipe.model, programs, shape_state=shape_state) or 0.0
    return load_s + warm_s + (recipe.denoising_steps if steps is None else steps) * step_s + fixed_s


def read_shape_state(worker: WorkerRow, history: History, model: str, programs: str) -> str:
    """Returns `warm`, `disk` or `cold`: from the worker for its resident model, from the history for other models."""
    if worker.model == model and programs in worker.shapes:
        return worker.shapes[programs]
    return "disk" if history.has_run(model, programs) else "cold"


def describe_recipe(database: Database, recipe: Recipe, *, programs: str) -> dict[str, Any]:
    """Estimates what a resolved recipe would cost if it ran now, for REST and the line below the page's sizes."""
    worker, history = read_worker(database), read_history(database)
    state = read_shape_state(worker, history, recipe.model, programs)
    is_resident = worker.model == recipe.model
    return {
        "programs": programs,
        "state": state,
        "warm_s": history.warm_s(recipe.model, programs, shape_state=state),
        "seconds": estimate_job_s(history, recipe, programs=programs, shape_state=state, is_resident=is_resident),
    }


def estimate_many_s(database: Database, recipe: Recipe, *, programs: str, count: int) -> float | None:
    """Estimates the seconds of `count` equal jobs, of which only the first loads and compiles.

    Jobs that the loaded model can make at once count as one run. Returns None when their programs never ran here.
    """
    worker, history = read_worker(database), read_history(database)
    state = read_shape_state(worker, history, recipe.model, programs)
    is_resident = worker.model == recipe.model
    first_s = estimate_job_s(history, recipe, programs=programs, shape_state=state, is_resident=is_resident)
    next_s = estimate_job_s(history, recipe, programs=programs, shape_state="warm", is_resident=True)
    at_once = worker.outputs_at_once // recipe.batch_size if is_resident and find_kind(recipe) is not None else 1
    runs = math.ceil(count / max(1, at_once))
    return None if first_s is None or next_s is None else first_s + (runs - 1) * next_s


def describe_models(catalog: Catalog, database: Database) -> list[dict[str, Any]]:
    """Returns the catalogue with the estimated cost of each shape, for REST and the size picker."""
    worker, history = read_worker(database), read_history(database)
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
            "has_references": model.has_references,
            "is_resident": worker.model == model.id,
            "load_s": history.load_s(model.id),
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
            "shapes": [_describe_shape(worker, history, model, shape, known) for shape in model.shapes],
        }
        for model in catalog.models
        for known in [history.list_programs(model.id).union(worker.shapes if worker.model == model.id else ())]
    ]


def _describe_shape(
    worker: WorkerRow, history: History, model: Model, shape: Shape, known: Collection[str]
) -> dict[str, Any]:
    """Describes a shape; `seconds` estimates a job with default settings now, load and compilation included.

    `known` are the names of all of the model's programs that the worker or the history tells something of.
    """
    recipe, name = Recipe(model=model.id, prompt="", shape=str(shape), steps=model.steps), str(shape)
    state, is_resident = read_shape_state(worker, history, model.id, name), worker.model == model.id
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
        "variants": _describe_variants(worker, history, model, shape, known),
    }


def _describe_variants(
    worker: WorkerRow, history: History, model: Model, shape: Shape, known: Collection[str]
) -> list[dict[str, Any]]:
    """Describes the shape's other programs that are warm or on disk: for more outputs at once, the other guidance."""
    found: list[dict[str, Any]] = []
    is_resident = worker.model == model.id
    if not any(name.startswith(f"{shape} ") for name in known):
        return found
    for one in list_variants(model, shape):
        name = one.name_for(model)
        state = read_shape_state(worker, history, model.id, name)
        if state == "cold":
            continue
        recipe = Recipe(model=model.id, prompt="", shape=str(shape), steps=model.steps, batch_size=one.batch_size)
        found.append(
            {
                "batch_size": one.batch_size,
                "is_guided": one.is_guided,
                "state": state,
                "warm_s": history.warm_s(model.id, name, shape_state=state),
                "seconds": estimate_job_s(history, recipe, programs=name, shape_state=state, is_resident=is_resident),
            }
        )
    return found


def _median(values: Iterable[float | None]) -> float | None:
    newest = list(islice((value for value in values if value is not None), SAMPLES))
    return round(statistics.median(newest), 4) if newest else None
