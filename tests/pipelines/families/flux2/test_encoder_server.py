"""The text encoder on one machine and the rest on another give the picture of one machine."""

import functools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient

from pipelines.commands.encoder_app import build_app
from pipelines.errors import RemoteEncoderError
from pipelines.families.remote_encoder import RemoteEncoder
from pipelines.generate import generate
from pipelines.models.catalog import Catalog
from pipelines.recipes.recipe import Recipe
from pipelines.registry import load
from pipelines.stages import ignore_progress

BEARER = {"authorization": "Bearer secret"}


class Wire(httpx.BaseTransport):
    """Carries requests to a server in this process."""

    def __init__(self, client: TestClient) -> None:
        self._client = client

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        answer = self._client.request(request.method, request.url.path, content=request.read(), headers=request.headers)
        return httpx.Response(answer.status_code, content=answer.content)


@pytest.fixture(scope="module")
def server(load_flux2: Callable[..., Any], draw_recipe: Callable[..., Recipe], flux2_catalog: Catalog) -> TestClient:
    family = load_flux2()
    generate(family, draw_recipe())  # warm
    return TestClient(build_app(family, flux2_catalog, token="secret"))


def connect(server: TestClient, family: Any, token: str | None = "secret") -> Callable[[Recipe], Any]:
    remote = RemoteEncoder("http://encoder:8888", token=token, transport=Wire(server))
    return functools.partial(remote.encode, shapes=family.embedding_shapes())


def test_a_remote_encoder_gives_the_same_picture(
    server: TestClient,
    load_flux2: Callable[..., Any],
    draw_recipe: Callable[..., Recipe],
    flux2_catalog: Catalog,
    cache_dir: Path,
) -> None:
    remote_encoder = RemoteEncoder("http://encoder:8888", token="secret", transport=Wire(server))
    model = flux2_catalog.get("klein")
    family = load(model, mesh="dp=1", cache_dir=cache_dir, on_progress=ignore_progress, remote_encoder=remote_encoder)
    assert "text_encoder" not in family.parts.weights
    recipe = draw_recipe(negative_prompt="a blue house")
    assert (generate(family, recipe).pixels == generate(load_flux2(), recipe).pixels).all()
    family.unload()


@pytest.mark.parametrize("token", [None, "wrong"])
def test_without_the_token_nothing_is_encoded(
    server: TestClient, load_flux2: Callable[..., Any], draw_recipe: Callable[..., Recipe], token: str | None
) -> None:
    with pytest.raises(RemoteEncoderError, match="401: the bearer token is missing or wrong. It wants a token"):
        connect(server, load_flux2(), token)(draw_recipe())


def test_another_model_is_told(
    server: TestClient, load_flux2: Callable[..., Any], draw_recipe: Callable[..., Recipe]
) -> None:
    with pytest.raises(RemoteEncoderError, match="409: this server encodes for klein, not for dev"):
        connect(server, load_flux2())(draw_recipe(model="dev"))


def test_an_empty_prompt_is_refused_in_the_words_of_a_recipe(server: TestClient) -> None:
    answer = server.post("/encode", json={"model": "klein", "prompt": " "}, headers=BEARER)
    assert answer.status_code == 422
    assert "write what the picture should show" in answer.json()["detail"]


def test_a_model_that_starts_from_a_picture_needs_none_here(
    server: TestClient, load_flux2: Callable[..., Any], flux2_catalog: Catalog
) -> None:
    models = tuple(replace(model, min_images=1) for model in flux2_catalog.models)
    app = build_app(load_flux2(), replace(flux2_catalog, models=models), token=None)
    question = {"model": "klein", "prompt": "a house"}
    answers = [TestClient(app).post("/encode", json=question), server.post("/encode", json=question, headers=BEARER)]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert answers[0].content == answers[1].content


def test_health_says_which_model_is_served(server: TestClient) -> None:
    assert server.get("/health").json() == {"status": "ok", "model": "klein"}
