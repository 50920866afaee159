"""A worker's side of the queue: claim the next job, report its progress, end it.

A claimed row names its worker and its attempt, which together are a fencing token: every statement checks both
(job.HELD), so a worker that lost its job (a server restarted, a supervisor gave the worker up, another attempt began)
notices instead of overwriting newer state. Ending or requeueing a worker's jobs touches only that worker's jobs.
"""

import json
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

from pipelines.messages import Message, say
from pipelines.recipes.recipe import Recipe
from pipelines.stages import STEP_PHASES, Progress
from studio import events
from studio.database import Database, Transaction
from studio.jobs.costs import cost
from studio.jobs.job import HELD, TRAIN, UNSTARTED, Card, Job, end, move
from studio.jobs.line.batch_join import Share, choose_company
from studio.jobs.line.order import Waiting
from studio.jobs.line.standing import follow
from studio.jobs.states import JobState
from studio.jobs.workers import LEASE_S, LOCAL
from studio.notes import write_notes

MAX_LOST = 2
"""So many machines may be lost while they make a job before it is failed instead of begun again."""

LOST = Card(
    title=say("Two machines were lost while making this"),
    detail=say("Each stopped answering while it ran this job, so it may be the job that ends them."),
    advice=say("Choose a smaller size or fewer pictures at once; retry once those machines are well."),
)

INTERRUPTED = Card(
    title=say("Interrupted"),
    detail=say("The server stopped while this job was running."),
    advice=say("Retry runs it again with the same settings and seed."),
)

INTERRUPTED_TRAINING = Card(
    title=say("Interrupted"),
    detail=say("The server stopped while this training was running."),
    advice=say("Go on continues from its last saved step."),
)


def find_next_model(database: Database, worker: str = LOCAL, *, resident: str | None) -> str | None:
    """Returns the model of the job that this worker would get now, or None when it would get none."""
    chosen = follow(database).choose(database, worker, resident)
    return chosen.model if chosen else None


def claim_next(database: Database, worker: str = LOCAL, *, resident: str | None) -> Job | None:
    """Claims the next job for a worker with this resident model (line/order.py); None when it gets none now."""
    standing = follow(database)
    if standing.choose(database, worker, resident) is None:
        return None  # without the write lock: an idle worker polls 20 times a second
    with database.write() as tx:
        chosen = standing.choose(database, worker, resident)
        return None if chosen is None else _take(tx, chosen.id, worker, now_s=time.monotonic())


def claim_others(database: Database, job: Job, *, room: int) -> list[Job]:
    """Claims waiting jobs, in turn, that can run as one batch with a claimed job, for at most `room` more outputs.

    They delay nobody, whomever they pass. From now on all jobs of the batch share the cost of the worker's machine.
    Returns none when the worker no longer holds the first job.
    """
    kind = Share.of(job.kind, job.recipe, job.programs).kind
    if kind is None or room <= 0 or job.worker is None:
        return []
    now_s = time.monotonic()
    with database.write() as tx:  # the write lock keeps the line unchanged while it is searched
        if not is_held(tx, job):
            return []

        def look(waiting: Waiting) -> Share:
            row = tx.execute("SELECT kind, recipe, programs FROM jobs WHERE id = ?", (waiting.id,)).fetchone()
            return Share.of(row["kind"], Recipe.model_validate_json(row["recipe"]), row["programs"])

        first = Waiting(id=job.id, model=job.recipe.model)
        turns = follow(database).take_turns(database, first.model)
        company = choose_company(first, kind, turns, room=room, look=look)
        taken = [_take(tx, waiting.id, job.worker, now_s=now_s) for waiting in company]
        if taken:
            cost.share_machine(tx, job.worker, now_s=now_s)
    return [other for other in taken if other is not None]


