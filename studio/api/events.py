"""The live stream: server-sent events with replay.

A client says which event it saw last (`Last-Event-ID` or `?after=N`) and gets everything since, then everything as it
happens.
Not here: noticing that something happened (feed.py).
"""

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Annotated

import orjson
from fastapi import APIRouter, Header, Query
from fastapi.responses import StreamingResponse

from studio.api.access import Visit, Visitor
from studio.jobs.events import EVERYBODY, Event

router = APIRouter(tags=["events"])


@router.get("/events", response_class=StreamingResponse)
def stream_events(
    visit: Visitor,
    after: Annotated[
        int | None, Query(ge=0, description="the last event you know; the stream replays from there")
    ] = None,
    last_event_id: Annotated[int | None, Header(ge=0, description="what browsers send when they reconnect")] = None,
) -> StreamingResponse:
    """Server-sent events: `id`, `event` (the kind) and `data`, JSON with `id`, `kind`, `job_id`, `at` and the change.

    Kinds: job.queued, job.phase, job.step, job.preview, job.done, job.failed (its `state` may be interrupted),
    job.cancelled, engine.state. Without `after` the stream starts with what happens next.
    """
    start = last_event_id if last_event_id is not None else after
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(_stream(visit, start), media_type="text/event-stream", headers=headers)


async def _stream(visit: Visit, after: int | None) -> AsyncIterator[bytes]:
    yield b"retry: 1000\n\n"
    async with aclosing(visit.studio.feed.follow(after)) as batches:
        async for batch in batches:
            mine = [event for event in batch if event.owner == EVERYBODY or visit.may_see(event.owner)]
            yield b"".join(map(_encode, mine)) or b": still here\n\n"


def _encode(event: Event) -> bytes:
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event.id, event.kind.encode(), orjson.dumps(event.to_json()))
