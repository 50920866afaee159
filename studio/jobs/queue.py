"""People's side of the queue: submit, list, edit, cancel and retry jobs.

Callers check who may touch a job (visit.py) and pass resolved recipes (asking.py).
Not here: the order of the whole line (arrange.py), where a job stands in it (places.py).
"""

import json
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass

from pipelines.errors import LumeshError, RecipeError
from pipelines.messages import Message, say
from pipelines.recipes.recipe import Recipe
from studio.database import Database, Transaction
from studio.jobs.job import GENERATE, TRAIN, UNSTARTED, Job, append_event, move
from studio.jobs.line.places import in_line, with_places
from studio.jobs.obstacles import with_obstacles
from studio.jobs.states import JobState
from studio.notes import BEGINS_ANEW, read_notes, write_notes
from studio.settings import QUEUE_QUOTA
from studio.storage import show_size


class JobStateError(LumeshError):
    """The job's state does not allow what was asked."""

    title = say("This job cannot do that now")
    status = 409


class QueueQuotaError(LumeshError):
    """The owner would have more waiting jobs than the quota allows."""

    title = say("Your queue is full")
    status = 429


class DiskFullError(LumeshError):
    """The studio's files have reached `--max-disk`, which only those who run the studio can raise."""

    title = say("The disk quota is used up")
    status = 507
    operator_advice = say(
        "Throw outputs away: the oldest of the trash goes by itself. Delete trainings that have ended. Or start with a "
        "larger --max-disk."
    )


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """A job to queue: a resolved recipe, the programs it needs (library/inputs.py), and the preset it came from.

    `kind` selects the runner; kinds other than pictures name programs of their own. `notes` say what of the request is
    not followed as it stands. `steps` are those of its progress, where they are not the recipe's; `title` is what
    people call it, where the prompt does not say it.
    """

    recipe: Recipe
    programs: str
    preset: str | None = None
    kind: str = GENERATE
    notes: Sequence[Message] = ()
    steps: int | None = None
    title: str = ""


def submit(
    database: Database, recipe: Recipe, *, owner: str, programs: str | None = None, quota: int = QUEUE_QUOTA
) -> Job:
    """Queues a resolved recipe. From here on the job belongs to the server: the page may close.

    `programs` names the compiled programs that it needs, if they differ from its shape.
    Raises RecipeError when it starts from pictures that are not the owner's: only ids name them, never paths.
    """
    wanted = Wanted(recipe=recipe, programs=programs or str(recipe.shape))
    return submit_all(database, [wanted], owner=owner, quota=quota)[0]


def submit_all(database: Database, wanted: Sequence[Wanted], *, owner: str, quota: int) -> list[Job]:
    """Queues all jobs in this order, or none."""
    with database.write() as tx:
        return add_all(tx, wanted, owner=owner, quota=quota)


def add_all(tx: Transaction, wanted: Sequence[Wanted], *, owner: str, quota: int) -> list[Job]:
    """Queues jobs within a transaction; `require_room` may raise."""
    require_room(tx, owner=owner, joining=len(wanted), quota=quota)
    return [_insert(tx, one, owner=owner) for one in wanted]


def read_job(database: Database, job_id: str) -> Job | None:
    """Reads a job, with its place in line when it waits; None when the id is unknown."""
    row = database.read_one("SELECT * FROM jobs WHERE id = ?", (job_id,))
    return _add_waits(database, [Job.from_row(row)])[0] if row else None


def read_jobs(database: Database, job_ids: Sequence[str]) -> list[Job]:
    """Reads the existing jobs in this order, without their places in line, for callers that poll often."""
    # One statement for any number of ids, because each thread caches its prepared statements.
    rows = database.read("SELECT * FROM jobs WHERE id IN (SELECT value FROM json_each(?))", (json.dumps(job_ids),))
    jobs = {row["id"]: Job.from_row(row) for row in rows}
    return [jobs[job_id] for job_id in job_ids if job_id in jobs]


