"""The visitor's whole queue over REST: its order, and whether it is paused."""

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict

from studio.api.answers import jobs as jobs_answers
from studio.api.visitor import Visitor
from studio.jobs import arrange
from studio.visit import Visit

router = APIRouter(tags=["queue"])


class MoveBefore(BaseModel):
    """A job's new place: right before this one of your waiting jobs, or, with null, the end of your queue."""

    model_config = ConfigDict(extra="forbid")
    before: str | None


@router.get("/queue", response_model=jobs_answers.Queue)
def get_queue(visit: Visitor) -> dict[str, Any]:
    """Tells whether your waiting jobs are paused (`is_paused`), and how many may wait at a time (`quota`)."""
    return _describe(visit)


@router.post("/queue/pause", response_model=jobs_answers.Queue)
def pause_queue(visit: Visitor) -> dict[str, Any]:
    """Pauses your waiting jobs, which keep their places; a running one goes on, and so do other people's."""
    arrange.pause(visit.database, owner=visit.owner)
    return _describe(visit)


@router.post("/queue/resume", response_model=jobs_answers.Queue)
def resume_queue(visit: Visitor) -> dict[str, Any]:
    """Ends the pause."""
    arrange.resume(visit.database, owner=visit.owner)
    return _describe(visit)


@router.post("/jobs/{job_id}/move", response_model=jobs_answers.Job)
def move_job(job_id: str, place: MoveBefore, visit: Visitor) -> dict[str, Any]:
    """Moves a waiting job within your queue; 409 when it, or the one in `before`, is no longer waiting.

    A job that was placed by hand keeps its place: your other jobs no longer overtake it to save a model switch.
    """
    visit.get_job(job_id)
    if place.before is not None:
        visit.get_job(place.before)
    arrange.place_before(visit.database, job_id, place.before, owner=visit.owner)
    return visit.get_job(job_id).to_json()


def _describe(visit: Visit) -> dict[str, Any]:
    is_paused = arrange.is_paused(visit.database, owner=visit.owner)
    return {"is_paused": is_paused, "quota": visit.studio.settings.queue_quota}
