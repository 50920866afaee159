"""Periodic background work of the app process, for as long as the application runs.

A service that fails is logged, noted for /health (condition.py) and retried: a momentarily full disk must not end it
for good. An application's lifespan enters `run`; applications made for tests leave it out and call the work themselves.
Not here: which services there are (`list_services` in housekeeping.py).
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from studio.services.condition import Condition, describe_failure

RETRY_S = 10.0  # of work that is done once

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Service:
    """One kind of work, done every `interval_s` seconds, or only once at the start (None)."""

    name: str
    interval_s: float | None
    work: Callable[[], Awaitable[None]]

    async def run(
        self, condition: Condition | None = None, *, wait: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        """Repeats the work until it is cancelled; work that is done once is repeated until it succeeds."""
        condition = condition or Condition()
        while True:
            pause_s = self.interval_s
            try:
                await self.work()
            except Exception as error:
                log.exception("%s failed and waits for its next turn", self.name)
                condition.note(self.name, describe_failure(self.name, error))
                pause_s = RETRY_S if pause_s is None else pause_s
            else:
                condition.clear(self.name)
            if pause_s is None:
                return
            await wait(pause_s)


@asynccontextmanager
async def run(services: Sequence[Service], condition: Condition | None = None) -> AsyncGenerator[None]:
    """Runs all services while the context is entered, and cancels them at its end."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(service.run(condition), name=service.name) for service in services]
        yield
        for task in tasks:
            task.cancel()