def list_jobs(database: Database, *, owner: str | None, state: JobState | None = None, limit: int = 100) -> list[Job]:
    """Lists the owner's jobs, or everybody's (None), newest first; waiting ones alone in the order of their turns.

    Waiting jobs have position, reason and eta.
    """
    if state is JobState.QUEUED:
        return _list_waiting(database, owner=owner, limit=limit)
    rows = database.read(
        "SELECT * FROM jobs WHERE (:owner IS NULL OR owner = :owner) AND (:state IS NULL OR state = :state) "
        "ORDER BY created_at DESC, rowid DESC LIMIT :limit",
        {"owner": owner, "state": state, "limit": limit},
    )
    return _add_waits(database, [Job.from_row(row) for row in rows])


def _add_waits(database: Database, jobs: list[Job]) -> list[Job]:
    """Adds to waiting jobs what depends on the whole line, and on the workers."""
    return with_obstacles(database, with_places(database, jobs))


def _list_waiting(database: Database, *, owner: str | None, limit: int) -> list[Job]:
    rows = database.read(
        "SELECT id FROM jobs WHERE state = :state AND (:owner IS NULL OR owner = :owner)",
        {"owner": owner, "state": JobState.QUEUED},
    )
    ids = [row["id"] for row in rows]
    placed = in_line(database, ids)
    known = set(placed)
    first = [*placed, *(one for one in ids if one not in known)][:limit]  # last, those that no worker would take
    return _add_waits(database, [job for job in read_jobs(database, first) if job.state is JobState.QUEUED])


def edit(database: Database, job_id: str, wanted: Wanted) -> None:
    """Gives a waiting job another recipe; it keeps its place, and its preset unless model or prompt change.

    Raises JobStateError when it is no longer waiting.
    """
    recipe = wanted.recipe
    with database.write() as tx:
        row = tx.execute(
            "UPDATE jobs SET recipe = ?, model = ?, shape = ?, steps = ?, programs = ?, notes = ?, "
            "preset = CASE WHEN model = ? AND json_extract(recipe, '$.prompt') = ? THEN preset END "
            "WHERE id = ? AND state = ? "
            "RETURNING *",
            (
                *(json.dumps(recipe.to_json()), recipe.model, recipe.shape, recipe.denoising_steps, wanted.programs),
                *(write_notes(wanted.notes), recipe.model, recipe.prompt, job_id, JobState.QUEUED),
            ),
        ).fetchone()
        if row is None:
            raise JobStateError(
                say("Job {id} does not wait any more, so its settings cannot change.", id=job_id),
                advice=say("Queue the settings as a new job."),
            )
        job = Job.from_row(row)
        _store_images(tx, job)
        append_event(tx, job, "job.queued")


def cancel(database: Database, job_id: str) -> None:
    """Cancels a job: a waiting one now, a running one at its next chunk. An ended job stays as it is."""
    with database.write() as tx:
        ask_to_end(tx, job_id)


def ask_to_end(tx: Transaction, job_id: str) -> None:
    """Cancels within a transaction."""
    row = tx.execute(
        "UPDATE jobs SET cancel_requested = 1 WHERE id = ? AND state = ? RETURNING *", (job_id, JobState.RUNNING)
    ).fetchone()
    if row is not None:
        append_event(tx, Job.from_row(row), "job.phase")
    else:
        move(tx, job_id, JobState.CANCELLED)


def retry(database: Database, job_id: str, *, quota: int = QUEUE_QUOTA) -> Job:
    """Requeues an ended job at the end, with the same recipe and seed; raises JobStateError if it cannot run again."""
    with database.write() as tx:
        job = queue_again(tx, job_id)
        if job is not None:
            require_room(tx, owner=job.owner, joining=0, quota=quota)
    if job is None:
        raise JobStateError(
            say(
                "Job {id} waits, runs or is done; only a failed, cancelled, interrupted or paused job can run again.",
                id=job_id,
            ),
            advice=say("To make another one, queue its recipe as a new job."),
        )
    return job


