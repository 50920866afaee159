"""The same weights, recipe and seed give diffusers' own video: at most 3 of 255 apart, in fp32."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pipelines.generate import generate
from pipelines.recipes.recipe import Recipe

MAX_DIFFERENCE = 3

Draw = Callable[..., Recipe]
Compare = Callable[[Recipe], int]


@pytest.fixture(name="compare")
def compare_with_diffusers(
    load_wan: Callable[..., Any],
    ask_wan: Callable[[Recipe], np.ndarray],
    find_difference: Callable[[np.ndarray, np.ndarray], int],
) -> Compare:
    return lambda recipe: find_difference(generate(load_wan(recipe.model), recipe).pixels, ask_wan(recipe))


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({}, id="guided"),
        pytest.param({"guidance_scale": 1.0}, id="unguided"),
        pytest.param({"negative_prompt": "a blue house at night", "guidance_scale": 6.0}, id="negative prompt"),
        pytest.param({"prompt": "A &amp; blue\n\n house   " + "on the ocean " * 90}, id="cleaned and long"),
        pytest.param({"prompt": "on the red ocean " + "zq " * 600}, id="cut"),
        pytest.param(
            {"scheduler": "flow_match_euler", "flow_shift": 5.0, "steps": 11}, id="more than a chunk of steps"
        ),
        pytest.param({"flow_shift": 7.0, "steps": 7}, id="flow shift"),
        pytest.param({"batch_size": 3, "seed": 40}, id="batch of three"),
        pytest.param({"shape": "64x32x17"}, id="longer and wider"),
        pytest.param({"shape": "32x32"}, id="a single frame"),
    ],
)
def test_the_video_is_diffusers_own(draw_wan: Draw, compare: Compare, fields: dict[str, Any]) -> None:
    assert compare(draw_wan(**fields)) <= MAX_DIFFERENCE


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"steps": 8}, id="both experts"),
        pytest.param({"guidance_scale": 5.0, "guidance_scale_2": 2.0, "steps": 8}, id="each its own guidance"),
        pytest.param({"scheduler": "flow_match_euler", "flow_shift": 1.0, "steps": 13}, id="the second for longer"),
    ],
)
def test_two_experts_take_over_where_diffusers_lets_them(
    draw_wan: Draw, compare: Compare, fields: dict[str, Any]
) -> None:
    assert compare(draw_wan("experts", **fields)) <= MAX_DIFFERENCE


@pytest.mark.parametrize(
    ("model", "fields"),
    [
        pytest.param("ti2v", {}, id="Wan 2.2 with guidance"),
        pytest.param("ti2v", {"scheduler": "flow_match_euler"}, id="Wan 2.2 with another scheduler"),
        pytest.param("i2v", {}, id="channels and an image encoder"),
        pytest.param("i2v-experts", {"steps": 8}, id="channels and two experts"),
    ],
)
def test_a_first_picture_moves_as_in_diffusers(
    draw_wan: Draw, compare: Compare, model: str, fields: dict[str, Any]
) -> None:
    assert compare(draw_wan(model, images=["photo"], **fields)) <= MAX_DIFFERENCE


def test_a_video_goes_from_a_first_picture_to_a_last_one_as_in_diffusers(draw_wan: Draw, compare: Compare) -> None:
    assert compare(draw_wan("flf2v", images=["photo", "turned"], batch_size=2)) <= MAX_DIFFERENCE


def test_the_second_autoencoder_and_its_timesteps_agree_without_a_picture(draw_wan: Draw, compare: Compare) -> None:
    assert compare(draw_wan("ti2v", seed=8)) <= MAX_DIFFERENCE


@pytest.mark.parametrize(
    ("model", "fields"),
    [
        ("t2v", {"prompt": "night"}),
        ("t2v", {"guidance_scale": 1.0}),
        ("t2v", {"negative_prompt": "a blue house"}),
        ("t2v", {"seed": 6}),
        ("t2v", {"flow_shift": 9.0}),
        ("t2v", {"scheduler": "flow_match_euler"}),
        ("experts", {"guidance_scale_2": 1.0}),
        ("ti2v", {"images": ["photo"]}),
    ],
    ids=str,
)
def test_the_comparison_would_notice(
    load_wan: Callable[..., Any],
    draw_wan: Draw,
    find_difference: Callable[[np.ndarray, np.ndarray], int],
    model: str,
    fields: dict[str, Any],
) -> None:
    family = load_wan(model)
    pixels = generate(family, draw_wan(model)).pixels
    assert find_difference(pixels, generate(family, draw_wan(model, **fields)).pixels) > 5 * MAX_DIFFERENCE


def test_a_batch_gives_the_videos_of_its_seeds(
    load_wan: Callable[..., Any], draw_wan: Draw, find_difference: Callable[[np.ndarray, np.ndarray], int]
) -> None:
    batch = generate(load_wan(), draw_wan(batch_size=3, seed=40)).pixels
    for index, video in enumerate(batch):
        single = generate(load_wan(), draw_wan(seed=40 + index)).pixels[0]
        assert find_difference(video, single) <= MAX_DIFFERENCE


def test_a_first_picture_of_other_proportions_is_fitted_as_the_recipe_says(
    load_wan: Callable[..., Any], draw_wan: Callable[..., Recipe], tmp_path: Path
) -> None:
    picture = Image.fromarray(np.random.default_rng(9).integers(0, 255, (48, 96, 3), np.uint8))
    picture.save(tmp_path / "wide.png")
    picture.resize((32, 32), Image.Resampling.LANCZOS).save(tmp_path / "stretched.png")
    stretched, by_hand, cropped = (
        generate(load_wan("ti2v"), draw_wan("ti2v", steps=2, images=[str(tmp_path / name)], **fields)).pixels
        for name, fields in (("wide.png", {"fit": "stretch"}), ("stretched.png", {}), ("wide.png", {}))
    )
    assert np.array_equal(stretched, by_hand)
    assert not np.array_equal(stretched, cropped)
