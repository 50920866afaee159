"""The official `openai` client against a studio that runs: pictures, sizes, errors, hanging up."""

import asyncio
import base64
import io
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import openai
import pytest
from fastapi.testclient import TestClient
from PIL import Image

from studio.api.application import create_api
from studio.database import open_database
from studio.jobs import queue
from studio.jobs.states import JobState
from studio.settings import Settings

Studio = Any  # conftest.RunningStudio


@pytest.fixture(scope="module")
def studio(start_studio: Callable[..., Studio]) -> Studio:
    return start_studio()


@pytest.fixture
def client(studio: Studio) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{studio.client.base_url}/v1", api_key="none", max_retries=0) as client:
        yield client


def open_picture(content: bytes) -> Image.Image:
    picture = Image.open(io.BytesIO(content))
    picture.load()
    return picture


def test_a_picture_as_base64(client: openai.OpenAI, studio: Studio) -> None:
    answer = client.images.generate(
        prompt="A red sailboat",
        response_format="b64_json",
        extra_body={"seed": 5, "steps": 2, "guidance_scale": 3.0, "negative_prompt": "fog"},
    )
    [picture] = answer.data
    assert picture.url is None
    assert open_picture(base64.b64decode(picture.b64_json)).size == (256, 256)
    [output] = studio.read("outputs?q=sailboat")["outputs"]
    recipe = output["recipe"]
    assert (recipe["seed"], recipe["steps"], recipe["guidance_scale"], recipe["negative_prompt"]) == (5, 2, 3.0, "fog")


def test_a_picture_as_a_url(client: openai.OpenAI, studio: Studio) -> None:
    answer = client.images.generate(prompt="A boat", model="demo-flux2", response_format="url", extra_body={"steps": 1})
    [picture] = answer.data
    assert picture.b64_json is None
    assert open_picture(studio.client.get(picture.url).content).format == "PNG"


def test_unless_asked_a_picture_comes_in_both_forms(client: openai.OpenAI, studio: Studio) -> None:
    [picture] = client.images.generate(prompt="A boat", quality="high", user="me", extra_body={"steps": 1}).data
    assert studio.client.get(picture.url).content == base64.b64decode(picture.b64_json)


@pytest.mark.parametrize("name", ["gpt-image-1", "dall-e-3"])
def test_what_clients_for_openai_always_send_makes_a_picture_and_says_of_which_model(
    client: openai.OpenAI, name: str
) -> None:
    """What LibreChat's tool sends, word for word, with a tag in the prompt."""
    fields: dict[str, Any] = {"model": name, "n": 1, "background": "auto", "output_format": "png", "quality": "auto"}
    answer = client.images.generate(prompt="x <lora:gone:1>", size="auto", **fields, extra_body={"steps": 1})
    assert answer.model == "demo-flux2"
    assert answer.notes == [
        f"There is no {name} here; demo-flux2 was used.",
        "Ignored, as it means nothing here: quality.",
        "LoRA gone is not here: its tag is left out.",
    ]


def test_a_jpeg_is_a_jpeg_in_both_forms(client: openai.OpenAI, studio: Studio) -> None:
    sizes = []
    for quality in (10, 95):
        answer = client.images.generate(
            prompt="A boat",
            output_format="jpeg",
            output_compression=quality,
            extra_body={"steps": 1, "seed": 3},
        )
        [picture] = answer.data
        content = base64.b64decode(picture.b64_json)
        assert studio.client.get(picture.url).content == content
        assert (open_picture(content).format, answer.output_format) == ("JPEG", "jpeg")
        sizes.append(len(content))
    assert 2 * sizes[0] < sizes[1]


