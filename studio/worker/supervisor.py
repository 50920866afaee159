"""Keeps one worker alive, from inside the app.

Starts the process, watches its exit and its heartbeat, ends the job it was running with a card that says what happened,
and starts the next one: at once after the first end, later and later when starting does not help. The queue waits in
the database meanwhile.
"""

import logging
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import BinaryIO

from studio.database import Database
from studio.jobs import claims, engine
from studio.jobs.engine import EngineState
from studio.jobs.job import Card
from studio.settings import Settings
from studio.worker import CANNOT_START_CODE, IDLE_FLAG
from studio.worker.lock import hold_lock

HEARTBEAT_TIMEOUT_S = 60.0  # the worker beats every second from a thread; imports and loads hold the lock for seconds
FIRST_DELAY_S, MAX_DELAY_S = 0.2, 30.0
HEALTHY_S = 30.0  # a worker that lived this long did start: its end is new trouble, not the old one again
ORPHAN_TIMEOUT_S = 10.0
MAX_LOG_BYTES = 5_000_000
POLL_S = 0.1
ROOT = Path(__file__).resolve().parent.parent.parent

log = logging.getLogger(__name__)


class Supervisor:
    """The worker's keeper. `start` and `stop` are called once each; a thread does the rest."""

    def __init__(
        self, settings: Settings, database: Database, *, heartbeat_timeout_s: float = HEARTBEAT_TIMEOUT_S
    ) -> None:
        self._settings = settings
        self._heartbeat_timeout_s = heartbeat_timeout_s
        self._database = database
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._keep_alive, name="supervisor", daemon=True)

    def start(self) -> None:
        """Ends what an earlier server left running, then starts the worker; raises AlreadyRunningError if one stays."""
        with hold_lock(self._settings.worker_lock, who="The worker of an earlier run", timeout_s=ORPHAN_TIMEOUT_S):
            claims.interrupt_running(self._database)
        with self._database.write() as tx:
            engine.describe(tx, EngineState.STARTING, activity="starting", pid=None, device="", model="", shapes={})
        self._thread.start()

    def stop(self) -> None:
        """Ends the worker; a running job becomes `interrupted`."""
        self._stopping.set()
        self._thread.join()
        claims.interrupt_running(self._database)
        with self._database.write() as tx:
            engine.describe(tx, EngineState.STOPPED, activity="stopped", pid=None, model="", shapes={})

    def _keep_alive(self) -> None:
        delay_s = FIRST_DELAY_S
        prepares = True
        while not self._stopping.is_set():
            started_s = time.monotonic()
            card = self._run_worker(prepares=prepares)
            if self._stopping.is_set():
                return
            log.warning("worker ended: %s", card.detail)
            # A default model that brings its worker down is left alone until somebody asks for it.
            prepares = prepares and engine.read_engine(self._database).state is not EngineState.PREPARING
            delay_s = FIRST_DELAY_S if time.monotonic() - started_s > HEALTHY_S else delay_s
            claims.fail_running(self._database, card)
            with self._database.write() as tx:
                engine.describe(
                    tx,
                    EngineState.RESTARTING,
                    activity=f"restarting in {delay_s:.0f} s" if delay_s >= 1 else "restarting",
                    error=card.to_json(),
                    pid=None,
                    model="",
                    shapes={},
                )
            self._stopping.wait(delay_s)
            delay_s = min(2 * delay_s, MAX_DELAY_S)

    def _run_worker(self, *, prepares: bool) -> Card:
        """One worker from start to end; the card says how it ended."""
        with self._database.write() as tx:
            engine.describe(tx, EngineState.STARTING, activity="starting", pid=None, model="", shapes={})
        flags = self._settings.worker_flags() + ([] if prepares else [IDLE_FLAG])
        with _open_log(self._settings.worker_log) as worker_log:
            process = subprocess.Popen(
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
            error = engine.read_engine(self._database).error
            assert error is not None, "the worker stores the reason before it ends with this code"
            return Card(**error)
        return _explain_exit(process.returncode, is_silent=is_silent, worker_log=self._settings.worker_log)

    def _watch(self, process: subprocess.Popen[bytes]) -> bool:
        """Returns when the process ended, must end, or fell silent; True for the last."""
        started_at = time.time()
        while process.poll() is None and not self._stopping.wait(POLL_S):
            heartbeat_at = max(started_at, engine.read_engine(self._database).heartbeat_at)
            if time.time() - heartbeat_at > self._heartbeat_timeout_s:
                return True
        return False


def _open_log(file: Path) -> BinaryIO:
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.exists() and file.stat().st_size > MAX_LOG_BYTES:
        file.replace(file.with_name(f"{file.name}.1"))
    return file.open("ab")


def _explain_exit(code: int, *, is_silent: bool, worker_log: Path) -> Card:
    if is_silent:
        return Card(
            title="The worker stopped answering",
            detail="It gave no sign of life for too long and was ended.",
            advice=f"Retry; if it happens again, {worker_log} shows where it hangs.",
        )
    if code == -signal.SIGKILL:
        return Card(
            title="The worker was killed",
            detail="The system ended its process (signal 9), most likely because memory ran out.",
            advice="Choose a smaller size or fewer pictures at once, close other programs, then retry.",
        )
    how = f"by signal {-code} ({signal.Signals(-code).name})" if code < 0 else f"with exit code {code}"
    return Card(
        title="The worker crashed",
        detail=f"Its process ended {how}.",
        advice=f"A new worker is starting; retry then. {worker_log} shows what happened.",
    )
