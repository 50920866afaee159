"""The one shape of errors, where a request is not even what a route expects."""

from typing import Any

import pytest
from fastapi.testclient import TestClient


def send(client: TestClient, body: bytes, path: str = "/api/v1/trainings") -> Any:
    return client.post(path, content=body, headers={"Content-Type": "application/json"})


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"a": ', "is not valid JSON: Expecting value"),
        (b'{"a": "\xff"}', "is no text in UTF-8, as JSON is"),
        (b"[" * 4000, "is nested too deeply"),
        (b"[1]", "input should be an object of named fields"),
        (b"", "is required"),
    ],
    ids=["cut", "latin-1", "deep", "list", "empty"],
)
@pytest.mark.parametrize("path", ["/api/v1/trainings", "/api/v1/jobs"])
def test_what_is_no_json_object_is_told_of_the_body(client: TestClient, path: str, body: bytes, words: str) -> None:
    answer = send(client, body, path)
    assert answer.status_code == 422
    assert answer.json()["error"]["fields"] == {"body": words}
    assert answer.json()["error"]["fields_said"]["body"]["code"]


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "trainings/x", "GET, DELETE"),
        ("PATCH", "trainings/x", "GET, DELETE"),
        ("DELETE", "trainings", "GET, POST"),
        ("GET", "trainings/x/pause", "POST"),
        ("POST", "loras/x", "DELETE"),
    ],
)
def test_a_method_that_a_path_does_not_take_is_told_with_those_that_it_takes(
    client: TestClient, method: str, path: str, allowed: str
) -> None:
    answer = client.request(method, f"/api/v1/{path}")
    assert (answer.status_code, answer.headers["allow"]) == (405, allowed)
    assert allowed in answer.json()["error"]["advice"]


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE"])
def test_a_path_that_is_not_there_is_not_found(client: TestClient, method: str) -> None:
    answer = client.request(method, "/api/v1/nothing")
    assert (answer.status_code, answer.json()["error"]["detail"]) == (404, "There is no /api/v1/nothing.")


def test_every_route_declares_its_errors_in_their_shape(client: TestClient) -> None:
    document = client.get("/api/openapi.json").json()
    shape = {"$ref": "#/components/schemas/Error"}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if path.startswith("/api/v1/"):
                for status in ("422", "default"):
                    told = operation["responses"][status]["content"]["application/json"]["schema"]
                    assert told == shape, (method, path, status)
    assert "detail" in document["components"]["schemas"]["ErrorText"]["properties"]
    trainings = document["paths"]["/api/v1/trainings"]["post"]["responses"]
    assert {"403", "413", "429"} <= trainings.keys()
    assert {"404", "409"} <= document["paths"]["/api/v1/trainings/{job_id}"]["delete"]["responses"].keys()


def post(client: TestClient, path: str, body: dict[str, Any]) -> dict[str, str]:
    answer = client.post(f"/api/v1/{path}", json=body)
    assert answer.status_code == 422, answer.text
    error = answer.json()["error"]
    assert error["fields_said"].keys() == error["fields"].keys()
    return error["fields"]


@pytest.mark.parametrize("path", ["jobs", "estimate"])
def test_an_unknown_field_of_a_recipe_hides_nothing_else(client: TestClient, path: str) -> None:
    recipe = {"model": "demo-sdxl", "prompt": "A boat", "stepz": 3, "seed": "x", "guidance_scale": 900, "shape": "1x1"}
    fields = post(client, path, recipe)
    assert fields.keys() == {"stepz", "seed", "guidance_scale", "shape"}
    assert fields["stepz"] == "is not a known field; perhaps steps is meant"
    assert fields["guidance_scale"] == post(client, path, {**recipe, "stepz": 3})["guidance_scale"]
    del recipe["prompt"]
    assert post(client, path, recipe).keys() == {"stepz", "seed", "guidance_scale", "shape", "prompt"}


def test_what_cannot_be_checked_without_the_rest_is_not_guessed(client: TestClient) -> None:
    assert post(client, "jobs", {"prompt": "A boat", "steps": 9999}).keys() == {"model"}
    fields = post(client, "jobs", {"model": "demo-sdxl", "prompt": "A boat", "loras": [{"ref": "gone", "scal": 1}]})
    assert fields.keys() == {"loras.0.scal"}


def test_of_sweeps_and_grids_all_is_told_too(client: TestClient) -> None:
    recipe = {"model": "demo-sdxl", "prompt": "A {red|green} boat", "guidance_scale": 900, "stepz": 3}
    for path in ("expand", "jobs/many"):
        assert post(client, path, {"recipe": recipe, "seed": 2}).keys() == {"seed", "recipe.stepz", "guidance_scale"}
    x = {"field": "steps", "values": "4, 8"}
    fields = post(client, "grids", {"recipe": recipe | {"prompt": "A boat"}, "x": x, "why": x})
    assert fields.keys() == {"why", "recipe.stepz", "guidance_scale"}


def test_of_a_training_all_is_told_too(client: TestClient) -> None:
    asked = {"model": "nothing", "name": "a", "pictures": [{"id": "gone"}], "rang": 8, "steps": "x"}
    fields = post(client, "trainings", asked)
    assert fields.keys() == {"rang", "steps", "model", "pictures.0.id", "pictures.0.caption"}
    assert fields["rang"] == "is not a known field; perhaps rank is meant"


def test_a_change_of_a_waiting_job_is_told_all_that_is_wrong_with_it(client: TestClient) -> None:
    job = client.post("/api/v1/jobs", json={"model": "demo-sdxl", "prompt": "A boat"}).json()["id"]
    answer = client.patch(f"/api/v1/jobs/{job}", json={"stepz": 3, "guidance_scale": 900})
    assert answer.json()["error"]["fields"].keys() == {"stepz", "guidance_scale"}


def test_true_and_text_are_no_numbers(client: TestClient) -> None:
    wrong: dict[str, Any] = {"steps": True, "rank": "8", "learning_rate": "x", "preserve": "no"}
    answer = client.post("/api/v1/trainings", json={"model": "demo-sdxl", "name": "x", "pictures": [], **wrong})
    assert answer.json()["error"]["fields"].keys() == {*wrong, "pictures"}
    wrong = {"steps": True, "guidance_scale": False, "batch_size": True, "seed": True}
    recipe = {"model": "demo-sdxl", "prompt": "A boat", "loras": [{"ref": "x", "scale": True}], **wrong}
    answer = client.post("/api/v1/jobs", json=recipe)
    assert answer.json()["error"]["fields"].keys() == {*wrong, "loras.0.scale"}
