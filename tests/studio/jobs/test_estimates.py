"""Promises come from what was measured here, never from guesses."""

from collections.abc import Callable

from pipelines.catalog import Catalog
from pipelines.recipe import Recipe
from studio.database import Database
from studio.jobs.engine import read_engine
from studio.jobs.estimates import (
    History,
    Measured,
    describe_models,
    estimate_job_s,
    read_history,
    read_shape_state,
    record,
)


def measure(recipe: Recipe, **seconds: float) -> Measured:
    return Measured(model=recipe.model, shape=recipe.shape, batch_size=recipe.batch_size, **seconds)


def test_nothing_measured_is_unknown(make_recipe: Callable[..., Recipe]) -> None:
    assert estimate_job_s(History(()), make_recipe(), shape_state="warm", is_resident=True) is None


def test_the_median_of_the_newest_runs_counts(make_recipe: Callable[..., Recipe]) -> None:
    recipe = make_recipe()
    history = History(tuple(measure(recipe, step_s=step_s) for step_s in (2.0, 9.0, 2.0, 2.0, 1.0, 50.0, 50.0, 50.0)))
    assert history.step_s(recipe) == 2.0


def test_load_and_warming_are_added_only_when_they_will_happen(make_recipe: Callable[..., Recipe]) -> None:
    recipe = make_recipe(steps=10)
    history = History((measure(recipe, step_s=1.0, fixed_s=2.0, load_s=100.0, compile_s=50.0, cache_s=5.0),))
    assert estimate_job_s(history, recipe, shape_state="warm", is_resident=True) == 12.0
    assert estimate_job_s(history, recipe, shape_state="cold", is_resident=True) == 62.0
    assert estimate_job_s(history, recipe, shape_state="disk", is_resident=False) == 117.0


def test_another_batch_size_counts_only_when_there_is_no_better(make_recipe: Callable[..., Recipe]) -> None:
    one, four = make_recipe(), make_recipe(batch_size=4)
    assert History((measure(four, step_s=4.0),)).step_s(one) == 4.0
    assert History((measure(four, step_s=4.0), measure(one, step_s=1.0))).step_s(one) == 1.0


def test_a_shape_that_ran_before_is_on_disk(database: Database, make_recipe: Callable[..., Recipe]) -> None:
    recipe = make_recipe()
    with database.write() as tx:
        record(tx, measure(recipe, compile_s=1.0))
    engine, history = read_engine(database), read_history(database)
    assert read_shape_state(engine, history, recipe.model, recipe.shape) == "disk"
    assert read_shape_state(engine, history, recipe.model, "8x8") == "cold"


def test_every_model_and_shape_is_described(database: Database, catalog: Catalog) -> None:
    described = describe_models(catalog, database)
    assert [model["id"] for model in described] == [model.id for model in catalog.models]
    for model, entry in zip(catalog.models, described, strict=True):
        assert [shape["shape"] for shape in entry["shapes"]] == [str(shape) for shape in model.shapes]
        assert {shape["state"] for shape in entry["shapes"]} == {"cold"}
