"""The machine under the worker: its chips, their memory, and what it costs.

The worker measures, because only its process knows the devices; everybody reads. One row, without events: figures that
change every two seconds are asked for by whoever looks at them.
Not here: what the worker does (engine.py).
"""

import json
import time
from dataclasses import dataclass
from typing import Any

from studio import events
from studio.database import Database, Transaction
from studio.jobs.engine import Engine


@dataclass(frozen=True, kw_only=True)
class Machine:
    """`devices` are as pipelines/runtime/devices/memory.py measures them; `mesh` is the resident model's."""

    chips: int
    chip_price: float | None
    mesh: str
    devices: list[dict[str, Any]]
    host: dict[str, int]
    compiling: int
    measured_at: float
    cache_cleared_at: float

    def to_json(self) -> dict[str, Any]:
        return vars(self).copy()


def read_machine(database: Database) -> Machine:
    """The machine's row."""
    row = database.read_one("SELECT * FROM machine")
    assert row is not None, "the migration inserts it"
    columns = {name: row[name] for name in row.keys() if name != "id"}  # noqa: SIM118 - iterating a Row gives values
    return Machine(**{**columns, "devices": json.loads(row["devices"]), "host": json.loads(row["host"])})


def describe(tx: Transaction, *, chips: int, chip_price: float | None) -> None:
    """What a worker knows when it starts; jobs are charged by it from now on."""
    tx.execute("UPDATE machine SET chips = ?, chip_price = ?", (chips, chip_price))


def measure(tx: Transaction, *, mesh: str, devices: list[dict[str, Any]], host: dict[str, int], compiling: int) -> None:
    """Stores one round of figures."""
    tx.execute(
        "UPDATE machine SET mesh = ?, devices = ?, host = ?, compiling = ?, measured_at = ?",
        (mesh, json.dumps(devices), json.dumps(host), compiling, time.time()),
    )


def is_compiling(database: Database) -> bool:
    """Whether the worker compiles something now: for a job, while idle, or in the background."""
    row = database.read_one(
        "SELECT (SELECT compiling FROM machine) + (SELECT phase = 'compiling' FROM engine) "
        "+ (SELECT count(*) FROM jobs WHERE state = 'running' AND phase = 'compiling') AS programs"
    )
    return row is not None and row["programs"] > 0


def is_loading(database: Database) -> bool:
    """Whether the worker reads a model's weights now: for a job, or while idle."""
    row = database.read_one(
        "SELECT (SELECT phase IN ('loading', 'sharding') FROM engine) "
        "+ (SELECT count(*) FROM jobs WHERE state = 'running' AND phase IN ('loading', 'sharding')) AS loads"
    )
    return row is not None and row["loads"] > 0


def forget_disk(tx: Transaction) -> None:
    """The compilation cache was emptied: what was on disk is cold, until the worker says otherwise."""
    tx.execute("UPDATE machine SET cache_cleared_at = ?", (time.time(),))
    row = tx.execute("SELECT * FROM engine").fetchone()
    shapes = {name: "cold" if state == "disk" else state for name, state in json.loads(row["shapes"]).items()}
    row = tx.execute("UPDATE engine SET shapes = ? RETURNING *", (json.dumps(shapes),)).fetchone()
    events.append(
        tx, kind="engine.state", owner=events.EVERYBODY, job_id=None, data={"engine": Engine.from_row(row).to_json()}
    )
