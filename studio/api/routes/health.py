"""The health check, with the worker's activity."""

from typing import Any

from fastapi import APIRouter

from studio import events
from studio.api.answers import system as system_answers
from studio.api.visitor import Visitor
from studio.jobs import queue
from studio.jobs.workers import read_worker

router = APIRouter(tags=["health"])


@router.get("/health", response_model=system_answers.Health)
def get_health(visit: Visitor) -> dict[str, Any]:
    """Returns the engine (state, activity, device, resident model), the queue's counts, and the newest event's id."""
    return {
        "status": "ok",
        "engine": read_worker(visit.database).to_engine_json(),
        "jobs": queue.count_jobs(visit.database),
        "last_event_id": events.read_last_id(visit.database),
    }
