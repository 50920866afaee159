"""Text goes out compressed; what is packed already, and parts of files, go out as they are."""

from collections.abc import Callable

import pytest
from fastapi.testclient import TestClient

from studio.jobs.job import Job
from studio.worker.loop import Worker

ACCEPTS = {"Accept-Encoding": "gzip, deflate, br"}


@pytest.fixture
def made(worker: Worker, submit: Callable[..., Job]) -> Callable[..., str]:
    """The URL of the output of a job of these fields."""

    def make(**fields: str) -> str:
        job = submit(**fields)
        worker.run_next()
        return f"/api/v1/outputs/{job.id}-0/file"

    return make


@pytest.mark.parametrize("path", ["/api/v1/models", "/api/openapi.json", "/api/v1/presets"])
def test_json_is_compressed_for_who_can_read_it(client: TestClient, path: str) -> None:
    packed, plain = (client.get(path, headers={"Accept-Encoding": kind}) for kind in ("gzip", "identity"))
    assert packed.headers["content-encoding"] == "gzip"
    assert "Accept-Encoding" in packed.headers["vary"]
    assert "content-encoding" not in plain.headers
    assert packed.json() == plain.json()
    assert int(packed.headers["content-length"]) < int(plain.headers["content-length"]) / 2


def test_short_answers_are_not_worth_it(client: TestClient) -> None:
    assert "content-encoding" not in client.get("/api/v1/queue", headers=ACCEPTS).headers


def test_pictures_and_videos_are_sent_as_they_are(client: TestClient, made: Callable[..., str]) -> None:
    picture, video = made(), made(model="clips")
    for url in (picture, video, picture.replace("/file", "/thumb"), video.replace("/file", "/poster")):
        answer = client.get(url, headers=ACCEPTS)
        assert answer.status_code == 200
        assert "content-encoding" not in answer.headers
        assert int(answer.headers["content-length"]) == len(answer.content)
    packed = client.post("/api/v1/outputs/zip", data={"ids": picture.split("/")[4]}, headers=ACCEPTS)
    assert packed.content.startswith(b"PK")
    assert "content-encoding" not in packed.headers


def test_a_part_of_a_video_is_that_part(client: TestClient, made: Callable[..., str]) -> None:
    url = made(model="clips")
    whole = client.get(url).content
    part = client.get(url, headers={**ACCEPTS, "Range": "bytes=8-2007"})
    assert (part.status_code, part.content) == (206, whole[8:2008])
    assert part.headers["content-range"] == f"bytes 8-2007/{len(whole)}"
    assert (part.headers["content-type"], part.headers["accept-ranges"]) == ("video/mp4", "bytes")
    assert "content-encoding" not in part.headers
