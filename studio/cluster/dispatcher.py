"""Hands jobs to workers on other machines, and stores what they tell: `python -m studio.cluster`.

A child of the app, in place of the worker, with `--engine ray`. It lives as long as its standard input, whose bytes are
the app's wishes (keeper.py). When the app or this process is gone, workers go on: their events wait in their
outboxes, the next dispatcher finds them by name, pulls from the last number that it stored, and nothing is lost or
doubled: the end of a job is stored under its attempt, once, and a step that is told twice is the same step.
A worker that does not answer for LEASE_S loses its jobs, which go back to the front; whatever it says of them later
names an attempt that is over.
Not here: jobs on their way out (giving.py), events on their way in (storing.py), machines and processes
(ray_cluster.py), who is next (jobs/line).
"""

import asyncio
import logging
import sqlite3
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from pipelines.messages import say
from studio import VERSION
from studio.cluster.giving import Giver
from studio.cluster.link import Cluster, Link, Place, WorkerGoneError, WorkerSilentError
from studio.cluster.protocol import PROTOCOL, Hello, Told
from studio.cluster.storing import Storing
from studio.database import Database
from studio.jobs import claims, workers
from studio.jobs.job import Card
from studio.jobs.workers import WorkerState
from studio.settings import Settings
from studio.storage import passes

LEASE_S = 20.0
WAIT_S = 5.0  # of a pull: a heartbeat where nothing happens
START_S = 180.0  # a machine may be importing its first libraries; a process that ends is noticed before
REFUSED_S = 60.0  # a machine of another version may be mended meanwhile
PLACE_S = 2.0
RETRY_S = 1.0

log = logging.getLogger(__name__)


class Dispatcher:
    """Serves all workers of a cluster from one event loop."""

    def __init__(self, settings: Settings, database: Database, cluster: Cluster, *, lease_s: float = LEASE_S) -> None:
        self._database = database
        self._cluster = cluster
        self._lease_s = lease_s
        self._links: dict[str, Link] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._giver = Giver(settings, database, self._links)
        self._storing = Storing(settings, database, self._giver, lease_s=lease_s)

    @property
    def links(self) -> Mapping[str, Link]:
        """The workers that are served now."""
        return self._links

    def wake(self) -> None:
        """Looks at the line now: somebody wrote to the database."""
        self._giver.wake()

    def finish(self) -> None:
        """Begins no more jobs."""
        self._giver.is_finishing = True

    async def run(self) -> None:
        """Serves until it is cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._repeat(self._place, lambda: asyncio.sleep(PLACE_S)))
                group.create_task(self._repeat(self._giver.give, self._giver.wait))
        finally:
            self._giver.stop()
            for task in self._tasks.values():
                task.cancel()

    async def _repeat(self, work: Callable[[], Awaitable[None]], wait: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await work()
            except Exception:  # a full disk, a locked database, a cluster that comes up: the next turn tries again
                log.exception("the dispatcher goes on")
                await asyncio.sleep(RETRY_S)
            await wait()

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
                self._storing.describe(
                    row.id, WorkerState.STOPPED, say("its machine is gone"), pid=None, model="", shapes={}
                )

    async def _follow(self, place: Place) -> None:
        """Serves a worker until it is gone."""
        try:
            async with asyncio.timeout(START_S):
                handle = await self._cluster.find(place)
        except (WorkerSilentError, WorkerGoneError, TimeoutError) as error:
            log.warning("worker %s does not come up: %s", place.worker, error)
            return
        link = Link(place=place, handle=handle)
        try:
            async with asyncio.timeout(START_S):
                hello: Hello = await handle.call("describe")
            if (problem := _find_obstacle(hello)) is not None:
                self._storing.describe(
                    link.id, WorkerState.STARTING, say("cannot join"), node=place.node, error=problem
                )
                await asyncio.sleep(REFUSED_S)
                return
            await self._attach(link, hello)
            self._links[link.id] = link
            self._giver.wake()
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
            columns["hosts"] = hello.hosts
            self._storing.describe(
                link.id, WorkerState.STARTING, say("starting"), pid=hello.pid, is_draining=False, model="", **columns
            )
        else:
            link.after, link.model = row.seen, row.model
            if hello.engine:
                self._storing.apply_engine(link, {**hello.engine, "pid": hello.pid})
        link.held = {(job.id, job.attempt): job for job in claims.list_claims(self._database, link.id)}
        await self._pull(link, wait_s=0.0)
        async with asyncio.timeout(self._lease_s):
            running = set((await link.handle.call("describe")).running)
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
        try:
            claims.requeue_running(self._database, link.id, is_lost=True)
        except sqlite3.Error as error:
            if not passes(error):
                raise
            log.warning("the jobs of worker %s are taken back later: %s", link.id, error)
        card = Card(
            title=say("The worker stopped answering"),
            detail=say("Its process, its machine or the network between is gone."),
            advice=say("What it ran starts again elsewhere; it is taken back when it answers."),
        )
        self._storing.describe(
            link.id, WorkerState.RESTARTING, say("lost"), pid=None, model="", shapes={}, error=card.to_json()
        )

    async def _pull(self, link: Link, *, wait_s: float = WAIT_S) -> None:
        """Stores the next events; raises WorkerGoneError, and TimeoutError when the worker's time is over."""
        left_s = self._lease_s - (time.monotonic() - link.answered_s)
        try:
            async with asyncio.timeout(max(0.1, left_s)):
                told: list[Told] = await link.handle.call("pull", link.after, wait_s)
        except WorkerSilentError:
            if left_s <= 0:
                raise
            await asyncio.sleep(RETRY_S)
            return
        link.answered_s = time.monotonic()
        await self._storing.store(link, told)


def _find_obstacle(hello: Hello) -> dict[str, Any] | None:
    """Returns the card of a worker of another version; None if it can work."""
    if (hello.protocol, hello.version) == (PROTOCOL, VERSION):
        return None
    return Card(
        title=say("This worker cannot join"),
        detail=say("It runs Lumesh {its}, the studio runs {own}.", its=hello.version, own=VERSION),
        advice=say("Install the same version on both machines, then let it join again."),
    ).to_json()
