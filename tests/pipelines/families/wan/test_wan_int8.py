"""Wan with weights in int8 makes the video of its rounded weights; devices gather them in int8."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipelines.recipes.recipe import Recipe
from tests.pipelines.rounding import assert_int8_is_full_rounded


def test_the_video_is_that_of_rounded_weights(
    load_wan: Callable[..., Any], draw_wan: Callable[..., Recipe], cache_dir: Path
) -> None:
    assert_int8_is_full_rounded(
        load_wan(),
        draw_wan(),
        mesh="dp=2,sp=2,tp=2",
        cache_dir=cache_dir,
        components=("transformer", "text_encoder"),
        least_db=30,
    )
