"""The event feed: one poller reads new events for any number of followers, and stops when nobody follows."""

import asyncio
import logging
import sqlite3
import time
from collections.abc import AsyncGenerator

from studio import events
from studio.database import Database
from studio.events import Event

POLL_S = 0.02
KEEPALIVE_S = 15.0  # proxies close a stream that is silent for 30 to 60 s
RECENT_EVENTS = 500
RETRY_S = 1.0  # after an error of the database

log = logging.getLogger(__name__)


class Feed:
    """Follows the table `events` for the streams of one event loop."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._recent: list[Event] = []  # ids are contiguous, so an id gives its event's index
        self._followers = 0
        self._poller: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._is_closed = False

    async def follow(self, after: int | None) -> AsyncGenerator[list[Event], None]:
        """Yields batches of events with ids above `after`, without gaps; an empty one after `KEEPALIVE_S` of silence.

        With None, or with an id that this database has not reached, it starts with the next event.
        """
        last_id = await asyncio.to_thread(events.read_last_id, self._database)
        after = last_id if after is None else min(after, last_id)
        self._followers += 1
        told_s = time.monotonic()
        try:
            while not self._is_closed:
                if self._poller is None:
                    self._poller = asyncio.create_task(self._poll())
                news = self._news
                batch = await self._read_after(after)
                if batch or time.monotonic() - told_s >= KEEPALIVE_S / 2:  # half: the poller's clock is not quite ours
                    after = batch[-1].id if batch else after
                    yield batch
                    told_s = time.monotonic()
                else:
                    await news.wait()  # no timer: after every event a hundred followers return here
        finally:
            self._followers -= 1

    def close(self) -> None:
        """Ends every stream, so that the server can stop; the poller notices and wakes waiting followers."""
        self._is_closed = True

    async def _poll(self) -> None:
        try:
            last_id = await asyncio.to_thread(events.read_last_id, self._database)
            self._wake()  # followers that read before this moment read again, so none misses an event
            woken_s = time.monotonic()
            while self._followers and not self._is_closed:
                try:
                    batch = await asyncio.to_thread(events.read_after, self._database, last_id)
                except sqlite3.Error:
                    log.exception("new events cannot be read now")
                    await asyncio.sleep(RETRY_S)
                    continue
                if batch:
                    last_id = batch[-1].id
                    self._recent = [*self._recent, *batch][-RECENT_EVENTS:]
                if batch or time.monotonic() - woken_s >= KEEPALIVE_S:
                    self._wake()
                    woken_s = time.monotonic()
                await asyncio.sleep(POLL_S)
        finally:
            self._poller = None
            self._recent.clear()
            self._wake()

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    async def _read_after(self, after: int) -> list[Event]:
        """Reads from memory for followers that keep up, from the database for those that come back."""
        if self._recent and self._recent[0].id <= after + 1:
            return self._recent[after + 1 - self._recent[0].id :]
        return await asyncio.to_thread(events.read_after, self._database, after)
