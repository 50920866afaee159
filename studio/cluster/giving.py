"""Jobs go out: claimed for workers that have nothing to do, and sent with the files that they lack.

A look at the line is due when something woke the dispatcher (the app wrote, a worker's job ended), or when a while has
passed, for what other processes wrote.
"""

import asyncio
import logging
import time
from collections.abc import Coroutine, Mapping
from contextlib import suppress

from pipelines.errors import LumeshError
from pipelines.messages import english, say
from studio import events
from studio.cluster import protocol
from studio.cluster.attachments import Attachments
from studio.cluster.link import Link, WorkerGoneError, WorkerSilentError
from studio.cluster.protocol import Claim, Order
from studio.database import Database
from studio.jobs import claims, trainings
from studio.jobs.costs import estimates
from studio.jobs.job import Card, Job
from studio.settings import Settings
from studio.storage import LOW_BYTES, count_free

GIVE_S = 0.5
IDLE_S = 1.0
AGAIN_S = 1.0

log = logging.getLogger(__name__)


class Giver:
    """Gives jobs to the workers in `links`, and tells those whose job nobody wants any more."""

    def __init__(self, settings: Settings, database: Database, links: Mapping[str, Link]) -> None:
        self._settings = settings
        self._database = database
        self._links = links
        self._attachments = Attachments(settings, database)
        self._attachments.forget_packs()
        self._woken = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._last_id = -1
        self._looked_s = -IDLE_S
        self.is_finishing = False

    def wake(self) -> None:
        """Makes the next look at the line due now."""
        self._looked_s = -IDLE_S
        self._woken.set()

    async def wait(self) -> None:
        """Returns when a look is due.

        Not by asyncio.wait_for: in Python 3.11 it loses a cancellation that comes as the event is set.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(GIVE_S):
                await self._woken.wait()

    def stop(self) -> None:
        """Ends what is being sent."""
        for task in self._tasks:
            task.cancel()

    async def give(self) -> None:
        """Claims jobs for idle workers, if anything has changed since the last look or that is long ago."""
        self._woken.clear()
        last_id, now_s = events.read_last_id(self._database), time.monotonic()
        if last_id == self._last_id and now_s - self._looked_s < IDLE_S:
            return
        self._last_id, self._looked_s = last_id, now_s
        for name, job_id, attempt in claims.list_unwanted(self._database):
            if (link := self._links.get(name)) is not None:
                self.tell_to_end(link, (job_id, attempt))
        for name, job_id, attempt in trainings.list_pausing(self._database):
            if (link := self._links.get(name)) is not None and (job_id, attempt) not in link.told_to_pause:
                link.told_to_pause.add((job_id, attempt))
                self._start(self._tell(link, "pause", (job_id, attempt)))
        if self.is_finishing or count_free(self._settings.data_dir) < LOW_BYTES:
            return
        for link in [*self._links.values()]:
            if link.is_idle and (job := claims.claim_next(self._database, link.id, resident=link.model or None)):
                link.held[job.id, job.attempt] = job
                self._start(self._begin(link, job))

    def tell_to_end(self, link: Link, claim: Claim) -> None:
        """Lets a worker end a job after its current chunk."""
        if claim not in link.told_to_end:
            link.told_to_end.add(claim)
            self._start(self._tell(link, "cancel", claim))

    async def find_company(self, link: Link, job: Job, room: int) -> None:
        """Sends the jobs that join a batch; they go back to the front when the worker did not wait for them."""
        others = claims.claim_others(self._database, job, room=room)
        for other in others:
            link.held[other.id, other.attempt] = other
        orders = [await self._make_order(link, other) for other in others]
        if not await link.handle.call("join_batch", (job.id, job.attempt), orders):
            claimed = [(other.id, other.attempt) for other in others]
            claims.requeue_running(self._database, link.id, only=claimed)
            for claim in claimed:
                link.held.pop(claim, None)

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _tell(self, link: Link, method: str, claim: Claim) -> None:
        try:
            await link.handle.call(method, claim)
        except (WorkerGoneError, WorkerSilentError):  # it is told again at the next look
            (link.told_to_pause if method == "pause" else link.told_to_end).discard(claim)

    async def _begin(self, link: Link, job: Job) -> None:
        """Sends a job with the files that the worker lacks; again where the worker was silent for a moment."""
        try:
            while self._links.get(link.id) is link and (job.id, job.attempt) in link.held:
                with suppress(WorkerSilentError):
                    await link.handle.call("begin", await self._make_order(link, job))
                    return
                await asyncio.sleep(AGAIN_S)
        except WorkerGoneError:
            pass  # whoever pulls notices, and takes the job back
        except LumeshError as error:
            self._give_up(link, job, Card.of(error))
        except Exception as error:
            log.exception("job %s cannot be sent", job.id)
            told = english(f"{type(error).__name__}: {error}"[:300])
            advice = say("Retry once; if it comes back, {file} has the details.", file=self._settings.dispatcher_log)
            self._give_up(link, job, Card(title=say("The job cannot be sent"), detail=told, advice=advice))

    def _give_up(self, link: Link, job: Job, card: Card) -> None:
        claims.fail(self._database, job, card)
        link.held.pop((job.id, job.attempt), None)
        self.wake()

    async def _make_order(self, link: Link, job: Job) -> Order:
        inputs, loras, state, training = [], [], None, trainings.read_training(self._database, job.id)
        if job.recipe.images or job.recipe.loras:
            inputs, loras = await asyncio.to_thread(self._attachments.find, job)
        if training is not None:
            ids = [picture.id for picture in training.asked.pictures]
            inputs = await asyncio.to_thread(self._attachments.find_pictures, job, ids)
            state = await asyncio.to_thread(self._attachments.pack_training, job, start=training.asked.start_from)
        wanted = [*inputs, *loras, *([state] if state else [])]
        try:
            for one in await link.handle.call("list_missing", wanted) if wanted else []:
                await link.handle.call("store", one, await asyncio.to_thread(self._attachments.read, one))
        finally:
            self._attachments.forget_pack(job)
        history = estimates.read_history(self._database, link.id)
        return Order(
            job=protocol.write_job(job),
            history=protocol.write_history(history, job.recipe.model),
            inputs=inputs,
            loras=loras,
            training=protocol.write_training(training) if training else None,
            state=state,
        )
