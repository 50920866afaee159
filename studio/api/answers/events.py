"""The events of the stream, by kind: the fields of each beside `id`, `kind`, `job_id` and `at`.

Events are written where changes happen (studio/events.py) and sent as stored, without validation on the way to a
thousand streams; instead the tests compare written events with these models.
"""

from typing import Any, Literal

from pydantic.json_schema import models_json_schema

from studio.api.answers.answer import Answer, eg
from studio.api.answers.jobs import GRID, JOB, NOW, OUTPUT, Job, OutputLink
from studio.api.answers.system import Engine
from studio.jobs.states import JobState


class Event(Answer):
    """The fields of every event; ids are contiguous, and `job_id` is null if the event concerns no single job."""

    id: int = eg(27)
    job_id: str | None = eg(JOB)
    at: float = eg(NOW)


class JobEvent(Event):
    """A job changed its state, was edited, or was asked to end; the event has the whole job in its current state."""

    kind: Literal["job.queued", "job.phase", "job.done", "job.failed", "job.cancelled", "job.paused"]
    state: JobState = eg("done")
    job: Job


class ProgressEvent(Event):
    """A running job's next phase, or its next denoising step."""

    kind: Literal["job.phase", "job.step"]
    state: JobState = eg("running")
    phase: str = eg("denoising")
    phase_done: int = eg(3)
    phase_total: int = eg(12)
    phase_detail: str = eg("")
    step: int = eg(3)
    steps: int = eg(12)
    eta_s: float | None = eg(1.1)


class PreviewEvent(Event):
    """A running job has a newer preview."""

    kind: Literal["job.preview"]
    version: int = eg(2)
    url: str = eg(f"/api/v1/jobs/{JOB}/preview.jpg?v=2")


class TrainingStepEvent(Event):
    """A new point of a training's curve: the mean loss since the point before."""

    kind: Literal["training.step"]
    step: int = eg(42)
    steps: int = eg(800)
    loss: float = eg(0.31)
    learning_rate: float = eg(0.0001)


class TrainingSampleEvent(Event):
    """A training made a sample after a step."""

    kind: Literal["training.sample"]
    step: int = eg(100)
    number: int = eg(0)
    prompt: str = eg("A zorb by the sea")
    width: int = eg(256)
    height: int = eg(256)
    url: str = eg(f"/api/v1/trainings/{JOB}/samples/100/0")


class TrainingSavedEvent(Event):
    """The state of a training after a step is on disk: it can go on from there."""

    kind: Literal["training.saved"]
    step: int = eg(100)


class TrainingDeletedEvent(Event):
    """A training was deleted, and its job is hidden in the queue's list."""

    kind: Literal["training.deleted"]


class QueueEvent(Event):
    """The order, pause or list of the owner's jobs changed: read them anew."""

    kind: Literal["queue.changed"]
    is_paused: bool = eg(False)


class OutputsEvent(Event):
    """Outputs were marked, thrown away, restored or deleted for ever."""

    kind: Literal["outputs.changed"]
    ids: list[str] = eg([OUTPUT])
    job_ids: list[str] = eg([JOB])
    change: Literal["marked", "trashed", "restored", "purged"] = eg("trashed")


class EndedGrid(Answer):
    """A grid whose cells have all ended; `output` is its sheet, null where no cell has a picture."""

    id: str = eg(GRID)
    output: OutputLink | None
    cells: int = eg(4)
    missing: int = eg(0)


class GridEvent(Event):
    """All cells of a grid have ended, and its sheet is made."""

    kind: Literal["grid.done"]
    grid: EndedGrid


class EngineEvent(Event):
    """The worker's state, activity or resident model changed."""

    kind: Literal["engine.state"]
    worker: str = eg("local")
    engine: Engine


KINDS: tuple[type[Event], ...] = (
    JobEvent,
    ProgressEvent,
    PreviewEvent,
    TrainingStepEvent,
    TrainingSampleEvent,
    TrainingSavedEvent,
    TrainingDeletedEvent,
    QueueEvent,
    OutputsEvent,
    GridEvent,
    EngineEvent,
)
_REFS = [{"$ref": f"#/components/schemas/{kind.__name__}"} for kind in KINDS]
STREAM: dict[str, Any] = {"content": {"text/event-stream": {"schema": {"anyOf": _REFS}}}}
"""The stream's answer in the OpenAPI document: the schema of its events' `data`."""


def make_schemas(ref: str) -> dict[str, Any]:
    """Returns the schemas of all events and of the models in them, for the document's components."""
    _, found = models_json_schema([(kind, "serialization") for kind in KINDS], ref_template=ref)
    return found["$defs"]
