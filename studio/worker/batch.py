"""Batches of jobs that run as one: each job keeps its own progress, previews and end, and may leave alone.

The first job was claimed because it was its turn; others that can share its batch join once the model is loaded.
"""

import dataclasses
import threading
from collections.abc import Callable
from contextlib import ExitStack

import numpy as np

from pipelines.errors import Cancelled
from pipelines.stages import Outcome, Progress
from studio.jobs.costs.estimates import History
from studio.jobs.job import Card, Job
from studio.worker.desk import Desk
from studio.worker.progress import JobProgress


@dataclasses.dataclass(frozen=True, kw_only=True)
class Member:
    """A job of the batch, the `number`-th to join; `rows` are the indices of its outputs in the batch."""

    job: Job
    number: int
    progress: JobProgress
    rows: slice
    estimate_s: float | None


class Batch:
    """The jobs that run together. Leaving it as a context manager finishes their last previews."""

    def __init__(self, desk: Desk, history: History) -> None:
        self._desk = desk
        self._history = history
        self._members: list[Member] = []
        self._count = 0
        self._joined = 0
        self._stack = ExitStack()

    def __enter__(self) -> "Batch":
        return self

    def __exit__(self, *_error: object) -> None:
        self._stack.close()

    @property
    def members(self) -> tuple[Member, ...]:
        """The jobs that have not left, in the order in which they joined."""
        return tuple(self._members)

    @property
    def size(self) -> int:
        """The number of outputs of all jobs that ever joined: the rows of a job that left stay unused."""
        return self._count

    def add(self, job: Job, *, estimate_s: float | None) -> None:
        """Adds a job; its outputs follow those of earlier jobs."""
        rows = slice(self._count, self._count + job.recipe.batch_size)
        progress = self._stack.enter_context(JobProgress(self._desk, job, history=self._history, estimate_s=estimate_s))
        self._members.append(Member(job=job, number=self._joined, progress=progress, rows=rows, estimate_s=estimate_s))
        self._count = rows.stop
        self._joined += 1

    def report(self, progress: Progress) -> None:
        """Reports progress to every job; those that must end leave. Raises Cancelled when none is left."""
        if self._joined > 1:
            progress = dataclasses.replace(
                progress,
                detail=progress.detail or _name_company(len(self._members) - 1),
                draw_preview=_Once(progress.draw_preview) if progress.draw_preview else None,
            )
        for member in self.members:
            try:
                member.progress.report(_of_member(progress, member))
            except Cancelled:
                self.leave(member)
        if not self._members:
            raise Cancelled

    def find(self, number: int) -> Member | None:
        """Returns the `number`-th job to join; None when it has left."""
        return next((member for member in self._members if member.number == number), None)

    def leave(self, member: Member) -> None:
        """Removes a job from the batch and ends it as cancelled."""
        self._members.remove(member)
        self._desk.end_cancelled(member.job)

    def refuse(self, number: int, card: Card) -> None:
        """Removes one job, if it has not left, and fails it with a card; raises Cancelled when none is left."""
        member = self.find(number)
        if member is not None:
            self._members.remove(member)
            self._desk.fail(member.job, card)
        if not self._members:
            raise Cancelled

    def fail(self, card: Card) -> None:
        """Fails all remaining jobs with a card."""
        for member in self._members:
            self._desk.fail(member.job, card)

    def cancel(self) -> None:
        """Ends all remaining jobs as cancelled."""
        for member in self.members:
            self.leave(member)


def take_own(outcome: Outcome, member: Member, *, load_s: float) -> Outcome:
    """Returns the member's part of the outcome. Only the first job gets `load_s`; other timings are shared by all."""
    swap = outcome.timings.swap if member.number == 0 else None
    timings = dataclasses.replace(outcome.timings, load_s=load_s, swap=swap)
    broken = tuple(row - member.rows.start for row in outcome.broken if member.rows.start <= row < member.rows.stop)
    return dataclasses.replace(outcome, pixels=outcome.pixels[member.rows], timings=timings, broken=broken)


def _of_member(progress: Progress, member: Member) -> Progress:
    draw = progress.draw_preview
    if draw is None:
        return progress
    return dataclasses.replace(progress, draw_preview=lambda: draw()[member.rows])


def _name_company(others: int) -> str:
    return f"together with {others} other {'job' if others == 1 else 'jobs'}" if others else ""


class _Once:
    """Draws a picture lazily and once, on the first call from any thread."""

    def __init__(self, draw: Callable[[], np.ndarray]) -> None:
        self._draw = draw
        self._lock = threading.Lock()
        self._drawn: np.ndarray | None = None

    def __call__(self) -> np.ndarray:
        with self._lock:
            if self._drawn is None:
                self._drawn = self._draw()
            return self._drawn
