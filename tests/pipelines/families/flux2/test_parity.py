"""The same weights, recipe and seed give diffusers' own picture: at most 2 of 255 apart, in fp32."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pipelines.generate import generate
from pipelines.recipes.recipe import Recipe

MAX_DIFFERENCE = 2

Ask = Callable[..., np.ndarray]
Find = Callable[[np.ndarray, np.ndarray], int]


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({}, id="guidance pair"),
        pytest.param({"guidance_scale": 1.0, "steps": 11}, id="unguided, more than a chunk of steps"),
        pytest.param({"batch_size": 3, "seed": 40}, id="batch of three"),
        pytest.param({"model": "distilled", "guidance_scale": 4.0, "steps": 4}, id="distilled"),
        pytest.param({"model": "dev"}, id="embedded guidance"),
        pytest.param({"model": "dev", "guidance_scale": 1.0, "prompt": "boat " * 20}, id="long text"),
    ],
)
def test_the_picture_is_diffusers_own(
    load_flux2: Callable[..., Any],
    draw_recipe: Callable[..., Recipe],
    ask_diffusers: Ask,
    find_difference: Find,
    fields: dict[str, Any],
) -> None:
    recipe = draw_recipe(**fields)
    pixels = generate(load_flux2(recipe.model), recipe).pixels
    assert find_difference(pixels, ask_diffusers(recipe)) <= MAX_DIFFERENCE


@pytest.mark.parametrize(
    ("model", "fields"),
    [
        ("klein", {"prompt": "a green tree"}),
        ("klein", {"guidance_scale": 1.0}),
        ("klein", {"negative_prompt": "a blue house"}),
        ("klein", {"seed": 6}),
        ("klein", {"steps": 4}),
        ("dev", {"prompt": "THE CITY AT NIGHT, from above"}),
        ("dev", {"guidance_scale": 1.0}),
    ],
)
def test_the_comparison_would_notice(
    load_flux2: Callable[..., Any],
    draw_recipe: Callable[..., Recipe],
    find_difference: Find,
    model: str,
    fields: dict[str, Any],
) -> None:
    pixels, others = (
        generate(load_flux2(model), draw_recipe(model=model, **changed)).pixels for changed in ({}, fields)
    )
    assert find_difference(pixels, others) > 5 * MAX_DIFFERENCE
