"""A worker of several processes, one on each host of a slice: asked at its first, and gone when any of them is.

Not here: what the processes do together (worker/slice.py), how they are started (ray_cluster.py).
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from studio.cluster.link import Handle, WorkerGoneError
from studio.cluster.protocol import Attachment

EVERYWHERE = ("list_missing", "store")
"""These methods are called on every host: each reads its own copy of a job's files."""
WATCH_S = 30.0  # of one question; a dispatcher that ended leaves its last one behind


class GangHandle:
    """The Handle of a slice."""

    def __init__(self, hosts: Sequence[Handle]) -> None:
        self._hosts = hosts
        self._ends: list[asyncio.Future[Any]] = []

    async def call(self, method: str, *arguments: Any) -> Any:
        """Asks the first host, or all; raises WorkerGoneError as soon as one of the others has ended."""
        if not self._ends:
            self._ends = [asyncio.ensure_future(_wait_for_end(one)) for one in self._hosts[1:]]
        asking = asyncio.ensure_future(self._ask(method, arguments))
        try:
            await asyncio.wait((asking, *self._ends), return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                raise WorkerGoneError("a host of the slice has ended")
            return asking.result()
        finally:
            asking.cancel()

    def kill(self) -> None:
        """Ends all of them: what is left of a slice is never mended."""
        for end in self._ends:
            end.cancel()
        for one in self._hosts:
            one.kill()

    async def _ask(self, method: str, arguments: Sequence[Any]) -> Any:
        if method not in EVERYWHERE:
            return await self._hosts[0].call(method, *arguments)
        answers = await asyncio.gather(*(one.call(method, *arguments) for one in self._hosts))
        missing: dict[str, Attachment] = {one.sha: one for answer in answers for one in answer or ()}
        return [*missing.values()]


async def _wait_for_end(host: Handle) -> None:
    """Raises what tells that a process has ended."""
    while True:
        await host.call("wait_for_end", WATCH_S)
