"""Every event that is written is one of those that the OpenAPI document describes, field for field."""

from collections.abc import Callable
from typing import Union, get_args

from fastapi.testclient import TestClient
from pydantic import TypeAdapter

from studio import events
from studio.api.answers.events import KINDS
from studio.api.routes.events import stream_events
from studio.database import Database
from studio.services import sheets
from studio.worker.loop import Worker

CHECK = TypeAdapter(Union[KINDS])  # noqa: UP007 - of a tuple
ALL = {kind for model in KINDS for kind in get_args(model.model_fields["kind"].annotation)}


def test_all_that_happens_is_told_as_it_is_described(
    client: TestClient, worker: Worker, database: Database, upload: Callable[..., str]
) -> None:
    def queue(**fields: object) -> str:
        recipe = {"model": "demo-sdxl", "prompt": "A boat", "steps": 4, **fields}
        return client.post("/api/v1/jobs", json=recipe).json()["id"]

    studio = client.app.state.studio
    done, _failed, cancelled = queue(), queue(prompt="fail please"), queue()
    client.delete(f"/api/v1/jobs/{cancelled}")
    axes = {"x": {"field": "steps", "values": "1, 2"}, "recipe": {"model": "demo-sdxl", "prompt": "Boats"}}
    client.post("/api/v1/grids", json=axes)
    training = {
        "model": "demo-sdxl",
        "trigger": "zorb",
        "pictures": [{"id": upload("red")}],
        "steps": 16,
    }
    _, paused = (
        client.post("/api/v1/trainings", json=training | {"name": name}).json()["id"] for name in ("zorb", "zarb")
    )
    client.post(f"/api/v1/trainings/{paused}/pause")
    while worker.run_next():
        pass
    sheets.compose_due(database, studio.settings.outputs_dir)
    client.post("/api/v1/outputs/trash", json={"ids": [f"{done}-0"]})
    client.post("/api/v1/jobs/clear")
    client.delete(f"/api/v1/trainings/{paused}")
    written = [event.to_json() for event in events.read_after(database, 0)]
    for event in written:
        CHECK.validate_python(event)
    assert {event["kind"] for event in written} == ALL


def test_the_stream_is_documented_kind_by_kind(client: TestClient) -> None:
    document = client.get("/api/openapi.json").json()
    answer = document["paths"]["/api/v1/events"]["get"]["responses"]["200"]["content"]["text/event-stream"]
    names = [kind["$ref"].removeprefix("#/components/schemas/") for kind in answer["schema"]["anyOf"]]
    assert names == [model.__name__ for model in KINDS]
    assert all(document["components"]["schemas"][name]["properties"]["kind"] for name in names)
    assert all(kind in (stream_events.__doc__ or "") for kind in ALL)
