"""What people do with their whole line: put a job elsewhere, hold everything, cancel many, clear what has ended.

All of it concerns one owner's jobs alone: nobody moves, holds or cancels somebody else's. Each change is told as one
event `queue.changed`, after which a page reads its jobs anew.
"""

import time
from enum import StrEnum

from studio import events
from studio.database import Database, Transaction
from studio.jobs.line.places import read_places
from studio.jobs.line.waiting_rows import IN_ORDER, read_line
from studio.jobs.queue import JobStateError, ask_to_end
from studio.jobs.states import JobState


class Scope(StrEnum):
    """Which of the owner's jobs are meant."""

    WAITING = "waiting"
    ALL = "all"


def place_before(database: Database, job_id: str, before: str | None, *, owner: str) -> None:
    """Puts a waiting job right before another one of the same owner, or at the end of the owner's line (None).

    The order that people see is the one that counts: it becomes the order of the queue with this one job moved.
    Raises JobStateError when one of the two waits no longer.
    """
    with database.write() as tx:
        line = read_line(database)
        own = {job.id for job in line.jobs if job.owner == owner}
        for name in (job_id, before):
            if name is not None and name not in own:
                raise JobStateError(
                    f"Job {name} does not wait any more, so the order stays as it is.",
                    advice="Look at the queue as it is now, then move again.",
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
    """The owner's waiting jobs stay where they are; one that runs goes on."""
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
    """Cancels the owner's waiting jobs, or also the one that runs; returns how many were asked to end."""
    states = (JobState.QUEUED,) if scope is Scope.WAITING else (JobState.QUEUED, JobState.RUNNING)
    names = ", ".join(f"'{state}'" for state in states)
    with database.write() as tx:
        rows = tx.execute(f"SELECT id FROM jobs WHERE owner = ? AND state IN ({names})", (owner,)).fetchall()
        for row in rows:
            ask_to_end(tx, row["id"])
    return len(rows)


def clear_ended(database: Database, *, owner: str) -> int:
    """Takes ended jobs off the queue's list; they and their pictures stay. Returns how many there were."""
    finals = ", ".join(f"'{state}'" for state in JobState if state.is_final)
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
