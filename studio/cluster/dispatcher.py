"""Hands jobs to workers on other machines, and stores what they tell: `python -m studio.cluster`.

A child of the app, in place of the worker, with `--engine ray`. It lives as long as its standard input, whose bytes are
the app's wishes (FINISH, STOP). When the app or this process is gone, workers go on: their events wait in their
outboxes, the next dispatcher finds them by name, pulls from the last number that it stored, and nothing is lost or
doubled: the end of a job is stored under its attempt, once, and a step that is told twice is the same step.
A worker that does not answer for LEASE_S loses its jobs, which go back to the front; whatever it says of them later
names an attempt that is over.
Not here: machines and processes (ray_cluster.py), who is next (jobs/line).
"""

import asyncio
import logging
import sqlite3
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from pipelines.errors import Cancelled, LumeshError
from pipelines.files.whole import write_whole
from pipelines.messages import Message, english, read_codes, say
from pipelines.stages import Progress
from studio import VERSION, events
from studio.cluster import protocol
from studio.cluster.attachments import Attachments
from studio.cluster.protocol import ENDS, PROTOCOL, Claim, Hello, Order, Told
from studio.database import Database
from studio.jobs import claims, workers
from studio.jobs.costs import estimates
from studio.jobs.costs.estimates import Measured
from studio.jobs.job import Card, Job
from studio.jobs.workers import WorkerState
from studio.settings import Settings
from studio.storage import LOW_BYTES, count_free, is_full, passes
from studio.worker.local_desk import LocalDesk

LEASE_S = 20.0
WAIT_S = 5.0  # of a pull: a heartbeat where nothing happens
START_S = 180.0  # a machine may be importing its first libraries; a process that ends is noticed before
REFUSED_S = 60.0  # a machine of another version may be mended meanwhile
GIVE_S, IDLE_S = 0.05, 1.0
PLACE_S = 2.0
RETRY_S = 1.0
NOTICE_MARGIN_S = 5.0  # of a machine that goes away, to send what was made

T = TypeVar("T")

log = logging.getLogger(__name__)


class WorkerGoneError(Exception):
    """The process of a worker has ended."""


class WorkerSilentError(Exception):
    """A worker cannot be reached now."""


