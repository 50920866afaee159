"""Connections that must become requests: one that sends no whole header in time is closed.

uvicorn waits for ever for the rest of a header, so a thousand half requests hold a thousand connections. A proxy in
front has limits of its own, and sends whole requests.
Not here: bodies (middleware/limits.py).
"""

import asyncio
from collections import Counter
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

HEADER_S = 20.0
IDLE_EACH = 200  # connections of one address that have not sent a whole header yet

_idle = Counter[str]()


class Connection(H11Protocol):
    """uvicorn's connection, with a deadline for each request's header."""

    _deadline: asyncio.TimerHandle | None = None
    _address = ""

    def connection_made(self, transport: Any) -> None:
        """Starts the clock; closes at once what is too much for one address."""
        super().connection_made(transport)
        self._address = self.client[0] if self.client else ""
        self._wait()
        if _idle[self._address] > IDLE_EACH:
            transport.close()

    def data_received(self, data: bytes) -> None:
        """Stops the clock once a request has begun, and starts it for the next one's first bytes."""
        super().data_received(data)
        if self._is_busy():
            self._stop_waiting()
        elif self._deadline is None:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forgets the connection."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _is_busy(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _wait(self) -> None:
        _idle[self._address] += 1
        self._deadline = self.loop.call_later(HEADER_S, self._give_up)

    def _stop_waiting(self) -> None:
        if self._deadline is None:
            return
        self._deadline.cancel()
        self._deadline = None
        _idle[self._address] -= 1
        if _idle[self._address] <= 0:
            del _idle[self._address]

    def _give_up(self) -> None:
        self._stop_waiting()
        if not self._is_busy():
            self.transport.close()
