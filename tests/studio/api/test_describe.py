"""The OpenAPI document: every route has a summary, a description, an example and a typed answer, and they are true.

That no answer has more than its type says holds in every test here (tests/studio/conftest.py).
"""

import json
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from pipelines.messages import read_codes, say
from studio.api.examples import EXAMPLES
from studio.api.examples.example import Example
from studio.api.examples.things import (
    CLIP,
    DONE,
    FAILED,
    GONE_WORKER,
    GRID,
    PAUSED,
    PRESET,
    TRAINING,
    TRAINING_RUNS,
    UPLOAD,
    WAITING,
)
from studio.database import Database
from studio.jobs import workers
from studio.jobs.workers import WorkerState
from studio.worker.loop import Worker

# Each has a test of its own, with what it needs: a hub, a checkpoint, an address to call, an endless stream, a worker
# that runs, a studio with passwords.
ELSEWHERE = {
    "/api/v1/hub/{account}/{name}",
    "/api/v1/hub/{account}/{name}/pull",
    "/api/v1/hub/{account}/{name}/push",
    "POST /api/v1/models",
    "DELETE /api/v1/models/{model_id}",
    "/api/v1/models/repositories",
    "/api/v1/webhook/ping",
    "/api/v1/events",
    "/api/v1/system/plan",
    "/v1/images/generations",
    "/v1/images/edits",
    "/api/v1/account",
    "/api/v1/account/password",
    "/api/v1/account/tokens",
    "/api/v1/account/tokens/{token_id}",
    "/api/v1/users",
    "/api/v1/users/{name}",
    "/api/v1/users/{name}/password",
}
TOLD = [one for one in EXAMPLES if not {one.path, f"{one.method} {one.path}"} & ELSEWHERE]


