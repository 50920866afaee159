"""The same weights, recipe and seed give diffusers' own picture: at most 2 of 255 apart, in fp32."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pipelines.generate import generate
from pipelines.recipes.recipe import Recipe
from tests.pipelines.families.z_image.conftest import NARROW, SIDE

MAX_DIFFERENCE = 2

Ask = Callable[..., np.ndarray]
Find = Callable[[np.ndarray, np.ndarray], int]


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({}, id="guidance pair"),
        pytest.param({"negative_prompt": "rain " * 9}, id="negative prompt that is longer"),
        pytest.param({"model": "turbo", "guidance_scale": 1.0, "steps": 9}, id="turbo, unguided"),
        pytest.param({"model": "turbo", "batch_size": 2, "prompt": "boat " * 40}, id="batch, text cut at its end"),
        pytest.param({"shape": NARROW}, id="tokens that fill up"),
    ],
)
def test_the_picture_is_diffusers_own(
    load_z_image: Callable[..., Any],
    draw_recipe: Callable[..., Recipe],
    ask_diffusers: Ask,
    find_difference: Find,
    fields: dict[str, Any],
) -> None:
    recipe = draw_recipe(**fields)
    pixels = generate(load_z_image(recipe.model), recipe).pixels
    assert find_difference(pixels, ask_diffusers(recipe)) <= MAX_DIFFERENCE


def test_a_picture_to_start_from_is_noised_as_diffusers_does(
    load_z_image: Callable[..., Any],
    draw_recipe: Callable[..., Recipe],
    ask_diffusers: Ask,
    find_difference: Find,
    tmp_path: Path,
) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (SIDE, SIDE, 3), np.uint8)
    image = Image.fromarray(pixels).resize((8, 8)).resize((SIDE, SIDE))
    image.save(tmp_path / "start.png")
    recipe = draw_recipe(images=[str(tmp_path / "start.png")], strength=0.5, steps=4)
    made = generate(load_z_image(), recipe).pixels
    assert find_difference(made, ask_diffusers(recipe, image=image)) <= MAX_DIFFERENCE
    assert find_difference(made, generate(load_z_image(), draw_recipe(steps=4)).pixels) > 5 * MAX_DIFFERENCE


@pytest.mark.parametrize(
    "fields",
    [
        {"prompt": "a green tree"},
        {"guidance_scale": 1.0},
        {"negative_prompt": "a blue house"},
        {"seed": 6},
        {"steps": 4},
        {"flow_shift": 2.0},
    ],
)
def test_the_comparison_would_notice(
    load_z_image: Callable[..., Any],
    draw_recipe: Callable[..., Recipe],
    find_difference: Find,
    fields: dict[str, Any],
) -> None:
    pixels, others = (generate(load_z_image(), draw_recipe(**changed)).pixels for changed in ({}, fields))
    assert find_difference(pixels, others) > 5 * MAX_DIFFERENCE
