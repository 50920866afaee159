"""Slow work of which only a little is done at once, in threads of its own.

Routes share forty threads: work that strangers can ask for as often as they like, and that waits or computes for long,
must not take them all. What does not fit is refused at once, not queued without end.
"""

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from pipelines.messages import say
from studio.access.limits import RateError

T = TypeVar("T")


class FewAtOnce:
    """A few threads, and a bounded number of calls that wait for one."""

    def __init__(self, name: str, *, threads: int, waiting: int) -> None:
        self._pool = ThreadPoolExecutor(max_workers=threads, thread_name_prefix=name)
        self._most = threads + waiting
        self._count = 0

    async def run(self, work: Callable[[], T]) -> T:
        """Does the work in one of the threads; raises RateError when too many calls wait already.

        The place is free once the work has ended, which a caller that gave up does not wait for.
        """
        if self._count >= self._most:
            raise RateError(say("Too many others ask for this right now."), wait_s=5.0)
        self._count += 1
        future = self._pool.submit(contextvars.copy_context().run, work)
        loop = asyncio.get_running_loop()
        future.add_done_callback(lambda _: self._leave(loop))
        return await asyncio.wrap_future(future)

    def _leave(self, loop: asyncio.AbstractEventLoop) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(self._forget)

    def _forget(self) -> None:
        self._count -= 1
