"""How long a body may be, whatever its headers promise."""

from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient

from studio.api.middleware.limits import MAX_BYTES, MAX_FILE_BYTES


def test_a_body_that_says_it_is_too_long_is_not_read(client: TestClient) -> None:
    for path, limit in (("/api/v1/jobs", MAX_BYTES), ("/api/v1/uploads", MAX_FILE_BYTES)):
        headers = {"Content-Length": str(limit + 1), "Content-Type": "application/json"}
        answer = client.post(path, content=b"{}", headers=headers)
        assert answer.status_code == 413
        assert answer.json()["error"]["title"] == "This is too large"


@pytest.mark.parametrize("path", ["/api/v1/jobs", "/api/v1/outputs/zip"])
def test_a_body_that_does_not_say_so_is_cut_off(client: TestClient, path: str) -> None:
    sent = 0

    def flow() -> Iterator[bytes]:
        nonlocal sent
        for _ in range(40):
            sent += 1
            yield b" " * 100_000

    kind = "application/json" if path.endswith("jobs") else "application/x-www-form-urlencoded"
    answer = client.post(path, content=flow(), headers={"Content-Type": kind})
    assert answer.status_code == 413
    assert answer.json()["error"]["title"] == "This is too large"
