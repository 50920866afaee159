"""A worker that falls silent is ended and replaced."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pipelines.runtime.devices import allocator
from studio.database import Database
from studio.jobs import queue
from studio.jobs.job import Job
from studio.jobs.states import JobState
from studio.jobs.workers import WorkerState, read_worker
from studio.settings import Settings
from studio.worker.supervisor import Supervisor


def test_a_worker_that_hangs_is_replaced_and_its_job_says_why(
    settings: Settings, database: Database, submit: Callable[..., Job], wait_for: Callable[..., Any]
) -> None:
    with _run(Supervisor(settings, database, heartbeat_timeout_s=3.0)):
        hanging, next_one = submit(steps=100), submit()
        wait_for("the job to step", lambda: queue.read_job(database, hanging.id).step > 0)
        pid = read_worker(database).pid
        assert ("libtcmalloc" in Path(f"/proc/{pid}/maps").read_text("utf-8")) is bool(allocator.choose(os.environ))
        os.kill(pid, signal.SIGSTOP)

        assert wait_for("the job to fail", lambda: queue.read_job(database, hanging.id).error)["title"] == (
            "The worker stopped answering"
        )
        wait_for("the next job to be done", lambda: queue.read_job(database, next_one.id).state is JobState.DONE)
        assert read_worker(database).pid != pid
    assert read_worker(database).state is WorkerState.STOPPED


def test_a_default_model_that_ends_its_worker_is_not_prepared_again(
    settings: Settings, database: Database, submit: Callable[..., Job], wait_for: Callable[..., Any]
) -> None:
    with _run(Supervisor(settings, database)):
        first = wait_for(
            "a worker that prepares", lambda: (e := read_worker(database)).state is WorkerState.PREPARING and e.pid
        )
        os.kill(first, signal.SIGKILL)
        wait_for("the next worker", lambda: (e := read_worker(database)).pid != first and e.state is WorkerState.READY)
        idle = read_worker(database)
        assert (idle.model, idle.error["title"]) == ("", "The default model is not loaded")
        job = submit()
        wait_for("the job's model to be resident", lambda: read_worker(database).model == job.recipe.model)
        wait_for("the job to be done", lambda: queue.read_job(database, job.id).state is JobState.DONE)


@contextmanager
def _run(supervisor: Supervisor) -> Iterator[None]:
    """A test that fails must not leave a worker behind that reads a closed database."""
    supervisor.start()
    try:
        yield
    finally:
        supervisor.stop()
