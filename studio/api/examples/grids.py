"""A recipe along two axes: priced, queued, looked at, tried again, given up."""

from typing import Any

from studio.api.examples.example import Example, get, post
from studio.api.examples.things import DONE, GRID, NOW, PICTURE, RECIPE, SHORT_RECIPE, WAITING

STEPS = {"field": "steps", "values": "4, 8"}
COLOURS = {"field": "prompt", "values": "red, blue"}
BODY: dict[str, Any] = {"recipe": SHORT_RECIPE, "x": STEPS, "y": COLOURS}
LABELS = {"x": ["Steps 4", "Steps 8"], "y": ["red", "blue"]}
PRICE = {
    "count": 4,
    "axes": LABELS,
    "may_compile": [],
    "limit": 100,
    "seconds": 1.4,
    "loads": [],
    "warmings": [{"model": "demo-sdxl", "programs": "256x256", "state": "disk", "seconds": 0.4}],
}
ROW: dict[str, Any] = {
    "id": GRID,
    "created_at": NOW,
    "ended_at": None,
    "axes": {"x": STEPS, "y": COLOURS, "z": None},
    "labels": LABELS,
    "recipe": RECIPE,
    "states": {"done": 1, "queued": 3},
    "cells": [{"job_id": DONE, "state": "done", "output_id": PICTURE}],
    "output_id": None,
}

EXAMPLES = (
    post("/api/v1/grids/expand", "Count and price a grid", body=BODY, answer=PRICE),
    post("/api/v1/grids", "Queue a grid", body=BODY, answer={"id": GRID, "ids": [WAITING]}),
    get("/api/v1/grids", "List your grids", answer={"grids": [ROW]}),
    get("/api/v1/grids/{grid_id}", "Look at a grid", url=f"/api/v1/grids/{GRID}", answer=ROW),
    post(
        "/api/v1/grids/{grid_id}/retry",
        "Make a grid's missing pictures",
        url=f"/api/v1/grids/{GRID}/retry",
        answer={"ids": [WAITING]},
    ),
    Example(
        method="DELETE",
        path="/api/v1/grids/{grid_id}",
        url=f"/api/v1/grids/{GRID}",
        summary="Cancel the rest of a grid",
        answer=ROW | {"states": {"done": 1, "cancelled": 3}},
    ),
)
