"""The workers over REST: which there are, what each holds and runs, and taking one out of the queue's sight.

All routes are for operators. Not here: joining (studio/cluster/join.py), the first worker's gauges alone (system.py).
"""

from typing import Annotated, Any

from fastapi import APIRouter

from pipelines.errors import LumeshError
from pipelines.messages import say
from studio.api.answers import workers as answers
from studio.api.visitor import only_operators
from studio.jobs import claims, queue, workers
from studio.jobs.job import Job
from studio.jobs.workers import LOCAL, WorkerRow, WorkerState
from studio.visit import NotFoundError, Visit

router = APIRouter(prefix="/workers", tags=["workers"])

Operator = Annotated[Visit, only_operators(say("Only admins see the workers."))]


class StillThereError(LumeshError):
    """Only workers that are gone can be forgotten."""

    title = say("This worker is still there")
    status = 409


@router.get("", response_model=answers.Workers)
def list_workers(operator: Operator) -> dict[str, Any]:
    """Lists the workers, the oldest first, also those that are gone.

    `node` is the address of a worker's machine, empty for the studio's own; a slice has several `hosts`, of which it
    is the first. `engine` and `machine` are what `GET /api/v1/system` tells of the first worker, and `jobs` what it
    runs: several where they run as one batch. `join` is the address for `python -m studio.worker join`; null without
    a cluster.
    """
    held: dict[str, list[Job]] = {}
    for job in queue.read_jobs(operator.database, [*claims.list_running(operator.database)]):
        held.setdefault(job.worker or LOCAL, []).append(job)
    settings = operator.studio.settings
    return {
        "workers": [_describe(row, held.get(row.id, [])) for row in workers.read_workers(operator.database)],
        "engine": settings.engine,
        "join": settings.read_ray_address() if settings.engine == "ray" else None,
    }


@router.post("/{worker_id}/drain", response_model=answers.Worker)
def drain_worker(worker_id: str, operator: Operator) -> dict[str, Any]:
    """Lets a worker end what it runs, and gives it no more jobs until `undrain`, or until its machine joins anew."""
    return _set_draining(operator, worker_id, is_draining=True)


@router.post("/{worker_id}/undrain", response_model=answers.Worker)
def undrain_worker(worker_id: str, operator: Operator) -> dict[str, Any]:
    """Gives a drained worker jobs again."""
    return _set_draining(operator, worker_id, is_draining=False)


@router.delete("/{worker_id}", status_code=204)
def forget_worker(worker_id: str, operator: Operator) -> None:
    """Takes a worker that is gone off the list. One that is still there, and the studio's first one, stay: 409."""
    with operator.database.write() as tx:
        row = _find(operator, worker_id)
        if row.state is not WorkerState.STOPPED or row.id == LOCAL or claims.has_running(operator.database, row.id):
            raise StillThereError(
                say("{worker} is {state}.", worker=row.id, state=row.state.value),
                advice=say("Drain it, end it on its machine, and try again."),
            )
        workers.forget(tx, row.id)
    operator.note("worker.forgotten", worker=worker_id)


def _set_draining(operator: Visit, worker_id: str, *, is_draining: bool) -> dict[str, Any]:
    _find(operator, worker_id)
    with operator.database.write() as tx:
        workers.set_draining(tx, worker_id, is_draining=is_draining)
    operator.note("worker.drained" if is_draining else "worker.undrained", worker=worker_id)
    held = claims.list_claims(operator.database, worker_id)
    return _describe(_find(operator, worker_id), held)


def _find(operator: Visit, worker_id: str) -> WorkerRow:
    for row in workers.read_workers(operator.database):
        if row.id == worker_id:
            return row
    raise NotFoundError(
        say("There is no worker {id}.", id=repr(worker_id)[:100]), advice=say("GET /api/v1/workers lists the workers.")
    )


def _describe(row: WorkerRow, jobs: list[Job]) -> dict[str, Any]:
    return {
        "id": row.id,
        "node": row.node,
        "hosts": row.hosts,
        "is_alive": row.is_alive,
        "is_draining": row.is_draining,
        "is_pinned": row.is_pinned,
        "model_since": row.model_since,
        "jobs": [
            {
                "id": job.id,
                "kind": job.kind,
                "owner": job.owner,
                "model": job.recipe.model,
                "phase": job.phase,
                "step": job.step,
                "steps": job.steps,
                "eta_s": job.eta_s,
            }
            for job in jobs
        ],
        "engine": row.to_engine_json(),
        "machine": row.to_machine_json(),
    }
