"""Machines without Ray: the protocol's methods on a real outbox, desk and stock, in the process of a test."""

import asyncio
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.messages import say
from studio import VERSION
from studio.cluster.link import Place, WorkerGoneError, WorkerSilentError
from studio.cluster.outbox import Outbox
from studio.cluster.outbox_desk import OutboxDesk
from studio.cluster.protocol import PROTOCOL, Attachment, Claim, Hello, Order, Told
from studio.cluster.stock import Stock
from studio.jobs.job import Job
from studio.jobs.workers import WorkerState
from studio.library.files import save_outputs
from studio.settings import Settings
from studio.worker.desk import Made

POLL_S = 0.005


class Machine:
    """A worker's process as its dispatcher sees it (the Handle), and its desk as the worker sees it."""

    def __init__(self, data_dir: Path, *, epoch: str = "first", version: str = VERSION) -> None:
        settings = Settings(host="127.0.0.1", port=0, data_dir=data_dir, fake=True)
        self.settings = dataclasses.replace(
            settings, outputs=data_dir / "sending" / "outputs", trainings=data_dir / "sending" / "training"
        )
        self.outbox = Outbox()
        self.stock = Stock(settings)
        self.desk = OutboxDesk(self.settings, self.outbox, self.stock)
        self.epoch, self.version = epoch, version
        self.is_pinned = False
        self.is_gone = self.is_silent = self.was_ended = False
        self.stored: list[str] = []
        self.desk.announce(WorkerState.READY, activity=say("ready"), model="")

    async def call(self, method: str, *arguments: Any) -> Any:
        await asyncio.sleep(POLL_S)
        if self.is_gone:
            raise WorkerGoneError("gone")
        if self.is_silent:
            raise WorkerSilentError("silent")
        return getattr(self, method)(*arguments)

    def kill(self) -> None:
        self.was_ended = True

    def describe(self) -> Hello:
        return Hello(
            protocol=PROTOCOL,
            version=self.version,
            epoch=self.epoch,
            running=self.desk.list_held(),
            engine=self.desk.engine,
            last=self.outbox.last,
            is_pinned=self.is_pinned,
            pid=1,
        )

    def pull(self, after: int, _wait_s: float) -> list[Told]:
        return self.outbox.pull(after, wait_s=0.0)

    def list_missing(self, wanted: list[Attachment]) -> list[Attachment]:
        return self.stock.list_missing(wanted)

    def store(self, one: Attachment, content: bytes) -> None:
        self.stored.append(one.name)
        self.stock.store(one, content)

    def begin(self, order: Order) -> bool:
        return self.desk.begin(order)

    def join_batch(self, claim: Claim, orders: list[Order]) -> bool:
        if orders:
            return self.desk.join_batch(claim, orders)
        self.desk.no_company(claim)
        return True

    def answer_refs(self, claim: Claim, refs: list[str] | None) -> None:
        self.desk.trainings.answer_refs(claim, refs)

    def pause(self, claim: Claim) -> None:
        self.desk.trainings.pause(claim)

    def cancel(self, claim: Claim) -> None:
        self.desk.cancel(claim)

    # What a worker does.

    def take(self) -> Job | None:
        return self.desk.claim_next(resident=None)

    def finish(self, job: Job) -> None:
        """Sends a picture of one colour as the job's result."""
        pixels = np.full((1, 16, 16, 3), 90, np.uint8)
        made = Made(
            files=save_outputs(self.settings.outputs_dir, job.id, pixels, job.recipe),
            made_at=1.0,
            made_with={"device": "none"},
            timings={"total_s": 1.0},
            compiles=0,
            revision="",
            measured=None,
            notes=(say("ready"),),
        )
        self.desk.finish(job, made)


class Machines:
    """A Cluster of them by name."""

    def __init__(self, **machines: Machine) -> None:
        self.machines = machines

    async def list_places(self) -> list[Place]:
        return [Place(worker=name, node="10.0.0.9") for name in self.machines]

    async def find(self, place: Place) -> Machine:
        return self.machines[place.worker]


async def until(what: str, look: Callable[[], Any], timeout_s: float = 10.0) -> Any:
    """Returns what `look` finds, once it finds something."""
    for _ in range(round(timeout_s / POLL_S)):
        if found := look():
            return found
        await asyncio.sleep(POLL_S)
    raise AssertionError(f"waited in vain for {what}")
