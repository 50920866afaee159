"""What is wrong with the studio right now, as its own parts notice it: the worker's supervisor and the services.

Each part notes its problem, and clears it once its work succeeds again. GET /health tells all of them (problems.py).
"""

import threading

from pipelines.messages import english, say
from studio.jobs.job import Card
from studio.storage import explain


class Condition:
    """The problems of one process, by the part that has them; any thread may note and read them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._problems: dict[str, Card] = {}

    def note(self, part: str, card: Card) -> None:
        """Notes what is wrong with a part, in place of what was wrong before."""
        with self._lock:
            self._problems[part] = card

    def clear(self, part: str) -> None:
        """Forgets a part's problem: its work succeeded."""
        with self._lock:
            self._problems.pop(part, None)

    def list_cards(self) -> list[Card]:
        """Returns every present problem."""
        with self._lock:
            return [*self._problems.values()]


def describe_failure(part: str, error: Exception) -> Card:
    """Words a part's failure: a full disk as such, anything else by its kind."""
    told = explain(error)
    if told is not None:
        return Card.of(told)
    return Card(
        title=say("A part of the server fails"),
        detail=english(f"{part}: {type(error).__name__}."),
        advice=say("It is tried again by itself; the terminal that runs the server shows the details."),
    )
