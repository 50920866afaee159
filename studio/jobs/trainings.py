"""Trainings as rows: what was asked, the curve, the samples, and where the result is.

A training is a job of the kind `train`, whose state is the job's; what only trainings have is here. Writes for a
running one name its claim (job.HELD), as in claims.py.
Not here: the files of a training (worker/runners/train.py).
"""

import json
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pipelines.errors import RecipeError
from pipelines.messages import Message, say
from studio import events
from studio.database import Database
from studio.jobs import claims, queue
from studio.jobs.costs.lessons import Prior
from studio.jobs.job import TRAIN, Job, append_event, end, move
from studio.jobs.queue import JobStateError, Wanted
from studio.jobs.states import JobState
from studio.jobs.training import AskedTraining

Read = Callable[[str, Sequence[Any]], Iterable[sqlite3.Row]]


@dataclass(frozen=True, kw_only=True)
class Training:
    """What only a training has; `loras` are the refs of its result."""

    job_id: str
    name: str
    asked: AskedTraining
    saved_step: int
    pause_requested: bool
    loras: tuple[str, ...]

    @classmethod
    def from_row(cls, row: sqlite3.Row) -> "Training":
        """Reads a full row of the table `trainings`."""
        return cls(
            job_id=row["job_id"],
            name=row["name"],
            asked=AskedTraining.model_validate_json(row["asked"]),
            saved_step=row["saved_step"],
            pause_requested=bool(row["pause_requested"]),
            loras=tuple(json.loads(row["loras"])),
        )


def submit(
    database: Database,
    wanted: Wanted,
    asked: AskedTraining,
    *,
    name: str,
    owner: str,
    quota: int,
    prior: Prior | None = None,
) -> Job:
    """Queues a training with its pictures; raises RecipeError for pictures that are not the owner's, by number.

    `prior` is what the model makes before it learns.
    """
    assert wanted.kind == TRAIN
    with database.write() as tx:
        if problems := find_strangers(tx.execute, asked, owner=owner):
            raise RecipeError(problems)
        [job] = queue.add_all(tx, [wanted], owner=owner, quota=quota)
        count, recipe = (prior.count, json.dumps(prior.recipe.to_json())) if prior else (0, "")
        tx.execute(
            "INSERT INTO trainings (job_id, name, asked, prior_pictures, prior_recipe) VALUES (?, ?, ?, ?, ?)",
            (job.id, name, asked.model_dump_json(), count, recipe),
        )
        images = [(job.id, picture.id) for picture in asked.pictures]
        tx.executemany("INSERT OR IGNORE INTO job_images (job_id, image) VALUES (?, ?)", images)
    return job


def find_lessons(read: Read, asked: AskedTraining, *, owner: str) -> dict[str, bool]:
    """Returns which pictures are there and this owner's, each with whether it is a video; `read` runs one SELECT."""
    ids = [picture.id for picture in asked.pictures]
    places = ", ".join("?" * len(ids))
    # With the plus SQLite looks these ids up, and does not read all that the owner has made.
    rows = read(f"SELECT id, is_video FROM lessons WHERE +owner = ? AND id IN ({places})", (owner, *ids))
    return {row["id"]: bool(row["is_video"]) for row in rows}


def find_strangers(read: Read, asked: AskedTraining, *, owner: str) -> dict[str, Message]:
    """Returns a message for each picture that is not there, or not this owner's; `read` runs one SELECT."""
    known = find_lessons(read, asked, owner=owner)
    return {
        f"pictures.{place}.id": say("there is no picture {name}; add it again", name=repr(picture.id[:60]))
        for place, picture in enumerate(asked.pictures)
        if picture.id not in known
    }


def is_name_wanted(database: Database, name: str) -> bool:
    """Tells whether a training that has not ended will leave a LoRA of this name, in any case of letters."""
    rows = database.read(
        "SELECT name FROM trainings JOIN jobs ON jobs.id = job_id WHERE state IN ('queued', 'running', 'paused')"
    )
    return name.casefold() in {row["name"].casefold() for row in rows}


def is_any_running(database: Database) -> bool:
    """Tells whether a training runs, on any worker."""
    row = database.read_one("SELECT 1 FROM trainings JOIN jobs ON jobs.id = job_id WHERE state = 'running'")
    return row is not None


