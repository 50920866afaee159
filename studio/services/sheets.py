"""Makes the sheet of each grid whose cells have all ended: an output like any other, told as the event `grid.done`.

Runs in the app process beside the routes, in a thread. The sheet's file is whole before its row is stored with the
grid's end in one transaction, so a server that was killed in between makes the same sheet again.
Not here: what a sheet looks like (library/sheet.py).
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NoReturn

from studio.context import Studio
from studio.jobs.many import grid_store
from studio.jobs.many.grid_store import Cell as GridCell
from studio.jobs.many.grid_store import GridRow
from studio.jobs.states import JobState
from studio.library import records
from studio.library.files import poster_of
from studio.library.sheet import Cell, Table, save_sheet

POLL_S = 1.0
NOTES = {
    JobState.FAILED: "failed",
    JobState.CANCELLED: "cancelled",
    JobState.INTERRUPTED: "interrupted",
    grid_store.EDITED: "settings were changed",
    grid_store.GONE: "deleted",
}

log = logging.getLogger(__name__)


async def compose_sheets(studio: Studio, *, wait: Callable[[float], Awaitable[None]] = asyncio.sleep) -> NoReturn:
    """Runs as long as the application."""
    while True:
        try:
            await asyncio.to_thread(compose_due, studio)
        except Exception:
            log.exception("sheets wait for the next turn")
        await wait(POLL_S)


def compose_due(studio: Studio) -> None:
    """Makes every sheet that is due; a grid without a single picture ends without one."""
    for grid in grid_store.list_due(studio.database):
        try:
            _compose(studio, grid)
        except OSError:
            log.exception("the sheet of grid %s waits for the next turn", grid.id)


def _compose(studio: Studio, grid: GridRow) -> None:
    outputs_dir = studio.settings.outputs_dir
    places = [_find_place(studio, cell) for cell in grid.cells]
    if not any(place.file for place in places):
        with studio.database.write() as tx:
            grid_store.end(tx, grid, None)
        return
    labels = grid.labels()
    table = Table(
        places=places,
        columns=labels["x"],
        rows=labels.get("y", ("",)),
        pages=labels.get("z", ("",)),
        caption=describe(grid),
    )
    name = f"{time.strftime('%Y-%m-%d', time.localtime(grid.created_at))}/{grid.id}-{grid.sheets}"
    axes = grid.axes.model_dump_json()
    saved = save_sheet(outputs_dir, name, table, recipe=grid.recipe, axes=axes)
    with studio.database.write() as tx:
        output = records.add(
            tx,
            saved,
            job_id=grid.id,
            owner=grid.owner,
            number=grid.sheets,
            created_at=time.time(),
            made_with={},
            grid=axes,
        )
        grid_store.end(tx, grid, output.link())


def describe(grid: GridRow) -> str:
    """What all of its cells share, as the line below the sheet."""
    varied = {str(axis.field) for axis in grid.axes.named().values()}
    recipe = grid.recipe
    parts = {
        "prompt": recipe.prompt,
        "model": recipe.model,
        "shape": recipe.shape,
        "seed": f"seed {recipe.seed}",
        "steps": f"{recipe.steps} steps",
        "guidance_scale": f"guidance {recipe.guidance_scale:g}",
        "scheduler": recipe.scheduler,
    }
    own_defaults = {"shape", "steps", "guidance_scale", "scheduler"} if "model" in varied else set[str]()
    return " · ".join(
        str(text) for name, text in parts.items() if name == "prompt" or name not in varied | own_defaults
    )


def _find_place(studio: Studio, cell: GridCell) -> Cell:
    output = records.read_output(studio.database, cell.output_id) if cell.output_id else None
    if output is None:
        return Cell(file=None, note=NOTES.get(cell.state, NOTES[grid_store.GONE]))
    file: Path = studio.settings.outputs_dir / (poster_of(output.file) if output.kind == "video" else output.file)
    return Cell(file=file, note="") if file.is_file() else Cell(file=None, note=NOTES[grid_store.GONE])
