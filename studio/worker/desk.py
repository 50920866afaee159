"""The desk: all that a worker asks the studio, and all that it tells.

The worker's code knows no more of the studio than this. `LocalDesk` (local_desk.py) answers from the database itself;
a worker on another machine can be given one that passes everything on.
Whatever concerns a job is told for the claim that the job carries: a desk takes nothing from a worker that lost it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pipelines.stages import Progress
from studio.jobs.costs.estimates import History, Measured
from studio.jobs.job import Card, Job
from studio.jobs.workers import WorkerState
from studio.library.files import SavedFile


@dataclass(frozen=True, kw_only=True)
class Made:
    """What a job made: files that lie in the outputs folder, and how they came to be.

    `measured` is None where another job of the same batch tells what the batch took.
    """

    files: Sequence[SavedFile]
    made_at: float
    made_with: dict[str, str]
    timings: dict[str, Any]
    compiles: int
    revision: str
    measured: Measured | None


class Desk(Protocol):
    """One worker's desk."""

    @property
    def device(self) -> str:
        """The devices in a line for people, as the worker described them."""
        ...

    def announce(self, state: WorkerState, *, activity: str, **columns: Any) -> None:
        """Says what the worker does now, as workers.describe."""
        ...

    def equip(self, *, chips: int, chip_price: float | None) -> None:
        """Says what the machine has and costs, before the first job."""
        ...

    def beat(self) -> None:
        """Gives a sign of life."""
        ...

    def measure(self, *, mesh: str, devices: list[dict[str, Any]], host: dict[str, int], compiling: int) -> None:
        """Tells one round of figures."""
        ...

    def read_history(self) -> History:
        """What was measured on this worker's device."""
        ...

    def record(self, measured: Measured) -> None:
        """Adds to the history."""
        ...

    def find_next_model(self, *, resident: str | None) -> str | None:
        """The model of the job that this worker would get now; None when nobody waits."""
        ...

    def claim_next(self, *, resident: str | None) -> Job | None:
        """The job whose turn it is, which is this worker's from now on; None when nobody waits."""
        ...

    def claim_others(self, job: Job, *, room: int) -> list[Job]:
        """Jobs that run as one batch with a claimed one, for `room` outputs more, claimed too."""
        ...

    def find_inputs(self, job: Job) -> tuple[Path, ...]:
        """The files of the pictures that the job starts from; raises InputGoneError."""
        ...

    def report(self, job: Job, progress: Progress, *, eta_s: float | None) -> bool:
        """Tells how far the job is; False when it must end."""
        ...

    def save_preview(self, job: Job, jpeg: bytes) -> None:
        """Shows how it looks by now."""
        ...

    def finish(self, job: Job, made: Made) -> None:
        """Ends the job well and keeps its files; raises Cancelled, and keeps nothing, when it must not end so."""
        ...

    def fail(self, job: Job, card: Card) -> None:
        """Ends the job with a card."""
        ...

    def end_cancelled(self, job: Job) -> None:
        """Ends a job that somebody cancelled."""
        ...

    def end_turn(self) -> None:
        """Says that a job has ended, however it did, and no other one has begun."""
        ...