def report(database: Database, job: Job, progress: Progress, *, eta_s: float | None) -> bool:
    """Stores a job's progress and renews its lease; False when the job was cancelled or its claim was lost."""
    is_step = progress.phase in STEP_PHASES
    with database.write() as tx:
        row = tx.execute(
            "UPDATE jobs SET phase = :phase, phase_done = :done, phase_total = :total, phase_detail = :detail, "
            "step = CASE WHEN :is_step THEN :done ELSE step END, eta_s = :eta_s, lease_until = :lease_until "
            f"WHERE {HELD} RETURNING step, steps, cancel_requested",
            {
                **job.claim,
                "phase": progress.phase,
                "done": progress.done,
                "total": progress.total,
                "detail": progress.detail,
                "is_step": is_step,
                "eta_s": eta_s,
                "lease_until": time.time() + LEASE_S,
            },
        ).fetchone()
        if row is None or row["cancel_requested"]:
            return False
        data = {
            "state": JobState.RUNNING,
            "phase": progress.phase,
            "phase_done": progress.done,
            "phase_total": progress.total,
            "phase_detail": progress.detail,
            "step": row["step"],
            "steps": row["steps"],
            "eta_s": eta_s,
        }
        kind = "job.step" if is_step else "job.phase"
        events.append(tx, kind=kind, owner=job.owner, job_id=job.id, data=data)
    return True


def is_wanted(database: Database, job: Job) -> bool:
    """Tells whether the worker still holds the job and nobody cancelled it; reads only."""
    row = database.read_one(f"SELECT cancel_requested FROM jobs WHERE {HELD}", job.claim)
    return row is not None and not row["cancel_requested"]


def save_preview(database: Database, job: Job, jpeg: bytes) -> None:
    """Replaces the job's latest preview, if its worker still holds the job."""
    with database.write() as tx:
        row = tx.execute(
            f"INSERT INTO previews (job_id, version, jpeg) SELECT id, 1, :jpeg FROM jobs WHERE {HELD} "
            "ON CONFLICT (job_id) DO UPDATE SET version = version + 1, jpeg = excluded.jpeg RETURNING version",
            {**job.claim, "jpeg": jpeg},
        ).fetchone()
        if row is not None:
            data = {"version": row["version"], "url": f"/api/v1/jobs/{job.id}/preview.jpg?v={row['version']}"}
            events.append(tx, kind="job.preview", owner=job.owner, job_id=job.id, data=data)


def is_held(tx: Transaction, job: Job) -> bool:
    """Tells whether the worker that claimed the job still holds it."""
    return tx.execute(f"SELECT 1 FROM jobs WHERE {HELD}", job.claim).fetchone() is not None


def is_taken_over(database: Database, job: Job) -> bool:
    """Tells whether a later attempt at this job runs or made its outputs."""
    found = database.read_one(
        "SELECT 1 FROM jobs WHERE id = ? AND attempt > ? AND state IN (?, ?)",
        (job.id, job.attempt, JobState.RUNNING, JobState.DONE),
    )
    return found is not None


def finish(
    tx: Transaction,
    job: Job,
    *,
    outputs: list[dict[str, Any]],
    timings: dict[str, Any],
    compiles: int,
    revision: str,
    notes: Sequence[Message] = (),
) -> Job | None:
    """Marks a job as done, in the transaction that stores its outputs; None when the claim was lost: store nothing.

    `notes` join those that the job was queued with.
    """
    return end(
        tx,
        job,
        JobState.DONE,
        outputs=json.dumps(outputs),
        timings=json.dumps(timings),
        compiles=compiles,
        revision=revision,
        notes=write_notes((*job.notes, *notes)),
    )


def fail(database: Database, job: Job, card: Card) -> None:
    """Marks a job as failed, with a card that says what happened and what to try."""
    with database.write() as tx:
        end(tx, job, JobState.FAILED, error=json.dumps(card.to_json()))


def end_cancelled(database: Database, job: Job) -> None:
    """Ends a running job that somebody cancelled."""
    with database.write() as tx:
        end(tx, job, JobState.CANCELLED)


def fail_running(database: Database, card: Card, worker: str = LOCAL) -> None:
    """Fails the jobs of a worker that died. Only its supervisor calls this, once the process is certainly gone."""
    _end_running(database, worker, JobState.FAILED, lambda _kind: card)


def interrupt_running(database: Database, worker: str = LOCAL) -> None:
    """Interrupts the jobs that an earlier server's worker left. The worker must not be running (worker/lock.py)."""
    _end_running(database, worker, JobState.INTERRUPTED, _choose_interrupted)


