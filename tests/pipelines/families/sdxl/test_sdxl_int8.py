"""SDXL with a UNet in int8 makes the picture of its rounded weights; its CLIPs stay as they are."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipelines.recipes.recipe import Recipe
from tests.pipelines.rounding import assert_int8_is_full_rounded


def test_the_picture_is_that_of_rounded_weights(
    family: Any, draw_recipe: Callable[..., Recipe], cache_dir: Path
) -> None:
    assert_int8_is_full_rounded(
        family, draw_recipe(), mesh="dp=2,tp=4", cache_dir=cache_dir, components=("unet",), least_db=30
    )
