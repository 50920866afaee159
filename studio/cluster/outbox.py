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
EVERY_S = 0.1
"""The mean time between two calls while more happens: each takes 3 ms of a processor, from whoever computes too. People
read ten updates a second; up to SAVED calls that were not needed before come at once, so that seldom steps do."""
SAVED = 2
TURN = "turn"
"""What follows the end of a job at once, and goes with it."""


class Outbox:
    """Events in the order in which they happened. Any thread may put them; one client pulls."""

    def __init__(self) -> None:
        self._told: list[Told] = []
        self._last = 0
        self._due_s = 0.0  # when as many calls will have been made as time has passed for
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
                company_s = max(COMPANY_S, self._due_s - SAVED * EVERY_S - time.monotonic())
                self._changed.wait_for(lambda: self._holds(*URGENT), min(wait_s, company_s))
                if self._holds(*ENDS):
                    self._changed.wait_for(lambda: self._holds(TURN), min(wait_s, COMPANY_S))
                self._due_s = max(self._due_s, time.monotonic()) + EVERY_S
            return [*self._told]

    def _holds(self, *kinds: str) -> bool:
        return any(one.kind in kinds for one in self._told)