def read_training(database: Database, job_id: str) -> Training | None:
    """Reads a training; None for a job of another kind."""
    row = database.read_one("SELECT * FROM trainings WHERE job_id = ?", (job_id,))
    return Training.from_row(row) if row else None


def list_trainings(database: Database, *, owner: str | None, limit: int) -> list[tuple[Job, Training]]:
    """Lists the owner's trainings, or everybody's (None), newest first, each with its job."""
    rows = database.read(
        "SELECT trainings.* FROM trainings JOIN jobs ON jobs.id = job_id WHERE ? IS NULL OR owner = ? "
        "ORDER BY created_at DESC, jobs.rowid DESC LIMIT ?",
        (owner, owner, limit),
    )
    found = [Training.from_row(row) for row in rows]
    jobs = queue.read_jobs(database, [training.job_id for training in found])
    return list(zip(jobs, found, strict=True))


def read_points(database: Database, job_id: str) -> list[dict[str, Any]]:
    """Returns the curve in the order of its steps."""
    rows = database.read(
        "SELECT step, loss, learning_rate FROM training_points WHERE job_id = ? ORDER BY step", (job_id,)
    )
    return [dict(row) for row in rows]


def read_samples(database: Database, job_id: str) -> list[dict[str, Any]]:
    """Returns the samples, the oldest first."""
    rows = database.read(
        "SELECT step, number, prompt, width, height FROM training_samples WHERE job_id = ? ORDER BY step, number",
        (job_id,),
    )
    return [{**dict(row), "url": sample_url(job_id, row["step"], row["number"])} for row in rows]


def sample_url(job_id: str, step: int, number: int) -> str:
    return f"/api/v1/trainings/{job_id}/samples/{step}/{number}"


def pause(database: Database, job_id: str) -> None:
    """Pauses a training: a waiting one now, a running one after its next step; raises JobStateError for any other."""
    with database.write() as tx:
        if tx.execute("SELECT 1 FROM jobs WHERE id = ? AND state = ?", (job_id, JobState.RUNNING)).fetchone():
            tx.execute("UPDATE trainings SET pause_requested = 1 WHERE job_id = ?", (job_id,))
            row = tx.execute("SELECT * FROM jobs WHERE id = ?", (job_id,)).fetchone()
            append_event(tx, Job.from_row(row), "job.phase")
        elif move(tx, job_id, JobState.PAUSED) is None:
            raise JobStateError(
                say("Training {id} neither waits nor runs, so there is nothing to pause.", id=job_id),
                advice=say("Look at its state."),
            )


def forget(database: Database, job_id: str) -> None:
    """Deletes a training with its captions, curve and samples; raises JobStateError while it waits or runs.

    The job stays without its prompt, hidden in the queue's list: what it took and cost still counts. Its events stay,
    too, because their ids have no gaps, but without prompts. Its pictures are those of no job any more. The LoRA stays,
    and its owner's right to delete it.
    """
    with database.write() as tx:
        if tx.execute(
            "SELECT 1 FROM jobs WHERE id = ? AND state IN (?, ?)", (job_id, JobState.QUEUED, JobState.RUNNING)
        ).fetchone():
            raise JobStateError(
                say("Training {id} waits or runs, and cannot be deleted.", id=job_id),
                advice=say("Cancel it first; when it has ended, delete it."),
            )
        [row] = tx.execute(
            "UPDATE jobs SET is_cleared = 1, recipe = json_set(recipe, '$.prompt', '') WHERE id = ? RETURNING owner",
            (job_id,),
        ).fetchall()
        tx.execute(
            "UPDATE events SET data = json_replace(data, '$.prompt', '', '$.job.recipe.prompt', '') WHERE job_id = ?",
            (job_id,),
        )
        move(tx, job_id, JobState.CANCELLED)  # a paused one, which was to go on
        tx.execute("DELETE FROM trainings WHERE job_id = ?", (job_id,))
        tx.execute("DELETE FROM job_images WHERE job_id = ?", (job_id,))
        events.append(tx, kind="training.deleted", owner=row["owner"], job_id=job_id, data={})


def list_loras_of(database: Database, *, owner: str) -> set[str]:
    """Returns the refs of the LoRAs that trainings of this owner made."""
    return {row["ref"] for row in database.read("SELECT ref FROM lora_owners WHERE owner = ?", (owner,))}


