"""The desk of a worker that shares the database and the outputs folder with the app.

On a full disk, or while another program holds the database, nothing is lost and nothing ends: a job goes on without
telling its steps, what must be stored is repeated until it is, and no job is claimed before there is room for outputs.
"""

import logging
import sqlite3
import threading
from pathlib import Path
from typing import Any

from pipelines.errors import Cancelled
from pipelines.messages import Message
from pipelines.stages import Progress
from studio import events
from studio.database import Database
from studio.jobs import claims, workers
from studio.jobs.costs import cost, estimates
from studio.jobs.costs.estimates import History, Measured
from studio.jobs.job import Card, Job
from studio.jobs.workers import LOCAL, WorkerState
from studio.library import files, inputs, records
from studio.settings import Settings
from studio.storage import LOW_BYTES, count_free, passes
from studio.worker.desk import Made
from studio.worker.insisting import insist
from studio.worker.training_desk import LocalTrainingDesk

log = logging.getLogger(__name__)


class LocalDesk:
    """The Desk of the worker with this id, on the local database."""

    def __init__(
        self,
        database: Database,
        settings: Settings,
        worker: str = LOCAL,
        *,
        woken: threading.Event | None = None,
    ) -> None:
        """Sits down; `woken` is set by whoever hears that the app wrote to the database."""
        self._woken = woken or threading.Event()
        self._database = database
        self._settings = settings
        self._worker = worker

    @property
    def sends_files(self) -> bool:
        return False

    @property
    def device(self) -> str:
        return workers.read_worker(self._database, self._worker).device

    @property
    def trainings(self) -> LocalTrainingDesk:
        return LocalTrainingDesk(self._database, self._settings)

    def announce(self, state: WorkerState, *, activity: Message, **columns: Any) -> None:
        def store() -> None:
            with self._database.write() as tx:
                workers.describe(tx, self._worker, state, activity=activity, **columns)

        insist(store)

    def equip(self, *, chips: int, chip_price: float | None) -> None:
        def store() -> None:
            with self._database.write() as tx:
                workers.equip(tx, self._worker, chips=chips, chip_price=chip_price)

        insist(store)

    def forget_disk(self) -> None:
        """Marks shapes on disk as cold, because the compilation cache lost programs."""
        with self._database.write() as tx:
            workers.forget_disk(tx)

    def beat(self) -> None:
        workers.beat(self._database, self._worker)

    def measure(self, *, mesh: str, devices: list[dict[str, Any]], host: dict[str, int], compiling: int) -> None:
        with self._database.write() as tx:
            workers.measure(tx, self._worker, mesh=mesh, devices=devices, host=host, compiling=compiling)

    def read_history(self) -> History:
        return estimates.read_history(self._database, self._worker)

    def record(self, measured: Measured) -> None:
        def store() -> None:
            with self._database.write() as tx:
                estimates.record(tx, measured, self._worker)

        insist(store)

    def find_next_model(self, *, resident: str | None) -> str | None:
        return claims.find_next_model(self._database, self._worker, resident=resident)

    def wait(self, poll_s: float) -> None:
        if self._woken.wait(poll_s):
            self._woken.clear()

    def claim_next(self, *, resident: str | None) -> Job | None:
        if count_free(self._settings.data_dir) < LOW_BYTES:
            return None
        return claims.claim_next(self._database, self._worker, resident=resident)

    def claim_others(self, job: Job, *, room: int) -> list[Job]:
        return claims.claim_others(self._database, job, room=room)

    def find_inputs(self, job: Job) -> tuple[Path, ...]:
        return inputs.find_files(self._database, self._settings, job.recipe.images, owner=job.owner)

    def report(self, job: Job, progress: Progress, *, eta_s: float | None) -> bool:
        try:
            return claims.report(self._database, job, progress, eta_s=eta_s)
        except sqlite3.Error as error:
            if not passes(error):
                raise
            log.warning("job %s goes on without telling its steps: %s", job.id, error)
            return claims.is_wanted(self._database, job)

    def save_preview(self, job: Job, jpeg: bytes) -> None:
        claims.save_preview(self._database, job, jpeg)

    def finish(self, job: Job, made: Made) -> None:
        """Stores outputs, timings and the job's end in one transaction; if it fails, the files are deleted."""
        try:
            self._store(job, made)
        except BaseException:
            if not claims.is_taken_over(self._database, job):  # the later attempt's outputs have the same names
                files.discard(self._settings.outputs_dir, made.files)
            raise

    def _store(self, job: Job, made: Made) -> None:
        with self._database.write() as tx:
            if not claims.is_held(tx, job):  # the claim was lost since the last report
                raise Cancelled
            share = cost.measure(tx, job.id).share(max(1, len(made.files)))
            outputs = [
                records.add(
                    tx,
                    file,
                    job_id=job.id,
                    owner=job.owner,
                    number=number,
                    created_at=made.made_at,
                    made_with=made.made_with,
                    chip_seconds=share.chip_seconds,
                    cost_usd=share.usd,
                )
                for number, file in enumerate(made.files)
            ]
            if made.measured is not None:
                estimates.record(tx, made.measured, self._worker)
            claims.finish(
                tx,
                job,
                outputs=[output.link() for output in outputs],
                timings=made.timings,
                compiles=made.compiles,
                revision=made.revision,
                notes=made.notes,
            )

    def fail(self, job: Job, card: Card) -> None:
        insist(lambda: claims.fail(self._database, job, card))

    def end_cancelled(self, job: Job) -> None:
        insist(lambda: claims.end_cancelled(self._database, job))

    def end_turn(self) -> None:
        insist(lambda: events.forget_old(self._database))
