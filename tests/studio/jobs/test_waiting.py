"""Watching jobs until they have ended, with the real feed and worker."""

import asyncio
from collections.abc import Callable

from studio.database import Database
from studio.jobs import queue
from studio.jobs.job import Job
from studio.jobs.states import JobState
from studio.jobs.waiting import watch_jobs
from studio.services.feed import Feed
from studio.worker.loop import Worker


def test_jobs_are_watched_until_all_have_ended(database: Database, submit: Callable[..., Job], worker: Worker) -> None:
    ids = [submit().id, submit().id]

    async def watch() -> list[list[Job]]:
        seen = []
        async for jobs in watch_jobs(database, ids, Feed(database).follow):
            if not seen:
                await asyncio.to_thread(worker.run_next)
                await asyncio.to_thread(queue.cancel, database, ids[1])
            seen.append(jobs)
        return seen

    first, *_, last = asyncio.run(watch())
    assert {job.state for job in first} == {JobState.QUEUED}
    assert [job.id for job in last] == ids
    assert [job.state for job in last] == [JobState.DONE, JobState.CANCELLED]


def test_watching_ends_when_the_server_stops(database: Database, submit: Callable[..., Job]) -> None:
    job, feed = submit(), Feed(database)

    async def watch() -> list[list[Job]]:
        seen = []
        async for jobs in watch_jobs(database, [job.id], feed.follow):
            seen.append(jobs)
            feed.close()
        return seen

    assert {job.state for jobs in asyncio.run(watch()) for job in jobs} == {JobState.QUEUED}