def list_operations(client: TestClient) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in client.get("/api/openapi.json").json()["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def test_every_route_has_a_summary_a_description_and_an_example(client: TestClient) -> None:
    examples = {(example.method, example.path): example for example in EXAMPLES}
    operations = list(list_operations(client))
    assert len(operations) > 50
    missing = []
    for method, path, operation in operations:
        example = examples.get((method, path))
        described, _, command = operation["description"].partition("\n\n```bash\n")
        if example is None or operation["summary"] != example.summary or not described or "curl -s" not in command:
            missing.append(f"{method} {path}: summary, description or example")
        required = [parameter for parameter in operation.get("parameters", []) if parameter["required"]]
        if any("example" not in parameter for parameter in required):
            missing.append(f"{method} {path}: an example of each part of the path")
        bodies = [operation.get("requestBody", {}), *_list_successes(operation)]
        for body in bodies:
            content = body.get("content", {}).get("application/json")
            if content is not None and "example" not in content and not (example and example.sends):
                missing.append(f"{method} {path}: an example of what is sent or comes back")
    assert not missing


def test_every_answer_in_json_has_a_type(client: TestClient) -> None:
    untyped = [
        f"{method} {path}"
        for method, path, operation in list_operations(client)
        for response in _list_successes(operation)
        if (content := response.get("content", {}).get("application/json"))
        and not content["schema"].get("$ref")
        and path != "/api/v1/preset.schema.json"
    ]
    assert not untyped
    job = client.get("/api/openapi.json").json()["components"]["schemas"]["Job"]
    assert job["additionalProperties"] is False, "tests forbid what is not declared"


def test_no_example_is_of_a_route_that_is_not_there(client: TestClient) -> None:
    there = {(method, path) for method, path, _operation in list_operations(client)}
    assert not [example for example in EXAMPLES if (example.method, example.path) not in there]
    assert len({(example.method, example.path) for example in EXAMPLES}) == len(EXAMPLES)


@pytest.mark.parametrize(
    ("example", "command"),
    [
        (Example(method="GET", path="/a", url="/a?b=1", summary=""), "curl -s 'localhost:7860/a?b=1'"),
        (Example(method="POST", path="/a", url="/a", summary=""), "curl -s -X POST localhost:7860/a"),
        (
            Example(method="PATCH", path="/a", url="/a", summary="", body={"b": True}),
            "curl -s -X PATCH localhost:7860/a -H 'content-type: application/json' -d '{\"b\": true}'",
        ),
        (
            Example(method="POST", path="/a", url="/a", summary="", sends="b.png", saves="c"),
            "curl -s localhost:7860/a -F file=@b.png -o c",
        ),
    ],
)
def test_an_example_is_a_curl_command(example: Example, command: str) -> None:
    assert example.curl == command


@pytest.fixture
def story(
    client: TestClient,
    worker: Worker,
    database: Database,
    encode_picture: Callable[..., bytes],
    add_lora: Callable[..., Path],
) -> Callable[[], dict[str, str]]:
    """Before each example: our ids of what it speaks of, by the example's; what it may have changed is made anew."""

    def queue(**fields: Any) -> str:
        recipe = {"model": "demo-sdxl", "prompt": "A red sailboat at sunset", "steps": 1, **fields}
        return client.post("/api/v1/jobs", json=recipe).json()["id"]

    def train(upload: str, name: str) -> str:
        asked = {"model": "demo-sdxl", "name": name, "trigger": "zorb", "pictures": [{"id": upload}], "steps": 2}
        return client.post("/api/v1/trainings", json=asked).json()["id"]

    upload = client.post("/api/v1/uploads", files={"file": encode_picture()}).json()["id"]
    done, clip, trained = queue(batch_size=2), queue(model="clips"), train(upload, "trained")
    while worker.run_next():
        pass
    preset = client.post("/api/v1/presets", json={"title": "Sunset", "output": f"{done}-0"}).json()["id"]
    axes = {"x": {"field": "steps", "values": "1, 2"}, "y": {"field": "prompt", "values": "red, blue"}}
    recipe = {"model": "demo-sdxl", "prompt": "A red sailboat"}
    grid = client.post("/api/v1/grids", json={**axes, "recipe": recipe}).json()["id"]

    def prepare() -> dict[str, str]:
        waiting, failed = queue(), queue()
        runs, paused = train(upload, secrets.token_hex(4)), train(upload, secrets.token_hex(4))
        client.post(f"/api/v1/trainings/{paused}/pause")
        client.delete(f"/api/v1/jobs/{failed}")
        client.post("/api/v1/outputs/restore", json={"ids": [f"{done}-0"]})
        add_lora("pixel-art").unlink()
        add_lora("watercolour", title="Watercolour")
        client.put("/api/v1/wildcards/animals", json={"lines": ["cat", "dog"]})
        with database.write() as tx:
            workers.describe(tx, GONE_WORKER, WorkerState.STOPPED, activity=say("its machine is gone"))
            tx.execute("INSERT INTO previews (job_id, version, jpeg) VALUES (?, 1, ?)", (waiting, b"\xff\xd8"))
        clip_id = CLIP.removesuffix("-0")
        trainings = {TRAINING: trained, TRAINING_RUNS: runs, PAUSED: paused}
        ours = {DONE: done, clip_id: clip, WAITING: waiting, FAILED: failed, **trainings}
        return {GRID: grid, PRESET: preset, UPLOAD: upload, **ours}

    return prepare


def test_the_examples_are_true(
    client: TestClient,
    story: Callable[..., dict[str, str]],
    encode_picture: Callable[..., bytes],
    encode_lora: Callable[..., bytes],
) -> None:
    document = client.get("/api/openapi.json").json()
    makers = {"cat.png": encode_picture, "pixel-art.safetensors": encode_lora}
    real = story()
    for example in sorted(TOLD, key=lambda example: example.method != "GET"):  # first those that change nothing
        if example.method != "GET":
            real = story()
        answer = _send(client, example, real, makers)
        assert answer.is_success, f"{example.method} {example.url}: {answer.text[:300]}"
        operation = document["paths"][example.path][example.method.lower()]
        is_json = "application/json" in _list_successes(operation)[0].get("content", {})
        assert bool(answer.content) == (is_json or bool(example.saves)), example.path
        if is_json and example.path != "/api/v1/preset.schema.json":
            told = _list_successes(operation)[0]["content"]["application/json"]["example"]
            assert told.keys() == read_codes(answer.json()).keys(), example.path


def _send(client: TestClient, example: Example, real: dict[str, str], makers: dict[str, Callable[..., bytes]]) -> Any:
    def name(text: str) -> str:
        for told, here in real.items():
            text = text.replace(told, here)
        return text

    url, options = name(example.url), {}
    if example.body is not None:
        options["json"] = json.loads(name(json.dumps(example.body)))
    if example.form:
        options["data"] = {key: name(value) for key, value in example.form.items()}
    files = {
        **makers,
        "boat.png": lambda: client.get(f"/api/v1/outputs/{real[DONE]}-0/file").content,
        "zorb.mp4": lambda: client.get(f"/api/v1/outputs/{real[CLIP.removesuffix('-0')]}-0/file").content,
        "sunset.lumesh.json": lambda: client.get(f"/api/v1/presets/{real[PRESET]}/file").content,
    }
    if example.sends is not None:
        content = files[example.sends]()
        options |= {"content": content} if example.is_whole else {"files": {example.sends_as: content}}
    return client.request(example.method, url, **options)


def _list_successes(operation: dict[str, Any]) -> list[dict[str, Any]]:
    return [response for status, response in operation["responses"].items() if status.startswith("2")]
