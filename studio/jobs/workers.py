"""The workers' last reported state and measurements: a row for each, and an event at every change of state.

Both sides write a worker's row: the worker reports what it does, its supervisor reports when it is gone. Figures that
change every two seconds are stored without an event; readers poll them.
Not here: which jobs a worker holds (claims.py).
"""

import json
import sqlite3
import time
from dataclasses import dataclass
from typing import Any

from pipelines.messages import SUFFIX, Message, add_codes, read_code, write_code
from studio import events
from studio.database import Database, Transaction
from studio.jobs.states import MeaningfulEnum
from studio.settings import LOCAL as LOCAL

# A worker sends a heartbeat every second from a thread; imports and loads hold the interpreter's lock for seconds.
LEASE_S = 60.0
"""A worker keeps its jobs for this long after its last heartbeat."""

# The columns that REST groups as a worker's `engine` and as its `machine`.
_ENGINE = (
    *("state", "activity", "pid", "device", "model", "shapes", "phase", "phase_done", "phase_total", "error"),
    *("heartbeat_at", "outputs_at_once", "swap"),
)
_MACHINE = ("chips", "chip_price", "mesh", "devices", "host", "compiling", "measured_at", "cache_cleared_at")
_JSON = ("shapes", "error", "swap", "devices", "host")
_TOLD = ("activity", "device")
"""The columns with texts for people; another column beside each has its code."""


class WorkerState(MeaningfulEnum):
    """A state's value is its name in REST."""

    STARTING = "starting", "the worker process is coming up"
    PREPARING = "preparing", "loads the default model and compiles its default shape"
    READY = "ready", "waits for a job"
    BUSY = "busy", "runs a job"
    RESTARTING = "restarting", "the worker ended; a new one starts in a moment"
    STOPPED = "stopped", "the studio is not running"

    @property
    def is_coming_up(self) -> bool:
        return self in (WorkerState.STARTING, WorkerState.PREPARING, WorkerState.RESTARTING)


@dataclass(frozen=True, kw_only=True)
class WorkerRow:
    """A worker's activity and its machine.

    `model` is the resident one; `shapes` maps its shapes to warm, disk or cold. `outputs_at_once` is the number of
    outputs that it makes in the time of one: similar jobs run as a batch up to that. `swap` is the last model switch:
    `model`, the `previous` one, and the seconds of each part (SwapCost).
    `beat_s` is the last heartbeat by the monotonic clock of its machine, `heartbeat_at` by the calendar.
    `devices` are as pipelines/runtime/devices/memory.py measures them; `mesh` is the resident model's.
    A worker has held its model since `model_since`. A pinned one keeps it whatever waits, a draining one takes no more
    jobs. `node` is its machine, "" for the studio's own; `epoch` names its process, whose events up to the number
    `seen` are stored. `hosts` is how many machines of a slice it is made of.
    """

    id: str
    state: WorkerState
    activity: Message
    pid: int | None
    device: Message
    model: str
    shapes: dict[str, str]
    phase: str
    phase_done: int
    phase_total: int
    error: dict[str, str] | None
    heartbeat_at: float
    outputs_at_once: int
    swap: dict[str, Any] | None
    chips: int
    chip_price: float | None
    mesh: str
    devices: list[dict[str, Any]]
    host: dict[str, int]
    compiling: int
    measured_at: float
    cache_cleared_at: float
    beat_s: float
    model_since: float
    is_pinned: bool
    is_draining: bool
    node: str
    epoch: str
    seen: int
    hosts: int

    @classmethod
    def from_row(cls, row: sqlite3.Row) -> "WorkerRow":
        """Reads a full row of the table `workers`."""
        columns = {name: row[name] for name in row.keys()}  # noqa: SIM118 - iterating a Row gives values
        columns["state"] = WorkerState(row["state"])
        for name in _JSON:
            columns[name] = json.loads(row[name]) if row[name] else None
        for name in ("is_pinned", "is_draining"):
            columns[name] = bool(columns[name])
        for name in _TOLD:
            columns[name] = read_code(row[name], columns.pop(name + SUFFIX))
        return cls(**columns)

    @property
    def is_alive(self) -> bool:
        """Tells whether its process is there, as far as anybody knows."""
        return self.state not in (WorkerState.STOPPED, WorkerState.RESTARTING)

    def to_engine_json(self) -> dict[str, Any]:
        """Returns the worker's activity: `engine` of the REST contract."""
        return add_codes({name: getattr(self, name) for name in _ENGINE})

    def to_machine_json(self) -> dict[str, Any]:
        """Returns the worker's hardware: `machine` of the REST contract."""
        return {name: getattr(self, name) for name in _MACHINE}


_FIRST = f"SELECT id FROM workers WHERE state NOT IN ('stopped', 'restarting') ORDER BY id != '{LOCAL}', rowid LIMIT 1"


def read_worker(database: Database, worker_id: str | None = None) -> WorkerRow:
    """Reads a worker's row; None stands for the one that is shown where only one is: `local`, or the first alive."""
    if worker_id is None:
        found = database.read_one(_FIRST)
        worker_id = found["id"] if found else LOCAL
    row = database.read_one("SELECT * FROM workers WHERE id = ?", (worker_id,))
    assert row is not None, "the migration inserts the local worker, and every other one describes itself first"
    return WorkerRow.from_row(row)


def read_workers(database: Database) -> list[WorkerRow]:
    """Reads all workers, the oldest first."""
    return [WorkerRow.from_row(row) for row in database.read("SELECT * FROM workers ORDER BY rowid")]


