"""Pictures over REST: in by form or body, out to their owner alone, into recipes by id."""

import dataclasses
import io
from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient
from PIL import Image

from pipelines.messages import read_codes
from studio.database import Database
from studio.jobs.job import Job
from studio.library.uploads import MAX_BYTES, Quota
from studio.settings import Settings
from studio.worker.loop import Worker

URL = "/api/v1/uploads"
Encode = Callable[..., bytes]


def post_job(client: TestClient, **fields: Any) -> Any:
    recipe = {"model": "flux2-klein-4b", "shape": "512x512", "steps": 1, "prompt": "A boat", **fields}
    return client.post("/api/v1/jobs", json=recipe)


def test_a_picture_comes_back_as_it_was(client: TestClient, encode_picture: Encode) -> None:
    content = encode_picture("blue", kind="WEBP", lossless=True)
    answer = client.post(URL, files={"file": ("holiday.webp", content)})
    assert answer.status_code == 201
    upload = answer.json()
    assert set(upload) == {"id", "url", "thumb_url", "width", "height", "frames", "notes"}
    assert (upload["width"], upload["height"], upload["notes"]) == (60, 40, [])
    kept = client.get(upload["url"])
    assert (kept.headers["content-type"], "private" in kept.headers["cache-control"]) == ("image/png", True)
    assert Image.open(io.BytesIO(kept.content)).getpixel((3, 3)) == (0, 0, 255)
    assert client.get(upload["url"], headers={"If-None-Match": kept.headers["etag"]}).status_code == 304
    assert client.get(upload["thumb_url"]).headers["content-type"] == "image/webp"


def test_the_body_may_be_the_picture_itself(client: TestClient, encode_picture: Encode) -> None:
    content = encode_picture()
    first = client.post(URL, content=content, headers={"Content-Type": "image/png"}).json()
    assert client.post(URL, files={"file": content}).json()["id"] == first["id"]


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        ({"files": {"file": b"hello"}}, "This file is not a picture of a known kind."),
        ({"files": {"picture": b"hello"}}, "The form has no file in its field `file`."),
        ({"data": {"file": "hello"}}, "A body of type application/x-www-form-urlencoded is no picture."),
        ({"content": b"x", "headers": {"Content-Type": "multipart/form-data"}}, "The form cannot be read: "),
        ({"content": b"x", "headers": {"Content-Type": "multipart/form-data; boundary=b"}}, "The form cannot be read"),
        ({"content": b"x", "headers": {"Content-Type": "text/plain"}}, "A body of type text/plain is no picture."),
        ({"content": b"x"}, "A body of type unknown is no picture."),
        ({"content": b"", "headers": {"Content-Type": "image/png"}}, "This file is not a picture of a known kind."),
    ],
)
def test_what_is_no_picture_is_refused_in_the_one_shape(
    client: TestClient, settings: Settings, body: dict[str, Any], detail: str
) -> None:
    answer = client.post(URL, **body)
    assert answer.status_code == 422
    assert read_codes(answer.json()["error"]).keys() == {"title", "detail", "advice", "fields"}
    assert answer.json()["error"]["detail"].startswith(detail)
    assert answer.json()["error"]["advice"]
    assert not settings.uploads_dir.exists()


@pytest.mark.parametrize("is_form", [False, True])
def test_a_body_that_is_too_long_is_refused(client: TestClient, *, is_form: bool) -> None:
    content = bytes(MAX_BYTES + 20_000)
    body = {"files": {"file": content}} if is_form else {"content": content, "headers": {"Content-Type": "image/png"}}
    answer = client.post(URL, **body)
    assert (answer.status_code, answer.json()["error"]["title"]) == (413, "This picture is too large")


def test_somebody_elses_upload_does_not_exist(client: TestClient, upload: Callable[..., str]) -> None:
    hers = upload(owner="her")
    for path in (hers, f"{hers}/thumb", "nope", "..%2F..%2Fjobs.db"):
        answer = client.get(f"{URL}/{path}")
        assert (answer.status_code, answer.json()["error"]["title"]) == (404, "Not found")


