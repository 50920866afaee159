"""A worker's events on their way to the dispatcher: numbered, and kept until it says that it has stored them."""

import threading
import time
from typing import Any

from studio.cluster.protocol import ENDS, Claim, Told

REPLACED = ("preview", "gauges", "engine", "state")
"""Kinds of which only the newest one matters: an older one that nobody pulled yet is dropped."""

URGENT = (*ENDS, "room", "refs", "leaving")
"""Kinds for which somebody waits; others are sent with what comes within COMPANY_S, for fewer calls."""
COMPANY_S = 0.005
EVERY_S = 0.02
"""Others are sent no more often than so: each call takes a processor from whoever computes. An event has 25 ms."""


class Outbox:
    """Events in the order in which they happened. Any thread may put them; one client pulls."""

    def __init__(self) -> None:
        self._told: list[Told] = []
        self._last = 0
        self._sent_s = -EVERY_S
        self._changed = threading.Condition()

    @property
    def last(self) -> int:
        """The number of the newest event."""
        return self._last

    @property
    def is_empty(self) -> bool:
        """Tells whether all that was put is stored."""
        with self._changed:
            return not self._told

    def put(self, kind: str, claim: Claim | None, data: dict[str, Any], blobs: dict[str, bytes] | None = None) -> None:
        """Adds an event."""
        with self._changed:
            if kind in REPLACED:
                self._told = [one for one in self._told if (one.kind, one.claim) != (kind, claim)]
            self._last += 1
            self._told.append(Told(number=self._last, kind=kind, claim=claim, data=data, blobs=blobs or {}))
            self._changed.notify_all()

    def pull(self, after: int, *, wait_s: float) -> list[Told]:
        """Returns the events above a number, and forgets all others; waits for one if there is none yet.

        It waits no longer for company than for the first one.
        """
        with self._changed:
            self._told = [one for one in self._told if one.number > after]
            if not self._told:
                self._changed.wait(wait_s)
            if self._told:
                company_s = max(COMPANY_S, self._sent_s + EVERY_S - time.monotonic())
                self._changed.wait_for(lambda: any(one.kind in URGENT for one in self._told), min(wait_s, company_s))
                self._sent_s = time.monotonic()
            return [*self._told]
