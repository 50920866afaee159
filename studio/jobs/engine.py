"""The worker as it last described itself: one row, and an event at every change but the heartbeat.

Both sides write it: the worker tells what it does, the supervisor tells when the worker is gone.
"""

import json
import sqlite3
import time
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from studio import events
from studio.database import Database, Transaction


class EngineState(StrEnum):
    """A state's value is its name in REST; `meaning` is for people."""

    meaning: str

    def __new__(cls, value: str, meaning: str) -> "EngineState":
        member = str.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        return member

    STARTING = "starting", "the worker process is coming up"
    PREPARING = "preparing", "loads the default model and compiles its default shape"
    READY = "ready", "waits for a job"
    BUSY = "busy", "runs a job"
    RESTARTING = "restarting", "the worker ended; a new one starts in a moment"
    STOPPED = "stopped", "the studio is not running"


@dataclass(frozen=True, kw_only=True)
class Engine:
    """What the worker is doing. `model` is the resident one, `shapes` its shapes as warm, disk or cold.

    `outputs_at_once` is how many outputs it makes in the time of one: jobs that are alike run together up to that.
    `swap` is the last switch: `model` and the `previous` one, and its seconds part by part (SwapCost).
    """

    state: EngineState
    activity: str
    pid: int | None
    device: str
    model: str
    shapes: dict[str, str]
    phase: str
    phase_done: int
    phase_total: int
    error: dict[str, str] | None
    heartbeat_at: float
    outputs_at_once: int
    swap: dict[str, Any] | None

    @classmethod
    def from_row(cls, row: sqlite3.Row) -> "Engine":
        """Reads the row of the table `engine`."""
        columns = {name: row[name] for name in row.keys() if name != "id"}  # noqa: SIM118 - iterating a Row gives values
        columns["state"] = EngineState(row["state"])
        columns["shapes"] = json.loads(row["shapes"])
        for name in ("error", "swap"):
            columns[name] = json.loads(row[name]) if row[name] else None
        return cls(**columns)

    def to_json(self) -> dict[str, Any]:
        return vars(self).copy()


def read_engine(database: Database) -> Engine:
    """The engine's row."""
    row = database.read_one("SELECT * FROM engine")
    assert row is not None, "the first migration inserts it"
    return Engine.from_row(row)


def describe(tx: Transaction, state: EngineState, *, activity: str, **columns: Any) -> None:
    """Says what the engine does now. Phase and error start anew; other columns keep their values unless given."""
    columns = {
        "state": state,
        "activity": activity,
        "error": None,
        "phase": "",
        "phase_done": 0,
        "phase_total": 0,
        "heartbeat_at": time.time(),
        **columns,
    }
    for name in ("shapes", "error", "swap"):
        if columns.get(name) is not None:
            columns[name] = json.dumps(columns[name])
    assignments = ", ".join(f"{name} = :{name}" for name in columns)
    row = tx.execute(f"UPDATE engine SET {assignments} RETURNING *", columns).fetchone()
    events.append(
        tx, kind="engine.state", owner=events.EVERYBODY, job_id=None, data={"engine": Engine.from_row(row).to_json()}
    )


def beat(database: Database) -> None:
    """Tells the supervisor that the worker's process is alive."""
    with database.write() as tx:
        tx.execute("UPDATE engine SET heartbeat_at = ?", (time.time(),))
