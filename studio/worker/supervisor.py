"""Keeps one worker process alive, from inside the app.

The supervisor starts the process, watches its exit and its heartbeat, fails the job that it was running with a card
that says what happened, and restarts it: at once after the first end, with growing delays (backoff) when it keeps
ending. The queue waits in the database meanwhile.
"""

import contextlib
import logging
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from pipelines.messages import say
from studio.database import Database
from studio.jobs import claims, workers
from studio.jobs.job import Card
from studio.jobs.workers import LEASE_S, LOCAL, WorkerState
from studio.settings import Settings
from studio.worker import CANNOT_START_CODE, IDLE_FLAG
from studio.worker.lock import hold_lock
from studio.worker.logs import open_log, rotate

FIRST_DELAY_S, MAX_DELAY_S = 0.2, 30.0
HEALTHY_S = 30.0  # a worker that lived this long did start: its end resets the backoff
ORPHAN_TIMEOUT_S = 10.0
POLL_S = 0.1
ROTATE_INTERVAL_S = 30.0
LAST_JOB = b"\n"  # written to the worker to make the running job its last one
ROOT = Path(__file__).resolve().parent.parent.parent

log = logging.getLogger(__name__)


class Supervisor:
    """Supervises one worker. `start` and `stop` are called once each; a thread does the rest."""

    def __init__(self, settings: Settings, database: Database, *, heartbeat_timeout_s: float = LEASE_S) -> None:
        self._settings = settings
        self._heartbeat_timeout_s = heartbeat_timeout_s
        self._database = database
        self._stopping = threading.Event()
        self._finishing = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._keep_alive, name="supervisor", daemon=True)

    def start(self) -> None:
        """Interrupts an earlier server's jobs, then starts the worker; raises AlreadyRunningError if one still runs."""
        with hold_lock(self._settings.worker_lock, who="The worker of an earlier run", timeout_s=ORPHAN_TIMEOUT_S):
            claims.interrupt_running(self._database)
        with self._database.write() as tx:
            workers.describe(
                tx, LOCAL, WorkerState.STARTING, activity=say("starting"), pid=None, device="", model="", shapes={}
            )
        self._thread.start()

    def stop(self, *, finish_s: float | None = None) -> None:
        """Ends the worker; a running job becomes `interrupted`.

        With `finish_s` the job has that many seconds to finish; otherwise it is requeued at the front.
        """
        if finish_s is not None:
            with contextlib.suppress(KeyboardInterrupt):  # a second Ctrl+C stops the wait
                self._let_finish(finish_s)
        self._stopping.set()
        self._thread.join()
        if finish_s is None:
            claims.interrupt_running(self._database)
        else:
            claims.requeue_running(self._database)
        with self._database.write() as tx:
            workers.describe(tx, LOCAL, WorkerState.STOPPED, activity=say("stopped"), pid=None, model="", shapes={})

    def _let_finish(self, timeout_s: float) -> None:
        self._finishing.set()
        process = self._process
        if process is not None and process.stdin is not None:
            with contextlib.suppress(OSError):  # the process has already ended
                process.stdin.write(LAST_JOB)
                process.stdin.flush()
        deadline = time.monotonic() + timeout_s
        while self._thread.is_alive() and claims.has_running(self._database) and time.monotonic() < deadline:
            time.sleep(POLL_S)

    def _keep_alive(self) -> None:
        delay_s = FIRST_DELAY_S
        prepares = True
        while not self._stopping.is_set():
            started_s = time.monotonic()
            card = self._run_worker(prepares=prepares)
            if self._stopping.is_set() or self._finishing.is_set():
                return
            log.warning("worker ended: %s", card.detail)
            # A default model that crashes its worker is not prepared again until a job asks for it.
            prepares = prepares and workers.read_worker(self._database).state is not WorkerState.PREPARING
            delay_s = FIRST_DELAY_S if time.monotonic() - started_s > HEALTHY_S else delay_s
            claims.fail_running(self._database, card)
            with self._database.write() as tx:
                workers.describe(
                    tx,
                    LOCAL,
                    WorkerState.RESTARTING,
                    activity=say("restarting in {count} s", count=round(delay_s))
                    if delay_s >= 1
                    else say("restarting"),
                    error=card.to_json(),
                    pid=None,
                    model="",
                    shapes={},
                )
            self._stopping.wait(delay_s)
            delay_s = min(2 * delay_s, MAX_DELAY_S)

    def _run_worker(self, *, prepares: bool) -> Card:
        """Runs one worker from start to end; the returned card says how it ended."""
        with self._database.write() as tx:
            workers.describe(tx, LOCAL, WorkerState.STARTING, activity=say("starting"), pid=None, model="", shapes={})
        flags = self._settings.worker_flags() + ([] if prepares else [IDLE_FLAG])
        with open_log(self._settings.worker_log) as worker_log:
            self._process = process = subprocess.Popen(
                [sys.executable, "-m", "studio.worker", *flags],
                cwd=ROOT,
                stdin=subprocess.PIPE,  # its end tells the worker that the app is gone
                stdout=worker_log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl+C in the terminal is for the app, which then ends the worker
            )
        with process:
            is_silent = self._watch(process)
            process.kill()
        if process.returncode == CANNOT_START_CODE:
            error = workers.read_worker(self._database).error
            assert error is not None, "the worker stores the reason before it ends with this code"
            return Card.from_json(error)
        return _explain_exit(process.returncode, is_silent=is_silent, worker_log=self._settings.worker_log)

    def _watch(self, process: subprocess.Popen[bytes]) -> bool:
        """Waits until the process ended, must end, or has no heartbeat; returns True for the last."""
        started_at = time.time()
        rotated_s = time.monotonic()
        while process.poll() is None and not self._stopping.wait(POLL_S):
            heartbeat_at = max(started_at, workers.read_worker(self._database).heartbeat_at)
            if time.time() - heartbeat_at > self._heartbeat_timeout_s:
                return True
            if time.monotonic() - rotated_s > ROTATE_INTERVAL_S:
                rotate(self._settings.worker_log)
                rotated_s = time.monotonic()
        return False


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
