"""What dispatcher and worker tell each other, as JSON objects; files are bytes beside them.

The dispatcher asks: describe, store, begin, join_batch, answer_refs, pause, cancel, pull. A worker answers with
numbered events, which it keeps until the next pull acknowledges them (outbox.py), so neither side loses one when the
other is gone for a while. Both sides run the same Lumesh: `PROTOCOL` and the version are compared before a worker gets
its first job.
"""

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from pipelines.messages import NOTHING, Message, add_codes, english, read_codes
from pipelines.recipes.recipe import Recipe
from pipelines.stages import Progress
from studio.jobs.costs.estimates import History, Measured
from studio.jobs.job import Job
from studio.jobs.states import JobState
from studio.jobs.training import AskedTraining
from studio.jobs.trainings import Training
from studio.library.files import SavedFile
from studio.worker.desk import Made

PROTOCOL = 2
Claim = tuple[str, int]
"""A job's id and attempt."""

ENDS = ("done", "failed", "cancelled", "paused")
"""The kinds of events that end a worker's hold of a job."""


@dataclass(frozen=True, kw_only=True)
class Told:
    """An event of a worker; `claim` is None for those of the worker itself. `blobs` are a result's files by name."""

    number: int
    kind: str
    claim: Claim | None
    data: dict[str, Any]
    blobs: dict[str, bytes] = field(default_factory=dict[str, bytes], repr=False)


@dataclass(frozen=True, kw_only=True)
class Attachment:
    """A file that a job needs, by the hash of its bytes: a picture, a training's work, or a LoRA under its `ref`."""

    sha: str
    name: str
    size: int
    ref: str = ""


@dataclass(frozen=True, kw_only=True)
class Order:
    """A job to begin, what its estimate is made from, and the files it needs; a training with its work so far."""

    job: dict[str, Any]
    history: list[dict[str, Any]]
    inputs: list[Attachment]
    loras: list[Attachment]
    training: dict[str, Any] | None = None
    state: Attachment | None = None


@dataclass(frozen=True, kw_only=True)
class Hello:
    """What a worker says of itself when asked: who it is, what it runs, its state, and the number of its last event."""

    protocol: int
    version: str
    epoch: str
    running: list[Claim]
    engine: dict[str, Any]
    last: int
    is_pinned: bool
    pid: int
    hosts: int = 1


def claim_of(job: Job) -> Claim:
    return job.id, job.attempt


def write_training(training: Training) -> dict[str, Any]:
    return {**vars(training), "asked": training.asked.model_dump(mode="json"), "loras": list(training.loras)}


def read_training(found: dict[str, Any]) -> Training:
    """Undoes write_training."""
    asked = AskedTraining.model_validate(found["asked"])
    fields: dict[str, Any] = {**found, "asked": asked, "loras": tuple(found["loras"])}
    return Training(**fields)


def write_job(job: Job) -> dict[str, Any]:
    return add_codes({**vars(job), "recipe": job.recipe.to_json(), "notes": list(job.notes)})


def read_job(found: dict[str, Any]) -> Job:
    """Undoes write_job."""
    fields = read_codes(found)
    fields |= {"recipe": Recipe.model_validate(fields["recipe"]), "state": JobState(fields["state"])}
    fields |= {"reason": as_message(fields["reason"])}
    return Job(**fields)


def write_progress(progress: Progress) -> dict[str, Any]:
    """Returns what is stored of progress: a preview is an event of its own."""
    return {"phase": progress.phase, "done": progress.done, "total": progress.total, "detail": progress.detail}


def write_history(history: History, model: str) -> list[dict[str, Any]]:
    """Returns what was measured of a model."""
    return [dataclasses.asdict(row) for row in history.rows if row.model == model]


def read_history(rows: list[dict[str, Any]]) -> History:
    return History(tuple(Measured(**row) for row in rows))


def write_made(made: Made) -> dict[str, Any]:
    return add_codes(
        {
            **vars(made),
            "files": [{**vars(file), "recipe": file.recipe.to_json()} for file in made.files],
            "measured": made.measured and dataclasses.asdict(made.measured),
            "notes": list(made.notes),
        }
    )


def read_made(found: dict[str, Any]) -> Made:
    """Undoes write_made."""
    fields = read_codes(found)
    fields |= {"files": [_read_file(file) for file in fields["files"]]}
    fields |= {"measured": Measured(**fields["measured"]) if fields["measured"] else None}
    return Made(**fields)


def _read_file(found: dict[str, Any]) -> SavedFile:
    fields: dict[str, Any] = {**found, "recipe": Recipe.model_validate(found["recipe"])}
    return SavedFile(**fields)


def as_message(text: str) -> Message:
    """Returns a text that came without a code, such as an empty one, as a message."""
    return text if isinstance(text, Message) else english(text) if text else NOTHING
