"""Periodic background work of the app process, for as long as the application runs.

A service that fails is logged and retried at its next turn: a momentarily full disk must not end it for good. An
application's lifespan enters `run`; applications made for tests leave it out and call the work themselves.
Not here: which services there are (`list_services` in housekeeping.py).
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Service:
    """One kind of work, done every `interval_s` seconds, or only once at the start (None)."""

    name: str
    interval_s: float | None
    work: Callable[[], Awaitable[None]]

    async def run(self, *, wait: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        """Repeats the work until it is cancelled."""
        while True:
            try:
                await self.work()
            except Exception:
                log.exception("%s failed and waits for its next turn", self.name)
            if self.interval_s is None:
                return
            await wait(self.interval_s)


@asynccontextmanager
async def run(services: Sequence[Service]) -> AsyncGenerator[None]:
    """Runs all services while the context is entered, and cancels them at its end."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(service.run(), name=service.name) for service in services]
        yield
        for task in tasks:
            task.cancel()
