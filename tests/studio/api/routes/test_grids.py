"""Grids over REST: priced, queued, composed into one output, read again from its file."""

import io
import json
from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient
from PIL import Image

from pipelines.models.catalog import Catalog
from studio.api.application import create_api
from studio.database import Database
from studio.events import read_after
from studio.jobs import claims
from studio.services import sheets
from studio.settings import Settings
from studio.worker.loop import Worker


def grid(x: tuple[str, str], y: tuple[str, str] | None = None, **fields: Any) -> dict[str, Any]:
    axes = {name: {"field": axis[0], "values": axis[1]} for name, axis in (("x", x), ("y", y)) if axis}
    return {**axes, "recipe": {"model": "demo-sdxl", "prompt": "A red boat", "steps": 2, "shape": "128x128", **fields}}


def compose_sheets(client: TestClient) -> None:
    studio = client.app.state.studio
    sheets.compose_due(studio.database, studio.settings.outputs_dir)


@pytest.fixture
def compose(client: TestClient) -> Callable[[], None]:
    """What the application does every second."""
    return lambda: compose_sheets(client)


@pytest.fixture
def run_all(client: TestClient, worker: Worker) -> Callable[[], None]:
    def run_all() -> None:
        while client.get("/api/v1/health").json()["jobs"]["queued"]:
            worker.run_next()

    return run_all


def create(client: TestClient, body: dict[str, Any]) -> dict[str, Any]:
    return client.post("/api/v1/grids", json=body).raise_for_status().json()


def test_the_preview_queues_nothing(client: TestClient) -> None:
    told = client.post("/api/v1/grids/expand", json=grid(("steps", "1-3"), ("prompt", "red, blue"))).json()
    assert told["count"] == 6
    assert told["axes"] == {"x": ["Steps 1", "Steps 2", "Steps 3"], "y": ["red", "blue"]}
    assert (told["seconds"], told["may_compile"]) == (None, [])
    assert [one["programs"] for one in told["warmings"]] == ["128x128"]
    assert client.get("/api/v1/jobs").json()["jobs"] == []
    many = client.post("/api/v1/grids/expand", json=grid(("seed", "1-90"), ("steps", "1-90"))).json()
    assert (many["count"], many["seconds"], many["limit"]) == (8100, None, 100)


def test_strength_is_an_axis_where_there_is_a_picture(client: TestClient, upload: Callable[..., str]) -> None:
    body = grid(("strength", "0.5, 1"), steps=4, images=[upload()])
    told = client.post("/api/v1/grids/expand", json=body).json()
    assert (told["axes"], told["may_compile"]) == ({"x": ["Strength 0.5", "Strength 1"]}, [])
    jobs = [client.get(f"/api/v1/jobs/{job_id}").json() for job_id in create(client, body)["ids"]]
    assert [(job["recipe"]["strength"], job["steps"]) for job in jobs] == [(0.5, 2), (1.0, 4)]
    error = client.post("/api/v1/grids/expand", json=grid(("strength", "0.5, 1"))).json()["error"]
    assert error["fields"] == {"x": "needs a picture to start from; give one or leave it out"}


