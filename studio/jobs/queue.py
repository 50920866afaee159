"""People's side of the queue: ask for a job, look at jobs, change one's mind.

Callers check who may touch a job (api/access.py); recipes that come in here are resolved ones.
"""

import json
import secrets
import time
from dataclasses import dataclass

from pipelines.errors import LumeshError, RecipeError
from pipelines.recipe import Recipe
from studio.database import Database, Transaction
from studio.jobs.engine import EngineState, read_engine
from studio.jobs.estimates import estimate_job_s, read_history, read_shape_state
from studio.jobs.job import Job, append_event, move
from studio.jobs.order import Waiting, plan_turns
from studio.jobs.states import JobState


class JobStateError(LumeshError):
    """A job that is not in a state for what was asked."""

    title = "This job cannot do that now"


@dataclass(frozen=True, kw_only=True)
class Place:
    """A waiting job's place in line: why it is there, and seconds until its picture (None: never measured)."""

    reason: str
    eta_s: float | None


def submit(database: Database, recipe: Recipe, *, owner: str) -> Job:
    """Queues a resolved recipe. From here on the job is the server's: the page may close.

    Raises RecipeError when it starts from pictures that are not the owner's: ids alone name them, never paths.
    """
    now = time.time()
    with database.write() as tx:
        _require_images(tx, recipe, owner=owner)
        row = tx.execute(
            "INSERT INTO jobs (id, owner, state, recipe, model, shape, created_at, queued_at, steps) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING *",
            (
                secrets.token_hex(5),
                owner,
                JobState.QUEUED,
                json.dumps(recipe.to_json()),
                recipe.model,
                recipe.shape,
                now,
                now,
                recipe.steps,
            ),
        ).fetchone()
        job = Job.from_row(row)
        images = [(job.id, image) for image in recipe.images]
        tx.executemany("INSERT OR IGNORE INTO job_images (job_id, image) VALUES (?, ?)", images)
        append_event(tx, job, "job.queued")
    return job


def read_job(database: Database, job_id: str) -> Job | None:
    """The job, with its place in line when it waits; None when there is none."""
    row = database.read_one("SELECT * FROM jobs WHERE id = ?", (job_id,))
    return _place(database, [Job.from_row(row)])[0] if row else None


def list_jobs(database: Database, *, owner: str, state: JobState | None = None, limit: int = 100) -> list[Job]:
    """The owner's newest jobs first; waiting ones with reason and eta."""
    rows = database.read(
        "SELECT * FROM jobs WHERE owner = :owner AND (:state IS NULL OR state = :state) "
        "ORDER BY created_at DESC, rowid DESC LIMIT :limit",
        {"owner": owner, "state": state, "limit": limit},
    )
    return _place(database, [Job.from_row(row) for row in rows])


def cancel(database: Database, job_id: str) -> None:
    """Ends a waiting job now, and a running one at its next chunk. A job that has ended stays as it is."""
    with database.write() as tx:
        row = tx.execute(
            "UPDATE jobs SET cancel_requested = 1 WHERE id = ? AND state = ? RETURNING *", (job_id, JobState.RUNNING)
        ).fetchone()
        if row is not None:
            append_event(tx, Job.from_row(row), "job.phase")
        else:
            move(tx, job_id, JobState.CANCELLED)


def retry(database: Database, job_id: str) -> Job:
    """Puts an ended job back at the end of the line, with the same recipe and seed; raises JobStateError if not."""
    with database.write() as tx:
        job = move(
            tx,
            job_id,
            JobState.QUEUED,
            queued_at=time.time(),
            started_at=None,
            finished_at=None,
            phase="",
            phase_done=0,
            phase_total=0,
            phase_detail="",
            step=0,
            overtaken=0,
            cancel_requested=0,
            compiles=None,
            timings="{}",
            error=None,
        )
    if job is None:
        raise JobStateError(
            f"Job {job_id} is waiting, running or done; only a failed, cancelled or interrupted job can run again.",
            advice="To make another one, queue its recipe as a new job.",
        )
    return job


def count_jobs(database: Database) -> dict[str, int]:
    """How many jobs are in each state."""
    counts = dict.fromkeys(JobState, 0)
    for row in database.read("SELECT state, count(*) AS count FROM jobs GROUP BY state"):
        counts[JobState(row["state"])] = row["count"]
    return {str(state): count for state, count in counts.items()}


def _require_images(tx: Transaction, recipe: Recipe, *, owner: str) -> None:
    for image in recipe.images:
        if tx.execute("SELECT 1 FROM inputs WHERE id = ? AND owner = ?", (image, owner)).fetchone() is None:
            raise RecipeError({"images": f"there is no picture {image[:60]!r}; add it again, or take another one"})


def _place(database: Database, jobs: list[Job]) -> list[Job]:
    if not any(job.state is JobState.QUEUED for job in jobs):
        return jobs
    places = _read_places(database)
    return [
        job.waiting(reason=places[job.id].reason, eta_s=places[job.id].eta_s) if job.id in places else job
        for job in jobs
    ]


def _read_places(database: Database) -> dict[str, Place]:
    """Every waiting job's place; an eta ends at the first job in line that was never measured."""
    engine, history = read_engine(database), read_history(database)
    running = database.read_one("SELECT eta_s FROM jobs WHERE state = ?", (JobState.RUNNING,))
    elapsed_s: float | None = running["eta_s"] if running else 0.0
    rows = database.read(
        "SELECT id, model, overtaken, recipe FROM jobs WHERE state = ? ORDER BY queued_at, rowid", (JobState.QUEUED,)
    )
    recipes = {row["id"]: Recipe.model_validate_json(row["recipe"]) for row in rows}
    line = [Waiting(id=row["id"], model=row["model"], overtaken=row["overtaken"]) for row in rows]
    is_coming_up = engine.state in (EngineState.STARTING, EngineState.PREPARING, EngineState.RESTARTING)
    places: dict[str, Place] = {}
    resident = engine.model
    ready: set[tuple[str, str]] = set()
    for turn in plan_turns(line, engine.model, history.load_s(engine.model)):
        recipe = recipes[turn.job_id]
        assert recipe.shape is not None, "queued recipes are resolved"
        key = (recipe.model, recipe.shape)
        state = "warm" if key in ready else read_shape_state(engine, history, *key)
        own_s = estimate_job_s(history, recipe, shape_state=state, is_resident=resident == recipe.model)
        elapsed_s = None if elapsed_s is None or own_s is None else elapsed_s + own_s
        places[turn.job_id] = Place(reason=turn.reason or (engine.activity if is_coming_up else ""), eta_s=elapsed_s)
        if resident != recipe.model:
            resident = recipe.model
            ready.clear()
        ready.add(key)
    return places
