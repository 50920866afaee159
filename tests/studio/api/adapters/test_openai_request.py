"""What clients for OpenAI send becomes recipes; what means nothing here is named, not refused."""

import dataclasses
from typing import Any

import pytest
from fastapi.testclient import TestClient

from pipelines.errors import RecipeError
from pipelines.models.catalog import Catalog
from studio.api.adapters.openai_request import Generation, choose_default, choose_model, choose_shape, read_form
from studio.api.application import create_api
from studio.database import Database
from studio.settings import Settings


@pytest.mark.parametrize("name", ["gpt-image-1", "gpt-image-1-mini", "dall-e-3", "chatgpt-image-latest"])
def test_a_model_of_openai_means_the_default_one_unless_names_are_exact(catalog: Catalog, name: str) -> None:
    model, notes = choose_model(catalog, name, default=catalog.default, takes_exact=False, has_images=False)
    assert (model, notes) == (catalog.default, [f"There is no {name} here; {catalog.default.id} was used."])
    with pytest.raises(RecipeError, match="There is no model"):
        choose_model(catalog, name, default=catalog.default, takes_exact=True, has_images=False)


def test_another_wrong_name_is_still_refused_and_none_is_no_note(catalog: Catalog) -> None:
    assert choose_model(catalog, None, default=catalog.default, takes_exact=False, has_images=False) == (
        catalog.default,
        [],
    )
    assert choose_model(catalog, "", default=catalog.default, takes_exact=False, has_images=False) == (
        catalog.default,
        [],
    )
    for name in ("demo-sdxk", "my-gpt-image-1"):
        with pytest.raises(RecipeError, match="Known models"):
            choose_model(catalog, name, default=catalog.default, takes_exact=False, has_images=False)


def test_the_default_for_pictures_takes_pictures(catalog: Catalog) -> None:
    takers_last = dataclasses.replace(catalog, models=(catalog.get("demo-flux2"), catalog.get("demo-sdxl")))
    for default, expected in (
        ("demo-flux2", ["demo-flux2", "demo-sdxl"]),
        ("demo-sdxl", ["demo-sdxl", "demo-sdxl"]),
        ("demo-wan", ["demo-flux2", "demo-sdxl"]),  # of videos
    ):
        chosen = [choose_default(takers_last, catalog.get(default), has_images=images).id for images in (False, True)]
        assert chosen == expected


@pytest.mark.parametrize("size", ["256x256", "256*256", " 256 × 256", "256X256"])
def test_a_size_is_read_however_its_sign_is_written(catalog: Catalog, size: str) -> None:
    assert choose_shape(size, catalog.get("demo-sdxl")) == "256x256"


@pytest.mark.parametrize("size", [None, "", "auto"])
def test_no_size_is_the_models_own(catalog: Catalog, size: str | None) -> None:
    assert choose_shape(size, catalog.default) is None


def test_fields_of_other_servers_are_named_and_only_a_few(catalog: Catalog) -> None:
    others: dict[str, Any] = {"cfg_scale": 7, "width": 512, "user": "me", "style": None}
    wanted = Generation.model_validate({"prompt": "A boat", **others})
    assert wanted.list_ignored() == ["Ignored, as it means nothing here: cfg_scale, width."]
    many = Generation.model_validate({"prompt": "A boat", **{f"{number}{'x' * 900}": 1 for number in range(999)}})
    assert len(many.list_ignored()[0]) < 600
    assert [recipe.prompt for recipe in many.list_recipes(catalog.default)] == ["A boat"]


@pytest.mark.parametrize(("seed", "expected"), [(-1, [None, None]), (2**53 + 1, [2**53 + 1, 2**53 + 9])])
def test_seeds_are_those_of_recipes(catalog: Catalog, seed: int, expected: list[int | None]) -> None:
    wanted = Generation.model_validate({"prompt": "A boat", "seed": seed, "n": 9})
    assert [recipe.seed for recipe in wanted.list_recipes(catalog.default)] == expected


def test_a_form_has_only_text() -> None:
    fields = {"prompt": "A boat", "n": "2", "stream": "false", "partial_images": "0", "size": "", "strength": "0.4"}
    wanted = read_form(fields, ["upload-1"])
    assert (wanted.n, wanted.stream, wanted.size, wanted.strength) == (2, False, None, 0.4)
    assert wanted.images == ("upload-1",)
    with pytest.raises(RecipeError) as told:
        read_form({"n": "many", "stream": "true"}, [])
    assert told.value.fields.keys() == {"prompt", "n", "stream"}


def test_half_a_character_is_told_at_its_field(client: TestClient) -> None:
    content = b'{"prompt": "\\ud800"}'
    answer = client.post("/v1/images/generations", content=content, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "prompt")


def test_an_operator_may_take_exact_names_only(settings: Settings, database: Database, catalog: Catalog) -> None:
    strict = dataclasses.replace(settings, openai_exact_models=True)
    with TestClient(create_api(strict, database, catalog)) as client:
        answer = client.post("/v1/images/generations", json={"prompt": "A boat", "model": "gpt-image-1"})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "model")
