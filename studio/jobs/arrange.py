"""Actions on an owner's whole queue: move a job, pause everything, cancel many, clear ended jobs from the list.

Every action concerns one owner's jobs alone: nobody moves, pauses or cancels somebody else's. Each change appends one
event `queue.changed`, after which a page reads its jobs anew.
"""

import time
from enum import StrEnum

from pipelines.messages import say
from studio import events
from studio.database import Database, Transaction
from studio.jobs.line.places import read_places
from studio.jobs.line.waiting_rows import IN_ORDER, list_waiting
from studio.jobs.queue import JobStateError, ask_to_end
from studio.jobs.states import JobState


class Scope(StrEnum):
    """Selects which of the owner's jobs an action applies to."""

    WAITING = "waiting"
    ALL = "all"


def place_before(database: Database, job_id: str, before: str | None, *, owner: str) -> None:
    """Moves a waiting job right before another one of the same owner, or to the end of the owner's line (None).

    The displayed order, with this one job moved, becomes the order of the queue.
    Raises JobStateError when either job is no longer waiting.
    """
    with database.write() as tx:
        own = {job.id for job in list_waiting(database) if job.owner == owner}
        for name in (job_id, before):
            if name is not None and name not in own:
                raise JobStateError(
                    say("Job {id} does not wait any more, so the order stays as it is.", id=name),
                    advice=say("Look at the queue as it is now, then move again."),
                )
        if before == job_id:
            return
        order = [waiting for waiting in read_places(database) if waiting in own]
        order.remove(job_id)
        order.insert(len(order) if before is None else order.index(before), job_id)
        positions = tx.execute(
            f"SELECT position FROM jobs WHERE state = ? AND owner = ? {IN_ORDER}", (JobState.QUEUED, owner)
        ).fetchall()
        places = [(row["position"], one) for row, one in zip(positions, order, strict=True)]
        tx.executemany("UPDATE jobs SET position = ? WHERE id = ?", places)
        tx.execute("UPDATE jobs SET is_placed = 1 WHERE id = ?", (job_id,))
        _tell(tx, owner)


def pause(database: Database, *, owner: str) -> None:
    """Pauses the owner's waiting jobs, which keep their places; a running job goes on."""
    with database.write() as tx:
        tx.execute("INSERT OR IGNORE INTO pauses (owner, at) VALUES (?, ?)", (owner, time.time()))
        _tell(tx, owner)


def resume(database: Database, *, owner: str) -> None:
    """Ends a pause."""
    with database.write() as tx:
        tx.execute("DELETE FROM pauses WHERE owner = ?", (owner,))
        _tell(tx, owner)


def is_paused(database: Database, *, owner: str) -> bool:
    return database.read_one("SELECT 1 FROM pauses WHERE owner = ?", (owner,)) is not None


def cancel_many(database: Database, scope: Scope, *, owner: str) -> int:
    """Cancels the owner's waiting jobs, or the running ones too; returns how many were asked to end."""
    states = (JobState.QUEUED,) if scope is Scope.WAITING else (JobState.QUEUED, JobState.RUNNING)
    names = ", ".join(f"'{state}'" for state in states)
    with database.write() as tx:
        rows = tx.execute(f"SELECT id FROM jobs WHERE owner = ? AND state IN ({names})", (owner,)).fetchall()
        for row in rows:
            ask_to_end(tx, row["id"])
    return len(rows)


def clear_ended(database: Database, *, owner: str) -> int:
    """Hides ended jobs from the queue's list, keeping them and their outputs; returns how many were hidden.

    Paused ones stay in sight: they are to go on.
    """
    finals = ", ".join(f"'{state}'" for state in JobState if state.is_final and state is not JobState.PAUSED)
    with database.write() as tx:
        count = tx.execute(
            f"UPDATE jobs SET is_cleared = 1 WHERE owner = ? AND NOT is_cleared AND state IN ({finals})", (owner,)
        ).rowcount
        if count:
            _tell(tx, owner)
    return count


def _tell(tx: Transaction, owner: str) -> None:
    is_held = tx.execute("SELECT 1 FROM pauses WHERE owner = ?", (owner,)).fetchone() is not None
    events.append(tx, kind="queue.changed", owner=owner, job_id=None, data={"is_paused": is_held})
