"""The feed: nothing missed, nothing twice, whenever a follower comes."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing

from studio import events
from studio.database import Database
from studio.jobs import queue
from studio.jobs.job import Job
from studio.services.feed import Feed

Submit = Callable[..., Job]


async def take(feed: Feed, after: int | None, until: int) -> list[int]:
    """Ids from `after` on, up to `until`."""
    ids: list[int] = []
    async with asyncio.timeout(10), aclosing(feed.follow(after)) as batches:
        async for batch in batches:
            ids += [event.id for event in batch]
            if ids and ids[-1] >= until:
                break
    return ids


def test_what_was_missed_is_replayed(database: Database, submit: Submit) -> None:
    for _ in range(5):
        submit()
    assert asyncio.run(take(Feed(database), 2, 5)) == [3, 4, 5]


def test_followers_see_everything_once_while_it_happens(database: Database, submit: Submit) -> None:
    async def follow_and_write() -> list[list[int]]:
        feed = Feed(database)
        followers = [asyncio.create_task(take(feed, after, 60)) for after in (0, 3, None)]
        await asyncio.sleep(0)
        for _ in range(60):
            await asyncio.to_thread(submit)
        late = asyncio.create_task(take(feed, 10, 60))
        return await asyncio.gather(*followers, late)

    for ids in asyncio.run(follow_and_write()):
        assert ids == list(range(ids[0], 61))


def test_a_feed_that_everybody_left_starts_again(database: Database, submit: Submit) -> None:
    async def come_and_go() -> list[int]:
        feed = Feed(database)
        submit()
        first = await take(feed, 0, 1)
        submit()
        submit()
        return first + await take(feed, 1, 3)

    assert asyncio.run(come_and_go()) == [1, 2, 3]


def test_an_id_this_database_never_reached_starts_with_the_next(database: Database, submit: Submit) -> None:
    async def follow_and_write() -> list[int]:
        submit()
        follower = asyncio.create_task(take(Feed(database), 1_000, 2))
        while not follower.done():
            await asyncio.to_thread(submit)
        return await follower

    ids = asyncio.run(follow_and_write())
    assert ids[0] >= 2
    assert ids == list(range(ids[0], ids[-1] + 1))


def test_a_closed_feed_ends_its_streams(database: Database, submit: Submit) -> None:
    async def follow_and_close() -> list[int]:
        feed = Feed(database)
        job = submit()
        follower = asyncio.create_task(take(feed, 0, 1_000))
        queue.cancel(database, job.id)
        await asyncio.sleep(0)
        feed.close()
        return await follower

    assert len(asyncio.run(follow_and_close())) <= events.read_last_id(database)
