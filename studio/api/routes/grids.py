"""Grids over REST: one recipe along up to three axes, priced first, queued together, with one sheet at the end."""

from typing import Annotated, Any

from fastapi import APIRouter, Query

from studio import asking
from studio.api.answers import jobs as jobs_answers
from studio.api.visitor import Visitor
from studio.jobs.costs.price import price_line
from studio.jobs.many import grid_store
from studio.jobs.many.grid_spec import Grid
from studio.jobs.workers import read_worker

router = APIRouter(tags=["grids"])


@router.post("/grids/expand", response_model=jobs_answers.GridPrice)
def count_grid(grid: Grid, visit: Visitor) -> dict[str, Any]:
    """Counts and prices a grid without queueing it.

    `count` cells (more than `limit` are refused), the labels of each of the `axes`, `seconds` by past measurements
    (null: never measured). `warmings` lists what must be compiled (`state` cold) or read from the compilation cache
    (disk) first and `loads` the models that must be loaded, each with its seconds; only the axes `shape` and `model`
    (`may_compile`) ask for more than one picture would.
    """
    expanded = asking.expand_grid(visit, grid)
    if expanded.is_too_many:
        return {**expanded.describe(), "seconds": None, "loads": [], "warmings": []}
    order = expanded.order(read_worker(visit.database).model)
    price = price_line(visit.database, [expanded.cells[place] for place in order])
    return {**expanded.describe(), **price.to_json()}


@router.post("/grids", status_code=201, response_model=jobs_answers.GridIds)
def create_grid(grid: Grid, visit: Visitor) -> dict[str, Any]:
    """Queues a job for each cell, or none; answers with the grid's `id` and its jobs' `ids`, row by row.

    An axis is `{"field", "values"}`: the field is prompt, seed, steps, guidance_scale, guidance_scale_2, scheduler,
    flow_shift, step_cache, strength, lora_scale (of `lora`, a `ref` of the recipe's LoRAs), shape or model; values are
    "4, 8, 12", "1-5", "1-9 (+2)", "0-20 [5]" or words with commas. On a prompt's axis the first value stands in the
    prompt and is replaced by each of them. `y` and `z` may be left out. When all cells have ended, the sheet is an
    output whose `grid` holds the axes; cells without a picture say why.
    """
    grid_id, ids = asking.submit_grid(visit, grid)
    return {"id": grid_id, "ids": ids}


@router.get("/grids", response_model=jobs_answers.Grids)
def list_grids(visit: Visitor, limit: Annotated[int, Query(ge=1, le=100)] = 20) -> dict[str, list[dict[str, Any]]]:
    """Lists your grids, newest first."""
    found = grid_store.list_grids(visit.database, owner=visit.owner, limit=limit)
    return {"grids": [grid.to_json() for grid in found]}


@router.get("/grids/{grid_id}", response_model=jobs_answers.GridState)
def get_grid(grid_id: str, visit: Visitor) -> dict[str, Any]:
    """Returns a grid: its cells with their jobs, the count of each state, and its sheet (`output_id`) once made."""
    return visit.get_grid(grid_id).to_json()


@router.delete("/grids/{grid_id}", response_model=jobs_answers.GridState)
def cancel_grid(grid_id: str, visit: Visitor) -> dict[str, Any]:
    """Cancels the cells that wait or run; the sheet is made of the finished ones."""
    grid_store.cancel(visit.database, visit.get_grid(grid_id))
    return visit.get_grid(grid_id).to_json()


@router.post("/grids/{grid_id}/retry", response_model=jobs_answers.Ids)
def retry_grid(grid_id: str, visit: Visitor) -> dict[str, list[str]]:
    """Queues failed, cancelled and interrupted cells again; another sheet follows. Answers with their jobs' `ids`."""
    return {"ids": asking.retry_grid(visit, grid_id)}
