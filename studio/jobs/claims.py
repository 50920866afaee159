"""The worker's side of the queue: take the next job, tell how far it is, end it.

Every statement names the state it expects, so a worker that lost its job (server restarted, supervisor gave it up)
finds that out instead of overwriting what was decided meanwhile.
"""

import json
import time
from typing import Any

from pipelines.recipe import Recipe
from pipelines.stages import Progress
from studio import events
from studio.database import Database, Transaction
from studio.jobs.costs import cost
from studio.jobs.job import UNSTARTED, Card, Job, move
from studio.jobs.line.batch_join import Share, choose_company
from studio.jobs.line.order import Waiting, choose_next, take_turns
from studio.jobs.line.waiting_rows import read_line
from studio.jobs.states import JobState

INTERRUPTED = Card(
    title="Interrupted",
    detail="The server stopped while this job was running.",
    advice="Retry runs it again with the same settings and seed.",
)


def find_next_model(database: Database, *, resident: str | None) -> str | None:
    """The model of the job that would be claimed now; None when nobody waits."""
    chosen = choose_next(read_line(database), resident)
    return chosen.model if chosen else None


def claim_next(database: Database, *, resident: str | None) -> Job | None:
    """Takes the job whose turn it is (order.py) and counts whom it overtook; None when nobody waits."""
    if not read_line(database).owners:  # without the write lock, which an idle worker must not take 20 times a second
        return None
    with database.write() as tx:
        line = read_line(database)
        chosen = choose_next(line, resident)
        if chosen is None:
            return None
        turns = take_turns(line)
        overtaken = [(job.id,) for job in turns[: turns.index(chosen)]]
        tx.executemany("UPDATE jobs SET overtaken = overtaken + 1 WHERE id = ?", overtaken)
        return move(tx, chosen.id, JobState.RUNNING, started_at=time.time())


def claim_others(database: Database, job: Job, *, room: int) -> list[Job]:
    """Takes waiting jobs that can run as one batch with a running one, for `room` outputs in all, in turn.

    Nobody waits longer for them, so whom they pass is not counted as overtaken. From now on all share the machine.
    """
    kind = Share.of(job.recipe, job.programs).kind
    if kind is None or room <= 0:
        return []
    now = time.time()
    with database.write() as tx:  # nobody else writes while it looks ahead

        def look(waiting: Waiting) -> Share:
            row = tx.execute("SELECT recipe, programs FROM jobs WHERE id = ?", (waiting.id,)).fetchone()
            return Share.of(Recipe.model_validate_json(row["recipe"]), row["programs"])

        first = Waiting(id=job.id, model=job.recipe.model)
        company = choose_company(first, kind, take_turns(read_line(database)), room=room, look=look)
        moved = [move(tx, waiting.id, JobState.RUNNING, started_at=now) for waiting in company]
        if moved:
            cost.share_machine(tx, since=now)
    return [job for job in moved if job is not None]


def report(database: Database, job: Job, progress: Progress, *, eta_s: float | None) -> bool:
    """Stores where the job stands; False when it must end, because somebody cancelled it or it is no longer ours."""
    is_step = progress.phase == "denoising"
    with database.write() as tx:
        row = tx.execute(
            "UPDATE jobs SET phase = :phase, phase_done = :done, phase_total = :total, phase_detail = :detail, "
            "step = CASE WHEN :is_step THEN :done ELSE step END, eta_s = :eta_s "
            "WHERE id = :id AND state = :running RETURNING step, steps, cancel_requested",
            {
                "phase": progress.phase,
                "done": progress.done,
                "total": progress.total,
                "detail": progress.detail,
                "is_step": is_step,
                "eta_s": eta_s,
                "id": job.id,
                "running": JobState.RUNNING,
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


def save_preview(database: Database, job: Job, jpeg: bytes) -> None:
    """Replaces the job's latest preview, unless the job has ended meanwhile."""
    with database.write() as tx:
        row = tx.execute(
            "INSERT INTO previews (job_id, version, jpeg) SELECT id, 1, ? FROM jobs WHERE id = ? AND state = ? "
            "ON CONFLICT (job_id) DO UPDATE SET version = version + 1, jpeg = excluded.jpeg RETURNING version",
            (jpeg, job.id, JobState.RUNNING),
        ).fetchone()
        if row is not None:
            data = {"version": row["version"], "url": f"/api/v1/jobs/{job.id}/preview.jpg?v={row['version']}"}
            events.append(tx, kind="job.preview", owner=job.owner, job_id=job.id, data=data)


def finish(
    tx: Transaction,
    job: Job,
    *,
    outputs: list[dict[str, Any]],
    timings: dict[str, Any],
    compiles: int,
    revision: str,
) -> Job | None:
    """Ends a job well, in the transaction that stores its outputs."""
    return move(
        tx,
        job.id,
        JobState.DONE,
        outputs=json.dumps(outputs),
        timings=json.dumps(timings),
        compiles=compiles,
        revision=revision,
    )


def fail(database: Database, job_id: str, card: Card) -> None:
    """Ends a job with a card that says what happened and what to try."""
    with database.write() as tx:
        move(tx, job_id, JobState.FAILED, error=json.dumps(card.to_json()))


def end_cancelled(database: Database, job_id: str) -> None:
    """Ends a running job that somebody cancelled."""
    with database.write() as tx:
        move(tx, job_id, JobState.CANCELLED)


def fail_running(database: Database, card: Card) -> None:
    """Ends what a worker that died was doing. Only for its supervisor, when the process is gone for certain."""
    _end_running(database, JobState.FAILED, card)


def interrupt_running(database: Database) -> None:
    """Ends what an earlier server's worker was doing. Only when no worker runs (worker/lock.py)."""
    _end_running(database, JobState.INTERRUPTED, INTERRUPTED)


def has_running(database: Database) -> bool:
    """Whether a job is held by a worker."""
    return database.read_one("SELECT 1 FROM jobs WHERE state = ?", (JobState.RUNNING,)) is not None


def requeue_running(database: Database) -> None:
    """Puts what was not finished in front of the line, as if it had never begun. Only when no worker runs.

    What somebody had cancelled meanwhile ends as cancelled.
    """
    with database.write() as tx:
        first = tx.execute("SELECT min(position) FROM jobs WHERE state = ?", (JobState.QUEUED,)).fetchone()[0]
        rows = tx.execute(
            "SELECT id, cancel_requested FROM jobs WHERE state = ? ORDER BY position, rowid", (JobState.RUNNING,)
        ).fetchall()
        for position, row in enumerate(rows, start=(first or 0) - len(rows)):
            if row["cancel_requested"]:
                move(tx, row["id"], JobState.CANCELLED)
            else:
                tx.execute("DELETE FROM previews WHERE job_id = ?", (row["id"],))
                move(tx, row["id"], JobState.QUEUED, position=position, **UNSTARTED)


def _end_running(database: Database, to: JobState, card: Card) -> None:
    with database.write() as tx:
        for row in tx.execute("SELECT id FROM jobs WHERE state = ?", (JobState.RUNNING,)).fetchall():
            move(tx, row["id"], to, error=json.dumps(card.to_json()))
