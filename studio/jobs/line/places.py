"""Each waiting job's place in line: its number, the reason for it, and the time until its outputs are done.

Every page reads its queue anew after every event, so the places are cached: they are computed once per event for all
readers. Not here: how they are computed (foresight.py).
"""

import sqlite3
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from pipelines.recipes.recipe import Recipe
from studio import events
from studio.database import Database
from studio.jobs.costs.estimates import read_history
from studio.jobs.costs.lessons import Prior
from studio.jobs.job import Job
from studio.jobs.line.foresight import Asked, Place, Running, Server, foresee
from studio.jobs.line.standing import read_job_s
from studio.jobs.line.waiting_rows import IN_ORDER, read_line
from studio.jobs.states import JobState
from studio.jobs.workers import WorkerState, read_workers

_FIELDS = """
recipe, programs, steps - coalesce((SELECT saved_step FROM trainings WHERE job_id = jobs.id), 0) AS steps,
(SELECT prior_pictures FROM trainings WHERE job_id = jobs.id AND saved_step = 0) AS prior_pictures,
(SELECT prior_recipe FROM trainings WHERE job_id = jobs.id) AS prior_recipe FROM jobs
"""
"""What an estimate depends on: the steps that are left, and what a training makes before its first one."""


@dataclass(kw_only=True)
class _Known:
    """The cached places, valid as of the event `last_id`."""

    last_id: int = -1
    places: dict[str, Place] = field(default_factory=dict[str, Place])
    lock: threading.Lock = field(default_factory=threading.Lock)


_known: WeakKeyDictionary[Database, _Known] = WeakKeyDictionary()
_lock = threading.Lock()


def with_places(database: Database, jobs: list[Job]) -> list[Job]:
    """Adds places to waiting jobs. Must not be called within a transaction, whose events may yet be rolled back."""
    if not any(job.state is JobState.QUEUED for job in jobs):
        return jobs
    places = _know_places(database)
    return [job.waiting(**vars(places[job.id])) if job.id in places else job for job in jobs]


def in_line(database: Database, job_ids: Sequence[str]) -> list[str]:
    """Returns the ids of the waiting ones among these jobs, in the order in which they will run."""
    places = _know_places(database)
    return sorted((job_id for job_id in job_ids if job_id in places), key=lambda job_id: places[job_id].position)


def _know_places(database: Database) -> dict[str, Place]:
    """Returns the cached places, valid until a new event: whatever changes a place appends one in its transaction."""
    with _lock:
        known = _known.setdefault(database, _Known())
    with known.lock:
        last_id = events.read_last_id(database)  # read first: a change in between makes the places newer, not older
        if known.last_id != last_id:
            known.places = read_places(database)
            known.last_id = last_id
        return known.places


def read_places(database: Database) -> dict[str, Place]:
    """Computes the places of all waiting jobs without the cache; also works inside a transaction of this thread.

    Jobs have no eta from the first one on whose programs were never measured.
    """
    rows = database.read(f"SELECT id, kind, owner, {_FIELDS} WHERE state = ?", (JobState.QUEUED,))
    asked = {
        row["id"]: Asked(
            kind=row["kind"],
            owner=row["owner"],
            recipe=Recipe.model_validate_json(row["recipe"]),
            programs=row["programs"],
            steps=row["steps"],
            prior=_read_prior(row),
        )
        for row in rows
    }
    servers = _read_servers(database)
    return foresee(read_line(database), asked, servers, job_s=read_job_s(database), now=time.time())


def _read_prior(row: sqlite3.Row) -> Prior | None:
    if not row["prior_pictures"]:
        return None
    return Prior(count=row["prior_pictures"], recipe=Recipe.model_validate_json(row["prior_recipe"]))


def _read_servers(database: Database) -> list[Server]:
    """Reads the workers that take jobs; before any was started, the first one."""
    running: dict[str, Running] = {}
    for row in database.read(f"SELECT worker, eta_s, {_FIELDS} WHERE state = ? {IN_ORDER}", (JobState.RUNNING,)):
        now = Running(
            recipe=Recipe.model_validate_json(row["recipe"]),
            programs=row["programs"],
            steps=row["steps"],
            eta_s=row["eta_s"],
            prior=_read_prior(row),
        )
        running.setdefault(row["worker"], now)
    workers = read_workers(database)
    up = [worker for worker in workers if worker.state is not WorkerState.STOPPED]
    taking = [worker for worker in up if not worker.is_draining] or workers[:1]
    return [
        Server(row=worker, history=read_history(database, worker.id), running=running.get(worker.id))
        for worker in taking
    ]
