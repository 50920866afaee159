"""A visitor's browser is no tool of another site's page, also where it does not say `Sec-Fetch-Site`."""

import pytest
from fastapi.testclient import TestClient


@pytest.mark.parametrize(
    ("headers", "is_let_in"),
    [
        ({}, True),
        ({"Origin": "http://testserver"}, True),
        ({"Origin": "http://evil.example"}, False),
        ({"Origin": "http://testserver.evil.example"}, False),
        ({"Origin": "http://testserver:81"}, False),
        ({"Origin": "null"}, False),
        ({"Origin": ""}, False),
        ({"Origin": "https://studio.example", "X-Forwarded-Host": "studio.example"}, True),
        ({"Origin": "http://evil.example", "Sec-Fetch-Site": "same-origin"}, True),
        ({"Origin": "http://testserver", "Sec-Fetch-Site": "cross-site"}, False),
    ],
)
def test_only_the_studios_own_page_changes_something(
    client: TestClient, headers: dict[str, str], *, is_let_in: bool
) -> None:
    assert (client.post("/api/v1/queue/pause", headers=headers).status_code == 200) is is_let_in
    assert client.get("/api/v1/queue", headers=headers).status_code == 200
