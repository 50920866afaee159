"""Wildcards over REST: read by everybody, changed by whoever looks after the studio."""

from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
from fastapi.testclient import TestClient

from pipelines.models.catalog import Catalog
from studio.access.users import Users
from studio.access_settings import Mode
from studio.api.application import create_api
from studio.database import open_database
from studio.settings import Settings

URL = "/api/v1/wildcards"


def test_a_list_is_made_used_changed_and_deleted(client: TestClient, catalog: Catalog) -> None:
    assert client.put(f"{URL}/sea/animals", json={"lines": ["# big ones", "whale", "squid"]}).json() == {
        "name": "sea/animals",
        "count": 2,
    }
    assert client.get(f"{URL}/sea/animals").json()["lines"] == ["# big ones", "whale", "squid"]
    sweep = {"recipe": {"model": catalog.default.id, "prompt": "A __sea/animals__"}}
    assert client.post("/api/v1/expand", json=sweep).json()["examples"] == ["A whale", "A squid"]
    client.put(f"{URL}/sea/animals", json={"lines": ["cod"]}).raise_for_status()
    assert client.get(URL).json() == {"wildcards": [{"name": "sea/animals", "count": 1}]}
    assert client.delete(f"{URL}/sea/animals").status_code == 204
    for answer in (client.get(f"{URL}/sea/animals"), client.delete(f"{URL}/sea/animals")):
        assert (answer.status_code, answer.json()["error"]["title"]) == (404, "Not found")
    assert client.post("/api/v1/expand", json=sweep).status_code == 422


@pytest.mark.parametrize("name", ["..%2f..%2fusers", "%2e%2e/users.json", "two%20words", "x" * 81, ".users"])
def test_no_name_leads_out_of_the_folder(client: TestClient, settings: Settings, name: str) -> None:
    before = sorted(settings.data_dir.rglob("*"))
    assert client.put(f"{URL}/{name}", json={"lines": ["x"]}).status_code in (404, 405, 422)
    assert client.get(f"{URL}/{name}").status_code == 404
    assert client.delete(f"{URL}/{name}").status_code in (404, 405)
    assert sorted(settings.data_dir.rglob("*")) == before


@pytest.mark.parametrize(
    "body", [{}, {"lines": []}, {"lines": "cat"}, {"lines": [7]}, {"lines": ["a\nb"]}, {"lines": ["x" * 32_001]}]
)
def test_what_is_no_list_is_refused(client: TestClient, body: dict[str, Any]) -> None:
    answer = client.put(f"{URL}/animals", json=body)
    assert (answer.status_code, bool(answer.json()["error"]["detail"])) == (422, True)
    assert client.put(f"{URL}/animals", json={"lines": ["x"] * 20_001}).status_code == 422
    assert client.put(f"{URL}/animals", json={"lines": ["x" * 2000] * 600}).status_code == 413
    assert client.get(URL).json() == {"wildcards": []}


def test_where_people_log_in_only_admins_change_lists(settings: Settings, catalog: Catalog) -> None:
    settings = replace(settings, access=replace(settings.access, mode=Mode.PASSWORD))
    users = Users(settings.users_file)

    def make_client(app: Any, name: str, *, is_admin: bool) -> TestClient:
        users.add(name, password=None, is_admin=is_admin)
        return TestClient(app, headers={"Authorization": f"Bearer {users.add_token(name)}"})

    with closing(open_database(settings.database_file)) as database:
        app = create_api(settings, database, catalog)
        admin, ada = make_client(app, "root", is_admin=True), make_client(app, "ada", is_admin=False)
        words = {"lines": ["cat"]}
        assert ada.put(f"{URL}/animals", json=words).status_code == 403
        assert admin.put(f"{URL}/animals", json=words).status_code == 200
        assert ada.get(f"{URL}/animals").json()["lines"] == ["cat"]
        assert ada.delete(f"{URL}/animals").status_code == 403
        assert TestClient(app).get(f"{URL}/animals").status_code == 401
        assert admin.delete(f"{URL}/animals").status_code == 204


def test_open_to_other_machines_nobody_changes_lists(settings: Settings, catalog: Catalog) -> None:
    settings = replace(settings, host="0.0.0.0", access=replace(settings.access, is_open=True))
    with closing(open_database(settings.database_file)) as database:
        client = TestClient(create_api(settings, database, catalog))
        assert client.put(f"{URL}/animals", json={"lines": ["cat"]}).status_code == 403
        assert client.get(URL).json() == {"wildcards": []}
