"""Watching jobs for a client that stays connected: their current state, then every change, until all have ended.

The queue does not know about watchers: these are ordinary jobs, and what happens to them when the connection breaks is
up to the caller. Not here: noticing new events (`follow`, from services/feed.py).
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
"""Yields batches of events after an id, an empty one now and then, and ends when the server stops."""


async def watch_jobs(database: Database, ids: Sequence[str], follow: Follow) -> AsyncGenerator[list[Job], None]:
    """Yields the jobs, without their places in line, at every batch of events; rereads them when one has changed.

    In the last list all jobs have ended, unless the server stops before.
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
    """Tells whether all of these jobs have ended."""
    return all(job.state.is_final for job in jobs)
