"""What workers tell comes in: events become rows, as a local worker would have written them.

The events of one pull are stored in one transaction, with the number of the last of them, as far as they only change
rows; whatever writes files, or needs an answer, has a turn of its own between. A database that takes nothing now is
asked again: nothing that matters is lost.
"""

import asyncio
import itertools
import logging
import sqlite3
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from pipelines.errors import Cancelled
from pipelines.files.whole import write_whole
from pipelines.loras.files import SUFFIX
from pipelines.messages import Message, read_codes
from pipelines.stages import Progress
from studio import events
from studio.cluster import protocol
from studio.cluster.giving import Giver
from studio.cluster.link import Link
from studio.cluster.outbox_trainings import LORAS
from studio.cluster.protocol import ENDS, Told
from studio.database import Database
from studio.jobs import claims, trainings, workers
from studio.jobs.costs import estimates
from studio.jobs.costs.estimates import Measured
from studio.jobs.job import Card, Job
from studio.jobs.workers import WorkerState
from studio.library import training_files, training_packs
from studio.settings import Settings
from studio.storage import is_full, passes
from studio.worker.local_desk import LocalDesk

RETRY_S = 1.0
NOTICE_MARGIN_S = 5.0  # of a machine that goes away, to send what was made

log = logging.getLogger(__name__)


