"""Z-Image with weights in int8 makes the picture of its rounded weights."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipelines.recipes.recipe import Recipe
from tests.pipelines.rounding import assert_int8_is_full_rounded


def test_the_picture_is_that_of_rounded_weights(
    load_z_image: Callable[..., Any], draw_recipe: Callable[..., Recipe], cache_dir: Path
) -> None:
    assert_int8_is_full_rounded(
        load_z_image(),
        draw_recipe(),
        mesh="tp=2",
        cache_dir=cache_dir,
        components=("transformer", "text_encoder"),
        least_db=12,  # found: 15.4; random weights make much of little
    )
