"""Files with ranges and entity tags, and previews that are there exactly while a job runs."""

from collections.abc import Callable

import pytest
from fastapi.testclient import TestClient

from studio.database import Database
from studio.jobs import claims
from studio.jobs.job import Job
from studio.worker.loop import Worker


@pytest.fixture
def file_url(worker: Worker, submit: Callable[..., Job]) -> str:
    job = submit()
    worker.run_next()
    return f"/api/v1/outputs/{job.id}-0/file"


def test_a_part_of_a_file(client: TestClient, file_url: str) -> None:
    whole = client.get(file_url).content
    part = client.get(file_url, headers={"Range": "bytes=10-19"})
    assert (part.status_code, part.content) == (206, whole[10:20])
    assert client.get(file_url, headers={"Range": f"bytes={len(whole)}-"}).status_code == 416


def test_a_file_the_browser_has_is_not_sent_again(client: TestClient, file_url: str) -> None:
    first = client.get(file_url)
    again = client.get(file_url, headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert "immutable" in first.headers["cache-control"]


def test_a_download_has_the_files_name(client: TestClient, file_url: str) -> None:
    assert client.get(file_url).headers["content-disposition"].startswith("inline")
    assert client.get(f"{file_url}?download=1").headers["content-disposition"].endswith('-0.png"')
    assert client.head(file_url).status_code == 200


def test_a_thumbnail_is_webp(client: TestClient, file_url: str) -> None:
    assert client.get(file_url.replace("/file", "/thumb")).headers["content-type"] == "image/webp"


def test_a_file_that_is_gone_says_so(client: TestClient, file_url: str, worker: Worker) -> None:
    for file in worker.settings.outputs_dir.rglob("*.png"):
        file.unlink()
    answer = client.get(file_url)
    assert (answer.status_code, answer.json()["error"]["title"]) == (404, "Not found")


def test_a_preview_is_there_while_the_job_runs(
    client: TestClient, database: Database, submit: Callable[..., Job]
) -> None:
    submit()
    job = claims.claim_next(database, resident=None)
    url = f"/api/v1/jobs/{job.id}/preview.jpg"
    assert client.get(url).status_code == 404
    claims.save_preview(database, job, b"jpeg")
    answer = client.get(url)
    assert (answer.content, answer.headers["cache-control"]) == (b"jpeg", "no-store")
    claims.end_cancelled(database, job.id)
    assert client.get(url).status_code == 404
