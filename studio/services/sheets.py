"""Makes the sheet of each grid whose cells have all ended: an ordinary output, announced by the event `grid.done`.

The service runs in a thread of the app process. The sheet's file is complete before its row and the grid's end are
stored in one transaction, so a server that was killed in between makes the same sheet again.
Not here: what a sheet looks like (library/sheet.py).
"""

import asyncio
import logging
import time
from pathlib import Path

from studio.database import Database
from studio.jobs.many import grid_store
from studio.jobs.many.grid_store import Cell as GridCell
from studio.jobs.many.grid_store import GridRow
from studio.jobs.states import JobState
from studio.library import records
from studio.library.files import poster_of
from studio.library.sheet import Cell, Table, save_sheet
from studio.services.background import Service

INTERVAL_S = 1.0
NOTES = {
    JobState.FAILED: "failed",
    JobState.CANCELLED: "cancelled",
    JobState.INTERRUPTED: "interrupted",
    grid_store.EDITED: "settings were changed",
    grid_store.GONE: "deleted",
}

log = logging.getLogger(__name__)


def make_service(database: Database, outputs_dir: Path) -> Service:
    """Makes the service that looks for grids whose cells have all ended."""

    async def work() -> None:
        await asyncio.to_thread(compose_due, database, outputs_dir)

    return Service(name="composing sheets", interval_s=INTERVAL_S, work=work)


def compose_due(database: Database, outputs_dir: Path) -> None:
    """Makes every sheet that is due; a grid without any picture ends without a sheet."""
    for grid in grid_store.list_due(database):
        try:
            _compose(database, outputs_dir, grid)
        except OSError:
            log.exception("the sheet of grid %s waits for the next turn", grid.id)


def _compose(database: Database, outputs_dir: Path, grid: GridRow) -> None:
    places = [_find_place(database, outputs_dir, cell) for cell in grid.cells]
    if not any(place.file for place in places):
        with database.write() as tx:
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
    with database.write() as tx:
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
    """Returns the caption below the sheet: the settings that all cells share."""
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


def _find_place(database: Database, outputs_dir: Path, cell: GridCell) -> Cell:
    output = records.read_output(database, cell.output_id) if cell.output_id else None
    if output is None:
        return Cell(file=None, note=NOTES.get(cell.state, NOTES[grid_store.GONE]))
    file: Path = outputs_dir / (poster_of(output.file) if output.kind == "video" else output.file)
    return Cell(file=file, note="") if file.is_file() else Cell(file=None, note=NOTES[grid_store.GONE])
