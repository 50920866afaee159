"""A job as a row, and the one function that moves it from state to state.

Not here: who may ask for a move (queue.py for people, claims.py for the worker).
"""

import json
import sqlite3
import time
from dataclasses import dataclass, replace
from typing import Any

from pipelines.errors import LumeshError
from pipelines.recipe import Recipe
from studio.database import Transaction
from studio.jobs import events
from studio.jobs.states import MOVES, JobState

LOCAL_OWNER = "local"  # everybody, as long as nobody logs in

EVENT_OF_STATE = {
    JobState.QUEUED: "job.queued",
    JobState.RUNNING: "job.phase",
    JobState.DONE: "job.done",
    JobState.FAILED: "job.failed",
    JobState.CANCELLED: "job.cancelled",
    JobState.INTERRUPTED: "job.failed",
}


@dataclass(frozen=True, kw_only=True)
class Card:
    """An error as people read it: what happened, with which value, what to do next."""

    title: str
    detail: str
    advice: str

    @classmethod
    def of(cls, error: LumeshError) -> "Card":
        """The card of an error that was raised on purpose."""
        return cls(title=error.title, detail=error.detail, advice=error.advice)

    def to_json(self) -> dict[str, str]:
        return vars(self).copy()


@dataclass(frozen=True, kw_only=True)
class Job:
    """What somebody asked for and where it stands. `eta_s` and `reason` of a waiting job are known only to lists."""

    id: str
    owner: str
    state: JobState
    recipe: Recipe
    created_at: float
    started_at: float | None
    finished_at: float | None
    phase: str
    phase_done: int
    phase_total: int
    phase_detail: str
    step: int
    steps: int
    eta_s: float | None
    reason: str
    compiles: int | None
    timings: dict[str, float]
    error: dict[str, str] | None
    outputs: list[dict[str, Any]]
    overtaken: int
    cancel_requested: bool

    @classmethod
    def from_row(cls, row: sqlite3.Row) -> "Job":
        """Reads a full row of the table `jobs`."""
        return cls(
            id=row["id"],
            owner=row["owner"],
            state=JobState(row["state"]),
            recipe=Recipe.model_validate_json(row["recipe"]),
            created_at=row["created_at"],
            started_at=row["started_at"],
            finished_at=row["finished_at"],
            phase=row["phase"],
            phase_done=row["phase_done"],
            phase_total=row["phase_total"],
            phase_detail=row["phase_detail"],
            step=row["step"],
            steps=row["steps"],
            eta_s=row["eta_s"],
            reason="",
            compiles=row["compiles"],
            timings=json.loads(row["timings"]),
            error=json.loads(row["error"]) if row["error"] else None,
            outputs=json.loads(row["outputs"]),
            overtaken=row["overtaken"],
            cancel_requested=bool(row["cancel_requested"]),
        )

    def waiting(self, *, reason: str, eta_s: float | None) -> "Job":
        """This job with what only the whole queue can say."""
        return replace(self, reason=reason, eta_s=eta_s)

    def to_json(self) -> dict[str, Any]:
        """The Job of the REST contract."""
        return {**vars(self), "recipe": self.recipe.to_json()}


def move(tx: Transaction, job_id: str, to: JobState, **columns: Any) -> Job | None:
    """Moves a job and sets `columns` with it; None when the job is not in a state that allows the move.

    Writes the event with the whole job in the same transaction. A job that ends loses its preview.
    """
    if to.is_final:
        columns = {"finished_at": time.time(), "eta_s": None, **columns}
        tx.execute("DELETE FROM previews WHERE job_id = ?", (job_id,))
    assignments = ", ".join(f"{name} = :{name}" for name in columns)
    sources = ", ".join(f"'{state}'" for state in MOVES[to])
    row = tx.execute(
        f"UPDATE jobs SET state = :_to{', ' if assignments else ''}{assignments} "
        f"WHERE id = :_id AND state IN ({sources}) RETURNING *",
        {**columns, "_to": to, "_id": job_id},
    ).fetchone()
    if row is None:
        return None
    job = Job.from_row(row)
    append_event(tx, job, EVENT_OF_STATE[to])
    return job


def append_event(tx: Transaction, job: Job, kind: str) -> None:
    """An event that carries the whole job."""
    events.append(tx, kind=kind, owner=job.owner, job_id=job.id, data={"state": job.state, "job": job.to_json()})
