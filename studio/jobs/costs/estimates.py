"""Estimates of how long jobs take, from measurements on the same device.

Every finished job stores its timings and the device that they are from; a new job's estimate is the median of the last
few similar runs on its worker's device. Unmeasured durations are None, never guessed; only steps of trainings with
twins and without (lessons.py) tell each other's, as the ones have twice the rows.
Not here: what people are told before they ask (offers.py), the time left of a running job (worker/progress.py).
"""

import statistics
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

from pipelines.recipes.recipe import Recipe
from studio.database import Database, Transaction
from studio.jobs.workers import LOCAL, WorkerRow

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
TWINS = "train"
"""Programs of trainings that show every picture twice."""
ALONE = "train-alone"
"""Programs of trainings that show it once."""
TWICE = 2.0
"""Steps of the latter that one of the former is worth."""
_KIN = {TWINS: (ALONE, TWICE), ALONE: (TWINS, 1 / TWICE)}
"""Programs -> those that tell of them when they were not measured, and how many of their steps one step is worth."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The timings of one run in seconds; None for a part that the run did not include.

    `step_s` is one step that was computed: those that a step cache reuses count for nothing.
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
        own_s = _median(row.step_s for row in self._like(recipe, programs))
        if own_s is not None or programs not in _KIN:
            return own_s
        kin, worth = _KIN[programs]
        kin_s = _median(row.step_s for row in self._like(recipe, kin))
        return None if kin_s is None else round(worth * kin_s, 4)

    def fixed_s(self, recipe: Recipe, programs: str) -> float | None:
        own_s = _median(row.fixed_s for row in self._like(recipe, programs))
        if own_s is not None or programs not in _KIN:
            return own_s
        kin_s = _median(row.fixed_s for row in self._like(recipe, _KIN[programs][0]))
        if kin_s is None and self.step_s(recipe, programs) is not None:
            return 0.0  # of trainings of which only steps are known
        return kin_s

    def is_measured(self, recipe: Recipe, programs: str) -> bool:
        """Tells whether all of it was measured as it is, and nothing taken from programs that are alike."""
        rows = self._like(recipe, programs)
        return any(row.step_s is not None for row in rows) and any(row.fixed_s is not None for row in rows)

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
    return History(tuple(Measured(**dict(row)) for row in database.read(_ROWS, {"worker": worker})))


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
    return load_s + warm_s + (recipe.computed_steps if steps is None else steps) * step_s + fixed_s


def read_shape_state(worker: WorkerRow, history: History, model: str, programs: str) -> str:
    """Returns `warm`, `disk` or `cold`: from the worker for its resident model, from the history for other models."""
    if worker.model == model and programs in worker.shapes:
        return worker.shapes[programs]
    return "disk" if history.has_run(model, programs) else "cold"


def _median(values: Iterable[float | None]) -> float | None:
    newest = list(islice((value for value in values if value is not None), SAMPLES))
    return round(statistics.median(newest), 4) if newest else None
