"""Jobs over REST: ask, look, cancel, retry.

Reads that a page starts from carry `last_event_id`: the stream after that id tells everything that came later.
"""

from typing import Annotated, Any

from fastapi import APIRouter, Query

from pipelines.recipe import Recipe, resolve
from studio.api.access import Visitor
from studio.jobs import events, queue
from studio.jobs.states import JobState

router = APIRouter(tags=["jobs"])


@router.post("/jobs", status_code=201)
def create_job(recipe: Recipe, visit: Visitor) -> dict[str, str]:
    """Queues a recipe. Only `model` and `prompt` are required; 422 names every field that cannot be."""
    job = queue.submit(visit.database, resolve(recipe, visit.studio.catalog), owner=visit.owner)
    return {"id": job.id}


@router.get("/jobs")
def list_jobs(
    visit: Visitor,
    state: Annotated[JobState | None, Query(description="only jobs in this state")] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
) -> dict[str, Any]:
    """The newest jobs first; waiting ones say why they wait (`reason`) and for how long (`eta_s`)."""
    last_event_id = events.read_last_id(visit.database)
    jobs = queue.list_jobs(visit.database, owner=visit.owner, state=state, limit=limit)
    return {"jobs": [job.to_json() for job in jobs], "last_event_id": last_event_id}


@router.get("/jobs/{job_id}")
def get_job(job_id: str, visit: Visitor) -> dict[str, Any]:
    """One job, with its outputs when it is done and its error card when it failed."""
    return visit.get_job(job_id).to_json()


@router.delete("/jobs/{job_id}")
def cancel_job(job_id: str, visit: Visitor) -> dict[str, Any]:
    """Cancels: a waiting job at once, a running one at its next chunk. Answers with the job as it is now."""
    visit.get_job(job_id)
    queue.cancel(visit.database, job_id)
    return visit.get_job(job_id).to_json()


@router.post("/jobs/{job_id}/retry")
def retry_job(job_id: str, visit: Visitor) -> dict[str, Any]:
    """Queues a failed, cancelled or interrupted job again under its own id; 409 for any other."""
    visit.get_job(job_id)
    queue.retry(visit.database, job_id)
    return visit.get_job(job_id).to_json()
