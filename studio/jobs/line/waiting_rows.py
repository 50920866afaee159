"""The waiting jobs as the database has them: what the worker claims from, and what people are told about.

Both sides read the line here, so a place that somebody was shown is the place that counts.
Not here: who is next (order.py).
"""

from studio.database import Database
from studio.jobs.line.order import Line, Waiting
from studio.jobs.states import JobState

IN_ORDER = "ORDER BY position, rowid"

_JOBS = f"SELECT id, model, owner, overtaken, is_placed FROM jobs WHERE state = ? {IN_ORDER}"

# Served longest ago first: since then, or since they came, their jobs wait.
_OWNERS = """
SELECT owner FROM jobs WHERE state = ? AND owner NOT IN (SELECT owner FROM pauses)
GROUP BY owner
ORDER BY max(min(queued_at), coalesce((SELECT max(ran.started_at) FROM jobs AS ran WHERE ran.owner = jobs.owner), 0))
"""


def read_line(database: Database) -> Line:
    """Everybody who waits; inside a transaction of this thread, as it stands there."""
    return Line(
        jobs=[
            Waiting(
                id=row["id"],
                model=row["model"],
                owner=row["owner"],
                overtaken=row["overtaken"],
                is_placed=bool(row["is_placed"]),
            )
            for row in database.read(_JOBS, (JobState.QUEUED,))
        ],
        owners=[row["owner"] for row in database.read(_OWNERS, (JobState.QUEUED,))],
    )
