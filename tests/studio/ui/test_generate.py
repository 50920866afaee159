"""The real `gradio_client` against a studio that runs: it waits, sees progress, gets files, and holds nobody up."""

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from gradio_client import Client
from gradio_client.exceptions import AppError
from PIL import Image

Studio = Any  # conftest.RunningStudio


@pytest.fixture(scope="module")
def studio(shared_studio: Studio) -> Studio:
    return shared_studio


@pytest.fixture
def client(studio: Studio, tmp_path: Path) -> Iterator[Client]:
    client = Client(str(studio.client.base_url), verbose=False, analytics_enabled=False, download_files=str(tmp_path))
    yield client
    client.close()


def find_job(studio: Studio, prompt: str) -> dict[str, Any] | None:
    return next((job for job in studio.read("jobs")["jobs"] if job["recipe"]["prompt"] == prompt), None)


def test_a_prompt_becomes_files_and_a_recipe(client: Client, studio: Studio) -> None:
    settings = {"seed": 3, "steps": 2, "batch_size": 2}
    files, recipe, job = client.predict(prompt="A red sailboat", settings=settings, api_name="/generate")
    assert (recipe["prompt"], recipe["seed"], recipe["model"]) == ("A red sailboat", 3, "demo-flux2")
    assert job["state"] == "done"
    assert [Path(file).name for file in files] == [f"{job['id']}-0.png", f"{job['id']}-1.png"]
    for file, link in zip(files, job["outputs"], strict=True):
        content = Path(file).read_bytes()
        assert content == studio.client.get(link["url"]).content
        assert Image.open(io.BytesIO(content)).size == (256, 256)


def test_progress_is_told_while_it_waits(client: Client) -> None:
    updates = list(client.submit(prompt="A lighthouse", settings={"steps": 6}, api_name="/generate"))
    steps = [job["step"] for _files, _recipe, job in updates]
    assert steps == sorted(steps)
    assert len(set(steps)) > 2
    for files, recipe, job in updates:
        assert len(files) == (job["state"] == "done")
        assert recipe["prompt"] == "A lighthouse"


def test_a_recipe_that_cannot_run_is_an_error(client: Client) -> None:
    with pytest.raises(AppError, match="steps: 1000 is out of range"):
        client.predict(prompt="A boat", settings={"steps": 1000}, api_name="/generate")


def test_a_failed_job_is_an_error_with_its_card(client: Client) -> None:
    with pytest.raises(AppError, match="asked the fake model to fail"):
        client.predict(prompt="fail please", api_name="/generate")


def test_cancelling_in_the_client_cancels_the_job(client: Client, studio: Studio, wait_for: Callable[..., Any]) -> None:
    asked = client.submit(prompt="One that its client cancels", settings={"steps": 100}, api_name="/generate")
    job = wait_for("the job", lambda: find_job(studio, "One that its client cancels"))
    studio.wait_for_step(job["id"], 1)
    asked.cancel()
    assert studio.wait_for_state(job["id"], "cancelled")["step"] < 100


def test_a_client_that_is_gone_cancels_its_waiting_job(
    client: Client, studio: Studio, wait_for: Callable[..., Any]
) -> None:
    """Nothing but the broken connection tells: the process that asked was killed."""
    studio.client.post("/api/v1/queue/pause").raise_for_status()
    body = {"data": ["Left alone", "demo-sdxl", None], "fn_index": None, "session_hash": "gone"}
    config = studio.client.get("/config").json()
    body["fn_index"] = next(one["id"] for one in config["dependencies"] if one["api_name"] == "generate")
    studio.client.post("/gradio_api/queue/join", json=body).raise_for_status()
    with studio.client.stream("GET", "/gradio_api/queue/data", params={"session_hash": "gone"}) as answer:
        lines = answer.iter_lines()  # kept: with it the connection would go, before the call begins
        next(lines)
        job = wait_for("the job", lambda: find_job(studio, "Left alone"))

    def is_cancelled() -> bool:
        studio.client.post("/api/v1/queue/pause").raise_for_status()  # something happens, as in any busy studio
        return studio.read(f"jobs/{job['id']}")["state"] == "cancelled"

    wait_for("the job to be cancelled", is_cancelled)
    studio.client.post("/api/v1/queue/resume").raise_for_status()


def test_many_who_wait_hold_nobody_up(client: Client, studio: Studio, wait_for: Callable[..., Any]) -> None:
    studio.client.post("/api/v1/queue/pause").raise_for_status()
    waiting = [client.submit(prompt=f"Waiting {n}", api_name="/generate") for n in range(12)]
    jobs = [wait_for("the job", lambda n=n: find_job(studio, f"Waiting {n}")) for n in range(12)]
    job_id = client.predict({"model": "demo-sdxl", "prompt": "Another"}, api_name="/submit")
    assert client.predict(job_id, api_name="/status")["state"] == "queued"
    assert client.predict(job_id, api_name="/cancel") == "cancelled"
    for job, asked in zip(jobs, waiting, strict=True):
        studio.client.delete(f"/api/v1/jobs/{job['id']}")
        with pytest.raises(AppError, match="Somebody cancelled the job"):
            asked.result()
    studio.client.post("/api/v1/queue/resume").raise_for_status()
