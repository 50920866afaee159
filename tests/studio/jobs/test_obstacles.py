"""A job that no worker would take says so, and one that waits for a certain worker names it."""

from collections.abc import Callable
from typing import Any

import pytest

from pipelines.messages import say
from studio.database import Database
from studio.jobs import queue, workers
from studio.jobs.job import Job
from studio.jobs.states import JobState
from studio.jobs.workers import LOCAL, WorkerState

Submit = Callable[..., Job]


@pytest.fixture
def put(database: Database) -> Callable[..., None]:
    """Stores a worker as it describes itself."""

    def put(worker: str, state: WorkerState = WorkerState.READY, **columns: Any) -> None:
        with database.write() as tx:
            workers.describe(tx, worker, state, activity=say("ready"), **columns)

    return put


def read(database: Database) -> Job:
    (job,) = queue.list_jobs(database, owner="local", state=JobState.QUEUED)
    return job


def test_one_worker_that_does_all_is_no_obstacle(database: Database, submit: Submit, put: Callable[..., None]) -> None:
    submit("a boat")
    assert read(database).reason == "next"
    put(LOCAL)
    assert read(database).reason == "next"


def test_a_job_says_that_its_workers_are_drained(database: Database, submit: Submit, put: Callable[..., None]) -> None:
    submit("a boat")
    put(LOCAL, is_draining=True)
    job = read(database)
    assert (job.reason, job.eta_s) == ("waits for local: drained, gets no jobs", None)
    put("second", is_draining=True)
    assert read(database).reason == "waits for local, second: drained, gets no jobs"
    put(LOCAL, is_draining=False)
    assert read(database).reason == "next; only local makes it"


def test_a_job_of_a_model_that_only_pinned_workers_could_make_stays_in_the_list(
    database: Database, submit: Submit, put: Callable[..., None]
) -> None:
    submit("a boat")
    for worker in (LOCAL, "second"):
        put(worker, model="clips", is_pinned=True)
    assert read(database).reason == "waits for a worker: all are pinned to other models"
    put("third", is_pinned=False)
    assert read(database).reason == "next; on third; no other worker makes it"


def test_a_job_says_that_all_workers_are_gone(database: Database, submit: Submit, put: Callable[..., None]) -> None:
    submit("a boat")
    put("second", WorkerState.STOPPED)
    assert (read(database).reason, read(database).eta_s) == ("waits for a worker: none is there", None)


def test_a_job_names_the_busy_worker_that_has_its_model(
    database: Database, submit: Submit, put: Callable[..., None]
) -> None:
    job = submit("a boat")
    put(LOCAL, WorkerState.BUSY, model=job.recipe.model)
    put("second", model="clips")
    assert read(database).reason.endswith(f"waits for local, with {job.recipe.model} in memory")
    put("third", model=job.recipe.model)
    assert "waits for" not in read(database).reason, "it is idle, and takes it at once"
