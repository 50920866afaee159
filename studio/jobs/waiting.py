"""Jobs of somebody who stays on the line: as they are now, and again as they change, until all of them have ended.

The queue knows nothing of who waits: these are ordinary jobs, and what becomes of them when the line breaks is up to
the caller. Not here: noticing that something happened (`follow`, which is services/feed.py's).
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing

from studio import events
from studio.database import Database
from studio.events import Event
from studio.jobs import queue
from studio.jobs.job import Job

Follow = Callable[[int | None], AsyncGenerator[list[Event], None]]
"""Batches of events after an id; an empty one now and then, and an end when the server stops."""


async def watch_jobs(database: Database, ids: Sequence[str], follow: Follow) -> AsyncGenerator[list[Job], None]:
    """The jobs, without their places in line, with every batch of events; read anew when one of them changed.

    The last list holds ended jobs alone, unless the server stops before.
    """
    last_id = await asyncio.to_thread(events.read_last_id, database)
    jobs = await asyncio.to_thread(queue.read_jobs, database, ids)
    yield jobs
    async with aclosing(follow(last_id)) as batches:
        while not have_ended(jobs):
            batch = await anext(batches, None)
            if batch is None:
                return
            if any(event.job_id in ids for event in batch):
                jobs = await asyncio.to_thread(queue.read_jobs, database, ids)
            yield jobs


def have_ended(jobs: Sequence[Job]) -> bool:
    """Whether nothing more will happen to any of them."""
    return all(job.state.is_final for job in jobs)
