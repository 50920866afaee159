"""Keeps one worker process alive, from inside the app.

The supervisor starts the process, watches its exit and its heartbeat, fails the job that it was running with a card
that says what happened, and restarts it: at once after the first end, with growing delays (backoff) when it keeps
ending. The queue waits in the database meanwhile. Whatever goes wrong, a full disk before all, is logged, noted for
/health, and tried again: nothing ends the supervisor but `stop`.
Not here: how long a worker was silent (silence.py).
"""

import contextlib
import logging
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

from pipelines.messages import say
from pipelines.runtime.devices import allocator
from studio.database import Database
from studio.jobs import claims, workers
from studio.jobs.job import Card
from studio.jobs.workers import LEASE_S, LOCAL, WorkerState
from studio.services.condition import Condition, describe_failure
from studio.settings import Settings
from studio.storage import BUSY, LOW_BYTES, count_free, explain, full
from studio.worker import CANNOT_START_CODE, ID_FLAG, IDLE_FLAG, LAST_JOB, LOOK
from studio.worker.lock import hold_lock
from studio.worker.logs import open_log, rotate
from studio.worker.silence import Silence

FIRST_DELAY_S, MAX_DELAY_S = 0.2, 30.0
HEALTHY_S = 30.0  # a worker that lived this long did start: its end resets the backoff
ORPHAN_TIMEOUT_S = 10.0
POLL_S = 0.1
RETRY_S = 1.0  # between two tries to write what the database did not take
ROTATE_INTERVAL_S = 30.0
AT_WORK = (WorkerState.PREPARING, WorkerState.READY, WorkerState.BUSY)
PART = "worker"  # the supervisor's problems in the condition
NO_VARIABLES: Mapping[str, str] = MappingProxyType({})
ROOT = Path(__file__).resolve().parent.parent.parent

T = TypeVar("T")

log = logging.getLogger(__name__)


