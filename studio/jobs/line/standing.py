"""The line and the workers as they are now, in memory: followed by the event log instead of read anew for each claim.

Whatever changes the line or a worker appends an event in the same transaction. So the ids of the jobs and workers of
the events since the last look say which rows to read again, and a claim costs the same however many jobs wait. Where
the log does not reach back far enough, all is read again.

`follow` gives one `Standing` for each database of a process. Look at it at the beginning of a transaction, before
changes of your own: they may be rolled back.
"""

import json
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from studio.database import Database
from studio.jobs.line.order import Fleet, Line, Taker, Waiting, choose
from studio.jobs.line.waiting_rows import COLUMNS, IN_ORDER, make_waiting, read_line
from studio.jobs.states import JobState
from studio.jobs.workers import WorkerRow, read_workers

MEASURED_ROWS = 500
MEASURED_S = 5.0  # how long the seconds of jobs are taken to stay what they were

_NOT_OF_THE_LINE = "('job.step', 'job.preview')"
# An average, as an estimate of many jobs' sum; a median would leave out the long ones.
_JOB_S = f"""
SELECT model, avg(took_s) AS job_s FROM (SELECT model, took_s FROM timings ORDER BY id DESC LIMIT {MEASURED_ROWS})
WHERE took_s IS NOT NULL GROUP BY model
"""


def read_job_s(database: Database) -> dict[str, float]:
    """Reads how many seconds a job of each model took on average, lately."""
    return {row["model"]: row["job_s"] for row in database.read(_JOB_S)}


def make_taker(worker: WorkerRow, *, model: str) -> Taker:
    """Returns what the choice of a job depends on, for a worker that holds this model."""
    return Taker(
        model=model,
        held_from=worker.model_since if worker.model == model else time.time(),
        swap_s=worker.swap.get("total_s", 0.0) if worker.swap else 0.0,
        is_pinned=worker.is_pinned,
    )


@dataclass(kw_only=True)
class Standing:
    """What one process knows of the line; `lock` is held while it is looked at."""

    lock: threading.RLock = field(default_factory=threading.RLock)
    _last_id: int | None = None
    _line: Line = field(default_factory=Line)
    _workers: dict[str, WorkerRow] = field(default_factory=dict[str, WorkerRow])
    _running: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])  # job -> worker, model
    _job_s: dict[str, float] = field(default_factory=dict[str, float])
    _measured_s: float = -MEASURED_S

    def choose(self, database: Database, worker: str, resident: str | None) -> Waiting | None:
        """Returns the job that this worker should run next."""
        with self.lock:
            self._catch_up(database)
            if not len(self._line):
                return None
            row = self._workers.get(worker)
            if row is not None and row.is_draining:
                return None
            taker = Taker(model=resident or "") if row is None else make_taker(row, model=resident or "")
            return choose(self._line, taker, self._read_fleet(database), now=time.time())

    def take_turns(self, database: Database, model: str) -> list[Waiting]:
        """Returns a model's waiting jobs in turn."""
        with self.lock:
            self._catch_up(database)
            return [*self._line.take_turns(model)]

    def _read_fleet(self, database: Database) -> Fleet:
        now_s = time.monotonic()
        if now_s - self._measured_s > MEASURED_S:
            self._job_s, self._measured_s = read_job_s(database), now_s
        return Fleet(holders=self._count_holders(), job_s=self._job_s)

    def _count_holders(self) -> Counter[str]:
        models = {row.id: row.model for row in self._workers.values() if row.is_alive and not row.is_draining}
        models |= dict(self._running.values())  # what a worker runs, it holds or loads
        return Counter(model for model in models.values() if model)

    def _catch_up(self, database: Database) -> None:
        found = database.read_one("SELECT (SELECT min(id) FROM events) AS first, (SELECT max(id) FROM events) AS last")
        first, last = (found["first"] or 0, found["last"] or 0) if found else (0, 0)
        if self._last_id is None or self._last_id < first - 1 or last < self._last_id:
            self._read_all(database)
        elif last > self._last_id:
            self._read_changes(database, self._last_id)
        self._last_id = last

    def _read_all(self, database: Database) -> None:
        self._line = read_line(database)
        self._workers = {row.id: row for row in read_workers(database)}
        rows = database.read(f"SELECT worker, {COLUMNS} FROM jobs WHERE state = ?", (JobState.RUNNING,))
        self._running = {row["id"]: (row["worker"], row["model"]) for row in rows}

    def _read_changes(self, database: Database, after: int) -> None:
        rows = database.read(
            "SELECT DISTINCT kind, owner, job_id, iif(kind = 'engine.state', data ->> '$.worker', NULL) AS worker "
            f"FROM events WHERE id > ? AND kind NOT IN {_NOT_OF_THE_LINE}",
            (after,),
        )
        jobs = {row["job_id"] for row in rows if row["job_id"] is not None}
        owners = {row["owner"] for row in rows if row["kind"] == "queue.changed"}
        for owner in owners:
            jobs |= self._read_owner(database, owner)
        if jobs:
            self._read_jobs(database, jobs)
        if any(row["worker"] for row in rows):
            self._workers = {row.id: row for row in read_workers(database)}

    def _read_owner(self, database: Database, owner: str) -> set[str]:
        """Reads whether an owner pauses; returns the ids of all of the owner's waiting jobs."""
        if database.read_one("SELECT 1 FROM pauses WHERE owner = ?", (owner,)) is None:
            self._line.resume(owner)
        else:
            self._line.pause(owner)
        rows = database.read("SELECT id FROM jobs WHERE state = ? AND owner = ?", (JobState.QUEUED, owner))
        return {row["id"] for row in rows}

    def _read_jobs(self, database: Database, ids: set[str]) -> None:
        """Reads these jobs again: into the line, among those that run, or out of both."""
        for job_id in ids:
            self._line.remove(job_id)
            self._running.pop(job_id, None)
        for row in database.read(
            f"SELECT state, worker, started_at, {COLUMNS} FROM jobs "
            f"WHERE id IN (SELECT value FROM json_each(?)) {IN_ORDER}",
            (json.dumps([*ids]),),
        ):
            if row["started_at"] is not None:
                self._line.serve(row["owner"], row["started_at"])
            if row["state"] == JobState.QUEUED:
                self._line.add(make_waiting(row))
            elif row["state"] == JobState.RUNNING:
                self._running[row["id"]] = (row["worker"], row["model"])


_standings: WeakKeyDictionary[Database, Standing] = WeakKeyDictionary()
_lock = threading.Lock()


def follow(database: Database) -> Standing:
    """Returns this process's view of the line of a database."""
    with _lock:
        return _standings.setdefault(database, Standing())
