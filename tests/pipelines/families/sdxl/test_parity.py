"""The same weights, recipe and seed give diffusers' own picture: at most 2 of 255 apart, in fp32."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelines.generate import generate
from pipelines.recipes.recipe import Recipe

MAX_DIFFERENCE = 2

Ask = Callable[[Path, Recipe], np.ndarray]
Find = Callable[[np.ndarray, np.ndarray], int]


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"guidance_scale": 4.0}, id="guided"),
        pytest.param({"guidance_scale": 1.0}, id="unguided"),
        pytest.param({"negative_prompt": "a blue house at night", "guidance_scale": 6.0}, id="negative prompt"),
        pytest.param({"scheduler": "euler_ancestral"}, id="noise at each step"),
        pytest.param({"scheduler": "dpmpp_2m", "steps": 7}, id="two-step rule"),
        pytest.param({"scheduler": "ddim", "steps": 11}, id="more than a chunk of steps"),
        pytest.param({"batch_size": 3, "scheduler": "euler_ancestral", "seed": 40}, id="batch of three"),
    ],
)
def test_the_picture_is_diffusers_own(
    family: Any, draw_recipe: Callable[..., Recipe], ask_diffusers: Ask, find_difference: Find, fields: dict[str, Any]
) -> None:
    recipe = draw_recipe(**fields)
    pixels = generate(family, recipe).pixels
    assert find_difference(pixels, ask_diffusers(family.model.path, recipe)) <= MAX_DIFFERENCE


def test_a_deeper_model_with_other_heads_agrees_too(
    load_family: Callable[..., Any], draw_recipe: Callable[..., Recipe], ask_diffusers: Ask, find_difference: Find
) -> None:
    family = load_family("middle")
    recipe = draw_recipe(model="middle", seed=9)
    pixels = generate(family, recipe).pixels
    assert find_difference(pixels, ask_diffusers(family.model.path, recipe)) <= MAX_DIFFERENCE


@pytest.mark.parametrize(
    "fields", [{"prompt": "a green cactus"}, {"guidance_scale": 1.0}, {"negative_prompt": "a blue house"}, {"seed": 6}]
)
def test_the_comparison_would_notice(
    family: Any, draw_recipe: Callable[..., Recipe], find_difference: Find, fields: dict[str, Any]
) -> None:
    pixels = generate(family, draw_recipe()).pixels
    assert find_difference(pixels, generate(family, draw_recipe(**fields)).pixels) > 5 * MAX_DIFFERENCE


def test_a_batch_gives_the_pictures_of_its_seeds(
    family: Any, draw_recipe: Callable[..., Recipe], find_difference: Find
) -> None:
    batch = generate(family, draw_recipe(batch_size=3, seed=40)).pixels
    for index, picture in enumerate(batch):
        single = generate(family, draw_recipe(seed=40 + index)).pixels[0]
        assert find_difference(picture, single) <= MAX_DIFFERENCE