class Storing:
    """Stores the events of workers; `giver` answers those that ask for something."""

    def __init__(self, settings: Settings, database: Database, giver: Giver, *, lease_s: float) -> None:
        self._settings = settings
        self._database = database
        self._giver = giver
        self._lease_s = lease_s
        self._slow: dict[str, Callable[[Link, Job, Told], Coroutine[None, None, None]]] = {
            "room": self._find_company,
            "done": self._finish,
            "refs": self._choose_refs,
            "state": self._keep_state,
        }

    async def store(self, link: Link, told: Sequence[Told]) -> None:
        """Stores events in their order, and a sign of life; an event that is told twice is stored once."""
        new = [one for one in told if one.number > link.after]
        for is_slow, some in itertools.groupby(new, key=lambda one: one.kind in self._slow or one.kind == "leaving"):
            for group in [[one] for one in some] if is_slow else [[*some]]:
                await self._insist(link, group)
        if not new:
            self._beat(link)
        if any(one.kind in ENDS or one.kind in ("engine", "turn") for one in new):
            self._giver.wake()

    async def _insist(self, link: Link, told: Sequence[Told]) -> None:
        """Stores events that belong together; what the database refuses now is tried again."""
        while True:
            try:
                await self._store_slow(link, told[0])
                with self._database.gather():
                    for one in told:
                        self._apply(link, one)
                    workers.beat(self._database, link.id, lease_s=self._lease_s, seen=told[-1].number)
            except (sqlite3.Error, OSError) as error:
                is_passing = is_full(error) if isinstance(error, OSError) else passes(error)
                if not is_passing:
                    raise
                log.warning("%s of worker %s is not stored yet: %s", told[0].kind, link.id, error)
                await asyncio.sleep(RETRY_S)
            else:
                break
        link.after = told[-1].number
        for one in told:
            if one.claim is not None and one.kind in ENDS:
                link.let_go(one.claim)

    async def _store_slow(self, link: Link, told: Told) -> None:
        """Does what takes longer than a transaction may."""
        if told.kind == "leaving":
            self._leave(link, float(told.data["notice_s"]))
        elif told.claim is not None and told.kind in self._slow:
            if (job := link.held.get(told.claim)) is not None:
                await self._slow[told.kind](link, job, told)
            elif told.kind == "room":
                await link.handle.call("join_batch", told.claim, [])

    def _apply(self, link: Link, told: Told) -> None:
        if told.claim is None:
            self._apply_own(link, told)
        elif (job := link.held.get(told.claim)) is not None:
            self._apply_to_job(link, job, told)

    def _apply_own(self, link: Link, told: Told) -> None:
        """Stores what a worker tells of itself."""
        data = told.data
        match told.kind:
            case "engine":
                self.apply_engine(link, data)
            case "equipped":
                with self._database.write() as tx:
                    workers.equip(tx, link.id, chips=data["chips"], chip_price=data["chip_price"])
            case "gauges":
                with self._database.write() as tx:
                    workers.measure(tx, link.id, **data)
            case "measured":
                with self._database.write() as tx:
                    estimates.record(tx, Measured(**data), link.id)
            case "turn":
                events.forget_old(self._database)
            case _:
                pass

    def apply_engine(self, link: Link, data: dict[str, Any]) -> None:
        """Stores a worker's state, as it told it or was asked for it."""
        fields = read_codes(data)
        state, activity = WorkerState(fields.pop("state")), protocol.as_message(fields.pop("activity"))
        fields["device"] = protocol.as_message(fields["device"])
        link.model = fields.get("model", link.model)
        if fields.get("error"):
            fields["error"] = data["error"]  # with its codes
        self.describe(link.id, state, activity, **fields)

    def describe(self, worker: str, state: WorkerState, activity: Message, **columns: Any) -> None:
        """Stores what a worker does, as far as the dispatcher sees it."""
        with self._database.write() as tx:
            workers.describe(tx, worker, state, activity=activity, **columns)

    def _apply_to_job(self, link: Link, job: Job, told: Told) -> None:
        """Stores what a worker tells of a job that it holds, as far as the database still says so."""
        match told.kind:
            case "progress":
                data = dict(told.data)
                eta_s = data.pop("eta_s")
                if not claims.report(self._database, job, Progress(**data), eta_s=eta_s):
                    self._giver.tell_to_end(link, (job.id, job.attempt))
            case "preview":
                claims.save_preview(self._database, job, told.blobs["jpeg"])
            case "failed":
                claims.fail(self._database, job, Card.from_json(told.data))
            case "cancelled":
                claims.end_cancelled(self._database, job)
            case "paused":
                trainings.end_paused(self._database, job)
            case "go_back":
                trainings.go_back(self._database, job, **told.data)
            case "add_point":
                trainings.add_point(self._database, job, **told.data)
            case "add_sample":
                self._add_sample(job, told)
            case _ if told.kind in self._slow:
                pass  # done before
            case _:
                log.warning("worker %s tells of %s, which is not known", link.id, told.kind)

    def _add_sample(self, job: Job, told: Told) -> None:
        if not self._is_held(job):  # the training may have been deleted, folder and all
            return
        folder = self._settings.training_dir / job.id
        step, number = int(told.data["step"]), int(told.data["number"])
        if "moving" in told.blobs:
            moving = training_files.shown_file(folder, step, number, is_moving=True)
            write_whole(moving, told.blobs["moving"], is_flushed=False)
        write_whole(training_files.shown_file(folder, step, number), told.blobs["shown"], is_flushed=False)
        trainings.add_sample(self._database, job, **told.data)

    async def _find_company(self, link: Link, job: Job, told: Told) -> None:
        await self._giver.find_company(link, job, int(told.data["room"]))

    async def _finish(self, link: Link, job: Job, told: Told) -> None:
        await asyncio.to_thread(self._write_result, link, job, told)

    def _write_result(self, link: Link, job: Job, told: Told) -> None:
        """Writes a result's files, then stores them with the job's end; nothing when the claim was lost."""
        made = protocol.read_made(told.data)
        if not self._is_held(job):  # stored before, or begun again elsewhere
            return
        training = trainings.read_training(self._database, job.id)
        refs = () if training is None else training.loras
        for name, content in told.blobs.items():
            folder, _, file = name.partition("/")
            if f"{folder}/" == LORAS and file.removesuffix(SUFFIX) in refs:
                write_whole(self._settings.loras_dir / file, content)
                continue
            if not file.startswith(f"{job.id}-") or "/" in file or not folder.replace("-", "").isdecimal():
                raise ValueError(f"worker {link.id} names a file {name!r}")
            write_whole(self._settings.outputs_dir / name, content)
        try:
            LocalDesk(self._database, self._settings, link.id).finish(job, made)
        except Cancelled:
            claims.end_cancelled(self._database, job)
        if training is not None:
            training_files.forget_work(self._settings.training_dir / job.id)

    async def _choose_refs(self, link: Link, job: Job, told: Told) -> None:
        """Answers a training that asks how its result will be called here."""
        desk = LocalDesk(self._database, self._settings, link.id).trainings
        try:
            refs = desk.choose_refs(job, desk.read(job), told.data["names"])
        except Cancelled:
            refs = None
        await link.handle.call("answer_refs", told.claim, refs)

    async def _keep_state(self, link: Link, job: Job, told: Told) -> None:  # noqa: ARG002 - as the others
        """Keeps a training's work, from which it goes on wherever it is begun again."""
        if self._is_held(job):
            folder = self._settings.training_dir / job.id
            await asyncio.to_thread(training_packs.unpack, told.blobs["packed"], folder)
            trainings.note_saved(self._database, job, int(told.data["step"]))

    def _is_held(self, job: Job) -> bool:
        with self._database.write() as tx:
            return claims.is_held(tx, job)

    def _leave(self, link: Link, notice_s: float) -> None:
        """Prepares for the end of a machine: what will not be done by then goes back to the front."""
        with self._database.write() as tx:
            workers.set_draining(tx, link.id)
        for job in claims.list_claims(self._database, link.id):
            if job.eta_s is None or job.eta_s > notice_s - NOTICE_MARGIN_S:
                claims.requeue_running(self._database, link.id, only=[(job.id, job.attempt)])
                self._giver.tell_to_end(link, (job.id, job.attempt))

    def _beat(self, link: Link) -> None:
        """Stores a sign of life; the next one does where the database takes nothing now."""
        try:
            workers.beat(self._database, link.id, lease_s=self._lease_s, seen=link.after)
        except sqlite3.Error as error:
            if not passes(error):
                raise
            log.warning("the database takes nothing now: %s", error)
