"""A wish to stop a training. Importable without jax."""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pipelines.runtime.devices import hosts


@dataclass
class Stop:
    """A wish to stop, which a signal, another thread, or a time limit sets."""

    reason: str = ""
    _event: threading.Event = field(default_factory=threading.Event)
    _ends_at: float | None = None

    def ask(self, reason: str) -> None:
        self.reason = self.reason or reason
        self._event.set()

    def limit(self, seconds: float | None) -> None:
        """Asks to stop so many seconds from now; None is never."""
        self._ends_at = None if seconds is None else time.monotonic() + seconds

    @property
    def is_asked(self) -> bool:
        if self._ends_at is not None and time.monotonic() > self._ends_at:
            self.ask("time limit")
        return self._event.is_set()

    def ask_all(self, topic: str) -> bool:
        """Returns whether one of the hosts was told to stop, which all are then; all must ask.

        What this host hears while it waits for the others counts at the next question: otherwise it would leave alone,
        and the others wait for it.
        """
        return self.hear(hosts.collect(topic, [self.is_asked, self.reason]))

    def hear(self, said: Sequence[Sequence[Any]]) -> bool:
        """Takes what each host said of its wish and the reason, and returns whether there was one."""
        for number, (is_asked, reason, *_) in enumerate(said):
            if is_asked:
                self.ask(reason if number == 0 else f"{reason}, host {number}")
        return any(is_asked for is_asked, *_ in said)
