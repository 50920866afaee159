"""A desk without a studio: jobs come from a list, and all that a worker tells is kept in lists."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipelines.stages import Progress
from studio.jobs.costs.estimates import History, Measured
from studio.jobs.job import Card, Job
from studio.jobs.workers import WorkerState
from studio.worker.desk import Made


@dataclass
class MemoryDesk:
    """The Desk of a worker alone in the world; reports of a job in `cancelled` say that it must end."""

    waiting: list[Job] = field(default_factory=list)
    cancelled: set[str] = field(default_factory=set)
    device: str = "nothing"
    sends_files: bool = False
    states: list[tuple[WorkerState, str]] = field(default_factory=list)
    told: list[tuple[str, Progress, float | None]] = field(default_factory=list)
    previews: dict[str, int] = field(default_factory=dict)
    measured: list[Measured] = field(default_factory=list)
    ended: dict[str, Made | Card | None] = field(default_factory=dict)
    """Job id -> what it made, why it failed, or None when it was cancelled."""

    def announce(self, state: WorkerState, *, activity: str, **_columns: Any) -> None:
        self.states.append((state, activity))

    def equip(self, *, chips: int, chip_price: float | None) -> None: ...

    def beat(self) -> None: ...

    def measure(self, *, mesh: str, devices: list[dict[str, Any]], host: dict[str, int], compiling: int) -> None: ...

    def read_history(self) -> History:
        return History(tuple(reversed(self.measured)))

    def record(self, measured: Measured) -> None:
        self.measured.append(measured)

    def find_next_model(self, *, resident: str | None) -> str | None:
        return self.waiting[0].recipe.model if self.waiting else None

    def claim_next(self, *, resident: str | None) -> Job | None:
        return self.waiting.pop(0) if self.waiting else None

    def wait(self, poll_s: float) -> None: ...

    def claim_others(self, job: Job, *, room: int) -> list[Job]:
        return []

    def find_inputs(self, job: Job) -> tuple[Path, ...]:
        return ()

    def report(self, job: Job, progress: Progress, *, eta_s: float | None) -> bool:
        self.told.append((job.id, progress, eta_s))
        return job.id not in self.cancelled

    def save_preview(self, job: Job, jpeg: bytes) -> None:
        self.previews[job.id] = self.previews.get(job.id, 0) + 1

    def finish(self, job: Job, made: Made) -> None:
        self.ended[job.id] = made
        if made.measured is not None:
            self.record(made.measured)

    def fail(self, job: Job, card: Card) -> None:
        self.ended[job.id] = card

    def end_cancelled(self, job: Job) -> None:
        self.ended[job.id] = None

    def end_turn(self) -> None: ...
