"""The waiting jobs as rows of the database, for claiming and for showing.

Both sides read the line here, so the displayed place is the one that counts.
Not here: which job is next (order.py).
"""

from studio.database import Database
from studio.jobs.job import TRAIN
from studio.jobs.line.order import Line, Waiting
from studio.jobs.states import JobState

IN_ORDER = "ORDER BY position, rowid"

# A training needs no resident model and leaves none, so it neither overtakes for one nor counts as of one.
_JOBS = f"""
SELECT id, iif(kind = '{TRAIN}', '', model) AS model, owner, overtaken, is_placed FROM jobs WHERE state = ? {IN_ORDER}
"""

# Owners served longest ago come first; an owner counts as served at their last start or their oldest waiting job's
# arrival, whichever is later.
_OWNERS = """
SELECT owner FROM jobs WHERE state = ? AND owner NOT IN (SELECT owner FROM pauses)
GROUP BY owner
ORDER BY max(min(queued_at), coalesce((SELECT max(ran.started_at) FROM jobs AS ran WHERE ran.owner = jobs.owner), 0))
"""


def read_line(database: Database) -> Line:
    """Reads all waiting jobs; inside a transaction of this thread, it sees that transaction's changes."""
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
