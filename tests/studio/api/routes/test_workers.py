"""The workers over REST: listed with what they run, drained and given jobs again, forgotten once they are gone."""

from collections.abc import Callable

import pytest
from fastapi.testclient import TestClient
from httpx import Response

from pipelines.messages import say
from studio.database import Database
from studio.jobs import claims, queue, workers
from studio.jobs.workers import LOCAL, WorkerState

WORKERS = "/api/v1/workers"


@pytest.fixture
def far(database: Database) -> str:
    """A second worker, on another machine."""
    columns = {"node": "10.0.0.7", "device": "NVIDIA L4", "model": "demo-sdxl", "shapes": {"256x256": "warm"}}
    with database.write() as tx:
        workers.describe(tx, "far", WorkerState.READY, activity=say("ready"), is_pinned=True, **columns)
        workers.equip(tx, "far", chips=1, chip_price=0.7)
    return "far"


def submit(client: TestClient) -> str:
    return client.post("/api/v1/jobs", json={"model": "demo-sdxl", "prompt": "A red sailboat"}).json()["id"]


def test_workers_are_listed_with_their_machine_their_model_and_what_they_run(
    client: TestClient, database: Database, far: str
) -> None:
    job_id = submit(client)
    assert claims.claim_next(database, far, resident="demo-sdxl")
    found = client.get(WORKERS).json()
    assert (found["engine"], found["join"]) == ("local", None)
    local, other = found["workers"]
    assert (local["id"], local["node"], local["jobs"]) == (LOCAL, "", [])
    assert (other["id"], other["node"], other["is_pinned"], other["is_alive"]) == (far, "10.0.0.7", True, True)
    assert [job["id"] for job in other["jobs"]] == [job_id]
    assert other["engine"]["shapes"] == {"256x256": "warm"}
    assert other["machine"]["chip_price"] == 0.7


def test_a_drained_worker_gets_no_job_until_it_is_given_jobs_again(
    client: TestClient, database: Database, far: str
) -> None:
    submit(client)
    drained = client.post(f"{WORKERS}/{far}/drain")
    assert (drained.status_code, drained.json()["is_draining"]) == (200, True)
    assert claims.claim_next(database, far, resident="demo-sdxl") is None
    assert client.post(f"{WORKERS}/{far}/undrain").json()["is_draining"] is False
    assert claims.claim_next(database, far, resident="demo-sdxl")


@pytest.mark.parametrize("ask", [lambda c: c.post(f"{WORKERS}/x/drain"), lambda c: c.delete(f"{WORKERS}/x")])
def test_a_worker_that_nobody_knows_is_not_there(client: TestClient, ask: Callable[[TestClient], Response]) -> None:
    answer = ask(client)
    assert answer.status_code == 404
    assert answer.json()["error"]["advice"] == "GET /api/v1/workers lists the workers."


def test_only_a_worker_that_is_gone_is_forgotten(client: TestClient, database: Database, far: str) -> None:
    refused = client.delete(f"{WORKERS}/{far}")
    assert (refused.status_code, refused.json()["error"]["detail"]) == (409, "far is ready.")
    with database.write() as tx:
        workers.describe(tx, far, WorkerState.STOPPED, activity=say("its machine is gone"))
        workers.describe(tx, LOCAL, WorkerState.STOPPED, activity=say("stopped"))
    assert client.delete(f"{WORKERS}/{far}").status_code == 204
    assert client.delete(f"{WORKERS}/{LOCAL}").status_code == 409, "it keeps what was measured"
    assert [one["id"] for one in client.get(WORKERS).json()["workers"]] == [LOCAL]


def test_health_says_which_worker_it_shows_and_counts_all_of_them(
    client: TestClient, database: Database, far: str
) -> None:
    with database.write() as tx:
        workers.describe(tx, LOCAL, WorkerState.STOPPED, activity=say("stopped"))
    told = client.get("/api/v1/health").json()
    assert (told["worker"], told["engine"]["device"]) == (far, "NVIDIA L4")
    assert told["workers"] == {"ready": 1, "stopped": 1}
    assert queue.count_jobs(database)["queued"] == 0