def test_a_grid_becomes_one_output_with_its_axes_inside(
    client: TestClient, run_all: Callable[[], None], compose: Callable[[], None]
) -> None:
    made = create(client, grid(("steps", "1, 2, 3"), ("prompt", "red, blue"), seed=5))
    recipes = [client.get(f"/api/v1/jobs/{job_id}").json()["recipe"] for job_id in made["ids"]]
    assert [(recipe["prompt"], recipe["steps"]) for recipe in recipes] == [
        (f"A {colour} boat", steps) for colour in ("red", "blue") for steps in (1, 2, 3)
    ]
    compose()
    assert client.get(f"/api/v1/grids/{made['id']}").json()["output_id"] is None, "its cells are awaited"
    run_all()
    compose()
    told = client.get(f"/api/v1/grids/{made['id']}").json()
    assert told["states"] == {"done": 6}
    outputs = client.get("/api/v1/outputs").json()
    assert outputs["total"] == 7
    sheet = outputs["outputs"][0]
    assert sheet["id"] == told["output_id"]
    assert sheet["grid"]["x"] == {"field": "steps", "values": "1, 2, 3"}
    assert (sheet["recipe"]["prompt"], sheet["recipe"]["seed"]) == ("A red boat", 5)
    assert outputs["outputs"][1]["grid"] is None

    content = client.get(sheet["url"]).content
    with Image.open(io.BytesIO(content)) as picture:
        assert picture.size == (sheet["width"], sheet["height"])
        assert picture.width > 3 * 128 and picture.height > 2 * 128
    read = client.post("/api/v1/recipes/read", files={"file": content}).json()
    again = {**{name: axis for name, axis in read["grid"].items() if axis}, "recipe": read["recipe"]}
    made_again = create(client, again)
    jobs = [client.get(f"/api/v1/jobs/{job_id}").json() for job_id in made_again["ids"]]
    assert [job["recipe"] for job in jobs] == recipes


def test_the_sheet_is_told_as_an_event_and_made_once(
    client: TestClient, database: Database, run_all: Callable[[], None], compose: Callable[[], None]
) -> None:
    made = create(client, grid(("steps", "1, 2")))
    run_all()
    compose()
    compose()
    told = [event.to_json() for event in read_after(database, 0) if event.kind == "grid.done"]
    assert len(told) == 1
    assert told[0]["grid"]["id"] == made["id"]
    assert (told[0]["grid"]["cells"], told[0]["grid"]["missing"]) == (2, 0)
    assert client.get(told[0]["grid"]["output"]["url"]).is_success


def test_failed_and_cancelled_cells_are_empty_and_can_be_made_later(
    client: TestClient, worker: Worker, run_all: Callable[[], None], compose: Callable[[], None]
) -> None:
    made = create(client, grid(("prompt", "red, fail please, blue"), ("steps", "1, 2")))
    client.delete(f"/api/v1/jobs/{made['ids'][0]}")
    run_all()
    compose()
    told = client.get(f"/api/v1/grids/{made['id']}").json()
    assert told["states"] == {"cancelled": 1, "failed": 2, "done": 3}
    first = told["output_id"]
    assert first

    queued = client.post(f"/api/v1/grids/{made['id']}/retry").json()["ids"]
    assert len(queued) == 3
    assert client.get(f"/api/v1/grids/{made['id']}").json()["ended_at"] is None
    run_all()
    compose()
    told = client.get(f"/api/v1/grids/{made['id']}").json()
    assert told["states"] == {"failed": 2, "done": 4}
    assert told["output_id"] != first
    assert client.get(f"/api/v1/outputs/{first}").is_success, "the first sheet stays"


def test_a_cancelled_grid_shows_what_there_is_or_ends_without_a_sheet(
    client: TestClient, worker: Worker, compose: Callable[[], None]
) -> None:
    made = create(client, grid(("steps", "1, 2, 3")))
    worker.run_next()
    assert client.delete(f"/api/v1/grids/{made['id']}").json()["states"] == {"done": 1, "cancelled": 2}
    compose()
    assert client.get(f"/api/v1/grids/{made['id']}").json()["output_id"]

    none = create(client, grid(("steps", "1, 2, 3")))
    client.delete(f"/api/v1/grids/{none['id']}")
    compose()
    told = client.get(f"/api/v1/grids/{none['id']}").json()
    assert told["ended_at"] is not None
    assert told["output_id"] is None


def test_a_cell_whose_job_was_edited_is_no_cell_any_more(
    client: TestClient, run_all: Callable[[], None], compose: Callable[[], None]
) -> None:
    made = create(client, grid(("steps", "1, 2")))
    client.patch(f"/api/v1/jobs/{made['ids'][1]}", json={"steps": 9}).raise_for_status()
    run_all()
    compose()
    assert client.get(f"/api/v1/grids/{made['id']}").json()["states"] == {"done": 1, "edited": 1}


