"""Turns at what only a few may do at once: fair, whatever one client asks for.

Of those that wait, whoever has the fewest turns is next; among equals they go round. So a client with many waits behind
nobody but itself, and lets others pass.
Not here: how often somebody may ask (limits.py), work in threads (few.py).
"""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from pipelines.messages import Message
from studio.access.limits import RateError

AGAIN_S = 10.0  # when a refused client may try again


class Turns:
    """Lets each client have a few turns at once, and all of them together a few more. For one event loop.

    At most `waiting` of a client wait, each for `wait_s` (None: until it is its turn); others get a RateError that says
    `refusal`.
    """

    def __init__(self, *, each: int, all_: int, waiting: int, wait_s: float | None = None, refusal: Message) -> None:
        self._each = each
        self._all = all_
        self._most_waiting = waiting
        self._wait_s = wait_s
        self._refusal = refusal
        self._running = Counter[str]()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}  # who was served last is the last

    @asynccontextmanager
    async def take(self, client: str) -> AsyncGenerator[Callable[[], None]]:
        """Waits for a turn of this client and holds it; raises RateError when that takes too long.

        What it yields gives the turn back before the end.
        """
        await self._wait(client)
        is_held = True

        def give_back() -> None:
            nonlocal is_held
            if is_held:
                is_held = False
                self._leave(client)

        try:
            yield give_back
        finally:
            give_back()

    async def _wait(self, client: str) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(client, deque()).append(turn)
        self._serve()
        if not turn.done() and len(self._waiting[client]) > self._most_waiting:
            self._withdraw(client, turn)
            raise RateError(self._refusal, wait_s=AGAIN_S)
        try:
            async with asyncio.timeout(self._wait_s):
                await turn
        except (TimeoutError, asyncio.CancelledError) as error:
            if turn.done() and not turn.cancelled():
                self._leave(client)  # it came in the same moment
            else:
                self._withdraw(client, turn)
            if isinstance(error, TimeoutError):
                raise RateError(self._refusal, wait_s=AGAIN_S) from None
            raise

    def _withdraw(self, client: str, turn: asyncio.Future[None]) -> None:
        left = deque(other for other in self._waiting.get(client, ()) if other is not turn)
        if left:
            self._waiting[client] = left
        else:
            self._waiting.pop(client, None)

    def _leave(self, client: str) -> None:
        self._running[client] -= 1
        if not self._running[client]:
            del self._running[client]
        self._serve()

    def _serve(self) -> None:
        """Gives every turn that is free to whoever is next."""
        while self._running.total() < self._all:
            able = [client for client in self._waiting if self._running[client] < self._each]
            if not able:
                return
            client = min(able, key=lambda one: self._running[one])
            turns = self._waiting.pop(client)
            turn = turns.popleft()
            if turns:
                self._waiting[client] = turns
            if not turn.done():  # else it is withdrawn in a moment
                self._running[client] += 1
                turn.set_result(None)
