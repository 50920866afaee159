"""The desk: the worker's only interface to the studio.

`LocalDesk` (local_desk.py) implements it on the database; a worker on another machine can be given an implementation
that forwards every call. Calls about a job are checked against the claim that the job carries: a desk accepts nothing
from a worker that lost it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pipelines.messages import Message
from pipelines.stages import Progress
from studio.jobs.costs.estimates import History, Measured
from studio.jobs.job import Card, Job
from studio.jobs.workers import WorkerState
from studio.library.files import SavedFile
from studio.worker.training_desk import TrainingDesk


@dataclass(frozen=True, kw_only=True)
class Made:
    """A job's result: files in the outputs folder, and how they were made.

    `measured` is None when another job of the same batch records the batch's timings. `notes` say what of the recipe
    was not followed.
    """

    files: Sequence[SavedFile]
    made_at: float
    made_with: dict[str, str]
    timings: dict[str, Any]
    compiles: int
    revision: str
    measured: Measured | None
    notes: Sequence[Message] = ()


class Desk(Protocol):
    """The interface of one worker to the studio."""

    @property
    def sends_files(self) -> bool:
        """Whether outputs are sent elsewhere when they are finished, so that the outputs folder keeps none."""
        ...

    @property
    def device(self) -> str:
        """The worker's devices, described in one line for people."""
        ...

    @property
    def trainings(self) -> TrainingDesk:
        """What only jobs that train have."""
        ...

    def announce(self, state: WorkerState, *, activity: Message, **columns: Any) -> None:
        """Stores the worker's current activity, like workers.describe."""
        ...

    def equip(self, *, chips: int, chip_price: float | None) -> None:
        """Stores the machine's chips and their price, before the first job."""
        ...

    def beat(self) -> None:
        """Sends a heartbeat."""
        ...

    def measure(self, *, mesh: str, devices: list[dict[str, Any]], host: dict[str, int], compiling: int) -> None:
        """Stores one round of measurements."""
        ...

    def read_history(self) -> History:
        """Reads the timings measured on this worker's device."""
        ...

    def record(self, measured: Measured) -> None:
        """Adds a run's timings to the history."""
        ...

    def find_next_model(self, *, resident: str | None) -> str | None:
        """Returns the model of the job that this worker would get now; None when no job waits."""
        ...

    def wait(self, poll_s: float) -> None:
        """Waits for a job to come; `poll_s` where nobody tells that one did."""
        ...

    def claim_next(self, *, resident: str | None) -> Job | None:
        """Claims the next job for this worker; returns None when no job waits."""
        ...

    def claim_others(self, job: Job, *, room: int) -> list[Job]:
        """Claims jobs that run as one batch with a claimed one, for at most `room` more outputs."""
        ...

    def find_inputs(self, job: Job) -> tuple[Path, ...]:
        """Returns the files of the pictures that the job starts from; raises InputGoneError."""
        ...

    def report(self, job: Job, progress: Progress, *, eta_s: float | None) -> bool:
        """Stores the job's progress; returns False when it must end."""
        ...

    def save_preview(self, job: Job, jpeg: bytes) -> None:
        """Stores the job's latest preview."""
        ...

    def finish(self, job: Job, made: Made) -> None:
        """Marks the job as done and keeps its files; raises Cancelled and keeps nothing when the claim was lost."""
        ...

    def fail(self, job: Job, card: Card) -> None:
        """Fails the job with a card."""
        ...

    def end_cancelled(self, job: Job) -> None:
        """Ends a cancelled job."""
        ...

    def end_turn(self) -> None:
        """Announces that a job has ended, in whatever way, and no other one has begun."""
        ...
