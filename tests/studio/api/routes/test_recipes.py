"""Recipes out of files over REST: in by form or body, out as a recipe that can be queued; the one error shape."""

import io
from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient
from PIL import Image, PngImagePlugin

from pipelines.messages import read_codes
from studio.jobs.job import Job
from studio.library.foreign.containers import MAX_BYTES
from studio.settings import Settings
from studio.worker.loop import Worker

URL = "/api/v1/recipes/read"
TEXT = "a red boat <lora:x:1>\nNegative prompt: fog\nSteps: 9, Sampler: Euler a, Seed: 4, Size: 256x256, Model: mix"


def write_png(**texts: str) -> bytes:
    chunks = PngImagePlugin.PngInfo()
    for keyword, text in texts.items():
        chunks.add_text(keyword, text)
    file = io.BytesIO()
    Image.new("RGB", (8, 8)).save(file, "PNG", pnginfo=chunks)
    return file.getvalue()


def test_a_foreign_recipe_comes_out_and_can_be_queued(client: TestClient, settings: Settings) -> None:
    answer = client.post(f"{URL}?model=demo-sdxl", files={"file": ("boat.png", write_png(parameters=TEXT))})
    assert answer.status_code == 200
    found = answer.json()
    assert read_codes(found).keys() == {"recipe", "source", "unusable", "notes", "grid"}
    assert (found["source"], found["recipe"]["model"], found["recipe"]["prompt"]) == (
        "A1111",
        "demo-sdxl",
        "a red boat",
    )
    assert [one["what"] for one in found["unusable"]] == ["Model mix", "LoRA x"]
    assert client.post("/api/v1/jobs", json=found["recipe"]).status_code == 201
    assert not settings.uploads_dir.exists(), "nothing is kept"


def test_what_was_made_here_comes_back(
    client: TestClient, worker: Worker, submit: Callable[..., Job], make_recipe: Callable[..., Any]
) -> None:
    jobs = [submit(), submit(model="clips")]
    for job in jobs:
        worker.run_next()
        output = client.get(f"/api/v1/jobs/{job.id}").json()["outputs"][0]
        paths = ["", "?as=gif", "?as=webp"] if output["kind"] == "video" else [""]
        for path in paths:
            made = client.get(output["url"] + path)
            answer = client.post(URL, content=made.content, headers={"Content-Type": made.headers["content-type"]})
            found = answer.json()
            assert (found["source"], found["unusable"], found["notes"]) == ("Lumesh", [], [])
            assert found["recipe"] == job.recipe.to_json()


def test_input_pictures_are_kept_only_where_they_are(
    client: TestClient, upload: Callable[..., str], make_recipe: Callable[..., Any]
) -> None:
    mine, hers = upload("red"), upload("blue", owner="her")
    recipe = make_recipe(model="flux2-klein-4b", images=[mine, hers])
    found = client.post(URL, files={"file": write_png(lumesh=recipe.model_dump_json(by_alias=True))}).json()
    assert found["recipe"]["images"] == [mine]
    assert [read_codes(one) for one in found["unusable"]] == [
        {"what": "Input pictures", "why": "1 of 2 not in this studio"}
    ]


def test_the_chosen_model_stays_where_the_files_is_not_known(client: TestClient) -> None:
    files = {"file": write_png(parameters=TEXT)}
    found = client.post(f"{URL}?model=flux2-klein-4b", files=files).json()["recipe"]
    assert (found["model"], found["shape"], found["scheduler"]) == ("flux2-klein-4b", "512x512", None)
    error = client.post(f"{URL}?model=nope", files=files)
    assert (error.status_code, list(error.json()["error"]["fields"])) == (422, ["model"])


def test_a_text_is_read_as_a_file_or_as_it_is(client: TestClient) -> None:
    for body in (
        {"files": {"file": ("boat.txt", TEXT.encode(), "text/plain")}},
        {"content": TEXT.encode(), "headers": {"Content-Type": "text/plain; charset=utf-8"}},
    ):
        found = client.post(URL, **body).json()
        assert (found["source"], found["recipe"]["prompt"], found["recipe"]["seed"]) == ("A1111", "a red boat", 4)
    answer = client.post(URL, content=b"only words", headers={"Content-Type": "text/plain"})
    assert (answer.status_code, answer.json()["recipe"]) == (200, None)


def test_a_plain_picture_carries_none(client: TestClient, encode_picture: Callable[..., bytes]) -> None:
    answer = client.post(URL, files={"file": encode_picture(kind="WEBP")})
    assert (answer.status_code, answer.json()) == (
        200,
        {"recipe": None, "source": None, "unusable": [], "notes": [], "grid": None},
    )


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        ({"files": {"file": b"hello\0"}}, "It is not a PNG, JPEG, WebP, AVIF, GIF or MP4 file."),
        ({"files": {"picture": b"hello"}}, "The form has no file in its field `file`."),
        ({"content": b"x", "headers": {"Content-Type": "text/html"}}, "A body of type text/html is no picture, video"),
        ({"files": {"file": write_png(lumesh="{")}}, "Its recipe is damaged: it is not complete JSON."),
        ({"files": {"file": write_png(lumesh='{"model": "x", "steps": "z"}')}}, "Its recipe is damaged"),
        ({"files": {"file": write_png(prompt='{"1": {"class_type": "Note"}}')}}, "Its ComfyUI graph has no sampler"),
    ],
)
def test_what_cannot_be_read_is_told_in_the_one_shape(client: TestClient, body: dict[str, Any], detail: str) -> None:
    answer = client.post(URL, **body)
    assert answer.status_code == 422
    error = answer.json()["error"]
    assert read_codes(error).keys() == {"title", "detail", "advice", "fields"}
    assert error["title"] == "No recipe can be read from this file"
    assert error["detail"].startswith(detail)
    assert error["advice"]


@pytest.mark.parametrize("is_form", [False, True])
def test_a_file_that_is_too_long_is_refused(client: TestClient, *, is_form: bool) -> None:
    content = bytes(MAX_BYTES + 20_000)
    body = {"files": {"file": content}} if is_form else {"content": content, "headers": {"Content-Type": "image/png"}}
    answer = client.post(URL, **body)
    assert (answer.status_code, answer.json()["error"]["title"]) == (
        413,
        "This file is too large to read a recipe from",
    )


def test_another_sites_page_reads_nothing(client: TestClient) -> None:
    files = {"file": write_png(parameters=TEXT)}
    assert client.post(URL, files=files, headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403


def test_the_route_is_described(client: TestClient) -> None:
    route = client.get("/api/openapi.json").json()["paths"][URL]["post"]
    assert set(route["requestBody"]["content"]) == {
        *("multipart/form-data", "image/*", "video/mp4", "text/plain", "application/json"),
    }
