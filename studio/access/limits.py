"""Rate limits per key: a burst at once, then one action per interval (GCRA).

Each key stores one number, the time at which its debt is paid. It is in memory only: a restart may forgive debts.
"""

import threading
import time
from collections.abc import Callable

from pipelines.errors import LumeshError
from pipelines.messages import Message, say

MAX_KEYS = 10_000  # a limit, because strangers choose some of the keys


class RateError(LumeshError):
    """Something was done too often; `wait_s` says when it may be tried again."""

    title = say("Too many requests")
    status = 429

    def __init__(self, detail: Message, *, wait_s: float) -> None:
        self.wait_s = wait_s
        super().__init__(detail, advice=say("Try again in {count} s.", count=max(1, round(wait_s))))


class Limiter:
    """A rate limiter: a burst of `count`, and as many again within `period_s`."""

    def __init__(self, *, count: int, period_s: float, read_clock: Callable[[], float] = time.monotonic) -> None:
        self._interval_s = period_s / count
        self._burst_s = period_s - self._interval_s
        self._read_clock = read_clock
        self._paid_at: dict[str, float] = {}
        self._lock = threading.Lock()

    def take(self, key: str) -> float:
        """Uses up one action and returns 0, or returns the seconds until the next is allowed."""
        now = self._read_clock()
        with self._lock:
            paid_at = max(self._paid_at.get(key, now), now)
            wait_s = paid_at - now - self._burst_s
            if wait_s > 1e-9:
                return wait_s
            if len(self._paid_at) >= MAX_KEYS:
                self._paid_at = {key: at for key, at in self._paid_at.items() if at > now}
            if len(self._paid_at) >= MAX_KEYS and key not in self._paid_at:
                return self._interval_s
            self._paid_at[key] = paid_at + self._interval_s
            return 0.0

    def forgive(self, key: str) -> None:
        """Clears a key's debt, as if no action had been taken."""
        with self._lock:
            self._paid_at.pop(key, None)
