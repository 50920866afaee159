"""A worker on a machine of the cluster: the process of a detached Ray actor, which the dispatcher finds by its name.

A slice of several hosts is one worker: an actor on each, of which the first has the outbox and leads the others.

It has no database. Without a dispatcher for GONE_S it ends itself once it runs nothing: whoever may have lost it for
good must not find it holding the devices. Ray is not imported here: the dispatcher makes an actor of this class.
"""

import dataclasses
import faulthandler
import functools
import logging
import os
import secrets
import shutil
import threading
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager

from pipelines.errors import LumeshError
from pipelines.messages import say
from pipelines.runtime.devices import hosts
from studio import VERSION
from studio.cluster.joined import Joined
from studio.cluster.outbox import Outbox
from studio.cluster.outbox_desk import OutboxDesk
from studio.cluster.protocol import PROTOCOL, Attachment, Claim, Hello, Order, Told
from studio.cluster.stock import Stock
from studio.flags import read_settings
from studio.jobs.job import Card
from studio.jobs.workers import WorkerState
from studio.models import read_catalog
from studio.storage import PRIVATE_UMASK
from studio.worker.checkup import check_up
from studio.worker.lock import hold_lock
from studio.worker.opening import make_worker, open_devices
from studio.worker.slice import follow, lead

LOCK_TIMEOUT_S = 30.0
GONE_S = 600.0
POLL_S = 1.0
DRAIN_FILE = "drain"
"""A file of this name in a joined machine's data directory says that the machine goes away; it holds the seconds."""
DRAINED_PREFIX = "drained-"
"""What the names of the files begin with by which its workers answer that they have nothing more to do or to send."""

log = logging.getLogger(__name__)


class HostActor:
    """A process on a machine that joined: it has the machine's settings and a stock of files."""

    def __init__(self, worker: str, number: int, address: hosts.Address | None = None) -> None:
        joined = Joined.read(os.environ)
        os.environ.update(joined.devices[number])
        os.umask(PRIVATE_UMASK)
        faulthandler.enable()
        self._worker = worker
        self._joined = joined
        self._address = address
        self._settings = settings = read_settings(joined.flags, os.environ)
        log_file = settings.find_log(worker)
        log_file.parent.mkdir(parents=True, exist_ok=True)
        logging.basicConfig(
            level=logging.INFO,
            format="%(asctime)s %(levelname)s %(name)s: %(message)s",
            handlers=[logging.FileHandler(log_file)],
            force=True,
        )
        self._stock = Stock(settings)
        self._own = settings.data_dir / "cache" / "sending" / worker  # this may be the studio's own data directory

    def list_missing(self, wanted: Sequence[Attachment]) -> list[Attachment]:
        """Returns the files that must be stored before a job begins."""
        return self._stock.list_missing(wanted)

    def store(self, one: Attachment, content: bytes) -> None:
        """Keeps a file that a job needs."""
        self._stock.store(one, content)

    def _hold_lock(self) -> AbstractContextManager[None]:
        """Makes sure that no other process uses the same devices."""
        lock = self._settings.data_dir / f"{self._worker}.lock"
        return hold_lock(lock, who="Another worker", timeout_s=LOCK_TIMEOUT_S)

    def _meet(self) -> AbstractContextManager[None]:
        """Joins the slice's other hosts, if there are any: before any device is opened."""
        return hosts.together(self._address, on_loss=lambda: "the slice starts again.")


class FollowerActor(HostActor):
    """A further host of a slice, which does what its first one does."""

    def __init__(self, worker: str, number: int, address: hosts.Address) -> None:
        super().__init__(worker, number, address)
        threading.Thread(target=self._follow, name="follower", daemon=True).start()

    def wait_for_end(self, wait_s: float) -> None:
        """Returns after a while: whoever waits hears at once that this process has ended."""
        time.sleep(wait_s)

    def _follow(self) -> None:
        try:
            with self._hold_lock(), self._meet():
                shutil.rmtree(self._own, ignore_errors=True)  # of a training that ended with its slice
                follow(
                    open_devices(self._settings),
                    self._settings.data_dir,
                    functools.partial(read_catalog, self._settings),
                )
        except BaseException:
            log.exception("this host of a slice ends")
            os._exit(hosts.LOST)


