"""A query parameter that a route does not have is refused in words, on every route."""

from collections.abc import Callable

import pytest
from fastapi.routing import iter_route_contexts
from fastapi.testclient import TestClient

from studio.api.query import list_parameters
from studio.database import Database
from studio.jobs.job import Job

Submit = Callable[..., Job]


@pytest.mark.parametrize(
    ("path", "name", "allowed"),
    [
        ("/api/v1/outputs?day=bad", "day", "shape, state, tag"),
        ("/api/v1/jobs?stat=queued", "stat", "allowed: everyone, limit, state"),
        ("/api/v1/health?x=1", "x", "allowed: none"),
        ("/api/v1/system/plan?modell=x", "modell", "allowed: "),
    ],
)
def test_an_unknown_parameter_is_named_with_what_is_allowed(
    client: TestClient, path: str, name: str, allowed: str
) -> None:
    answer = client.get(path)
    assert answer.status_code == 422
    fields = answer.json()["error"]["fields"]
    assert fields[name].startswith("is not a parameter here; allowed: ")
    assert allowed in fields[name]


def test_many_long_names_make_no_long_answer(client: TestClient) -> None:
    answer = client.get("/api/v1/health", params={f"{number}{'x' * 200}": "" for number in range(100)})
    assert (answer.status_code, len(answer.content) < 10_000) == (422, True)


def test_every_documented_parameter_is_known(client: TestClient) -> None:
    documented = client.get("/api/openapi.json").json()["paths"]
    routes = {
        (context.path, method): context.original_route
        for context in iter_route_contexts(client.app.routes)
        for method in context.methods or ()
    }
    seen = 0
    for path, operations in documented.items():
        for method, operation in operations.items():
            names = {one["name"] for one in operation.get("parameters", []) if one["in"] == "query"}
            if not names or not path.startswith("/api/v1"):
                continue
            assert list_parameters(routes[path, method.upper()]) == names
            seen += 1
    assert seen > 10


def test_the_addresses_that_events_tell_are_whole(client: TestClient, database: Database, submit: Submit) -> None:
    job = submit()
    with database.write() as tx:
        tx.execute("INSERT INTO previews (job_id, version, jpeg) VALUES (?, 1, ?)", (job.id, b"\xff\xd8"))
    assert client.get(f"/api/v1/jobs/{job.id}/preview.jpg?v=1").status_code == 200
