"""A job as a row, and the one function that moves it from state to state.

Not here: who may ask for a move (queue.py for people, claims.py for the worker).
"""

import json
import sqlite3
import time
from dataclasses import dataclass, replace
from typing import Any

from pipelines.errors import LumeshError
from pipelines.messages import NOTHING, Message, add_codes, read_codes
from pipelines.recipes.recipe import Recipe
from studio import events
from studio.database import Transaction
from studio.jobs.costs import cost
from studio.jobs.states import MOVES, JobState
from studio.notes import read_notes

EVENT_OF_STATE = {
    JobState.QUEUED: "job.queued",
    JobState.RUNNING: "job.phase",
    JobState.DONE: "job.done",
    JobState.FAILED: "job.failed",
    JobState.CANCELLED: "job.cancelled",
    JobState.INTERRUPTED: "job.failed",
    JobState.PAUSED: "job.paused",
}

GENERATE = "generate"
"""The kind of a job that makes pictures or videos."""

TRAIN = "train"
"""The kind of a job that teaches a model; trainings.py has the rest of it."""

HELD = "id = :_id AND worker = :_worker AND attempt = :_attempt AND state = 'running'"
"""The SQL condition that matches a job's row only while the claim (Job.claim) holds: not after the job was ended,
requeued, or claimed again."""

# Column values of a job that has not begun. `attempt` is left out: it keeps counting.
UNSTARTED: dict[str, Any] = {
    "worker": None,
    "lease_until": None,
    "started_at": None,
    "finished_at": None,
    "phase": "",
    "phase_done": 0,
    "phase_total": 0,
    "phase_detail": "",
    "step": 0,
    "eta_s": None,
    "machine_share": 1.0,
    "held_s": 0.0,
    "held_from_s": None,
    "cancel_requested": 0,
    "compiles": None,
    "timings": "{}",
    "error": None,
}


@dataclass(frozen=True, kw_only=True)
class Card:
    """An error as people read it: what happened, with which value, what to do next."""

    title: Message
    detail: Message
    advice: Message

    @classmethod
    def of(cls, error: LumeshError) -> "Card":
        """Returns the card of an error that was raised on purpose."""
        return cls(title=error.title, detail=error.detail, advice=error.advice)

    def to_json(self) -> dict[str, Any]:
        return add_codes(vars(self))

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> "Card":
        """Undoes to_json."""
        return cls(**read_codes(fields))


@dataclass(frozen=True, kw_only=True)
class Job:
    """A request and its current state.

    For waiting jobs, `position` (1 is next), `eta_s`, its possible error `eta_error_s`, and `reason` depend on the
    whole queue; they are set only where jobs are listed.

    `programs` names the compiled programs that it needs: its shape, or `512x512 with 2 of 768x512`
    (pipelines/pictures/references.py). `revision` names the weights that made its outputs, if there are any.
    `chip_seconds` and `cost_usd` are updated at the end of each attempt (cost.py).

    `notes` are sentences on what of the recipe is not followed, such as words that the text encoder does not read.

    `title` is what people call a job that its prompt does not describe, such as a training; "" for others.

    `kind` selects the runner (worker/runners). `worker` is the worker that holds the job or held it to its end;
    `attempt` counts how often it was claimed. Both together are the claim, which every write for a running job names.
    """

    id: str
    kind: str
    owner: str
    state: JobState
    worker: str | None
    attempt: int
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
    eta_error_s: float | None
    position: int | None
    reason: Message
    compiles: int | None
    revision: str
    timings: dict[str, Any]
    error: dict[str, Any] | None
    outputs: list[dict[str, Any]]
    cancel_requested: bool
    programs: str
    is_placed: bool
    is_cleared: bool
    chip_seconds: float
    cost_usd: float | None
    notes: list[Message]
    title: str

    @classmethod
    def from_row(cls, row: sqlite3.Row) -> "Job":
        """Reads a full row of the table `jobs`."""
        return cls(
            id=row["id"],
            kind=row["kind"],
            owner=row["owner"],
            state=JobState(row["state"]),
            worker=row["worker"],
            attempt=row["attempt"],
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
            eta_error_s=None,
            position=None,
            reason=NOTHING,
            compiles=row["compiles"],
            revision=row["revision"],
            timings=json.loads(row["timings"]),
            error=json.loads(row["error"]) if row["error"] else None,
            outputs=json.loads(row["outputs"]),
            cancel_requested=bool(row["cancel_requested"]),
            programs=row["programs"],
            is_placed=bool(row["is_placed"]),
            is_cleared=bool(row["is_cleared"]),
            chip_seconds=row["chip_seconds"],
            cost_usd=row["cost_usd"],
            notes=read_notes(row["notes"]),
            title=row["title"],
        )

    @property
    def claim(self) -> dict[str, Any]:
        """The parameters of HELD."""
        return {"_id": self.id, "_worker": self.worker, "_attempt": self.attempt}

    def waiting(self, *, position: int, reason: Message, eta_s: float | None, eta_error_s: float | None) -> "Job":
        """Returns this job with the values that depend on the whole queue."""
        return replace(self, position=position, reason=reason, eta_s=eta_s, eta_error_s=eta_error_s)

    def to_json(self) -> dict[str, Any]:
        """Returns the Job of the REST contract."""
        return {
            **vars(self),
            "recipe": self.recipe.to_json(),
            **add_codes({"reason": self.reason, "notes": self.notes}),
        }


def move(tx: Transaction, job_id: str, to: JobState, **columns: Any) -> Job | None:
    """Moves a job to a state and sets `columns`; returns None when its current state does not allow the move.

    Writes the event with the whole job in the same transaction. A job that ends loses its preview and its lease.
    Workers, which may have lost the job meanwhile, call `end` instead.
    """
    sources = ", ".join(f"'{state}'" for state in MOVES[to])
    return _move(tx, to, columns, where=f"id = :_id AND state IN ({sources})", values={"_id": job_id})


def end(tx: Transaction, job: Job, to: JobState, **columns: Any) -> Job | None:
    """Ends a job for the worker that claimed it, as `move` does; returns None when the claim was lost."""
    return _move(tx, to, columns, where=HELD, values=job.claim)


def _move(tx: Transaction, to: JobState, columns: dict[str, Any], *, where: str, values: dict[str, Any]) -> Job | None:
    job_id, now_s = values["_id"], time.monotonic()
    if tx.execute(f"SELECT 1 FROM jobs WHERE {where}", values).fetchone() is None:
        return None
    if to.is_final:
        columns = {"finished_at": time.time(), "eta_s": None, "lease_until": None, **columns}
        columns |= cost.charge(tx, job_id, to, now_s=now_s)
        tx.execute("DELETE FROM previews WHERE job_id = ?", (job_id,))
    assignments = ", ".join(f"{name} = :{name}" for name in ("state", *columns))
    row = tx.execute(
        f"UPDATE jobs SET {assignments} WHERE id = :_id RETURNING *", {**columns, "state": to, "_id": job_id}
    ).fetchone()
    if to in (JobState.CANCELLED, JobState.FAILED):
        cost.share_machine(tx, row["worker"], now_s=now_s)
    job = Job.from_row(row)
    append_event(tx, job, EVENT_OF_STATE[to])
    return job


def append_event(tx: Transaction, job: Job, kind: str) -> None:
    """Appends an event that carries the whole job."""
    events.append(tx, kind=kind, owner=job.owner, job_id=job.id, data={"state": job.state, "job": job.to_json()})
