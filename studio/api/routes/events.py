"""The live stream: server-sent events with replay.

A client names the last event that it saw (`Last-Event-ID` or `?after=N`) and gets all events since, then new ones as
they happen.
Not here: noticing new events (feed.py).
"""

import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from functools import lru_cache, partial
from typing import Annotated

import orjson
from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import StreamingResponse

from studio.api.answers.events import STREAM
from studio.api.routes.health import show_engine
from studio.api.visitor import Visitor, is_still_here
from studio.events import EVERYBODY, Event
from studio.services.feed import KEEPALIVE_S, RECENT_EVENTS
from studio.visit import Visit

router = APIRouter(tags=["events"])
CHECK_S = 2.0  # how long a stream may outlive its session


@router.get("/events", response_class=StreamingResponse, responses={200: STREAM})
def stream_events(
    request: Request,
    visit: Visitor,
    after: Annotated[
        int | None, Query(ge=0, description="the last event you know; the stream replays from there")
    ] = None,
    last_event_id: Annotated[int | None, Header(ge=0, description="what browsers send when they reconnect")] = None,
    everyone: Annotated[bool, Query(description="everybody's events, for admins")] = False,  # noqa: FBT002
) -> StreamingResponse:
    """Streams server-sent events: `id`, `event` (kind), `data` (JSON with `id`, `kind`, `job_id`, `at`, the change).

    Kinds: job.queued, job.phase, job.step, job.preview, job.done, job.failed (its `state` may be interrupted),
    job.cancelled, job.paused, training.step (a point of its curve), training.sample, training.saved,
    training.deleted, queue.changed (your order, pause or list changed: read your jobs anew), outputs.changed (some were
    marked, thrown away, restored or deleted), grid.done (all cells of a grid have ended; `grid` has its sheet as
    `output`), engine.state. Without `after` the stream starts with the next event.
    """
    start = last_event_id if last_event_id is not None else after
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    whose = visit.choose_owner(is_everyone=everyone)
    return StreamingResponse(
        _stream(request, visit, after=start, whose=whose), media_type="text/event-stream", headers=headers
    )


async def _stream(request: Request, visit: Visit, *, after: int | None, whose: str | None) -> AsyncIterator[bytes]:
    yield b"retry: 1000\n\n"
    checked_s = sent_s = time.monotonic()
    async with aclosing(visit.studio.feed.follow(after)) as batches:
        async for batch in batches:
            now_s = time.monotonic()
            if now_s - checked_s > CHECK_S:
                checked_s = now_s
                if not is_still_here(request, visit):
                    return
            mine = [event for event in batch if event.owner in (EVERYBODY, whose or event.owner)]
            if mine or now_s - sent_s >= KEEPALIVE_S / 2:  # batches of only other people's events are not sent
                sent_s = now_s
                encode = partial(_encode, is_operator=visit.is_operator)
                yield b"".join(map(encode, mine)) or b": still here\n\n"


@lru_cache(maxsize=2 * RECENT_EVENTS)
def _encode(event: Event, *, is_operator: bool) -> bytes:
    """Encodes an event once for all streams: a crowd of viewers gets the same bytes."""
    told = event.to_json()
    if event.kind == "engine.state":
        told["engine"] = show_engine(told["engine"], is_operator=is_operator)
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event.id, event.kind.encode(), orjson.dumps(told))
