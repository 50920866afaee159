"""Slow work of which only a little is done at once, in threads of its own.

Routes share forty threads: work that strangers can ask for as often as they like, and that waits or computes for long,
must not take them all. What does not fit is refused at once, not queued without end. The threads are daemons, which
those of the standard library's pools are not: a hub or a name server that does not answer must not keep a studio from
ending.
"""

import asyncio
import contextvars
import functools
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from pipelines.messages import say
from studio.access.limits import RateError

T = TypeVar("T")


class FewAtOnce:
    """A few threads, and a bounded number of calls that wait for one."""

    def __init__(self, name: str, *, threads: int, waiting: int) -> None:
        self._name = name
        self._most_threads = threads
        self._most = threads + waiting
        self._threads: list[threading.Thread] = []
        self._calls: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = queue.SimpleQueue()
        self._count = 0

    async def run(self, work: Callable[[], T]) -> T:
        """Does the work in one of the threads; raises RateError when too many calls wait already.

        The place is free once the work has ended, which a caller that gave up does not wait for.
        """
        if self._count >= self._most:
            raise RateError(say("Too many others ask for this right now."), wait_s=5.0)
        self._count += 1
        try:
            future: Future[T] = self._put(functools.partial(contextvars.copy_context().run, work))
        except RuntimeError:  # the system gives no more threads
            self._count -= 1
            raise
        loop = asyncio.get_running_loop()
        future.add_done_callback(lambda _: self._leave(loop))
        return await asyncio.wrap_future(future)

    def _put(self, call: Callable[[], T]) -> Future[T]:
        """Hands the call to the next free thread; there are as many as calls were there at once, at most."""
        if len(self._threads) < min(self._count, self._most_threads):
            thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            thread.start()
            self._threads.append(thread)
        future: Future[T] = Future()
        self._calls.put((future, call))
        return future

    def _work(self) -> None:
        while True:
            future, call = self._calls.get()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(call())
            except BaseException as error:  # noqa: BLE001 - it is the caller's
                future.set_exception(error)
            del future, call  # while it waits for the next, which may be never

    def _leave(self, loop: asyncio.AbstractEventLoop) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(self._forget)

    def _forget(self) -> None:
        self._count -= 1
