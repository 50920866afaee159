"""Files with ranges and entity tags, and previews that are there exactly while a job runs."""

import io
from collections.abc import Callable

import pytest
from fastapi.testclient import TestClient
from PIL import Image

from studio.database import Database
from studio.jobs import claims
from studio.jobs.job import Job
from studio.worker.loop import Worker


@pytest.fixture
def file_url(worker: Worker, submit: Callable[..., Job]) -> str:
    job = submit(seed=9)
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


def test_a_download_is_named_by_prompt_and_seed(
    client: TestClient, file_url: str, worker: Worker, submit: Callable[..., Job]
) -> None:
    assert client.get(file_url).headers["content-disposition"].startswith("inline")
    assert (
        client.get(f"{file_url}?download=1").headers["content-disposition"]
        == 'attachment; filename="a-red-sailboat-9.png"'
    )
    assert client.head(file_url).status_code == 200
    chinese = submit("雪", seed=3)
    worker.run_next()
    named = client.get(f"/api/v1/outputs/{chinese.id}-0/file?download=1&as=webp").headers["content-disposition"]
    assert named == "attachment; filename*=utf-8''%E9%9B%AA-3.webp"


def test_a_thumbnail_is_webp(client: TestClient, file_url: str) -> None:
    assert client.get(file_url.replace("/file", "/thumb")).headers["content-type"] == "image/webp"


def test_a_file_that_is_gone_says_so(client: TestClient, file_url: str, worker: Worker) -> None:
    for file in worker.settings.outputs_dir.rglob("*.png"):
        file.unlink()
    answer = client.get(file_url)
    assert (answer.status_code, answer.json()["error"]["title"]) == (404, "Not found")


@pytest.fixture
def video_url(worker: Worker, submit: Callable[..., Job]) -> str:
    job = submit(model="clips", seed=9)
    worker.run_next()
    return f"/api/v1/outputs/{job.id}-0/file"


def test_a_video_plays_in_parts_and_has_a_poster(client: TestClient, video_url: str) -> None:
    whole = client.get(video_url)
    assert whole.headers["content-type"] == "video/mp4"
    assert client.get(video_url, headers={"Range": "bytes=0-99"}).content == whole.content[:100]
    poster = client.get(video_url.replace("/file", "/poster"))
    assert (poster.status_code, poster.headers["content-type"]) == (200, "image/webp")


@pytest.mark.parametrize("suffix", ["gif", "webp"])
def test_a_video_can_be_had_as_an_animation(client: TestClient, video_url: str, suffix: str) -> None:
    answer = client.get(f"{video_url}?as={suffix}&download=1")
    assert answer.headers["content-disposition"].endswith(f'-9.{suffix}"')
    with Image.open(io.BytesIO(answer.content)) as animation:
        assert (animation.format, animation.size, animation.n_frames) == (suffix.upper(), (96, 64), 9)


def test_a_picture_is_no_video(client: TestClient, file_url: str) -> None:
    for url in (f"{file_url}?as=gif", file_url.replace("/file", "/poster")):
        assert (client.get(url).status_code, client.get(url).json()["error"]["title"]) == (404, "Not found")
    assert client.get(f"{file_url}?as=exe").status_code == 422


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
    claims.end_cancelled(database, job)
    assert client.get(url).status_code == 404