def test_pictures_are_edited(client: openai.OpenAI, studio: Studio, encode_picture: Callable[..., bytes]) -> None:
    files = [("red.png", encode_picture("red")), ("blue.png", encode_picture("blue"))]
    answer = client.images.edit(
        image=files, prompt="Both of them", model="flux2-klein-4b", size="512x512", extra_body={"steps": 1}
    )
    assert open_picture(base64.b64decode(answer.data[0].b64_json)).size == (512, 512)
    [output] = studio.read("outputs?q=Both")["outputs"]
    assert len(output["recipe"]["images"]) == 2
    answer = client.images.edit(image=files[0], prompt="At night", model="gpt-image-1", input_fidelity="high")
    assert (answer.model, answer.notes[1]) == ("demo-sdxl", "Ignored, as it means nothing here: input_fidelity.")
    for fields, param in (({"mask": files[1]}, "mask"), ({"model": "demo-flux2"}, "images"), ({"n": 11}, "n")):
        with pytest.raises(openai.BadRequestError) as caught:
            client.images.edit(**{"image": files[0], "prompt": "At night", **fields})
        assert caught.value.param == param


def test_more_pictures_than_a_job_makes_at_once(client: openai.OpenAI) -> None:
    answer = client.images.generate(prompt="A boat", n=10, response_format="url", extra_body={"seed": 100, "steps": 1})
    assert [picture.seed for picture in answer.data] == list(range(100, 110))
    assert len({picture.url.split("/")[-2].split("-")[0] for picture in answer.data}) == 2, "eight in one job, then two"


