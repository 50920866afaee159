"""The workers' rows: what is measured is what is read, and an emptied cache is cold for everybody."""

from collections.abc import Callable

from pipelines.messages import say
from pipelines.models.catalog import Catalog
from studio.database import Database
from studio.events import read_after
from studio.jobs import claims, workers
from studio.jobs.costs.estimates import Measured, record
from studio.jobs.costs.offers import describe_models
from studio.jobs.job import Job
from studio.jobs.workers import LOCAL, WorkerState

DEVICE = {"id": 0, "kind": "TPU v6 lite", "used_bytes": 5, "limit_bytes": 10}


def test_what_is_measured_is_what_is_read(database: Database) -> None:
    assert workers.read_worker(database).measured_at == 0
    with database.write() as tx:
        workers.equip(tx, LOCAL, chips=4, chip_price=1.5)
        workers.measure(tx, LOCAL, mesh="dp=4", devices=[DEVICE], host={"worker_bytes": 7}, compiling=2)
    found = workers.read_worker(database)
    assert (found.chips, found.chip_price, found.mesh, found.devices) == (4, 1.5, "dp=4", [DEVICE])
    assert found.host == {"worker_bytes": 7}
    assert found.measured_at > 0
    assert workers.is_compiling(database)


def test_a_job_that_compiles_is_a_running_compilation(database: Database, submit: Callable[..., Job]) -> None:
    submit()
    assert not workers.is_compiling(database)
    job = claims.claim_next(database, resident=None)
    assert job is not None
    with database.write() as tx:
        tx.execute("UPDATE jobs SET phase = 'compiling' WHERE id = ?", (job.id,))
    assert workers.is_compiling(database)


def test_an_emptied_cache_makes_what_was_on_disk_cold_and_leaves_what_is_warm(
    database: Database, catalog: Catalog
) -> None:
    first, second = catalog.models[:2]
    warm, on_disk = map(str, first.shapes[:2])
    other = str(second.default_shape)
    with database.write() as tx:
        workers.describe(
            tx, LOCAL, WorkerState.READY, activity="ready", model=first.id, shapes={warm: "warm", on_disk: "disk"}
        )
        record(tx, Measured(model=second.id, shape=other, batch_size=1, compile_s=3.0))

    def read() -> dict[str, str]:
        states = {}
        for model in describe_models(catalog, database):
            states |= {f"{model['id']} {shape['shape']}": shape["state"] for shape in model["shapes"]}
        return states

    assert (read()[f"{first.id} {on_disk}"], read()[f"{second.id} {other}"]) == ("disk", "disk")
    with database.write() as tx:
        workers.forget_disk(tx)
    assert (read()[f"{first.id} {on_disk}"], read()[f"{second.id} {other}"]) == ("cold", "cold")
    assert read()[f"{first.id} {warm}"] == "warm"
    assert read_after(database, 0)[-1].kind == "engine.state"
    with database.write() as tx:
        record(tx, Measured(model=second.id, shape=other, batch_size=1, compile_s=3.0))
    assert read()[f"{second.id} {other}"] == "disk"


def test_a_change_of_state_is_told_with_the_worker_it_is_of(database: Database) -> None:
    with database.write() as tx:
        workers.describe(tx, "second", WorkerState.BUSY, activity="running a job", model="m")
    told = read_after(database, 0)[-1].to_json()
    assert (told["kind"], told["worker"], told["engine"]["state"]) == ("engine.state", "second", "busy")
    assert told["engine"] == workers.read_worker(database, "second").to_engine_json()
    assert [worker.id for worker in workers.read_workers(database)] == [LOCAL, "second"]
    assert workers.read_worker(database, LOCAL).state is WorkerState.STOPPED


def test_where_one_worker_is_shown_it_is_the_studios_own_or_the_first_alive(database: Database) -> None:
    assert workers.read_worker(database).id == LOCAL
    with database.write() as tx:
        workers.describe(tx, "second", WorkerState.BUSY, activity=say("running a job"))
    assert workers.read_worker(database).id == "second"
    with database.write() as tx:
        workers.describe(tx, LOCAL, WorkerState.READY, activity=say("ready"))
    assert workers.read_worker(database).id == LOCAL


def test_what_any_worker_does_with_the_cache_counts(database: Database) -> None:
    with database.write() as tx:
        workers.describe(tx, "second", WorkerState.PREPARING, activity="loading", phase="loading", shapes={"a": "disk"})
    assert (workers.is_loading(database), workers.is_compiling(database)) == (True, False)
    with database.write() as tx:
        workers.measure(tx, "second", mesh="", devices=[], host={}, compiling=1)
        workers.forget_disk(tx)
    assert workers.is_compiling(database)
    second = workers.read_worker(database, "second")
    assert second.shapes == {"a": "cold"}
    assert second.cache_cleared_at > 0
