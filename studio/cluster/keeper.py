"""Keeps the dispatcher alive, from inside the app, as supervisor.py keeps a worker: restarted when it ends.

While there is none, workers go on with what they have, and the line waits. Ray is not imported here.
"""

import contextlib
import importlib.util
import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from pipelines.errors import LumeshError
from pipelines.messages import english, say
from studio.cluster import head_file
from studio.database import Database
from studio.jobs import claims, workers
from studio.jobs.job import Card
from studio.jobs.workers import WorkerState
from studio.services.condition import Condition
from studio.settings import Settings
from studio.worker import CANNOT_START_CODE
from studio.worker.logs import open_log, rotate

FINISH, STOP, LOOK = b"f", b"s", b"l"
"""What the app writes to the dispatcher: begin no more jobs; end the workers and yourself; I wrote to the database."""

FIRST_DELAY_S, MAX_DELAY_S = 0.5, 30.0
HEALTHY_S = 30.0
POLL_S = 0.1
END_S = 30.0
ROTATE_INTERVAL_S = 30.0
PART = "dispatcher"
ROOT = Path(__file__).resolve().parent.parent.parent

log = logging.getLogger(__name__)


class NoRayError(LumeshError):
    """`--engine ray` needs a package that is not installed."""

    title = english("Ray is not installed")


class Keeper:
    """Supervises the dispatcher. `start` and `stop` are called once each; a thread does the rest."""

    def __init__(
        self, settings: Settings, database: Database, condition: Condition, *, environment: Mapping[str, str]
    ) -> None:
        self._settings = settings
        self._database = database
        self._condition = condition
        self._environment = environment
        self._stopping = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._keep_alive, name="dispatcher", daemon=True)

    def start(self) -> None:
        """Starts the dispatcher; raises NoRayError."""
        if importlib.util.find_spec("ray") is None:
            raise NoRayError(
                english("--engine ray needs it, on this machine and on those that join."),
                advice=english("Run: pip install -r requirements-cluster.txt, or start with --engine local."),
            )
        self._database.on_commit = lambda: self._write(LOOK)
        self._thread.start()

    def stop(self, *, finish_s: float | None = None) -> None:
        """Ends all workers and the cluster; what runs is interrupted or requeued, as by Supervisor.stop."""
        if finish_s is not None:
            with contextlib.suppress(KeyboardInterrupt):  # a second Ctrl+C stops the wait
                self._let_finish(finish_s)
        self._stopping.set()
        self._database.on_commit = None
        self._write(STOP)
        process = self._process
        if process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(END_S)
            process.kill()
        self._thread.join()
        if self._settings.ray_address is None:
            head_file.end(self._settings)  # of a dispatcher that ended before it could
        for row in workers.read_workers(self._database):
            if finish_s is None:
                claims.interrupt_running(self._database, row.id)
            else:
                claims.requeue_running(self._database, row.id)
            with self._database.write() as tx:
                workers.describe(
                    tx, row.id, WorkerState.STOPPED, activity=say("stopped"), pid=None, model="", shapes={}
                )

    def _let_finish(self, timeout_s: float) -> None:
        self._write(FINISH)
        deadline = time.monotonic() + timeout_s
        while claims.list_running(self._database) and time.monotonic() < deadline:
            time.sleep(POLL_S)

    def _write(self, wish: bytes) -> None:
        process = self._process
        if process is not None and process.stdin is not None:
            with contextlib.suppress(OSError, ValueError):  # it has ended
                process.stdin.write(wish)  # nothing, when it has not read thousands of them

    def _keep_alive(self) -> None:
        delay_s = FIRST_DELAY_S
        while not self._stopping.is_set():
            started_s = time.monotonic()
            try:
                code = self._run()
            except OSError:
                log.exception("the dispatcher cannot be started")
                code = -1
            if self._stopping.is_set():
                return
            log.warning("the dispatcher ended with code %d", code)
            self._condition.note(PART, self._explain(code))
            delay_s = FIRST_DELAY_S if time.monotonic() - started_s > HEALTHY_S else delay_s
            self._stopping.wait(delay_s)
            delay_s = min(2 * delay_s, MAX_DELAY_S)

    def _explain(self, code: int) -> Card:
        """Returns what the dispatcher said before it ended, or that it ended."""
        if code == CANNOT_START_CODE:
            with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
                return Card.from_json(json.loads(self._settings.dispatcher_error_file.read_text("utf-8")))
        return Card(
            title=say("The dispatcher ended"),
            detail=say("No jobs are given to workers while it starts again; those that run go on."),
            advice=say("If this stays, {file} says why.", file=self._settings.dispatcher_log),
        )

    def _run(self) -> int:
        """Runs one dispatcher from start to end."""
        flags = [*self._settings.worker_flags(), *self._settings.cluster_flags()]
        with open_log(self._settings.dispatcher_log) as output:
            self._process = process = subprocess.Popen(
                [sys.executable, "-m", "studio.cluster", *flags],
                cwd=ROOT,
                env=self._settings.worker_environment(self._environment),
                stdin=subprocess.PIPE,  # its end tells the dispatcher that the app is gone
                bufsize=0,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        assert process.stdin is not None
        os.set_blocking(process.stdin.fileno(), False)  # no transaction waits for a dispatcher that hangs
        started_s = rotated_s = time.monotonic()
        while process.poll() is None:
            self._stopping.wait(POLL_S)
            if self._stopping.is_set():
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(END_S)
                break
            if time.monotonic() - started_s > HEALTHY_S:
                self._condition.clear(PART)
            if time.monotonic() - rotated_s > ROTATE_INTERVAL_S:
                rotate(self._settings.dispatcher_log)
                rotated_s = time.monotonic()
        process.stdin.close()
        return process.returncode if process.returncode is not None else -1