def forget(tx: Transaction, worker_id: str) -> None:
    """Deletes the row of a worker that will not come back; it must hold no job."""
    tx.execute("DELETE FROM workers WHERE id = ?", (worker_id,))


def describe(tx: Transaction, worker_id: str, state: WorkerState, *, activity: Message, **columns: Any) -> None:
    """Stores a worker's current activity; an unknown worker gets a row.

    Phase and error are reset; other columns keep their values unless given.
    """
    columns = {
        "id": worker_id,
        "state": state,
        "activity": activity,
        "error": None,
        "phase": "",
        "phase_done": 0,
        "phase_total": 0,
        "heartbeat_at": time.time(),
        "beat_s": time.monotonic(),
        **columns,
    }
    for name in _JSON:
        if columns.get(name) is not None:
            columns[name] = json.dumps(columns[name])
    columns |= {name + SUFFIX: write_code(columns[name]) for name in _TOLD if name in columns}
    names, values = ", ".join(columns), ", ".join(f":{name}" for name in columns)
    assignments = ", ".join(f"{name} = excluded.{name}" for name in columns)
    if "model" in columns:
        assignments += ", model_since = iif(model = excluded.model, model_since, excluded.heartbeat_at)"
    row = tx.execute(
        f"INSERT INTO workers ({names}) VALUES ({values}) ON CONFLICT (id) DO UPDATE SET {assignments} RETURNING *",
        columns,
    ).fetchone()
    _tell(tx, row)


def beat(database: Database, worker_id: str, *, lease_s: float = LEASE_S, seen: int | None = None) -> None:
    """Stores a heartbeat, which tells the supervisor that the process is alive, and renews its jobs' leases.

    `seen` is the number of the last of its events that is stored.
    """
    now = time.time()
    with database.write() as tx:
        tx.execute(
            "UPDATE workers SET heartbeat_at = ?, beat_s = ?, seen = coalesce(?, seen) WHERE id = ?",
            (now, time.monotonic(), seen, worker_id),
        )
        tx.execute("UPDATE jobs SET lease_until = ? WHERE state = 'running' AND worker = ?", (now + lease_s, worker_id))


def set_draining(tx: Transaction, worker_id: str, *, is_draining: bool = True) -> bool:
    """Makes a worker take no more jobs, or take them again; returns False when there is none with this id."""
    row = tx.execute("UPDATE workers SET is_draining = ? WHERE id = ? RETURNING *", (is_draining, worker_id)).fetchone()
    if row is not None:
        _tell(tx, row)
    return row is not None


def count_states(database: Database) -> dict[str, int]:
    """Counts the workers by their state."""
    return dict(map(tuple, database.read("SELECT state, count(*) FROM workers GROUP BY state ORDER BY state")))


def note_watched(database: Database, worker_id: str) -> None:
    """Writes a worker's row as it is: whoever can do this could store a heartbeat."""
    with database.write() as tx:
        tx.execute("UPDATE workers SET chips = chips WHERE id = ?", (worker_id,))


def equip(tx: Transaction, worker_id: str, *, chips: int, chip_price: float | None) -> None:
    """Stores a worker's chips and their price at its start; its jobs are charged by them from now on."""
    tx.execute("UPDATE workers SET chips = ?, chip_price = ? WHERE id = ?", (chips, chip_price, worker_id))


def measure(
    tx: Transaction, worker_id: str, *, mesh: str, devices: list[dict[str, Any]], host: dict[str, int], compiling: int
) -> None:
    """Stores one round of measurements."""
    tx.execute(
        "UPDATE workers SET mesh = ?, devices = ?, host = ?, compiling = ?, measured_at = ? WHERE id = ?",
        (mesh, json.dumps(devices), json.dumps(host), compiling, time.time(), worker_id),
    )


def is_compiling(database: Database) -> bool:
    """Tells whether any worker compiles now, for a job, while idle, or in the background. They share one cache."""
    row = database.read_one(
        "SELECT (SELECT coalesce(sum(compiling + (phase = 'compiling')), 0) FROM workers) "
        "+ (SELECT count(*) FROM jobs WHERE state = 'running' AND phase = 'compiling') AS programs"
    )
    return row is not None and row["programs"] > 0


def is_loading(database: Database) -> bool:
    """Tells whether any worker reads a model's weights now, for a job or while idle."""
    row = database.read_one(
        "SELECT (SELECT count(*) FROM workers WHERE phase IN ('loading', 'sharding')) "
        "+ (SELECT count(*) FROM jobs WHERE state = 'running' AND phase IN ('loading', 'sharding')) AS loads"
    )
    return row is not None and row["loads"] > 0


def forget_disk(tx: Transaction) -> None:
    """Marks shapes on disk as cold after the compilation cache was emptied, until the workers report otherwise."""
    for row in tx.execute("SELECT id, shapes FROM workers ORDER BY rowid").fetchall():
        shapes = {name: "cold" if state == "disk" else state for name, state in json.loads(row["shapes"]).items()}
        changed = tx.execute(
            "UPDATE workers SET cache_cleared_at = ?, shapes = ? WHERE id = ? RETURNING *",
            (time.time(), json.dumps(shapes), row["id"]),
        ).fetchone()
        _tell(tx, changed)


def _tell(tx: Transaction, row: sqlite3.Row) -> None:
    worker = WorkerRow.from_row(row)
    data = {"worker": worker.id, "engine": worker.to_engine_json()}
    events.append(tx, kind="engine.state", owner=events.EVERYBODY, job_id=None, data=data)
