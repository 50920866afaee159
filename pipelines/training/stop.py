"""A wish to stop a training. Importable without jax."""

import threading
from dataclasses import dataclass, field


@dataclass
class Stop:
    """A wish to stop, which a signal, another thread, or a time limit sets."""

    reason: str = ""
    _event: threading.Event = field(default_factory=threading.Event)

    def ask(self, reason: str) -> None:
        self.reason = self.reason or reason
        self._event.set()

    @property
    def is_asked(self) -> bool:
        return self._event.is_set()
