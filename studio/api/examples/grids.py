"""Example requests for grids: price, queue, read, retry, cancel."""

from typing import Any

from studio.api.examples.example import Example, get, post
from studio.api.examples.things import GRID, SHORT_RECIPE

STEPS = {"field": "steps", "values": "4, 8"}
COLOURS = {"field": "prompt", "values": "red, blue"}
BODY: dict[str, Any] = {"recipe": SHORT_RECIPE, "x": STEPS, "y": COLOURS}

EXAMPLES = (
    post("/api/v1/grids/expand", "Count and price a grid", body=BODY),
    post("/api/v1/grids", "Queue a grid", body=BODY),
    get("/api/v1/grids", "List your grids"),
    get("/api/v1/grids/{grid_id}", "Look at a grid", url=f"/api/v1/grids/{GRID}"),
    post("/api/v1/grids/{grid_id}/retry", "Make a grid's missing pictures", url=f"/api/v1/grids/{GRID}/retry"),
    Example(
        method="DELETE",
        path="/api/v1/grids/{grid_id}",
        url=f"/api/v1/grids/{GRID}",
        summary="Cancel the rest of a grid",
    ),
)
