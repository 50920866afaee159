"""A wish to stop a training. Importable without jax."""

import threading
import time
from dataclasses import dataclass, field


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
