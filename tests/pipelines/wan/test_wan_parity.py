"""The same weights, recipe and seed give diffusers' own video: at most 3 of 255 apart, in fp32."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pipelines.generate import generate
from pipelines.recipe import Recipe

MAX_DIFFERENCE = 3

Ask = Callable[[Recipe], np.ndarray]
Find = Callable[[np.ndarray, np.ndarray], int]


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({}, id="guided"),
        pytest.param({"guidance_scale": 1.0}, id="unguided"),
        pytest.param({"negative_prompt": "a blue house at night", "guidance_scale": 6.0}, id="negative prompt"),
        pytest.param({"prompt": "A &amp; blue\n\n house   " + "on the ocean " * 9}, id="cleaned and cut"),
        pytest.param(
            {"scheduler": "flow_match_euler", "flow_shift": 5.0, "steps": 11}, id="more than a chunk of steps"
        ),
        pytest.param({"flow_shift": 7.0, "steps": 7}, id="flow shift"),
        pytest.param({"batch_size": 3, "seed": 40}, id="batch of three"),
        pytest.param({"shape": "64x32x17"}, id="longer and wider"),
        pytest.param({"shape": "32x32"}, id="a single frame"),
    ],
)
def test_the_video_is_diffusers_own(
    load_wan: Callable[..., Any],
    draw_wan: Callable[..., Recipe],
    ask_wan: Ask,
    find_difference: Find,
    fields: dict[str, Any],
) -> None:
    recipe = draw_wan(**fields)
    pixels = generate(load_wan(), recipe).pixels
    assert pixels.dtype == np.uint8
    assert find_difference(pixels, ask_wan(recipe)) <= MAX_DIFFERENCE
