"""The desk of a worker on another machine: jobs come from the dispatcher, all that is told goes into the outbox.

Nothing here waits for the dispatcher but the question for a batch's company, and that not for long: while the studio
is away, a job goes on, and its result stays in the outbox.
"""

import threading
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipelines.errors import Cancelled
from pipelines.messages import Message, add_codes, english
from pipelines.stages import Progress
from studio.cluster import protocol
from studio.cluster.outbox import TURN, Outbox
from studio.cluster.outbox_trainings import OutboxTrainingDesk
from studio.cluster.protocol import Claim, Order
from studio.cluster.stock import Stock
from studio.jobs.costs.estimates import History, Measured
from studio.jobs.job import TRAIN, Card, Job
from studio.jobs.workers import WorkerState
from studio.library.files import poster_of
from studio.settings import Settings
from studio.worker.desk import Made

COMPANY_S = 3.0
IDLE_S = 1.0  # without a job, before the loop looks whether there is anything to prepare
PASSING = ("error", "phase", "phase_done", "phase_total")
"""What an announcement says of its own moment; all else stays until it is told anew (workers.describe)."""


class OutboxDesk:
    """The Desk of a worker whose dispatcher pulls."""

    def __init__(self, settings: Settings, outbox: Outbox, stock: Stock) -> None:
        self._settings = settings
        self._outbox = outbox
        self._stock = stock
        self._changed = threading.Condition()
        self._waiting: deque[Job] = deque()
        self._held: dict[Claim, Order] = {}
        self._unwanted: set[Claim] = set()
        self._company: dict[Claim, list[Job]] = {}
        self._trainings = OutboxTrainingDesk(
            settings, outbox, stock, held=self._held, unwanted=self._unwanted, end=self._end
        )
        self._lasting: dict[str, Any] = {"device": english("")}
        self._engine: dict[str, Any] = {}

    # The dispatcher's side.

    def begin(self, order: Order) -> bool:
        """Takes a job, to run it next; False when it has it already."""
        job = protocol.read_job(order.job)
        with self._changed:
            if protocol.claim_of(job) in self._held:
                return False
            self._held[protocol.claim_of(job)] = order
            self._waiting.append(job)
            self._changed.notify_all()
        return True

    def join_batch(self, claim: Claim, orders: Sequence[Order]) -> bool:
        """Adds the company that a job asked for; False when it did not wait any more, so nobody joins."""
        jobs = [protocol.read_job(order.job) for order in orders]
        with self._changed:
            if claim not in self._company:
                return False
            self._held |= {protocol.claim_of(job): order for job, order in zip(jobs, orders, strict=True)}
            self._company[claim] = jobs
            self._changed.notify_all()
        return True

    def cancel(self, claim: Claim) -> None:
        """Makes a job end after its current chunk."""
        with self._changed:
            if claim in self._held:
                self._unwanted.add(claim)

    def list_held(self) -> list[Claim]:
        """Returns the jobs that have begun or wait to begin here."""
        with self._changed:
            return [*self._held]

    @property
    def engine(self) -> dict[str, Any]:
        """What the worker last said of its state; a dispatcher that took it for lost does not know it any more."""
        with self._changed:
            return self._engine

    # The worker's side.

    @property
    def sends_files(self) -> bool:
        return True

    @property
    def device(self) -> Message:
        return self._lasting["device"]

    @property
    def trainings(self) -> OutboxTrainingDesk:
        return self._trainings

    def announce(self, state: WorkerState, *, activity: Message, **columns: Any) -> None:
        """Tells all that lasts, not what changed alone: of two announcements that nobody pulled yet, the first goes."""
        with self._changed:
            self._lasting |= {name: value for name, value in columns.items() if name not in PASSING}
            told = add_codes({"state": str(state), "activity": activity, **self._lasting, **columns})
            self._engine = told
        self._outbox.put("engine", None, told)

    def equip(self, *, chips: int, chip_price: float | None) -> None:
        self._outbox.put("equipped", None, {"chips": chips, "chip_price": chip_price})

    def beat(self) -> None:
        """Does nothing: that the dispatcher can pull is the sign of life."""

    def measure(self, *, mesh: str, devices: list[dict[str, Any]], host: dict[str, int], compiling: int) -> None:
        told = {"mesh": mesh, "devices": devices, "host": host, "compiling": compiling}
        self._outbox.put("gauges", None, told)

    def read_history(self) -> History:
        with self._changed:
            rows = [row for order in self._held.values() for row in order.history]
        return protocol.read_history(rows)

    def record(self, measured: Measured) -> None:
        self._outbox.put("measured", None, vars(measured))

    def find_next_model(self, *, resident: str | None) -> str | None:  # noqa: ARG002 - the dispatcher has chosen
        with self._changed:
            return self._waiting[0].recipe.model if self._waiting else None

    def wait(self, poll_s: float) -> None:  # noqa: ARG002 - the dispatcher tells
        with self._changed:
            self._changed.wait_for(lambda: self._waiting, IDLE_S)

    def claim_next(self, *, resident: str | None) -> Job | None:  # noqa: ARG002 - the dispatcher has chosen
        with self._changed:
            return self._waiting.popleft() if self._waiting else None

    def claim_others(self, job: Job, *, room: int) -> list[Job]:
        """Asks the dispatcher, which answers with join_batch; without an answer in time the job runs alone."""
        if room <= 0:
            return []
        claim = protocol.claim_of(job)
        with self._changed:
            self._company[claim] = []
        self._outbox.put("room", claim, {"room": room})
        with self._changed:
            self._changed.wait_for(lambda: claim not in self._company or self._company[claim], COMPANY_S)
            return self._company.pop(claim, [])

    def no_company(self, claim: Claim) -> None:
        """Answers a job's question with nobody."""
        with self._changed:
            self._company.pop(claim, None)
            self._changed.notify_all()

    def find_inputs(self, job: Job) -> tuple[Path, ...]:
        with self._changed:
            order = self._held[protocol.claim_of(job)]
        return tuple(self._stock.find(one) for one in order.inputs)

    def report(self, job: Job, progress: Progress, *, eta_s: float | None) -> bool:
        self._outbox.put("progress", protocol.claim_of(job), {**protocol.write_progress(progress), "eta_s": eta_s})
        return not self._is_unwanted(job)

    def save_preview(self, job: Job, jpeg: bytes) -> None:
        self._outbox.put("preview", protocol.claim_of(job), {}, {"jpeg": jpeg})

    def finish(self, job: Job, made: Made) -> None:
        folder = self._settings.outputs_dir
        if self._is_unwanted(job):
            raise Cancelled
        names = [name for file in made.files for name in (file.file, file.thumb, poster_of(file.file))]
        blobs = {name: (folder / name).read_bytes() for name in names if (folder / name).is_file()}
        self._end(job, "done", protocol.write_made(made), {**blobs, **self._trainings.take_learnt(job)})
        for name in blobs:
            (folder / name).unlink()

    def fail(self, job: Job, card: Card) -> None:
        self._end(job, "failed", card.to_json())

    def end_cancelled(self, job: Job) -> None:
        self._end(job, "cancelled")

    def end_turn(self) -> None:
        self._outbox.put(TURN, None, {})

    def _is_unwanted(self, job: Job) -> bool:
        with self._changed:
            return protocol.claim_of(job) in self._unwanted

    def _end(
        self, job: Job, kind: str, data: dict[str, Any] | None = None, blobs: dict[str, bytes] | None = None
    ) -> None:
        claim = protocol.claim_of(job)
        if job.kind == TRAIN:
            self._trainings.end(job, is_done=kind == "done")
        with self._changed:
            self._held.pop(claim, None)
            self._unwanted.discard(claim)
        self._outbox.put(kind, claim, data or {}, blobs)
