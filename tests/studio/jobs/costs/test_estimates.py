"""Promises come from what was measured here, never from guesses."""

import dataclasses
from collections.abc import Callable
from typing import Any

from pipelines.models.catalog import Catalog
from pipelines.recipes.recipe import Recipe
from studio.database import Database
from studio.jobs import workers
from studio.jobs.costs.estimates import (
    SAMPLES,
    History,
    Measured,
    estimate_job_s,
    read_history,
    read_shape_state,
    record,
)
from studio.jobs.costs.offers import describe_models, describe_recipe
from studio.jobs.workers import LOCAL, WorkerState, read_worker


def measure(recipe: Recipe, **seconds: float) -> Measured:
    return Measured(model=recipe.model, shape=recipe.shape, batch_size=recipe.batch_size, **seconds)


def estimate(history: History, recipe: Recipe, **options: Any) -> float | None:
    return estimate_job_s(history, recipe, programs=recipe.shape, **options)


def test_nothing_measured_is_unknown(make_recipe: Callable[..., Recipe]) -> None:
    assert estimate(History(()), make_recipe(), shape_state="warm", is_resident=True) is None


def test_the_median_of_the_newest_runs_counts(make_recipe: Callable[..., Recipe]) -> None:
    recipe = make_recipe()
    history = History(tuple(measure(recipe, step_s=step_s) for step_s in (2.0, 9.0, 2.0, 2.0, 1.0, 50.0, 50.0, 50.0)))
    assert history.step_s(recipe, recipe.shape) == 2.0


def test_load_and_warming_are_added_only_when_they_will_happen(make_recipe: Callable[..., Recipe]) -> None:
    recipe = make_recipe(steps=10)
    history = History((measure(recipe, step_s=1.0, fixed_s=2.0, load_s=100.0, compile_s=50.0, cache_s=5.0),))
    assert estimate(history, recipe, shape_state="warm", is_resident=True) == 12.0
    assert estimate(history, recipe, shape_state="cold", is_resident=True) == 62.0
    assert estimate(history, recipe, shape_state="disk", is_resident=False) == 117.0


def test_only_the_steps_that_a_picture_leaves_are_counted(make_recipe: Callable[..., Recipe]) -> None:
    recipe = make_recipe(steps=10).model_copy(update={"strength": 0.35})
    history = History((measure(recipe, step_s=1.0, fixed_s=2.0),))
    assert estimate(history, recipe, shape_state="warm", is_resident=True) == 5.0


def test_another_batch_size_counts_only_when_there_is_no_better(make_recipe: Callable[..., Recipe]) -> None:
    one, four = make_recipe(), make_recipe(batch_size=4)
    assert History((measure(four, step_s=4.0),)).step_s(one, one.shape) == 4.0
    assert History((measure(four, step_s=4.0), measure(one, step_s=1.0))).step_s(one, one.shape) == 1.0


def test_a_shape_that_ran_before_is_on_disk(database: Database, make_recipe: Callable[..., Recipe]) -> None:
    recipe = make_recipe()
    with database.write() as tx:
        record(tx, measure(recipe, compile_s=1.0))
    engine, history = read_worker(database), read_history(database)
    assert read_shape_state(engine, history, recipe.model, recipe.shape) == "disk"
    assert read_shape_state(engine, history, recipe.model, "8x8") == "cold"


def test_pictures_beside_a_recipe_are_measured_apart(database: Database, make_recipe: Callable[..., Recipe]) -> None:
    recipe, programs = make_recipe(model="flux2-dev"), "1024x1024 with 1 of 512x512"
    alone = measure(recipe, step_s=1.0, fixed_s=1.0, compile_s=60.0)
    with database.write() as tx:
        record(tx, alone)
    unknown = {"programs": programs, "state": "cold", "warm_s": None, "seconds": None}
    assert describe_recipe(database, recipe, programs=programs) == unknown
    with database.write() as tx:
        record(tx, dataclasses.replace(alone, shape=programs, step_s=2.0, cache_s=5.0))
    known = {"programs": programs, "state": "disk", "warm_s": 5.0, "seconds": 1.0 + 5.0 + 2 * 2.0}
    assert describe_recipe(database, recipe, programs=programs) == known
    assert read_history(database).step_s(recipe, recipe.shape) == 1.0


def test_every_model_and_shape_is_described(database: Database, catalog: Catalog) -> None:
    described = describe_models(catalog, database)
    assert [model["id"] for model in described] == [model.id for model in catalog.models]
    for model, entry in zip(catalog.models, described, strict=True):
        assert [shape["shape"] for shape in entry["shapes"]] == [str(shape) for shape in model.shapes]
        assert {shape["state"] for shape in entry["shapes"]} == {"cold"}


def test_seconds_of_one_device_promise_nothing_of_another(
    database: Database, make_recipe: Callable[..., Recipe]
) -> None:
    recipe = make_recipe()

    def read(worker: str) -> float | None:
        return read_history(database, worker).step_s(recipe, recipe.shape)

    with database.write() as tx:
        record(tx, measure(recipe, step_s=9.0))  # before anybody wrote devices down
        workers.describe(tx, "second", WorkerState.READY, activity="ready", device="v6e-8")
        workers.describe(tx, LOCAL, WorkerState.READY, activity="ready", device="H100")
    assert (read(LOCAL), read("second")) == (9.0, None)
    with database.write() as tx:
        record(tx, measure(recipe, step_s=1.0), "second")
    assert (read(LOCAL), read("second")) == (9.0, 1.0)
    with database.write() as tx:
        for _ in range(SAMPLES):
            record(tx, measure(recipe, step_s=4.0))
        tx.execute("UPDATE timings SET id = id + 100 WHERE device = ''")
    assert (read(LOCAL), read("second")) == (4.0, 1.0), "what names its device counts first"
