"""Grids as rows of the database: the jobs of their cells, their progress, and whether their sheet is still missing.

Everything that a sheet needs is stored, so a server that was killed makes it after a restart.
Not here: expanding a grid into jobs (grid_spec.py), drawing and saving the sheet (services/sheets.py).
"""

import json
import secrets
import sqlite3
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

from pipelines.recipes.recipe import Recipe
from studio import events
from studio.database import Database, Transaction
from studio.jobs.many.axes import Axes
from studio.jobs.many.grid_spec import Expanded
from studio.jobs.queue import add_all, ask_to_end, queue_again, require_room
from studio.jobs.states import JobState
from studio.jobs.workers import read_worker

GONE = "gone"
EDITED = "edited"
DONE_KIND = "grid.done"


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One place of the table. `state` is its job's, `gone` without a job, or `edited` if the job's recipe changed.

    `output_id` is the first output of a done job whose recipe is unchanged.
    """

    job_id: str
    state: str
    output_id: str | None


@dataclass(frozen=True, kw_only=True)
class GridRow:
    """A grid in its current state. `cells` are page by page, row by row; `ended_at` is None while some are awaited."""

    id: str
    owner: str
    axes: Axes
    recipe: Recipe
    created_at: float
    sheets: int
    output_id: str | None
    ended_at: float | None
    cells: tuple[Cell, ...]

    def labels(self) -> dict[str, list[str]]:
        """Returns the labels of each axis, in order."""
        values = self.axes.read()
        return {name: [axis.label(value) for value in values[name]] for name, axis in self.axes.named().items()}

    def to_json(self) -> dict[str, Any]:
        """Returns the grid of the REST contract; `states` counts its cells by state."""
        return {
            "id": self.id,
            "created_at": self.created_at,
            "ended_at": self.ended_at,
            "axes": self.axes.model_dump(mode="json"),
            "labels": self.labels(),
            "recipe": self.recipe.to_json(),
            "states": dict(Counter(cell.state for cell in self.cells)),
            "cells": [vars(cell) for cell in self.cells],
            "output_id": self.output_id,
        }


def submit(database: Database, expanded: Expanded, *, owner: str, quota: int) -> tuple[str, list[str]]:
    """Queues every cell, or none; returns the ids of the grid and of its jobs, place by place."""
    cells = expanded.cells
    order = expanded.order(read_worker(database).model)
    grid_id = secrets.token_hex(5)
    with database.write() as tx:
        jobs = dict(zip(order, add_all(tx, [cells[place] for place in order], owner=owner, quota=quota), strict=True))
        tx.execute(
            "INSERT INTO grids (id, owner, axes, recipe, created_at) VALUES (?, ?, ?, ?, ?)",
            (grid_id, owner, expanded.grid.axes.model_dump_json(), json.dumps(expanded.base.to_json()), time.time()),
        )
        tx.executemany(
            "INSERT INTO grid_cells (grid_id, place, job_id, recipe) VALUES (?, ?, ?, ?)",
            [(grid_id, place, jobs[place].id, json.dumps(cell.recipe.to_json())) for place, cell in enumerate(cells)],
        )
    return grid_id, [jobs[place].id for place in range(len(cells))]


def read_grid(database: Database, grid_id: str) -> GridRow | None:
    """Reads a grid; None when the id is unknown."""
    row = database.read_one("SELECT * FROM grids WHERE id = ?", (grid_id,))
    return _from_row(database, row) if row else None


def list_grids(database: Database, *, owner: str, limit: int) -> list[GridRow]:
    """Lists the owner's grids, newest first."""
    rows = database.read(
        "SELECT * FROM grids WHERE owner = ? ORDER BY created_at DESC, rowid DESC LIMIT ?", (owner, limit)
    )
    return [_from_row(database, row) for row in rows]


def list_due(database: Database) -> list[GridRow]:
    """Lists the open grids whose cells have all ended."""
    rows = database.read(
        "SELECT * FROM grids WHERE ended_at IS NULL AND NOT EXISTS (SELECT 1 FROM grid_cells "
        "JOIN jobs ON jobs.id = job_id WHERE grid_id = grids.id AND state IN (?, ?))",
        (JobState.QUEUED, JobState.RUNNING),
    )
    return [_from_row(database, row) for row in rows]


def end(tx: Transaction, grid: GridRow, output: dict[str, Any] | None) -> None:
    """Ends a grid in the transaction that stores its sheet; `output` is None where no cell has a picture."""
    tx.execute(
        "UPDATE grids SET ended_at = ?, sheets = sheets + ?, output_id = coalesce(?, output_id) WHERE id = ?",
        (time.time(), output is not None, output["id"] if output else None, grid.id),
    )
    missing = sum(cell.output_id is None for cell in grid.cells)
    data = {"grid": {"id": grid.id, "output": output, "cells": len(grid.cells), "missing": missing}}
    events.append(tx, kind=DONE_KIND, owner=grid.owner, job_id=None, data=data)


def cancel(database: Database, grid: GridRow) -> None:
    """Cancels the cells that wait or run; the sheet shows the finished ones."""
    with database.write() as tx:
        for cell in grid.cells:
            if cell.state in (JobState.QUEUED, JobState.RUNNING):
                ask_to_end(tx, cell.job_id)


def retry(database: Database, grid: GridRow, *, quota: int) -> list[str]:
    """Requeues the cells that can run again; another sheet follows. Returns the ids of their jobs."""
    with database.write() as tx:
        jobs = [queue_again(tx, cell.job_id) for cell in grid.cells]
        queued = [job.id for job in jobs if job is not None]
        if queued:
            require_room(tx, owner=grid.owner, joining=0, quota=quota)
            tx.execute("UPDATE grids SET ended_at = NULL WHERE id = ?", (grid.id,))
    return queued


def _from_row(database: Database, row: sqlite3.Row) -> GridRow:
    cells = database.read(
        "SELECT job_id, state, outputs, jobs.recipe = grid_cells.recipe AS is_same FROM grid_cells "
        "LEFT JOIN jobs ON jobs.id = job_id WHERE grid_id = ? ORDER BY place",
        (row["id"],),
    )
    return GridRow(
        id=row["id"],
        owner=row["owner"],
        axes=Axes.model_validate_json(row["axes"]),
        recipe=Recipe.model_validate_json(row["recipe"]),
        created_at=row["created_at"],
        sheets=row["sheets"],
        output_id=row["output_id"],
        ended_at=row["ended_at"],
        cells=tuple(map(_read_cell, cells)),
    )


def _read_cell(row: sqlite3.Row) -> Cell:
    if row["state"] is None:
        return Cell(job_id=row["job_id"], state=GONE, output_id=None)
    if not row["is_same"]:
        return Cell(job_id=row["job_id"], state=EDITED, output_id=None)
    outputs: list[dict[str, Any]] = json.loads(row["outputs"]) if row["state"] == JobState.DONE else []
    state = GONE if row["state"] == JobState.DONE and not outputs else row["state"]
    return Cell(job_id=row["job_id"], state=state, output_id=outputs[0]["id"] if outputs else None)