class WorkerActor(HostActor):
    """One worker, or the first host of one. The methods are the protocol's; a thread works."""

    def __init__(self, worker: str, number: int, address: hosts.Address | None = None) -> None:
        super().__init__(worker, number, address)
        self._settings = dataclasses.replace(
            self._settings, outputs=self._own / "outputs", trainings=self._own / "training"
        )
        self._epoch = secrets.token_hex(8)
        self._outbox = Outbox()
        self._desk = OutboxDesk(self._settings, self._outbox, self._stock)
        self._pulled_s = time.monotonic()
        threading.Thread(target=self._work, name="worker", daemon=True).start()
        threading.Thread(target=self._watch, name="watch", daemon=True).start()

    def describe(self) -> Hello:
        """Says who this is and what it does."""
        return Hello(
            protocol=PROTOCOL,
            version=VERSION,
            epoch=self._epoch,
            running=self._desk.list_held(),
            engine=self._desk.engine,
            last=self._outbox.last,
            is_pinned=self._joined.is_pinned,
            hosts=self._address.processes if self._address else 1,
            pid=os.getpid(),
        )

    def pull(self, after: int, wait_s: float) -> list[Told]:
        """Returns the events after a number, which acknowledges those up to it."""
        self._pulled_s = time.monotonic()
        return self._outbox.pull(after, wait_s=wait_s)

    def begin(self, order: Order) -> bool:
        """Takes a job."""
        return self._desk.begin(order)

    def join_batch(self, claim: Claim, orders: Sequence[Order]) -> bool:
        """Answers the event `room`: these jobs join, or nobody."""
        if orders:
            return self._desk.join_batch(claim, orders)
        self._desk.no_company(claim)
        return True

    def answer_refs(self, claim: Claim, refs: Sequence[str] | None) -> None:
        """Answers the event `refs`: the names under which a training's result will be, or that it was lost."""
        self._desk.trainings.answer_refs(claim, refs)

    def pause(self, claim: Claim) -> None:
        """Makes a training stop after its next step, to go on later."""
        self._desk.trainings.pause(claim)

    def cancel(self, claim: Claim) -> None:
        """Ends a job after its current chunk."""
        self._desk.cancel(claim)

    def _work(self) -> None:
        try:
            with self._hold_lock(), self._meet():
                self._run()
        except LumeshError as error:
            if self._address is not None:
                log.exception("this slice ends")
                os._exit(hosts.LOST)
            log.error("%s", error)
            card = Card.of(error).to_json()
            self._desk.announce(WorkerState.STARTING, activity=say("cannot start"), error=card)
        except Exception:
            log.exception("the worker ends")
            os._exit(1)

    def _run(self) -> None:
        for folder in (self._settings.outputs_dir, self._settings.training_dir):
            shutil.rmtree(folder, ignore_errors=True)  # of an attempt that was never sent
        self._desk.announce(WorkerState.STARTING, activity=say("starting"), pid=os.getpid(), model="", shapes={})
        trouble = None
        if self._address is None:  # the doctor opens the devices of one host, which on a slice wait for the others
            trouble = check_up(
                self._settings, lambda activity: self._desk.announce(WorkerState.STARTING, activity=activity)
            )
        opened = open_devices(self._settings)
        if self._address is not None:
            opened = lead(opened, self._settings.data_dir)
        self._desk.equip(chips=opened.chips, chip_price=self._settings.chip_price)
        self._desk.announce(WorkerState.STARTING, activity=say("starting"), device=opened.title)
        make_worker(
            self._settings, self._desk, opened, is_prepared=False, ending=threading.Event(), trouble=trouble
        ).run()

    def _watch(self) -> None:
        """Tells that the machine goes away, and ends what nobody wants any more."""
        drain_file, told = self._settings.data_dir / DRAIN_FILE, False
        while True:
            time.sleep(POLL_S)
            if drain_file.exists() and not told:
                told = True
                self._outbox.put("leaving", None, {"notice_s": float(drain_file.read_text("utf-8") or 0)})
            if told and not self._desk.list_held() and self._outbox.is_empty:
                (self._settings.data_dir / f"{DRAINED_PREFIX}{self._worker}").touch()
            if time.monotonic() - self._pulled_s > GONE_S and not self._desk.list_held():
                log.warning("no dispatcher for %d s: the worker ends", GONE_S)
                os._exit(0)
