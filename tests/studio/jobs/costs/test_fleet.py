"""The best of several workers counts: where a size is warm, it is warm for whoever asks."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pipelines.messages import say
from pipelines.models.catalog import Catalog
from pipelines.recipes.recipe import Recipe
from studio.database import Database
from studio.jobs import workers
from studio.jobs.costs.estimates import Measured, record
from studio.jobs.costs.fleet import read_fleet
from studio.jobs.costs.offers import describe_models, describe_recipe
from studio.jobs.workers import LOCAL, WorkerState

MODEL, SHAPE = "demo-sdxl", "256x256"


@pytest.fixture
def put(database: Database) -> Callable[..., None]:
    """Stores a worker as it describes itself."""

    def put(worker: str, state: WorkerState = WorkerState.READY, **columns: Any) -> None:
        with database.write() as tx:
            workers.describe(tx, worker, state, activity=say("ready"), **columns)

    return put


@pytest.fixture(autouse=True)
def _a_cold_machine(put: Callable[..., None]) -> Iterator[None]:
    put(LOCAL, device="v6e-8", model="demo-flux2", shapes={SHAPE: "warm"})
    yield


def describe_size(catalog: Catalog, database: Database) -> dict[str, Any]:
    model = next(one for one in describe_models(catalog, database) if one["id"] == MODEL)
    return {**next(one for one in model["shapes"] if one["shape"] == SHAPE), "is_resident": model["is_resident"]}


def test_a_size_is_as_warm_as_on_the_best_worker(
    catalog: Catalog, database: Database, put: Callable[..., None], make_recipe: Callable[..., Recipe]
) -> None:
    assert describe_size(catalog, database)["state"] == "cold"
    put("second", device="L4", model=MODEL, shapes={SHAPE: "disk"})
    assert describe_size(catalog, database)["state"] == "disk"
    put("third", device="H100", model=MODEL, shapes={SHAPE: "warm"})
    with database.write() as tx:
        for worker, step_s in (("second", 9.0), ("third", 1.0)):
            record(tx, Measured(model=MODEL, shape=SHAPE, batch_size=1, step_s=step_s, fixed_s=0.5), worker)
    found = describe_size(catalog, database)
    assert (found["state"], found["is_resident"], found["step_s"]) == ("warm", True, 1.0), "by the H100's measurements"
    recipe = make_recipe(model=MODEL, steps=4, shape=SHAPE)
    assert describe_recipe(database, recipe, programs=SHAPE)["seconds"] == 4.5


@pytest.mark.parametrize(
    "change", [{"state": WorkerState.STOPPED}, {"state": WorkerState.RESTARTING}, {"is_draining": True}]
)
def test_a_worker_that_takes_no_jobs_promises_nothing(
    catalog: Catalog, database: Database, put: Callable[..., None], change: dict[str, Any]
) -> None:
    put("second", **{"model": MODEL, "shapes": {SHAPE: "warm"}, **change})
    assert describe_size(catalog, database)["state"] == "cold"


def test_a_pinned_worker_promises_nothing_of_another_model(
    catalog: Catalog, database: Database, put: Callable[..., None]
) -> None:
    put("second", device="L4", model="demo-wan", shapes={}, is_pinned=True)
    with database.write() as tx:
        record(tx, Measured(model=MODEL, shape=SHAPE, batch_size=1, compile_s=1.0), "second")
    assert describe_size(catalog, database)["state"] == "cold", "the L4 has it on disk, but keeps its model"


def test_many_workers_that_are_alike_are_looked_at_once(database: Database, put: Callable[..., None]) -> None:
    for number in range(40):
        put(f"gpu-{number}", device="L4", model=MODEL if number < 20 else "", shapes={SHAPE: "warm"})
    fleet = read_fleet(database)
    assert len(fleet.members) == 41
    assert len(fleet.list_able(MODEL)) == 3, "one that holds it, one L4 that does not, and the TPU"
