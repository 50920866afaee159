"""Half a character (a lone surrogate), which JSON can spell and no database stores, is told at every door."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient

from studio.api.examples import EXAMPLES
from studio.api.examples.example import Example

HALF = "\ud800"
DOORS = [one for one in EXAMPLES if one.method in ("POST", "PUT", "PATCH") and "/hub/" not in one.path]
# What each takes in the place of a field: texts are hidden in lists and objects too.
SHAPES: tuple[Any, ...] = (HALF, [HALF, {"ref": HALF, HALF: HALF}])


def list_bodies(document: dict[str, Any], door: Example) -> Iterator[Any]:
    """Bodies with half a character in one field each: in those of the example, and in those of the schema."""
    operation = document["paths"][door.path][door.method.lower()]
    content = operation.get("requestBody", {}).get("content", {}).get("application/json")
    if content is None and door.body is None:
        return
    schema = (content or {}).get("schema", {})
    named = document["components"]["schemas"].get(schema.get("$ref", "").rpartition("/")[2], schema)
    body = door.body or {}
    for name in {*named.get("properties", {}), *body, HALF}:
        yield from ({**body, name: shape} for shape in SHAPES)
    yield from ({"recipe": {**body.get("recipe", body), name: HALF}} for name in ("prompt", "model", "loras", HALF))


def send(client: TestClient, method: str, url: str, body: Any) -> Any:
    """Sends JSON that spells the half character, as JavaScript does."""
    return client.request(method, url, content=json.dumps(body), headers={"Content-Type": "application/json"})


def test_it_is_no_mistake_of_the_servers_in_any_field(client: TestClient) -> None:
    document, asked = client.get("/api/openapi.json").json(), 0
    for door in DOORS:
        for body in list_bodies(document, door):
            answer = send(client, door.method, door.url, body)
            assert answer.status_code < 500, (door.path, body, answer.text)
            assert answer.status_code != 201, (door.path, body)
            asked += 1
    assert asked > 200


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/api/v1/jobs", {"model": "demo-sdxl", "prompt": HALF}),
        ("POST", "/api/v1/jobs/many", {"recipe": {"model": "demo-sdxl", "prompt": HALF}}),
        ("POST", "/api/v1/presets", {"title": HALF, "recipe": {"model": "demo-sdxl", "prompt": "A boat"}}),
        ("PUT", "/api/v1/wildcards/animals", {"lines": [HALF]}),
        ("PUT", "/api/v1/webhook", {"url": f"https://example.com/{HALF}"}),
        ("POST", "/api/v1/prompts/read", {"model": "demo-sdxl", "prompt": HALF}),
        ("POST", "/v1/images/generations", {"prompt": HALF}),
    ],
)
def test_it_is_told_with_422(client: TestClient, method: str, path: str, body: dict[str, Any]) -> None:
    answer = send(client, method, path, body)
    assert answer.status_code in (400, 422) if path.startswith("/v1") else answer.status_code == 422, answer.text
