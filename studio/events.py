"""The event log, rows with contiguous ids, from which every live view is updated.

An event is appended in the transaction of its change, so a reader who has seen event N knows every change up to it, and
a browser that reconnects asks for later ones. Ids never have gaps: the last id is that of the table's last row.
Not here: streaming to browsers (api/routes/events.py).
"""

import json
import sqlite3
import time
from dataclasses import dataclass
from typing import Any

from studio.database import Database, Transaction

KEPT_EVENTS = 20_000  # the steps of about 300 pictures; a page that reconnects needs no older ones
EVERYBODY = ""
"""The owner of the engine's events, which go to everybody."""


@dataclass(frozen=True, kw_only=True)
class Event:
    """An event. `data` is JSON text, because events are stored once and sent many times."""

    id: int
    kind: str
    owner: str
    job_id: str | None
    at: float
    data: str

    def to_json(self) -> dict[str, Any]:
        """Returns `id`, `kind`, `job_id` and `at`, together with the fields of `data`."""
        return {"id": self.id, "kind": self.kind, "job_id": self.job_id, "at": self.at, **json.loads(self.data)}


def append(tx: Transaction, *, kind: str, owner: str, job_id: str | None, data: dict[str, Any]) -> None:
    """Appends an event in the transaction of its change."""
    tx.execute(
        "INSERT INTO events (kind, owner, job_id, at, data) VALUES (?, ?, ?, ?, ?)",
        (kind, owner, job_id, time.time(), json.dumps(data, separators=(",", ":"))),
    )


def read_after(database: Database, after: int, *, limit: int = 1000) -> list[Event]:
    """Reads events with an id above `after`, oldest first."""
    rows = database.read("SELECT * FROM events WHERE id > ? ORDER BY id LIMIT ?", (after, limit))
    return [_from_row(row) for row in rows]


def read_last_id(database: Database) -> int:
    """Returns the id of the newest event; 0 when there is none yet."""
    row = database.read_one("SELECT max(id) AS id FROM events")
    return row["id"] or 0 if row else 0


def forget_old(database: Database) -> None:
    """Deletes the oldest events; the remaining ids are still contiguous."""
    with database.write() as tx:
        tx.execute("DELETE FROM events WHERE id <= (SELECT max(id) FROM events) - ?", (KEPT_EVENTS,))


def _from_row(row: sqlite3.Row) -> Event:
    return Event(**dict(row))
