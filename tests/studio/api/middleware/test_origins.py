"""`--allow-origins`: pages of other sites use the API from a browser, those that are named and no others."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest
from fastapi.testclient import TestClient

from pipelines.models.catalog import Catalog
from studio.access_settings import Mode
from studio.api.application import create_api
from studio.database import Database
from studio.flags import read_settings
from studio.settings import Settings

APP, OTHER = "https://app.example", "https://other.example"
Open = Callable[..., TestClient]


@pytest.fixture
def allow(settings: Settings, database: Database, catalog: Catalog) -> Iterator[Open]:
    """A client of a studio that allows these origins."""
    with ExitStack() as stack:

        def allow(*origins: str, **access: Any) -> TestClient:
            own = replace(settings, access=replace(settings.access, allow_origins=origins, **access))
            return stack.enter_context(TestClient(create_api(own, database, catalog)))

        yield allow


def ask_first(client: TestClient, origin: str) -> Any:
    """What a browser asks before it sends JSON with a token."""
    headers = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type"}
    return client.options("/api/v1/jobs", headers={"Origin": origin, **headers})


def pause(client: TestClient, origin: str, **headers: str) -> Any:
    return client.post("/api/v1/queue/pause", headers={"Origin": origin, "Sec-Fetch-Site": "cross-site", **headers})


def test_a_named_site_may_ask_and_read_the_answer(allow: Open) -> None:
    client = allow(APP)
    first = ask_first(client, APP)
    assert (first.status_code, first.headers["access-control-allow-origin"]) == (200, APP)
    assert first.headers["access-control-allow-credentials"] == "true"
    answer = pause(client, APP)
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, APP)
    assert answer.headers["cross-origin-resource-policy"] == "cross-origin"


def test_no_other_site_may(allow: Open) -> None:
    client = allow(APP)
    assert "access-control-allow-origin" not in ask_first(client, OTHER).headers
    refused = pause(client, OTHER)
    assert (refused.status_code, "access-control-allow-origin" in refused.headers) == (403, False)


def test_any_site_may_but_never_with_a_visitors_cookie(allow: Open) -> None:
    client = allow("*")
    first = ask_first(client, OTHER)
    assert first.headers["access-control-allow-origin"] == "*"
    assert "access-control-allow-credentials" not in first.headers
    answer = pause(client, OTHER)
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, "*")
    with_cookie = pause(client, OTHER, Cookie="session=x")
    assert with_cookie.status_code == 403
    assert "access-control-allow-credentials" not in with_cookie.headers


def test_a_preflight_needs_no_login_and_a_refusal_can_be_read(allow: Open) -> None:
    client = allow(APP, mode=Mode.PASSWORD)
    assert ask_first(client, APP).status_code == 200
    refused = client.get("/api/v1/jobs", headers={"Origin": APP})
    assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (401, APP)


def test_the_setting_is_a_list_of_origins(capsys: pytest.CaptureFixture[str]) -> None:
    read = read_settings(["--allow-origins", "https://App.example/, http://localhost:3000"], {})
    assert read.access.allow_origins == ("https://app.example", "http://localhost:3000")
    assert read_settings([], {"LUMESH_ALLOW_ORIGINS": "*"}).access.allow_origins == ("*",)
    assert read_settings([], {}).access.allow_origins == ()
    with pytest.raises(SystemExit):
        read_settings(["--allow-origins", "app.example"], {})
    assert "'app.example' is no origin" in capsys.readouterr().err