def has_running(database: Database, worker: str = LOCAL) -> bool:
    """Tells whether the worker holds a job."""
    running = "SELECT 1 FROM jobs WHERE state = ? AND worker = ?"
    return database.read_one(running, (JobState.RUNNING, worker)) is not None


def list_running(database: Database) -> set[str]:
    """Returns the ids of all jobs that some worker holds."""
    return {row["id"] for row in database.read("SELECT id FROM jobs WHERE state = ?", (JobState.RUNNING,))}


def requeue_running(
    database: Database, worker: str = LOCAL, *, is_lost: bool = False, only: Collection[tuple[str, int]] | None = None
) -> None:
    """Requeues a worker's unfinished jobs at the front, as if they had never begun. It must not run them any more.

    `only` are the ids and attempts of those that are meant; None: all. Jobs for which a cancellation was requested end
    as cancelled. `is_lost`: the machine that ran them is lost, and a job that loses MAX_LOST of them fails.
    """
    with database.write() as tx:
        first = tx.execute("SELECT min(position) FROM jobs WHERE state = ?", (JobState.QUEUED,)).fetchone()[0]
        rows = tx.execute(
            "SELECT id, attempt, lost, cancel_requested FROM jobs WHERE state = ? AND worker = ? "
            "ORDER BY position, rowid",
            (JobState.RUNNING, worker),
        ).fetchall()
        meant = [row for row in rows if only is None or (row["id"], row["attempt"]) in only]
        for position, row in enumerate(meant, start=(first or 0) - len(meant)):
            lost = row["lost"] + is_lost
            if row["cancel_requested"]:
                move(tx, row["id"], JobState.CANCELLED)
            elif lost >= MAX_LOST:
                move(tx, row["id"], JobState.FAILED, error=json.dumps(LOST.to_json()), lost=lost)
            else:
                tx.execute("DELETE FROM previews WHERE job_id = ?", (row["id"],))
                move(tx, row["id"], JobState.QUEUED, position=position, lost=lost, **UNSTARTED)


def list_claims(database: Database, worker: str) -> list[Job]:
    """Returns the jobs that a worker holds."""
    found = database.read("SELECT * FROM jobs WHERE state = ? AND worker = ?", (JobState.RUNNING, worker))
    return [Job.from_row(row) for row in found]


def list_unwanted(database: Database) -> list[tuple[str, str, int]]:
    """Returns worker, id and attempt of running jobs that somebody cancelled."""
    rows = database.read(
        "SELECT worker, id, attempt FROM jobs WHERE state = ? AND cancel_requested", (JobState.RUNNING,)
    )
    return [(row["worker"], row["id"], row["attempt"]) for row in rows]


def list_overdue(database: Database, *, now: float) -> list[str]:
    """Returns the workers that hold a job whose lease is over."""
    rows = database.read(
        "SELECT DISTINCT worker FROM jobs WHERE state = ? AND lease_until < ?", (JobState.RUNNING, now)
    )
    return [row["worker"] for row in rows]


def _take(tx: Transaction, job_id: str, worker: str, *, now_s: float) -> Job | None:
    """Claims a job at `now_s` of the monotonic clock."""
    now = time.time()
    attempt = tx.execute("SELECT attempt + 1 FROM jobs WHERE id = ?", (job_id,)).fetchone()[0]
    return move(
        tx,
        job_id,
        JobState.RUNNING,
        started_at=now,
        held_from_s=now_s,
        worker=worker,
        attempt=attempt,
        lease_until=now + LEASE_S,
    )


def _choose_interrupted(kind: str) -> Card:
    return INTERRUPTED_TRAINING if kind == TRAIN else INTERRUPTED


def _end_running(database: Database, worker: str, to: JobState, choose_card: Callable[[str], Card]) -> None:
    """Ends a worker's jobs; `choose_card` returns what is said of one of this kind."""
    running = "SELECT id, kind FROM jobs WHERE state = ? AND worker = ?"
    with database.write() as tx:
        for row in tx.execute(running, (JobState.RUNNING, worker)).fetchall():
            move(tx, row["id"], to, error=json.dumps(choose_card(row["kind"]).to_json()))