def queue_again(tx: Transaction, job_id: str) -> Job | None:
    """Retries a job within a transaction; returns None, and changes nothing, when it cannot run again."""
    row = tx.execute(
        "SELECT notes FROM jobs WHERE id = ? AND state <> ? AND (kind <> ? OR id IN (SELECT job_id FROM trainings))",
        (job_id, JobState.RUNNING, TRAIN),
    ).fetchone()
    if row is None:
        return None
    job = move(
        tx,
        job_id,
        JobState.QUEUED,
        queued_at=time.time(),
        position=_next_position(tx),
        is_placed=0,
        is_cleared=0,
        lost=0,
        notes=write_notes(note for note in read_notes(row["notes"]) if note != BEGINS_ANEW),
        **UNSTARTED,
    )
    if job is None:
        return None
    tx.execute("UPDATE trainings SET pause_requested = 0 WHERE job_id = ?", (job_id,))
    for table in ("training_points", "training_samples"):  # of one that begins anew
        tx.execute(
            f"DELETE FROM {table} WHERE job_id IN (SELECT job_id FROM trainings WHERE job_id = ? AND saved_step = 0)",
            (job_id,),
        )
    return job


def count_jobs(database: Database) -> dict[str, int]:
    """Counts the jobs in each state."""
    counts = dict.fromkeys(JobState, 0)
    for row in database.read("SELECT state, count(*) AS count FROM jobs GROUP BY state"):
        counts[JobState(row["state"])] = row["count"]
    return {str(state): count for state, count in counts.items()}


def require_room(tx: Transaction, *, owner: str, joining: int, quota: int) -> None:
    """Raises QueueQuotaError when `joining` more jobs exceed the owner's quota, DiskFullError when the disk is full."""
    disk = tx.execute("SELECT used_bytes, limit_bytes FROM disk WHERE used_bytes > limit_bytes").fetchone()
    if disk is not None:
        raise DiskFullError(
            say(
                "Outputs, uploads and trainings take {excess} more than the {limit} that are allowed, and the trash is "
                "empty.",
                excess=show_size(disk["used_bytes"] - disk["limit_bytes"]),
                limit=show_size(disk["limit_bytes"]),
            ),
            advice=say(
                "Throw outputs away: the oldest of the trash goes by itself. Delete trainings that have ended. Or ask "
                "whoever runs this studio for room."
            ),
        )
    found = tx.execute("SELECT count(*) FROM jobs WHERE owner = ? AND state = ?", (owner, JobState.QUEUED))
    waiting = found.fetchone()[0]
    if waiting + joining > quota:
        values = {"count": waiting, "limit": quota}
        raise QueueQuotaError(
            say(
                "{count} of your jobs wait already, {more} more do not fit; {limit} may wait at a time.",
                more=joining,
                **values,
            )
            if joining > 1
            else say("{count} of your jobs wait already; {limit} may wait at a time.", **values),
            advice=say("Wait for some to end, or cancel some."),
        )


def _insert(tx: Transaction, wanted: Wanted, *, owner: str) -> Job:
    recipe, now = wanted.recipe, time.time()
    row = tx.execute(
        "INSERT INTO jobs (id, kind, owner, state, recipe, model, shape, created_at, queued_at, position, steps, "
        "programs, preset, notes, title) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING *",
        (
            secrets.token_hex(5),
            wanted.kind,
            owner,
            JobState.QUEUED,
            json.dumps(recipe.to_json()),
            recipe.model,
            recipe.shape,
            now,
            now,
            _next_position(tx),
            recipe.denoising_steps if wanted.steps is None else wanted.steps,
            wanted.programs,
            wanted.preset,
            write_notes(wanted.notes),
            wanted.title,
        ),
    ).fetchone()
    job = Job.from_row(row)
    _store_images(tx, job)
    append_event(tx, job, "job.queued")
    return job


def _next_position(tx: Transaction) -> int:
    row = tx.execute("SELECT max(position) FROM jobs WHERE state = ?", (JobState.QUEUED,)).fetchone()
    return (row[0] or 0) + 1


def _store_images(tx: Transaction, job: Job) -> None:
    _require_images(tx, job.recipe, owner=job.owner)
    tx.execute("DELETE FROM job_images WHERE job_id = ?", (job.id,))
    images = [(job.id, image) for image in job.recipe.images]
    tx.executemany("INSERT OR IGNORE INTO job_images (job_id, image) VALUES (?, ?)", images)


def _require_images(tx: Transaction, recipe: Recipe, *, owner: str) -> None:
    for image in recipe.images:
        if tx.execute("SELECT 1 FROM inputs WHERE id = ? AND owner = ?", (image, owner)).fetchone() is None:
            raise RecipeError(
                {"images": say("there is no picture {name}; add it again, or take another one", name=repr(image[:60]))}
            )
