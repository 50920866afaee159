"""The visitor's whole line over REST: its order, and whether it is held."""

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict

from studio.api.answers import jobs as jobs_answers
from studio.api.visitor import Visitor
from studio.jobs import arrange
from studio.visit import Visit

router = APIRouter(tags=["queue"])


class MoveBefore(BaseModel):
    """Where a job goes: right before this one of your waiting jobs; null is the end of your line."""

    model_config = ConfigDict(extra="forbid")
    before: str | None


@router.get("/queue", response_model=jobs_answers.Queue)
def get_queue(visit: Visitor) -> dict[str, Any]:
    """Whether your waiting jobs are held (`is_paused`), and how many may wait at a time (`quota`)."""
    return _describe(visit)


@router.post("/queue/pause", response_model=jobs_answers.Queue)
def pause_queue(visit: Visitor) -> dict[str, Any]:
    """Holds your waiting jobs where they are; a running one goes on, and so do other people's."""
    arrange.pause(visit.database, owner=visit.owner)
    return _describe(visit)


@router.post("/queue/resume", response_model=jobs_answers.Queue)
def resume_queue(visit: Visitor) -> dict[str, Any]:
    """Ends the pause."""
    arrange.resume(visit.database, owner=visit.owner)
    return _describe(visit)


@router.post("/jobs/{job_id}/move", response_model=jobs_answers.Job)
def move_job(job_id: str, place: MoveBefore, visit: Visitor) -> dict[str, Any]:
    """Puts a waiting job elsewhere in your line; 409 when it, or the one in `before`, waits no longer.

    What is placed by hand keeps its place: saving a model switch no longer moves your other jobs past it.
    """
    visit.get_job(job_id)
    if place.before is not None:
        visit.get_job(place.before)
    arrange.place_before(visit.database, job_id, place.before, owner=visit.owner)
    return visit.get_job(job_id).to_json()


def _describe(visit: Visit) -> dict[str, Any]:
    is_paused = arrange.is_paused(visit.database, owner=visit.owner)
    return {"is_paused": is_paused, "quota": visit.studio.settings.queue_quota}
