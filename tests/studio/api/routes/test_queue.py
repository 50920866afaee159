"""The line over REST: move, edit, repeat, hold, cancel many, clear, and nothing of it for somebody else's jobs."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from fastapi.testclient import TestClient

from pipelines.models.catalog import Catalog
from studio.api.application import create_api
from studio.database import Database
from studio.jobs import claims
from studio.jobs.costs import estimates
from studio.jobs.job import Job
from studio.settings import Settings

Submit = Callable[..., Job]


def read_order(client: TestClient) -> list[str]:
    jobs = client.get("/api/v1/jobs", params={"state": "queued"}).json()["jobs"]
    return [job["recipe"]["prompt"] for job in sorted(jobs, key=lambda job: job["position"])]


def test_a_job_is_moved(client: TestClient, submit: Submit) -> None:
    first, second = submit("first"), submit("second")
    moved = client.post(f"/api/v1/jobs/{second.id}/move", json={"before": first.id})
    assert (moved.status_code, moved.json()["position"]) == (200, 1)
    assert read_order(client) == ["second", "first"]
    client.post(f"/api/v1/jobs/{second.id}/move", json={"before": None})
    assert read_order(client) == ["first", "second"]


def test_a_move_to_what_runs_already_says_so(client: TestClient, database: Database, submit: Submit) -> None:
    first, second = submit(), submit()
    claims.claim_next(database, resident=None)
    answer = client.post(f"/api/v1/jobs/{second.id}/move", json={"before": first.id})
    assert answer.status_code == 409
    assert first.id in answer.json()["error"]["detail"]


def test_a_waiting_job_is_edited_in_part_and_checked(client: TestClient, submit: Submit) -> None:
    job = submit("A boat", steps=4)
    edited = client.patch(f"/api/v1/jobs/{job.id}", json={"prompt": "A red boat"}).json()
    assert edited["recipe"] == job.recipe.to_json() | {"prompt": "A red boat"}
    refused = client.patch(f"/api/v1/jobs/{job.id}", json={"steps": 0, "colour": "red"})
    assert (refused.status_code, list(refused.json()["error"]["fields"])) == (422, ["colour", "steps"])
    assert client.patch(f"/api/v1/jobs/{job.id}", json={"steps": 0}).status_code == 422
    assert client.patch(f"/api/v1/jobs/{job.id}", json={}).status_code == 422
    assert client.get(f"/api/v1/jobs/{job.id}").json()["recipe"] == edited["recipe"]


def test_an_edit_to_another_model_takes_its_defaults(client: TestClient, submit: Submit, catalog: Catalog) -> None:
    job = submit("A boat", steps=4, seed=7)
    other = next(model for model in catalog.models if model.family == "wan")
    recipe = client.patch(f"/api/v1/jobs/{job.id}", json={"model": other.id}).json()["recipe"]
    assert (recipe["prompt"], recipe["seed"], recipe["steps"]) == ("A boat", 7, other.steps)
    assert recipe["shape"] == str(other.default_shape)


def test_an_edit_may_bring_pictures_of_ones_own_only(
    client: TestClient, submit: Submit, upload: Callable[..., str]
) -> None:
    job = submit(model="flux2-klein-4b", images=[upload("red")])
    blue, hers = upload("blue"), upload("green", owner="her")
    assert client.patch(f"/api/v1/jobs/{job.id}", json={"images": [blue]}).json()["recipe"]["images"] == [blue]
    assert client.patch(f"/api/v1/jobs/{job.id}", json={"images": [hers]}).status_code == 422


def test_a_running_job_cannot_be_edited(client: TestClient, database: Database, submit: Submit) -> None:
    job = submit()
    claims.claim_next(database, resident=None)
    answer = client.patch(f"/api/v1/jobs/{job.id}", json={"prompt": "Too late"})
    assert answer.status_code == 409
    assert answer.json()["error"]["advice"] == "Queue the settings as a new job."


def test_a_duplicate_has_a_new_seed_unless_it_should_not(client: TestClient, submit: Submit) -> None:
    job = submit("A boat", seed=7)
    copies = [
        client.post(f"/api/v1/jobs/{job.id}/duplicate"),
        client.post(f"/api/v1/jobs/{job.id}/duplicate", json={"keep_seed": True}),
    ]
    assert [copy.status_code for copy in copies] == [201, 201]
    other, same = (client.get(f"/api/v1/jobs/{copy.json()['id']}").json()["recipe"] for copy in copies)
    assert same == job.recipe.to_json()
    assert other["seed"] != 7
    assert other | {"seed": 7} == same


def test_the_line_is_held_and_let_go(client: TestClient, database: Database, submit: Submit) -> None:
    job = submit()
    assert client.get("/api/v1/queue").json() == {"is_paused": False, "quota": 200}
    assert client.post("/api/v1/queue/pause").json()["is_paused"]
    assert client.get(f"/api/v1/jobs/{job.id}").json()["reason"] == "paused"
    assert claims.claim_next(database, resident=None) is None
    assert not client.post("/api/v1/queue/resume").json()["is_paused"]
    assert claims.claim_next(database, resident=None).id == job.id


def test_among_several_owners_a_wait_says_its_place_its_reason_and_its_time(
    client: TestClient, database: Database, submit: Submit
) -> None:
    hers = [submit(owner=owner) for owner in ("her", "his", "theirs")]
    mine = submit()
    found = client.get(f"/api/v1/jobs/{mine.id}").json()
    assert (found["position"], found["reason"], found["eta_s"]) == (4, "3 jobs by others first", None)
    measured = {"model": mine.recipe.model, "shape": mine.programs, "batch_size": 1}
    with database.write() as tx:
        estimates.record(tx, estimates.Measured(**measured, compile_s=0.0, step_s=1.0, fixed_s=1.0))
    claims.claim_next(database, resident=None)
    found = client.get(f"/api/v1/jobs/{mine.id}").json()
    assert (found["position"], found["reason"]) == (3, "2 jobs by others first")
    assert found["eta_s"] == sum(job.recipe.steps + 1.0 for job in (*hers, mine))
    assert [job["position"] for job in client.get("/api/v1/jobs?state=queued").json()["jobs"]] == [3]


def test_many_are_cancelled(client: TestClient, database: Database, submit: Submit) -> None:
    running, hers = submit(), submit(owner="her")
    claims.claim_next(database, resident=None)
    submit()
    assert client.post("/api/v1/jobs/cancel", json={"scope": "waiting"}).json() == {"cancelled": 1}
    assert client.post("/api/v1/jobs/cancel", json={"scope": "all"}).json() == {"cancelled": 1}
    assert client.get(f"/api/v1/jobs/{running.id}").json()["cancel_requested"]
    assert claims.find_next_model(database, resident=None) == hers.recipe.model
    assert client.post("/api/v1/jobs/cancel", json={"scope": "everybody's"}).status_code == 422


def test_ended_jobs_are_cleared_from_the_list(client: TestClient, submit: Submit) -> None:
    job = submit()
    client.delete(f"/api/v1/jobs/{job.id}")
    assert client.post("/api/v1/jobs/clear").json() == {"cleared": 1}
    assert client.get(f"/api/v1/jobs/{job.id}").json()["is_cleared"]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "move", {"before": None}),
        ("PATCH", "", {"prompt": "Mine now"}),
        ("POST", "duplicate", None),
    ],
)
def test_somebody_elses_job_does_not_exist(
    client: TestClient, submit: Submit, method: str, path: str, body: dict[str, Any] | None
) -> None:
    hers, mine = submit(owner="her"), submit()
    assert client.request(method, f"/api/v1/jobs/{hers.id}/{path}".rstrip("/"), json=body).status_code == 404
    assert client.post(f"/api/v1/jobs/{mine.id}/move", json={"before": hers.id}).status_code == 404


@pytest.fixture
def small_client(settings: Settings, database: Database, catalog: Catalog) -> Iterator[TestClient]:
    with TestClient(create_api(replace(settings, queue_quota=1), database, catalog)) as client:
        yield client


def test_past_the_quota_a_job_is_refused_with_advice(small_client: TestClient, submit: Submit) -> None:
    job = submit()
    recipe = {"model": job.recipe.model, "prompt": "One too many"}
    for answer in (
        small_client.post("/api/v1/jobs", json=recipe),
        small_client.post(f"/api/v1/jobs/{job.id}/duplicate"),
    ):
        assert answer.status_code == 429
        assert answer.json()["error"]["advice"] == "Wait for some to end, or cancel some."
