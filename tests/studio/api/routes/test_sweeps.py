"""Many jobs from one recipe over REST: the preview, the queue, and what is refused."""

from typing import Any

from fastapi.testclient import TestClient

from pipelines.models.catalog import Catalog
from studio.settings import Settings
from studio.worker.loop import Worker


def sweep(catalog: Catalog, prompt: str, *, seeds: int = 1, draws: int | None = None, **fields: Any) -> dict[str, Any]:
    recipe = {"model": catalog.default.id, "prompt": prompt, "steps": 2, **fields}
    return {"recipe": recipe, "seeds": seeds, "draws": draws}


def test_the_preview_queues_nothing(client: TestClient, catalog: Catalog) -> None:
    told = client.post("/api/v1/expand", json=sweep(catalog, "A {red|blue} boat", seeds=3)).json()
    assert (told["count"], told["examples"], told["seconds"]) == (6, ["A red boat", "A blue boat"], None)
    assert client.get("/api/v1/jobs").json()["jobs"] == []


def test_the_preview_knows_how_long_it_takes(client: TestClient, catalog: Catalog, worker: Worker) -> None:
    client.post("/api/v1/jobs", json={"model": catalog.default.id, "prompt": "A boat", "steps": 2})
    worker.run_next()
    one, ten = (
        client.post("/api/v1/expand", json=sweep(catalog, "A boat", seeds=seeds)).json()["seconds"] for seeds in (1, 10)
    )
    assert one is not None
    assert ten >= one


def test_what_was_counted_is_queued_in_order(client: TestClient, catalog: Catalog) -> None:
    body = sweep(catalog, "A {red|blue} boat", seeds=2, seed=7)
    ids = client.post("/api/v1/jobs/many", json=body).json()["ids"]
    recipes = [client.get(f"/api/v1/jobs/{job_id}").json()["recipe"] for job_id in ids]
    assert [(recipe["prompt"], recipe["seed"]) for recipe in recipes] == [
        ("A red boat", 7),
        ("A red boat", 8),
        ("A blue boat", 7),
        ("A blue boat", 8),
    ]


def test_lists_of_the_data_directory_are_known(client: TestClient, catalog: Catalog, settings: Settings) -> None:
    settings.wildcards_dir.mkdir()
    (settings.wildcards_dir / "animals.txt").write_text("cat\ndog\n", "utf-8")
    assert client.get("/api/v1/wildcards").json() == {"wildcards": [{"name": "animals", "count": 2}]}
    assert client.post("/api/v1/expand", json=sweep(catalog, "A __animals__")).json()["prompts"] == 2


def test_a_prompt_that_cannot_be_read_or_run_names_the_field(client: TestClient, catalog: Catalog) -> None:
    for body, field in (
        (sweep(catalog, "A __fish__"), "prompt"),
        (sweep(catalog, "A {red|blue"), "prompt"),
        (sweep(catalog, "A boat", steps=0), "steps"),
        (sweep(catalog, "{a|b}" * 8), "prompt"),
    ):
        answer = client.post("/api/v1/jobs/many", json=body)
        assert (answer.status_code, list(answer.json()["error"]["fields"])) == (422, [field])
    assert client.get("/api/v1/jobs").json()["jobs"] == []


def test_all_of_a_sweep_or_nothing(client: TestClient, catalog: Catalog) -> None:
    for _ in range(2):
        assert client.post("/api/v1/jobs/many", json=sweep(catalog, "A boat", seeds=90)).status_code == 201
    assert client.post("/api/v1/jobs/many", json=sweep(catalog, "A boat", seeds=30)).status_code == 429
    assert client.get("/api/v1/health").json()["jobs"]["queued"] == 180


def test_braces_are_text_in_a_single_job(client: TestClient, catalog: Catalog) -> None:
    recipe = {"model": catalog.default.id, "prompt": "A {red|blue} boat"}
    job_id = client.post("/api/v1/jobs", json=recipe).json()["id"]
    assert client.get(f"/api/v1/jobs/{job_id}").json()["recipe"]["prompt"] == "A {red|blue} boat"
