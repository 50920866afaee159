"""FLUX.2 with weights in int8 makes the picture of its rounded weights, also with a LoRA and its heads on `tp`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipelines.recipes.recipe import Recipe
from tests.pipelines.made_loras import draw_pairs, write_peft
from tests.pipelines.rounding import assert_int8_is_full_rounded


@pytest.mark.parametrize(("model", "mesh"), [("dev", "tp=4"), ("klein", "dp=1")])
def test_the_picture_is_that_of_rounded_weights(  # noqa: PLR0917 - fixtures
    load_flux2: Callable[..., Any],
    borrow: Callable[[Any], Any],
    draw_recipe: Callable[..., Recipe],
    cache_dir: Path,
    model: str,
    mesh: str,
) -> None:
    full = borrow(load_flux2(model))
    ref = f"{model}-int8"
    write_peft(full.model.loras_dir / f"{ref}.safetensors", draw_pairs(full, "transformer", size=0.1))
    assert_int8_is_full_rounded(
        full,
        draw_recipe(model=model, loras=[{"ref": ref}]),
        mesh=mesh,
        cache_dir=cache_dir,
        components=("transformer", "text_encoder"),
        least_db=30,
    )
