"""Jobs, models and health over REST, and one shape for every error."""

import io
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from fastapi.testclient import TestClient
from PIL import Image

from pipelines.messages import read_codes
from pipelines.models.catalog import Catalog
from studio.database import Database
from studio.jobs.job import Job
from studio.worker.loop import Worker

JOB_FIELDS = {
    *("id", "owner", "state", "recipe", "created_at", "started_at", "finished_at", "phase", "step", "steps"),
    *("eta_s", "reason", "compiles", "revision", "timings", "error", "outputs"),
}


def post(client: TestClient, catalog: Catalog, **fields: Any) -> str:
    answer = client.post("/api/v1/jobs", json={"model": catalog.default.id, "prompt": "A boat", "steps": 2, **fields})
    assert answer.status_code == 201
    return answer.json()["id"]


def test_a_job_from_prompt_to_picture(client: TestClient, catalog: Catalog, worker: Worker) -> None:
    job_id = post(client, catalog, seed=5)
    worker.run_next()
    job = client.get(f"/api/v1/jobs/{job_id}").json()
    assert set(job) >= JOB_FIELDS
    assert job["state"] == "done"
    picture = Image.open(io.BytesIO(client.get(job["outputs"][0]["url"]).content))
    assert f"{picture.width}x{picture.height}" == job["recipe"]["shape"]
    assert client.get("/api/v1/outputs", params={"q": "boat"}).json()["outputs"][0]["recipe"]["seed"] == 5


def test_jobs_are_listed_with_the_event_to_follow_from(client: TestClient, catalog: Catalog) -> None:
    job_id = post(client, catalog)
    listed = client.get("/api/v1/jobs", params={"state": "queued"}).json()
    assert [job["id"] for job in listed["jobs"]] == [job_id]
    assert listed["last_event_id"] == client.get("/api/v1/health").json()["last_event_id"] == 1
    assert client.get("/api/v1/jobs", params={"state": "done"}).json()["jobs"] == []


def test_cancel_and_retry(client: TestClient, catalog: Catalog) -> None:
    job_id = post(client, catalog)
    assert client.delete(f"/api/v1/jobs/{job_id}").json()["state"] == "cancelled"
    assert client.delete(f"/api/v1/jobs/{job_id}").json()["state"] == "cancelled"
    assert client.post(f"/api/v1/jobs/{job_id}/retry").json()["state"] == "queued"
    refused = client.post(f"/api/v1/jobs/{job_id}/retry")
    assert refused.status_code == 409
    assert refused.json()["error"]["advice"]


@pytest.mark.parametrize(
    ("fields", "at_fault"),
    [
        ({"prompt": ""}, "prompt"),
        ({"model": "nope"}, "model"),
        ({"shape": "123x45"}, "shape"),
        ({"steps": 0}, "steps"),
        ({"steps": "many"}, "steps"),
        ({"seed": -2}, "seed"),
        ({"batch_size": 1000}, "batch_size"),
        ({"colour": "red"}, "colour"),
        ({"guidance_scale": 1e9}, "guidance_scale"),
    ],
)
def test_a_recipe_that_cannot_run_names_the_field(
    client: TestClient, catalog: Catalog, fields: dict[str, Any], at_fault: str
) -> None:
    answer = client.post("/api/v1/jobs", json={"model": catalog.default.id, "prompt": "A boat", **fields})
    assert answer.status_code == 422
    error = answer.json()["error"]
    assert list(error["fields"]) == [at_fault]
    assert error["title"] == "Please check the settings"


def test_a_form_of_another_site_is_not_a_recipe(client: TestClient, catalog: Catalog) -> None:
    body = json.dumps({"model": catalog.default.id, "prompt": "A boat"})
    assert client.post("/api/v1/jobs", content=body, headers={"Content-Type": "text/plain"}).status_code == 422
    assert client.get("/api/v1/jobs").json()["jobs"] == []


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/api/v1/jobs/nope", 404),
        ("DELETE", "/api/v1/jobs/nope", 404),
        ("POST", "/api/v1/jobs/nope/retry", 404),
        ("GET", "/api/v1/jobs/nope/preview.jpg", 404),
        ("GET", "/api/v1/outputs/nope/file", 404),
        ("GET", "/api/v1/outputs/..%2F..%2Fjobs.db/file", 404),
        ("GET", "/api/v1/outputs/nope/thumb", 404),
        ("GET", "/api/v1/nothing", 404),
        ("GET", "/api/v1/jobs?limit=0", 422),
        ("GET", "/api/v1/jobs?state=lost", 422),
        ("PUT", "/api/v1/jobs", 405),
    ],
)
def test_every_error_has_the_one_shape(client: TestClient, method: str, path: str, status: int) -> None:
    answer = client.request(method, path)
    assert answer.status_code == status
    assert read_codes(answer.json()["error"]).keys() == {"title", "detail", "advice", "fields"}


