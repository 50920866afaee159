"""What happened, as rows with contiguous ids: the memory behind every live view.

A row is appended in the transaction of the change it tells of, so a reader who has seen event N knows everything up to
it, and a browser that comes back asks for what came after. Ids never have gaps: they end where the table ends.
Not here: streaming to browsers (api/routes/events.py).
"""

import json
import sqlite3
import time
from dataclasses import dataclass
from typing import Any

from studio.database import Database, Transaction

KEPT_EVENTS = 20_000  # about 300 pictures' worth of steps; older ones are of no use to a page that comes back
EVERYBODY = ""
"""The owner of events that are nobody's: the engine's."""


@dataclass(frozen=True, kw_only=True)
class Event:
    """One thing that happened. `data` is JSON text: events are stored once and sent many times."""

    id: int
    kind: str
    owner: str
    job_id: str | None
    at: float
    data: str

    def to_json(self) -> dict[str, Any]:
        """`id`, `kind`, `job_id`, `at`, and the fields of `data` beside them."""
        return {"id": self.id, "kind": self.kind, "job_id": self.job_id, "at": self.at, **json.loads(self.data)}


def append(tx: Transaction, *, kind: str, owner: str, job_id: str | None, data: dict[str, Any]) -> None:
    """Appends an event to the transaction of the change it tells of."""
    tx.execute(
        "INSERT INTO events (kind, owner, job_id, at, data) VALUES (?, ?, ?, ?, ?)",
        (kind, owner, job_id, time.time(), json.dumps(data, separators=(",", ":"))),
    )


def read_after(database: Database, after: int, *, limit: int = 1000) -> list[Event]:
    """Events with an id above `after`, oldest first."""
    rows = database.read("SELECT * FROM events WHERE id > ? ORDER BY id LIMIT ?", (after, limit))
    return [_from_row(row) for row in rows]


def read_last_id(database: Database) -> int:
    """The id of the newest event; 0 when nothing ever happened."""
    row = database.read_one("SELECT max(id) AS id FROM events")
    return row["id"] or 0 if row else 0


def forget_old(database: Database) -> None:
    """Drops the oldest events; the ids that remain are still contiguous."""
    with database.write() as tx:
        tx.execute("DELETE FROM events WHERE id <= (SELECT max(id) FROM events) - ?", (KEPT_EVENTS,))


def _from_row(row: sqlite3.Row) -> Event:
    return Event(**row)