@pytest.mark.parametrize(("wished", "made"), [("1024x1024", "256x256"), ("1792x1024", "320x192"), ("auto", "256x256")])
def test_a_size_becomes_the_nearest_of_the_model(client: openai.OpenAI, wished: str, made: str) -> None:
    answer = client.images.generate(prompt="A boat", size=wished, extra_body={"steps": 1})
    assert answer.size == made
    assert "x".join(map(str, open_picture(base64.b64decode(answer.data[0].b64_json)).size)) == made


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"model": "stable-diffusion-3"}, "model"),
        ({"model": "wan2.1-1.3b"}, "model"),
        ({"size": "large"}, "size"),
        ({"size": "0x256"}, "size"),
        ({"n": 0}, "n"),
        ({"prompt": ""}, "prompt"),
        ({"extra_body": {"steps": 1000}}, "steps"),
        ({"extra_body": {"loras": [{"ref": "nothing"}]}}, "loras"),
        ({"output_format": "gif"}, "output_format"),
        ({"extra_body": {"fit": "pad"}}, "fit"),
        ({"background": "transparent"}, "background"),
    ],
)
def test_a_request_that_cannot_be_names_the_parameter(
    client: openai.OpenAI, fields: dict[str, Any], param: str
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.images.generate(**{"prompt": "A boat", **fields})
    error = caught.value
    assert (error.param, error.type, error.code) == (param, "invalid_request_error", "invalid_value")
    assert error.body["message"]


def test_a_job_that_fails_says_why_and_is_not_sent_again(client: openai.OpenAI, studio: Studio) -> None:
    with pytest.raises(openai.InternalServerError) as caught:
        client.with_options(max_retries=2).images.generate(prompt="Fail please, once")
    assert (
        caught.value.body["message"]
        == "Failed as asked: The prompt asked the fake model to fail. Write another prompt."
    )
    assert len([job for job in studio.read("jobs")["jobs"] if job["recipe"]["prompt"] == "Fail please, once"]) == 1


def test_models_are_listed_and_found(client: openai.OpenAI) -> None:
    models = [model.id for model in client.models.list()]
    assert models[0] == "demo-flux2"
    assert "wan2.1-1.3b" not in models
    assert client.models.retrieve("sdxl-base").id == "sdxl-base"
    with pytest.raises(openai.NotFoundError) as caught:
        client.models.retrieve("nope")
    assert "Known models" in caught.value.body["message"]


@pytest.mark.parametrize("is_running", [False, True], ids=["waiting", "running"])
def test_who_hangs_up_cancels(studio: Studio, wait_for: Callable[..., Any], *, is_running: bool) -> None:
    prompt = f"A long one, {is_running}"
    studio.client.post(f"/api/v1/queue/{'resume' if is_running else 'pause'}").raise_for_status()

    def find_job() -> dict[str, Any] | None:
        jobs = [job for job in studio.read("jobs")["jobs"] if job["recipe"]["prompt"] == prompt]
        return jobs[0] if jobs and (jobs[0]["step"] > 0 or not is_running) else None

    async def ask_and_leave() -> str:
        async with openai.AsyncOpenAI(base_url=f"{studio.client.base_url}/v1", api_key="none") as client:
            asking = asyncio.create_task(client.images.generate(prompt=prompt, extra_body={"steps": 100}))
            job = await asyncio.to_thread(wait_for, "the job", find_job)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            return job["id"]

    assert studio.wait_for_state(asyncio.run(ask_and_leave()), "cancelled")["step"] < 100
    studio.client.post("/api/v1/queue/resume").raise_for_status()


def test_a_job_that_somebody_cancels_ends_the_wait(studio: Studio, wait_for: Callable[..., Any]) -> None:
    def find_job() -> str | None:
        jobs = [job for job in studio.read("jobs")["jobs"] if job["recipe"]["prompt"] == "Not this one"]
        return jobs[0]["id"] if jobs else None

    async def ask_and_cancel() -> None:
        async with openai.AsyncOpenAI(base_url=f"{studio.client.base_url}/v1", api_key="none") as client:
            asking = asyncio.create_task(client.images.generate(prompt="Not this one", extra_body={"steps": 100}))
            job_id = await asyncio.to_thread(wait_for, "the job", find_job)
            await asyncio.to_thread(studio.client.delete, f"/api/v1/jobs/{job_id}")
            with pytest.raises(openai.ConflictError) as caught:
                await asking
            assert caught.value.code == "job_cancelled"

    asyncio.run(ask_and_cancel())


def test_the_quota_counts_these_jobs_too(settings: Settings, database: Any, catalog: Any) -> None:
    few = Settings(host=settings.host, port=settings.port, data_dir=settings.data_dir, fake=True, queue_quota=1)
    with TestClient(create_api(few, database, catalog)) as client:
        answer = client.post("/v1/images/generations", json={"prompt": "A boat", "n": 10})
        assert client.get("/api/v1/jobs").json()["jobs"] == []
    assert answer.status_code == 429
    assert answer.json()["error"]["type"] == "rate_limit_error"


def test_every_error_below_v1_has_their_form(client: openai.OpenAI, studio: Studio) -> None:
    for answer in (
        studio.client.get("/v1/nothing"),
        studio.client.post("/v1/images/generations", content="{", headers={"Content-Type": "application/json"}),
        studio.client.post("/v1/images/generations", json={}, headers={"Sec-Fetch-Site": "cross-site"}),
    ):
        assert answer.is_client_error
        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


def test_a_server_that_stops_keeps_the_job(studio: Studio, wait_for: Callable[..., Any]) -> None:
    """The last test of its studio."""
    studio.client.post("/api/v1/queue/pause").raise_for_status()

    def find_job() -> bool:
        return any(job["recipe"]["prompt"] == "Later" for job in studio.read("jobs")["jobs"])

    async def ask_and_stop() -> None:
        async with openai.AsyncOpenAI(base_url=f"{studio.client.base_url}/v1", api_key="none", max_retries=0) as client:
            asking = asyncio.create_task(client.images.generate(prompt="Later"))
            await asyncio.to_thread(wait_for, "the job", find_job)
            await asyncio.to_thread(studio.stop)
            with pytest.raises(openai.InternalServerError) as caught:
                await asking
            assert caught.value.code == "server_stopping"

    asyncio.run(ask_and_stop())
    with closing(open_database(studio.data_dir / "jobs.db")) as database:
        [job] = [job for job in queue.list_jobs(database, owner="local") if job.recipe.prompt == "Later"]
    assert job.state is JobState.QUEUED
