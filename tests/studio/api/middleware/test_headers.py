"""What browsers are told about every answer."""

from dataclasses import replace

import pytest
from fastapi.testclient import TestClient

from pipelines.models.catalog import Catalog
from studio.api.application import create_api
from studio.database import Database
from studio.settings import Settings


@pytest.mark.parametrize("path", ["/api/v1/health", "/api/v1/outputs/nope/file", "/api/docs", "/nothing"])
def test_every_answer_says_what_a_browser_may_do_with_it(client: TestClient, path: str) -> None:
    headers = client.get(path).headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert headers["content-security-policy"].endswith("frame-ancestors 'self'")
    assert "access-control-allow-origin" not in headers


def test_what_is_no_page_runs_no_code(client: TestClient) -> None:
    drawn = client.post("/api/v1/qr", json={"link": "https://example.com"})
    assert drawn.headers["content-type"] == "image/svg+xml"
    assert drawn.headers["content-security-policy"].startswith("default-src 'none'")
    assert "script-src" not in drawn.headers["content-security-policy"]


def test_only_a_space_is_shown_in_the_hubs_frame(settings: Settings, database: Database, catalog: Catalog) -> None:
    settings = replace(settings, access=replace(settings.access, is_space=True))
    headers = TestClient(create_api(settings, database, catalog)).get("/api/v1/health").headers
    assert "frame-ancestors 'self' https://huggingface.co" in headers["content-security-policy"]
    assert "x-frame-options" not in headers


def test_no_other_origin_is_let_in_by_cors(client: TestClient) -> None:
    headers = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    answer = client.options("/api/v1/jobs", headers=headers)
    assert answer.status_code == 400
    assert "access-control-allow-origin" not in answer.headers