def test_somebody_elses_job_does_not_exist(client: TestClient, submit: Callable[..., Job]) -> None:
    job = submit(owner="her")
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/retry"), ("GET", "/preview.jpg")):
        assert client.request(method, f"/api/v1/jobs/{job.id}{path}").status_code == 404
    assert client.get("/api/v1/jobs").json()["jobs"] == []


def test_a_mistake_of_ours_is_still_the_one_shape(client: TestClient, database: Database) -> None:
    with database.write() as tx:
        tx.execute("UPDATE workers SET state = 'melted'")
    answer = client.get("/api/v1/health")
    assert answer.status_code == 500
    assert answer.json()["error"]["title"] == "Something went wrong"


def test_a_database_that_another_program_holds_is_told_with_503(
    client: TestClient, catalog: Catalog, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("studio.database.BUSY_TIMEOUT_MS", 20)  # of the threads that connect from here on
    with closing(sqlite3.connect(database.file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        recipe = {"model": catalog.default.id, "prompt": "A boat"}
        refused = client.post("/api/v1/jobs", json=recipe)
        error = read_codes(refused.json())["error"]
        assert (refused.status_code, error["title"]) == (503, "The database is busy")
        assert error["advice"]
        assert client.get("/api/v1/jobs").status_code == 200, "what only reads goes on"
        other.execute("ROLLBACK")
    assert client.post("/api/v1/jobs", json=recipe).status_code == 201


def test_models_tell_what_each_shape_costs(client: TestClient, catalog: Catalog, worker: Worker) -> None:
    post(client, catalog)
    worker.run_next()
    model = client.get("/api/v1/models").json()["models"][0]
    shapes = {shape["shape"]: shape for shape in model["shapes"]}
    assert model["is_resident"]
    default = shapes.pop(model["defaults"]["shape"])
    assert default["state"] == "warm"
    assert default["seconds"] is not None
    assert {shape["state"] for shape in shapes.values()} == {"cold"}


@pytest.mark.parametrize(("came_from", "status"), [("cross-site", 403), ("same-site", 403), ("same-origin", 409)])
def test_another_sites_page_changes_nothing(client: TestClient, catalog: Catalog, came_from: str, status: int) -> None:
    job_id = post(client, catalog)
    answer = client.post(f"/api/v1/jobs/{job_id}/retry", headers={"Sec-Fetch-Site": came_from})
    assert answer.status_code == status
    assert client.get(f"/api/v1/jobs/{job_id}", headers={"Sec-Fetch-Site": came_from}).json()["state"] == "queued"


def test_a_models_download_tells_its_size_and_the_room_for_it(client: TestClient) -> None:
    answer = client.get("/api/v1/models/sdxl-base/download").json()
    assert answer["bytes"] == 0  # nothing is downloaded with --fake
    assert answer["free_bytes"] > 0
    assert client.get("/api/v1/models/nothing/download").status_code == 404


def test_only_a_model_with_two_experts_takes_a_second_guidance(client: TestClient) -> None:
    models = {model["id"]: model for model in client.get("/api/v1/models").json()["models"]}
    assert models["wan2.2-a14b"]["defaults"]["guidance_scale_2"] == 3.0
    assert models["wan2.1-14b"]["defaults"]["guidance_scale_2"] is None
    recipe = {"prompt": "A boat", "guidance_scale_2": 2.5}
    job = client.post("/api/v1/jobs", json=recipe | {"model": "wan2.2-a14b"}).json()["id"]
    assert client.get(f"/api/v1/jobs/{job}").json()["recipe"]["guidance_scale_2"] == 2.5
    answer = client.post("/api/v1/jobs", json=recipe | {"model": "wan2.1-14b"})
    assert (answer.status_code, list(answer.json()["error"]["fields"])) == (422, ["guidance_scale_2"])
    answer = client.post("/api/v1/jobs", json=recipe | {"model": "wan2.2-a14b", "guidance_scale_2": 21})
    assert "allowed: 0 to 20" in answer.json()["error"]["fields"]["guidance_scale_2"]


HALF = r"\ud83d"  # of a balloon, as JSON writes it


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("jobs", f'{{"model": "demo-sdxl", "prompt": "A {HALF} boat"}}'),
        ("jobs", f'{{"model": "{HALF}", "prompt": "A boat"}}'),
        ("estimate", f'{{"model": "demo-sdxl", "prompt": "A boat", "shape": "{HALF}"}}'),
        ("expand", f'{{"recipe": {{"model": "demo-sdxl", "prompt": "A boat", "scheduler": "{HALF}"}}}}'),
        ("presets/check", f'{{"title": "{HALF}"}}'),
        ("qr", f'{{"text": "{HALF}"}}'),
    ],
)
def test_half_a_character_is_refused(client: TestClient, path: str, body: str) -> None:
    answer = client.post(f"/api/v1/{path}", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 422, answer.text
    assert answer.json()["error"]["detail"]