class Handle(Protocol):
    """A worker's process."""

    async def call(self, method: str, *arguments: Any) -> Any:
        """Calls a method of WorkerActor; raises WorkerGoneError, WorkerSilentError."""
        ...

    def kill(self) -> None:
        """Ends the process, if it can be reached."""
        ...


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a worker is: its id, and the address of its machine."""

    worker: str
    node: str


class Cluster(Protocol):
    """The machines."""

    async def list_places(self) -> list[Place]:
        """Returns where workers can be: a place for each that a machine has room for."""
        ...

    async def find(self, place: Place) -> Handle:
        """Returns the worker at a place, which is started if it is not there; raises WorkerSilentError."""
        ...


@dataclass(kw_only=True)
class Link:
    """A worker as this dispatcher knows it. `held` are the jobs that it has, or that are on their way to it."""

    place: Place
    handle: Handle
    after: int = 0
    model: str = ""
    is_ready: bool = False
    held: dict[Claim, Job] = field(default_factory=dict[Claim, Job])
    zombies: set[Claim] = field(default_factory=set[Claim])
    told_to_end: set[Claim] = field(default_factory=set[Claim])
    answered_s: float = field(default_factory=time.monotonic)

    @property
    def id(self) -> str:
        return self.place.worker

    @property
    def is_idle(self) -> bool:
        return self.is_ready and not self.held and not self.zombies


class Dispatcher:
    """Serves all workers of a cluster from one event loop."""

    def __init__(self, settings: Settings, database: Database, cluster: Cluster, *, lease_s: float = LEASE_S) -> None:
        self._settings = settings
        self._database = database
        self._cluster = cluster
        self._lease_s = lease_s
        self._attachments = Attachments(settings, database)
        self._links: dict[str, Link] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._begun: set[asyncio.Task[None]] = set()
        self._last_id = -1
        self._looked_s = -IDLE_S
        self.is_finishing = False

    @property
    def links(self) -> Mapping[str, Link]:
        """The workers that are served now."""
        return self._links

    async def run(self) -> None:
        """Serves until it is cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._repeat(self._place, PLACE_S))
                group.create_task(self._repeat(self._give, GIVE_S))
        finally:
            for task in (*self._tasks.values(), *self._begun):
                task.cancel()

    async def _repeat(self, work: Callable[[], Awaitable[None]], every_s: float) -> None:
        while True:
            try:
                await work()
            except Exception:  # a full disk, a locked database, a cluster that comes up: the next turn tries again
                log.exception("the dispatcher goes on")
                await asyncio.sleep(RETRY_S)
            await asyncio.sleep(every_s)

    # Machines come and go.

    async def _place(self) -> None:
        """Follows new workers; takes jobs back from those that nobody follows and whose time is over."""
        places = {place.worker: place for place in await self._cluster.list_places()}
        for name, place in places.items():
            if name not in self._tasks:
                self._tasks[name] = asyncio.create_task(self._follow(place))
        for name in [name for name, task in self._tasks.items() if task.done()]:
            del self._tasks[name]
        for name in claims.list_overdue(self._database, now=time.time()):
            if name not in self._links:
                claims.requeue_running(self._database, name, is_lost=True)
        for row in workers.read_workers(self._database):
            if row.id not in places and row.id not in self._tasks and row.state is not WorkerState.STOPPED:
                self._describe(row.id, WorkerState.STOPPED, say("its machine is gone"), pid=None, model="", shapes={})

    async def _follow(self, place: Place) -> None:
        """Serves a worker until it is gone."""
        try:
            handle = await asyncio.wait_for(self._cluster.find(place), START_S)
        except (WorkerSilentError, WorkerGoneError, TimeoutError) as error:
            log.warning("worker %s does not come up: %s", place.worker, error)
            return
        link = Link(place=place, handle=handle)
        try:
            hello: Hello = await asyncio.wait_for(handle.call("describe"), START_S)
            if (problem := _find_obstacle(hello)) is not None:
                self._describe(link.id, WorkerState.STARTING, say("cannot join"), node=place.node, error=problem)
                await asyncio.sleep(REFUSED_S)
                return
            await self._attach(link, hello)
            self._links[link.id] = link
            while True:
                await self._pull(link)
        except (WorkerGoneError, WorkerSilentError, TimeoutError) as error:
            log.warning("worker %s is lost: %s", link.id, str(error) or type(error).__name__)
            self._lose(link)
        except asyncio.CancelledError:
            raise
        except Exception:
            log.exception("worker %s is given up", link.id)
            self._lose(link)
        finally:
            self._links.pop(link.id, None)

    async def _attach(self, link: Link, hello: Hello) -> None:
        """Takes a worker over: what it told meanwhile is stored, then both sides agree on what it holds."""
        rows = {row.id: row for row in workers.read_workers(self._database)}
        row = rows.get(link.id)
        if row is None or row.epoch != hello.epoch:  # another process: what its predecessor held is lost
            claims.requeue_running(self._database, link.id, is_lost=True)
            columns = {"epoch": hello.epoch, "seen": 0, "node": link.place.node, "is_pinned": hello.is_pinned}
            self._describe(
                link.id, WorkerState.STARTING, say("starting"), pid=hello.pid, is_draining=False, model="", **columns
            )
        else:
            link.after, link.model = row.seen, row.model
            if hello.engine:
                self._apply_engine(link, {**hello.engine, "pid": hello.pid})
        link.held = {(job.id, job.attempt): job for job in claims.list_claims(self._database, link.id)}
        await self._pull(link, wait_s=0.0)
        running = set((await asyncio.wait_for(link.handle.call("describe"), self._lease_s)).running)
        await self._pull(link, wait_s=0.0)  # what ended between the two
        ended = [claim for claim in link.held if claim not in running]
        claims.requeue_running(self._database, link.id, only=ended)  # claimed, but never begun
        for claim in ended:
            link.held.pop(claim, None)
        for claim in running - link.held.keys():
            link.zombies.add(claim)
            await link.handle.call("cancel", claim)
        link.is_ready = True

    def _lose(self, link: Link) -> None:
        """Takes a worker's jobs back, and makes sure that its process is gone."""
        link.is_ready = False
        link.handle.kill()
        self._insist(lambda: claims.requeue_running(self._database, link.id, is_lost=True))
        card = Card(
            title=say("The worker stopped answering"),
            detail=say("Its process, its machine or the network between is gone."),
            advice=say("What it ran starts again elsewhere; it is taken back when it answers."),
        )
        self._describe(
            link.id, WorkerState.RESTARTING, say("lost"), pid=None, model="", shapes={}, error=card.to_json()
        )

    # Jobs go out.

    async def _give(self) -> None:
        """Claims jobs for idle workers, when something happened or a while has passed."""
        last_id, now_s = events.read_last_id(self._database), time.monotonic()
        if last_id == self._last_id and now_s - self._looked_s < IDLE_S:
            return
        self._last_id, self._looked_s = last_id, now_s
        for name, job_id, attempt in claims.list_unwanted(self._database):
            await self._tell_to_end(self._links.get(name), (job_id, attempt))
        if self.is_finishing or count_free(self._settings.data_dir) < LOW_BYTES:
            return
        for link in [*self._links.values()]:
            if link.is_idle and (job := claims.claim_next(self._database, link.id, resident=link.model or None)):
                link.held[job.id, job.attempt] = job
                task = asyncio.create_task(self._begin(link, job))
                self._begun.add(task)
                task.add_done_callback(self._begun.discard)

    async def _begin(self, link: Link, job: Job) -> None:
        """Sends a job with the files that the worker lacks."""
        try:
            await link.handle.call("begin", await self._make_order(link, job))
        except (WorkerGoneError, WorkerSilentError):
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

    async def _make_order(self, link: Link, job: Job) -> Order:
        inputs, loras = await asyncio.to_thread(self._attachments.find, job)
        wanted = [*inputs, *loras]
        for one in await link.handle.call("list_missing", wanted) if wanted else []:
            await link.handle.call("store", one, await asyncio.to_thread(self._attachments.read, one))
        history = estimates.read_history(self._database, link.id)
        return Order(
            job=protocol.write_job(job),
            history=protocol.write_history(history, job.recipe.model),
            inputs=inputs,
            loras=loras,
        )

    async def _tell_to_end(self, link: Link | None, claim: Claim) -> None:
        if link is None or claim in link.told_to_end:
            return
        link.told_to_end.add(claim)
        try:
            await link.handle.call("cancel", claim)
        except (WorkerGoneError, WorkerSilentError):
            link.told_to_end.discard(claim)

    # What workers tell comes in.

    async def _pull(self, link: Link, *, wait_s: float = WAIT_S) -> None:
        """Stores the next events; raises WorkerGoneError, and TimeoutError when the worker's time is over."""
        left_s = self._lease_s - (time.monotonic() - link.answered_s)
        try:
            told: list[Told] = await asyncio.wait_for(link.handle.call("pull", link.after, wait_s), max(0.1, left_s))
        except WorkerSilentError:
            if left_s <= 0:
                raise
            await asyncio.sleep(RETRY_S)
            return
        link.answered_s = time.monotonic()
        for one in told:
            if one.number > link.after:
                await self._store(link, one)
                link.after = one.number
        self._insist(lambda: workers.beat(self._database, link.id, lease_s=self._lease_s, seen=link.after))

    async def _store(self, link: Link, told: Told) -> None:
        """Stores an event; a database that takes nothing now is asked again, if the event must not be lost."""
        while True:
            try:
                await self._apply(link, told)
            except (sqlite3.Error, OSError) as error:
                is_passing = is_full(error) if isinstance(error, OSError) else passes(error)
                if not is_passing:
                    raise
                log.warning("%s of worker %s is not stored yet: %s", told.kind, link.id, error)
                await asyncio.sleep(RETRY_S)
            else:
                return

    async def _apply(self, link: Link, told: Told) -> None:
        if told.claim is None:
            self._apply_own(link, told)
            if told.kind == "leaving":
                await self._leave(link, float(told.data["notice_s"]))
            return
        job = link.held.get(told.claim)
        if job is not None:
            await self._apply_to_job(link, job, told)
        elif told.kind == "room":
            await link.handle.call("join_batch", told.claim, [])
        if told.kind in ENDS:
            link.held.pop(told.claim, None)
            link.zombies.discard(told.claim)
            link.told_to_end.discard(told.claim)

    def _apply_own(self, link: Link, told: Told) -> None:
        """Stores what a worker tells of itself."""
        data = told.data
        match told.kind:
            case "engine":
                self._apply_engine(link, data)
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

    def _apply_engine(self, link: Link, data: dict[str, Any]) -> None:
        fields = read_codes(data)
        state, activity = WorkerState(fields.pop("state")), protocol.as_message(fields.pop("activity"))
        fields["device"] = protocol.as_message(fields["device"])
        link.model = fields.get("model", link.model)
        if fields.get("error"):
            fields["error"] = data["error"]  # with its codes
        self._describe(link.id, state, activity, **fields)

    async def _apply_to_job(self, link: Link, job: Job, told: Told) -> None:
        """Stores what a worker tells of a job that it holds, as far as the database still says so."""
        match told.kind:
            case "progress":
                data = dict(told.data)
                eta_s = data.pop("eta_s")
                if not claims.report(self._database, job, Progress(**data), eta_s=eta_s):
                    await self._tell_to_end(link, (job.id, job.attempt))
            case "preview":
                claims.save_preview(self._database, job, told.blobs["jpeg"])
            case "room":
                await self._find_company(link, job, int(told.data["room"]))
            case "done":
                await asyncio.to_thread(self._finish, link, job, told)
            case "failed":
                claims.fail(self._database, job, Card.from_json(told.data))
            case "cancelled":
                claims.end_cancelled(self._database, job)
            case _:
                log.warning("worker %s tells of %s, which is not known", link.id, told.kind)

    def _finish(self, link: Link, job: Job, told: Told) -> None:
        """Writes a result's files, then stores them with the job's end; nothing when the claim was lost."""
        made = protocol.read_made(told.data)
        with self._database.write() as tx:
            if not claims.is_held(tx, job):  # stored before, or begun again elsewhere
                return
        for name, content in told.blobs.items():
            folder, _, file = name.partition("/")
            if not file.startswith(f"{job.id}-") or "/" in file or not folder.replace("-", "").isdecimal():
                raise ValueError(f"worker {link.id} names a file {name!r}")
            write_whole(self._settings.outputs_dir / name, content)
        try:
            LocalDesk(self._database, self._settings, link.id).finish(job, made)
        except Cancelled:
            claims.end_cancelled(self._database, job)

    async def _find_company(self, link: Link, job: Job, room: int) -> None:
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

    async def _leave(self, link: Link, notice_s: float) -> None:
        """Prepares for the end of a machine: what will not be done by then goes back to the front."""
        with self._database.write() as tx:
            workers.set_draining(tx, link.id)
        for job in claims.list_claims(self._database, link.id):
            if job.eta_s is None or job.eta_s > notice_s - NOTICE_MARGIN_S:
                claims.requeue_running(self._database, link.id, only=[(job.id, job.attempt)])
                await self._tell_to_end(link, (job.id, job.attempt))

    def _describe(self, worker: str, state: WorkerState, activity: Message, **columns: Any) -> None:
        with self._database.write() as tx:
            workers.describe(tx, worker, state, activity=activity, **columns)

    def _insist(self, work: Callable[[], T]) -> T | None:
        """Does what the database may refuse now: it is done again at the worker's next sign of life."""
        try:
            return work()
        except sqlite3.Error as error:
            if not passes(error):
                raise
            log.warning("the database takes nothing now: %s", error)
            return None


def _find_obstacle(hello: Hello) -> dict[str, Any] | None:
    """Returns the card of a worker of another version; None if it can work."""
    if (hello.protocol, hello.version) == (PROTOCOL, VERSION):
        return None
    return Card(
        title=say("This worker cannot join"),
        detail=say("It runs Lumesh {its}, the studio runs {own}.", its=hello.version, own=VERSION),
        advice=say("Install the same version on both machines, then let it join again."),
    ).to_json()