def test_a_deleted_picture_is_an_empty_cell(
    client: TestClient, run_all: Callable[[], None], compose: Callable[[], None]
) -> None:
    made = create(client, grid(("steps", "1, 2")))
    run_all()
    first = client.get(f"/api/v1/jobs/{made['ids'][0]}").json()["outputs"][0]["id"]
    client.delete(f"/api/v1/outputs/{first}")
    client.post("/api/v1/outputs/purge", json={"ids": [first]})
    compose()
    assert client.get(f"/api/v1/grids/{made['id']}").json()["states"] == {"gone": 1, "done": 1}


def test_videos_show_their_posters(
    client: TestClient, run_all: Callable[[], None], compose: Callable[[], None]
) -> None:
    made = create(client, grid(("seed", "1, 2"), model="clips", shape=None))
    run_all()
    compose()
    sheet_id = client.get(f"/api/v1/grids/{made['id']}").json()["output_id"]
    sheet = client.get(f"/api/v1/outputs/{sheet_id}").json()
    assert sheet["kind"] == "image"
    assert sheet["width"] > 2 * 96


def test_a_grid_outlives_its_server(
    settings: Settings, database: Database, catalog: Catalog, client: TestClient, worker: Worker
) -> None:
    made = create(client, grid(("steps", "1, 2, 3")))
    worker.run_next()
    claims.claim_next(database, resident=None)
    claims.interrupt_running(database)  # what a server does that finds the jobs of one that was killed
    with TestClient(create_api(settings, database, catalog)) as later:
        worker.run_next()
        compose_sheets(later)
        told = later.get(f"/api/v1/grids/{made['id']}").json()
    assert told["states"] == {"done": 2, "interrupted": 1}
    assert told["output_id"]


def test_all_of_a_grid_or_nothing(client: TestClient) -> None:
    for _ in range(2):
        create(client, grid(("seed", "1-90")))
    answer = client.post("/api/v1/grids", json=grid(("seed", "1-30")))
    assert answer.status_code == 429
    assert client.get("/api/v1/health").json()["jobs"]["queued"] == 180
    assert len(client.get("/api/v1/grids").json()["grids"]) == 2


def test_what_cannot_be_queued_names_its_field(client: TestClient) -> None:
    for body, field in (
        (grid(("steps", "many")), "x"),
        (grid(("steps", "1-1000"), ("seed", "1-3")), "x"),
        (grid(("seed", "1"), ("shape", "128x128, 7x7")), "y"),
        (grid(("model", "demo-sdxl, nobody")), "x"),
        (grid(("steps", "1"), prompt=" "), "prompt"),
        ({"recipe": {"model": "demo-sdxl", "prompt": "A"}}, "x"),
        (grid(("colour", "red")), "x.field"),
    ):
        answer = client.post("/api/v1/grids", json=body)
        assert (answer.status_code, list(answer.json()["error"]["fields"])) == (422, [field])
    assert client.get("/api/v1/jobs").json()["jobs"] == []
    assert client.get("/api/v1/grids/nothing").status_code == 404


def test_a_sheet_with_damaged_axes_is_refused(client: TestClient, catalog: Catalog) -> None:
    from PIL import PngImagePlugin

    for axes in ('{"x": 1}', "[]", "{", json.dumps({"x": {"field": "steps", "values": "1"}, "evil": 1})):
        chunks = PngImagePlugin.PngInfo()
        chunks.add_itxt("lumesh", json.dumps({"model": "demo-sdxl", "prompt": "A boat"}))
        chunks.add_itxt("lumesh-grid", axes)
        png = io.BytesIO()
        Image.new("RGB", (8, 8)).save(png, "PNG", pnginfo=chunks)
        answer = client.post("/api/v1/recipes/read", files={"file": png.getvalue()})
        assert answer.status_code == 422, axes