def disown_lora(database: Database, ref: str) -> None:
    """Notes that a LoRA of this name is no training's result: it was deleted, or another one has come in its place."""
    with database.write() as tx:
        tx.execute("DELETE FROM lora_owners WHERE ref = ?", (ref,))
        tx.execute(
            "UPDATE trainings SET loras = (SELECT json_group_array(value) FROM json_each(loras) WHERE value <> :ref) "
            "WHERE EXISTS (SELECT 1 FROM json_each(loras) WHERE value = :ref)",
            {"ref": ref},
        )


# The worker's side


def is_pause_wanted(database: Database, job: Job) -> bool:
    """Tells whether somebody asked for a pause."""
    row = database.read_one("SELECT 1 FROM trainings WHERE job_id = ? AND pause_requested", (job.id,))
    return row is not None


def list_pausing(database: Database) -> list[tuple[str, str, int]]:
    """Returns worker, id and attempt of running trainings that somebody wants to pause."""
    rows = database.read(
        "SELECT worker, id, attempt FROM jobs JOIN trainings ON job_id = id WHERE state = ? AND pause_requested",
        (JobState.RUNNING,),
    )
    return [(row["worker"], row["id"], row["attempt"]) for row in rows]


def go_back(database: Database, job: Job, step: int) -> None:
    """Forgets the points and samples after a step: the training goes on from there, and makes them again."""
    with database.write() as tx:
        if not claims.is_held(tx, job):
            return
        tx.execute("DELETE FROM training_points WHERE job_id = ? AND step > ?", (job.id, step))
        tx.execute("DELETE FROM training_samples WHERE job_id = ? AND step > ?", (job.id, step))


def add_point(database: Database, job: Job, *, step: int, loss: float, learning_rate: float) -> None:
    """Adds a point to the curve, and tells it."""
    with database.write() as tx:
        if not claims.is_held(tx, job):
            return
        point = {"step": step, "loss": loss, "learning_rate": learning_rate}
        tx.execute(
            "INSERT OR REPLACE INTO training_points (job_id, step, loss, learning_rate) "
            "VALUES (:job_id, :step, :loss, :learning_rate)",
            {"job_id": job.id, **point},
        )
        events.append(tx, kind="training.step", owner=job.owner, job_id=job.id, data={**point, "steps": job.steps})


def add_sample(database: Database, job: Job, *, step: int, number: int, prompt: str, width: int, height: int) -> None:
    """Adds a sample whose file is there, and tells it."""
    with database.write() as tx:
        if not claims.is_held(tx, job):
            return
        sample = {"step": step, "number": number, "prompt": prompt, "width": width, "height": height}
        tx.execute(
            "INSERT OR REPLACE INTO training_samples (job_id, step, number, prompt, width, height) "
            "VALUES (:job_id, :step, :number, :prompt, :width, :height)",
            {"job_id": job.id, **sample},
        )
        data = {**sample, "url": sample_url(job.id, step, number)}
        events.append(tx, kind="training.sample", owner=job.owner, job_id=job.id, data=data)


def note_saved(database: Database, job: Job, step: int) -> None:
    """Notes that the state after a step is on disk, and tells it."""
    with database.write() as tx:
        if not claims.is_held(tx, job):
            return
        tx.execute("UPDATE trainings SET saved_step = ? WHERE job_id = ?", (step, job.id))
        events.append(tx, kind="training.saved", owner=job.owner, job_id=job.id, data={"step": step})


def name_loras(database: Database, job: Job, refs: Sequence[str]) -> bool:
    """Notes under which refs the result will be, before its files are there; False when the claim was lost."""
    with database.write() as tx:
        if not claims.is_held(tx, job):
            return False
        tx.execute("UPDATE trainings SET loras = ? WHERE job_id = ?", (json.dumps(list(refs)), job.id))
        owned = [(ref, job.owner) for ref in refs]
        tx.executemany("INSERT OR REPLACE INTO lora_owners (ref, owner) VALUES (?, ?)", owned)
    return True


def end_paused(database: Database, job: Job) -> None:
    """Ends the turn of a training that somebody paused."""
    with database.write() as tx:
        if end(tx, job, JobState.PAUSED) is not None:
            tx.execute("UPDATE trainings SET pause_requested = 0 WHERE job_id = ?", (job.id,))