class Supervisor:
    """Supervises one worker. `start` and `stop` are called once each; a thread does the rest."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        condition: Condition | None = None,
        *,
        worker: str = LOCAL,
        devices: Mapping[str, str] = NO_VARIABLES,
        heartbeat_timeout_s: float = LEASE_S,
    ) -> None:
        """Supervises the worker with this id; `devices` are the variables that limit it to its share of the devices."""
        self._settings = settings
        self._worker = worker
        self._devices = devices
        self._log_file = settings.find_log(worker)
        self._part = PART if worker == LOCAL else f"{PART} {worker}"
        self._condition = condition or Condition()
        self._heartbeat_timeout_s = heartbeat_timeout_s
        self._database = database
        self._stopping = threading.Event()
        self._finishing = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._keep_alive, name=f"supervisor-{worker}", daemon=True)

    def start(self) -> None:
        """Interrupts an earlier server's jobs, then starts the worker; raises AlreadyRunningError if one still runs."""
        with hold_lock(
            self._settings.find_worker_lock(self._worker),
            who="The worker of an earlier run",
            timeout_s=ORPHAN_TIMEOUT_S,
        ):
            claims.interrupt_running(self._database, self._worker)
        with self._database.write() as tx:
            workers.describe(
                tx,
                self._worker,
                WorkerState.STARTING,
                activity=say("starting"),
                pid=None,
                device="",
                model="",
                shapes={},
            )
        self._thread.start()

    def wake(self) -> None:
        """Makes an idle worker look for a job now."""
        self._tell(LOOK)

    def stop(self, *, finish_s: float | None = None) -> None:
        """Ends the worker; a running job becomes `interrupted`.

        With `finish_s` the job has that many seconds to finish; otherwise it is requeued at the front. Where the
        database takes nothing any more, the next start interrupts the job.
        """
        if finish_s is not None:
            with contextlib.suppress(KeyboardInterrupt):  # a second Ctrl+C stops the wait
                self._let_finish(finish_s)
        self._stopping.set()
        self._thread.join()
        try:
            if finish_s is None:
                claims.interrupt_running(self._database, self._worker)
            else:
                claims.requeue_running(self._database, self._worker)
            with self._database.write() as tx:
                workers.describe(
                    tx, self._worker, WorkerState.STOPPED, activity=say("stopped"), pid=None, model="", shapes={}
                )
        except sqlite3.Error as error:
            log.error("the end of the worker is not stored: %s", explain(error) or error)

    def _let_finish(self, timeout_s: float) -> None:
        self._finishing.set()
        self._tell(LAST_JOB)
        deadline = time.monotonic() + timeout_s
        while (
            self._thread.is_alive() and claims.has_running(self._database, self._worker) and time.monotonic() < deadline
        ):
            time.sleep(POLL_S)

    def _tell(self, wish: bytes) -> None:
        process = self._process
        if process is not None and process.stdin is not None:
            with contextlib.suppress(OSError, ValueError):  # it has ended, and its pipe is closed
                process.stdin.write(wish)  # nothing, when it has not read thousands of them

    def _keep_alive(self) -> None:
        delay_s = FIRST_DELAY_S
        prepares = True
        while not self._stopping.is_set():
            started_s = time.monotonic()
            try:
                card = self._run_worker(prepares=prepares)
            except Exception as error:
                log.exception("the worker cannot be started or watched")
                card = describe_failure(self._part, error)
            if self._stopping.is_set() or self._finishing.is_set():
                return
            log.warning("worker ended: %s", card.detail)
            delay_s = FIRST_DELAY_S if time.monotonic() - started_s > HEALTHY_S else delay_s
            self._condition.note(self._part, card)
            was_preparing = self._insist(lambda card=card, delay_s=delay_s: self._store_end(card, delay_s))
            # A default model that crashes its worker is not prepared again until a job asks for it.
            prepares = prepares and not was_preparing
            self._stopping.wait(delay_s)
            delay_s = min(2 * delay_s, MAX_DELAY_S)

    def _store_end(self, card: Card, delay_s: float) -> bool:
        """Fails the ended worker's jobs, and tells everybody; returns True when it was preparing the default model."""
        was_preparing = workers.read_worker(self._database, self._worker).state is WorkerState.PREPARING
        claims.fail_running(self._database, card, self._worker)
        with self._database.write() as tx:
            workers.describe(
                tx,
                self._worker,
                WorkerState.RESTARTING,
                activity=say("restarting in {count} s", count=round(delay_s)) if delay_s >= 1 else say("restarting"),
                error=card.to_json(),
                pid=None,
                model="",
                shapes={},
            )
        return was_preparing

    def _insist(self, work: Callable[[], T]) -> T | None:
        """Repeats work until the database takes it; returns None when the studio stops first."""
        while not self._stopping.is_set():
            try:
                return work()
            except Exception as error:
                log.exception("the end of a worker is not stored yet")
                self._condition.note(self._part, describe_failure(self._part, error))
                self._stopping.wait(RETRY_S)
        return None

    def _run_worker(self, *, prepares: bool) -> Card:
        """Runs one worker from start to end; the returned card says how it ended."""
        with self._database.write() as tx:
            workers.describe(
                tx, self._worker, WorkerState.STARTING, activity=say("starting"), pid=None, model="", shapes={}
            )
        flags = [*self._settings.worker_flags(), ID_FLAG, self._worker] + ([] if prepares else [IDLE_FLAG])
        with open_log(self._log_file) as worker_log:
            self._process = process = subprocess.Popen(
                [sys.executable, "-m", "studio.worker", *flags],
                cwd=ROOT,
                env={**self._settings.worker_environment(os.environ), **allocator.choose(os.environ), **self._devices},
                stdin=subprocess.PIPE,  # its end tells the worker that the app is gone
                bufsize=0,
                stdout=worker_log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl+C in the terminal is for the app, which then ends the worker
            )
        assert process.stdin is not None
        os.set_blocking(process.stdin.fileno(), False)  # no transaction waits for a worker that hangs
        with process:
            try:
                is_silent = self._watch(process)
            finally:
                process.kill()
        error = workers.read_worker(self._database, self._worker).error
        if process.returncode == CANNOT_START_CODE and error is not None:
            return Card.from_json(error)
        if process.returncode > 0 and count_free(self._settings.data_dir) < LOW_BYTES:
            return Card.of(full())
        return _explain_exit(process.returncode, is_silent=is_silent, worker_log=self._log_file)

    def _watch(self, process: subprocess.Popen[bytes]) -> bool:
        """Waits until the process ended, must end, or has no heartbeat; returns True for the last."""
        silence, rotated_s = Silence(), time.monotonic()
        while process.poll() is None and not self._stopping.wait(POLL_S):
            silent_s = silence.listen(self._read_heartbeat(), time.monotonic())
            if silent_s > self._heartbeat_timeout_s:
                if self._takes_heartbeats():
                    return True
                silence = Silence()
            if time.monotonic() - rotated_s > ROTATE_INTERVAL_S:
                with contextlib.suppress(OSError):  # a full disk: the next turn tries again
                    rotate(self._log_file)
                rotated_s = time.monotonic()
        return False

    def _read_heartbeat(self) -> float | None:
        """Returns the worker's last heartbeat; None when the database cannot be read now."""
        try:
            worker = workers.read_worker(self._database, self._worker)
        except sqlite3.Error as error:
            self._condition.note(self._part, describe_failure(self._part, error))
            return None
        if worker.state in AT_WORK:
            self._condition.clear(self._part)
        return worker.heartbeat_at

    def _takes_heartbeats(self) -> bool:
        """Tells whether the worker could have stored a heartbeat: on a full disk it cannot, however well it is.

        A database that is locked for so long counts as able: a worker that hangs in a transaction would hold it.
        """
        try:
            workers.note_watched(self._database, self._worker)
        except sqlite3.Error as error:
            told = explain(error)
            self._condition.note(self._part, describe_failure(self._part, error))
            return told is None or told.title == BUSY
        return True


def _explain_exit(code: int, *, is_silent: bool, worker_log: Path) -> Card:
    if is_silent:
        return Card(
            title=say("The worker stopped answering"),
            detail=say("It gave no sign of life for too long and was ended."),
            advice=say("Retry; if it happens again, {file} shows where it hangs.", file=worker_log),
        )
    if code == -signal.SIGKILL:
        return Card(
            title=say("The worker was killed"),
            detail=say("The system ended its process (signal 9), most likely because memory ran out."),
            advice=say("Choose a smaller size or fewer pictures at once, close other programs, then retry."),
        )
    if code < 0:
        detail = say("Its process ended by signal {signal} ({name}).", signal=-code, name=signal.Signals(-code).name)
    else:
        detail = say("Its process ended with exit code {code}.", code=code)
    return Card(
        title=say("The worker crashed"),
        detail=detail,
        advice=say("A new worker is starting; retry then. {file} shows what happened.", file=worker_log),
    )