def test_another_sites_page_uploads_nothing(client: TestClient, encode_picture: Encode) -> None:
    files = {"file": encode_picture()}
    assert client.post(URL, files=files, headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403


def test_an_upload_and_a_picture_made_here_become_inputs(
    client: TestClient, worker: Worker, upload: Callable[..., str], submit: Callable[..., Job]
) -> None:
    made = submit()
    worker.run_next()
    images = [upload(), f"{made.id}-0"]
    answer = post_job(client, images=images)
    assert answer.status_code == 201
    worker.run_next()
    job = client.get(f"/api/v1/jobs/{answer.json()['id']}").json()
    assert (job["state"], job["recipe"]["images"]) == ("done", images)


def test_a_video_is_no_input(client: TestClient, worker: Worker, submit: Callable[..., Job]) -> None:
    made = submit(model="clips")
    worker.run_next()
    assert post_job(client, images=[f"{made.id}-0"]).status_code == 422


@pytest.mark.parametrize(
    ("model", "count", "message"),
    [
        ("flux2-klein-4b", 5, "5 given; flux2-klein-4b takes at most 4 images"),
        ("demo-flux2", 1, "1 given; demo-flux2 takes no images"),
        ("wan2.1-i2v-14b", 0, "wan2.1-i2v-14b starts from a picture; give it one"),
        ("wan2.1-i2v-14b", 2, "2 given; wan2.1-i2v-14b takes at most 1 images"),
    ],
)
def test_too_many_and_too_few_are_told_at_the_field(
    client: TestClient, upload: Callable[..., str], model: str, count: int, message: str
) -> None:
    recipe = {"model": model, "shape": None, "images": [upload()] * count}
    answer = post_job(client, **recipe)
    assert (answer.status_code, answer.json()["error"]["fields"]) == (422, {"images": message})


def test_unknown_ids_and_paths_are_told_at_the_field(client: TestClient, database: Database) -> None:
    for image in ("upload-nope", "/etc/passwd", "../jobs.db"):
        error = post_job(client, images=[image]).json()["error"]
        assert error["fields"] == {"images": f"there is no picture '{image}'; add it again, or take another one"}
    assert database.read("SELECT * FROM jobs") == []


def test_models_say_how_many_pictures_they_take(client: TestClient) -> None:
    limits = {model["id"]: model["limits"] for model in client.get("/api/v1/models").json()["models"]}
    found = {model: (limits[model]["min_images"], limits[model]["images"]) for model in limits}
    assert (found["demo-flux2"], found["flux2-dev"], found["wan2.1-i2v-14b"]) == ((0, 0), (0, 4), (1, 1))
    assert found["demo-sdxl"] == (0, 1)


def test_a_strength_goes_with_a_picture_and_only_where_the_model_has_it(
    client: TestClient, upload: Callable[..., str]
) -> None:
    defaults = {model["id"]: model["defaults"] for model in client.get("/api/v1/models").json()["models"]}
    assert (defaults["demo-sdxl"]["strength"], defaults["flux2-dev"]["strength"]) == (0.6, None)
    start = {"model": "demo-sdxl", "shape": None, "steps": 20, "images": [upload()]}
    for fields, message in (
        ({"images": [], "strength": 0.5}, "needs a picture to start from; give one or leave it out"),
        ({"strength": 0}, "0.0 is out of range; allowed: 0.01 to 1"),
        ({"strength": 1.5}, "1.5 is out of range; allowed: 0.01 to 1"),
        ({"model": "flux2-dev", "strength": 0.5}, "flux2-dev has no strength; leave it out"),
    ):
        answer = post_job(client, **start | fields)
        assert (answer.status_code, answer.json()["error"]["fields"]) == (422, {"strength": message})
    for fields, strength, steps in (({}, 0.6, 12), ({"strength": 0.25}, 0.25, 5)):
        job = client.get(f"/api/v1/jobs/{post_job(client, **start | fields).json()['id']}").json()
        assert (job["recipe"]["strength"], job["recipe"]["steps"], job["steps"]) == (strength, 20, steps)


def test_a_recipe_with_pictures_says_what_it_needs_compiled(client: TestClient, encode_picture: Encode) -> None:
    wide = client.post("/api/v1/uploads", files={"file": encode_picture(size=(1600, 900))}).json()["id"]
    recipe = {"model": "flux2-dev", "prompt": "it at night", "shape": "512x512", "images": [wide]}
    told = client.post("/api/v1/estimate", json=recipe).json()
    assert told == {"programs": "512x512 with 1 of 1344x768", "state": "cold", "warm_s": None, "seconds": None}
    job = client.post("/api/v1/jobs", json=recipe).json()["id"]
    assert client.get(f"/api/v1/jobs/{job}").json()["programs"] == told["programs"]
    assert client.post("/api/v1/estimate", json=recipe | {"images": []}).json()["programs"] == "512x512"
    assert client.post("/api/v1/estimate", json=recipe | {"steps": 0}).status_code == 422


def test_past_the_quota_the_answer_says_what_to_do(client: TestClient, encode_picture: Encode) -> None:
    client.app.state.studio = dataclasses.replace(client.app.state.studio, trainer_quota=Quota(pictures=1))
    assert client.post(URL, files={"file": encode_picture("red")}).status_code == 201
    answer = client.post(URL, files={"file": encode_picture("blue")})
    assert answer.status_code == 429
    error = answer.json()["error"]
    assert error["title"] == "Too many pictures are waiting"
    assert error["detail"].startswith("Pictures that no job has used yet: 1 (0 MB); at most 1 ")
    assert error["advice"].startswith("Generate or train with them, or wait")
