"""What a waiting job waits for beside its turn: workers that are drained, pinned to other models, or keep theirs.

Such a job has no time at which it ends, and its reason names the worker that it waits for.
Not here: the line, whose reasons are about other jobs (jobs/line).
"""

from collections.abc import Sequence
from dataclasses import replace

from pipelines.messages import NOTHING, Message, join, say
from studio.database import Database
from studio.jobs.job import TRAIN, Job
from studio.jobs.line.plan import PAUSED
from studio.jobs.states import JobState
from studio.jobs.workers import WorkerRow, WorkerState, read_workers

MAX_NAMES = 3


def with_obstacles(database: Database, jobs: list[Job]) -> list[Job]:
    """Adds to waiting jobs, which have their places, what they wait for. Nothing to add where one worker does all."""
    if not any(_waits(job) for job in jobs):
        return jobs
    known = read_workers(database)
    workers = [worker for worker in known if worker.state is not WorkerState.STOPPED]
    if not workers and len(known) < 2:
        return jobs  # nobody was ever started
    if len(workers) == 1 and not any(worker.is_draining or worker.epoch for worker in workers):
        return jobs
    return [_explain(job, workers) if _waits(job) else job for job in jobs]


def _waits(job: Job) -> bool:
    return job.state is JobState.QUEUED and job.reason != PAUSED


def _explain(job: Job, workers: Sequence[WorkerRow]) -> Job:
    able = [worker for worker in workers if _makes(worker, job)]
    taking = [worker for worker in able if not worker.is_draining]
    if not taking:
        return replace(job, reason=_say_nobody(workers, able, job), eta_s=None, eta_error_s=None)
    is_named = sum(not worker.is_draining for worker in workers) > 1  # by its place (line/foresight.py)
    reason = _say_who(taking, job, is_one_of_many=len(workers) > 1, is_named=is_named)
    return replace(job, reason=join((job.reason, reason), ";")) if reason else job


def _makes(worker: WorkerRow, job: Job) -> bool:
    if job.kind == TRAIN:
        return not worker.is_pinned
    return worker.model == job.recipe.model or not worker.is_pinned


def _say_nobody(workers: Sequence[WorkerRow], able: Sequence[WorkerRow], job: Job) -> Message:
    if not workers:
        return say("waits for a worker: none is there")
    if able:
        return say("waits for {workers}: drained, gets no jobs", workers=_name(able))
    if job.kind == TRAIN:
        return say("waits for a worker that trains: all are pinned to models")
    return say("waits for a worker: all are pinned to other models")


def _say_who(taking: Sequence[WorkerRow], job: Job, *, is_one_of_many: bool, is_named: bool) -> Message:
    """Words that a job waits for certain workers, while others might seem to have time for it."""
    if len(taking) == 1 and is_one_of_many:
        if is_named:
            return say("no other worker makes it")
        return say("only {worker} makes it", worker=taking[0].id)
    holders = [worker for worker in taking if worker.model == job.recipe.model]
    others_idle = any(worker.state is WorkerState.READY for worker in taking if worker not in holders)
    if not holders or not others_idle or any(worker.state is WorkerState.READY for worker in holders):
        return NOTHING
    return say("waits for {workers}, with {model} in memory", workers=_name(holders), model=job.recipe.model)


def _name(workers: Sequence[WorkerRow]) -> str:
    names = ", ".join(worker.id for worker in workers[:MAX_NAMES])
    return names if len(workers) <= MAX_NAMES else f"{names}, …"
