"""Several workers of one machine serve one queue."""

import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pipelines.messages import say
from studio.database import Database
from studio.jobs import queue, workers
from studio.jobs.job import Job
from studio.jobs.states import JobState
from studio.jobs.workers import WorkerState
from studio.settings import Settings
from studio.worker.crew import Crew
from studio.worker.loop import POLL_S


def test_two_workers_run_two_jobs_at_once_and_one_that_dies_takes_only_its_own_along(
    settings: Settings, database: Database, submit: Callable[..., Job], wait_for: Callable[..., Any]
) -> None:
    with database.write() as tx:  # of an earlier run with more workers
        workers.describe(tx, "local-3", WorkerState.READY, activity=say("ready"))
    crew = Crew(replace(settings, workers=2), database)
    crew.start()
    try:
        jobs = [submit(steps=30), submit(steps=30)]

        def read() -> list[Job]:
            return [found for job in jobs if (found := queue.read_job(database, job.id))]

        wait_for("both to step", lambda: all(job.step > 0 for job in read()))
        assert sorted(str(job.worker) for job in read()) == ["local", "local-2"]
        dying, living = read()
        assert (pid := workers.read_worker(database, dying.worker).pid) is not None
        os.kill(pid, signal.SIGKILL)
        wait_for("one to fail", lambda: read()[0].state is JobState.FAILED)
        assert read()[1].state is JobState.RUNNING
        assert living.worker
        pid = workers.read_worker(database, living.worker).pid
        wait_for("the other to be done", lambda: read()[1].state is JobState.DONE)
        queue.retry(database, dying.id)
        wait_for("the retried one to run", lambda: read()[0].state is JobState.RUNNING)
        assert workers.read_worker(database, living.worker).pid == pid
    finally:
        crew.stop()
    rows = workers.read_workers(database)
    assert [(row.id, row.state) for row in rows] == [("local", WorkerState.STOPPED), ("local-2", WorkerState.STOPPED)]
    assert read()[0].state is JobState.INTERRUPTED


def test_idle_workers_hear_that_the_app_wrote_a_job(
    settings: Settings,
    database: Database,
    submit: Callable[..., Job],
    wait_for: Callable[..., Any],
) -> None:

    def read_wait(job_id: str) -> float | None:
        found = queue.read_job(database, job_id)
        is_done = found is not None and found.state is JobState.DONE and found.started_at
        return found.started_at - found.created_at if is_done else None

    crew = Crew(settings, database)
    crew.start()
    try:
        waited_s: list[float] = []
        for _ in range(5):
            wait_for("a worker", lambda: workers.read_worker(database).state is WorkerState.READY)
            time.sleep(POLL_S / 5)  # so that it has looked in vain, and would only look again after the rest of a turn
            job = submit(steps=1)
            waited_s.append(wait_for("it to be done", lambda job=job: read_wait(job.id)))
        assert sorted(waited_s)[2] < POLL_S / 2
    finally:
        crew.stop()
    assert database.on_commit is None
