"""What only a proxy may say of a visitor's address, and what everybody is told while nobody can be identified."""

import sqlite3
from collections.abc import Callable
from dataclasses import replace
from ipaddress import ip_network
from typing import Any

import pytest
from fastapi.testclient import TestClient
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from pipelines.messages import read_codes
from pipelines.models.catalog import Catalog
from studio.access.identify import Door
from studio.access.sessions import COOKIE
from studio.access_settings import Mode
from studio.address import name_server
from studio.api.application import create_api
from studio.api.middleware.auth import Gate
from studio.database import Database
from studio.settings import Settings

SAID = {
    "X-Forwarded-Host": "evil.example",
    "X-Forwarded-Prefix": "/evil",
    "X-Forwarded-Port": "81",
    "Forwarded": "host=evil.example",
    "X-Gradio-Server": "http://evil.example",
}
PROXY, STRANGER, HERE = "10.0.0.1", "1.2.3.4", "127.0.0.1"


@pytest.fixture
def read_headers(settings: Settings, database: Database) -> Callable[..., dict[str, str]]:
    """The headers that a route sees of a request from this peer, and the address that it would give itself."""

    def read(peer: str, **fields: Any) -> dict[str, str]:
        access = replace(settings.access, trusted_proxies=(ip_network("10.0.0.0/24"),), **fields)
        door = Door(replace(settings, access=access), database)

        async def tell(scope: Scope, receive: Receive, send: Send) -> None:
            request = Request(scope)
            await JSONResponse({**request.headers, "server": name_server(request)})(scope, receive, send)

        client = TestClient(Gate(tell, door=door), client=(peer, 5))
        return client.get("/", headers={**SAID, "X-Forwarded-Proto": "https", "X-Other": "stays"}).json()

    return read


def test_nobody_but_a_proxy_says_at_which_address_we_were_reached(read_headers: Callable[..., dict[str, str]]) -> None:
    for peer, scheme in ((STRANGER, "http"), (HERE, "https"), ("::1", "https")):
        headers = read_headers(peer)
        assert headers["server"] == f"{scheme}://testserver"
        assert headers["x-other"] == "stays"
        assert not {name.lower() for name in SAID} & headers.keys()
    assert read_headers(PROXY)["server"] == "https://evil.example"
    assert read_headers(STRANGER, is_space=True)["server"] == "https://evil.example"


@pytest.fixture
def make_client(settings: Settings, database: Database, catalog: Catalog) -> Callable[[], TestClient]:
    """A visitor with a cookie, so that the database is asked whether its session was ended."""

    def make() -> TestClient:
        access = replace(settings.access, mode=Mode.PASSWORD)
        api = create_api(replace(settings, access=access), database, catalog)
        cookie = api.state.studio.door.sessions.open(owner="ada", name="ada")
        return TestClient(api, headers={"Cookie": f"{COOKIE}={cookie}"}, raise_server_exceptions=False)

    return make


@pytest.mark.parametrize(
    ("name", "status", "title"),
    [
        ("SQLITE_BUSY", 503, "The database is busy"),
        ("SQLITE_CORRUPT", 503, "The database is damaged"),
        ("SQLITE_FULL", 507, "The disk is full"),
    ],
)
def test_while_the_database_cannot_be_read_everybody_learns_why(
    make_client: Callable[[], TestClient],
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
    *,
    name: str,
    status: int,
    title: str,
) -> None:
    def fail(*_: object) -> None:
        error = sqlite3.OperationalError("said by SQLite")
        error.sqlite_errorname = name
        raise error

    client = make_client()
    monkeypatch.setattr(database, "read_one", fail)
    for path in ("/api/v1/jobs", "/v1/images/generations", "/"):
        answer = client.get(path)
        assert answer.status_code == status
        assert title in answer.text or "advice" not in answer.text, "OpenAI's form has no title"


def test_a_damaged_users_file_lets_nobody_in_and_names_no_file_to_strangers(
    make_client: Callable[[], TestClient], settings: Settings
) -> None:
    client = make_client()
    settings.users_file.write_text("{")
    answer = client.get("/api/v1/jobs")
    error = read_codes(answer.json())["error"]
    assert (answer.status_code, error["title"]) == (503, "Nobody can log in now")
    assert str(settings.data_dir) not in answer.text
