"""The health check: what works, what does not, and the worker's activity.

Only operators see the worker's process and its error in full, which may speak of other people's jobs and of files.
"""

from typing import Any

from fastapi import APIRouter

from pipelines.messages import NOTHING, say
from studio import events
from studio.api.answers import system as system_answers
from studio.api.visitor import Visitor
from studio.jobs import queue
from studio.jobs.job import Card
from studio.jobs.workers import count_states, read_worker
from studio.storage import LOW_BYTES, count_free, full
from studio.visit import Visit

router = APIRouter(tags=["health"])

ASK = say("Ask who runs this studio.")


@router.get("/health", response_model=system_answers.Health)
def get_health(visit: Visitor) -> dict[str, Any]:
    """Returns the engine (state, activity, device, resident model), the queue's counts, and the newest event's id.

    Of several workers, `engine` is the first one that is alive, `worker` its id, and `workers` counts all by state.

    `status` is `ok`, or `failing` when jobs cannot run or be stored, or a service of the server fails: `problems` says
    what, and what to do. A problem goes away by itself once its cause does.
    """
    problems, worker = _list_problems(visit), read_worker(visit.database)
    return {
        "status": "failing" if problems else "ok",
        "problems": [card.to_json() for card in problems],
        "engine": show_engine(worker.to_engine_json(), is_operator=visit.is_operator),
        "worker": worker.id,
        "workers": count_states(visit.database),
        "jobs": queue.count_jobs(visit.database),
        "last_event_id": events.read_last_id(visit.database),
    }


def show_engine(engine: dict[str, Any], *, is_operator: bool) -> dict[str, Any]:
    """Returns a worker's activity as this visitor may see it."""
    if is_operator:
        return engine
    error = engine["error"] and _hide(Card.from_json(engine["error"])).to_json()
    return {**engine, "pid": None, "error": error}


def _hide(card: Card) -> Card:
    return Card(title=card.title, detail=NOTHING, advice=ASK)


def _list_problems(visit: Visit) -> list[Card]:
    problems = visit.studio.condition.list_cards()
    if count_free(visit.studio.settings.data_dir) < LOW_BYTES:
        problems.append(Card.of(full()))
    shown = problems if visit.is_operator else [*map(_hide, problems)]
    return list(dict.fromkeys(shown))
