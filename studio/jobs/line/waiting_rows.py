"""The waiting jobs as rows of the database, for claiming and for showing.

Both sides read the line here, so the displayed place is the one that counts.
Not here: which job is next (order.py), keeping a line while rows change (standing.py).
"""

import sqlite3
from collections.abc import Iterable

from studio.database import Database
from studio.jobs.job import TRAIN
from studio.jobs.line.order import Line, Waiting
from studio.jobs.states import JobState

IN_ORDER = "ORDER BY position, rowid"

# A training needs no resident model and leaves none, so it neither overtakes for one nor counts as of one.
COLUMNS = f"id, rowid, iif(kind = '{TRAIN}', '', model) AS model, owner, position, queued_at, is_placed"
SERVED = "SELECT owner, max(started_at) AS at FROM jobs WHERE started_at IS NOT NULL GROUP BY owner"


def make_waiting(row: sqlite3.Row) -> Waiting:
    """Reads a row with COLUMNS."""
    return Waiting(
        id=row["id"],
        model=row["model"],
        owner=row["owner"],
        place=(row["position"], row["rowid"]),
        queued_at=row["queued_at"],
        is_placed=bool(row["is_placed"]),
    )


def list_waiting(database: Database) -> Iterable[Waiting]:
    """Reads all waiting jobs in the order of the queue; inside a transaction of this thread, with its changes."""
    rows = database.read(f"SELECT {COLUMNS} FROM jobs WHERE state = ? {IN_ORDER}", (JobState.QUEUED,))
    return [make_waiting(row) for row in rows]


def read_line(database: Database) -> Line:
    """Reads the whole line."""
    return Line(
        list_waiting(database),
        served={row["owner"]: row["at"] for row in database.read(SERVED)},
        paused=[row["owner"] for row in database.read("SELECT owner FROM pauses")],
    )
