"""FLUX.2 with weights in int8 makes the picture of its rounded weights, also with a LoRA and its heads on `tp`.

With activations in int8, too, it makes one that is near, on a mesh as well.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelines.demos.scores import find_psnr
from pipelines.generate import generate
from pipelines.models.model import INT8, W8A8
from pipelines.recipes.recipe import Recipe
from pipelines.registry import load
from pipelines.stages import ignore_progress
from tests.pipelines.denoising import TO_LATENTS, denoise
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


def test_activations_are_rounded_too_where_that_is_asked(
    load_flux2: Callable[..., Any],
    draw_recipe: Callable[..., Recipe],
    find_difference: Callable[[np.ndarray, np.ndarray], int],
    cache_dir: Path,
) -> None:
    full, recipe = load_flux2("dev"), draw_recipe(model="dev")
    latents: dict[tuple[str, str], np.ndarray] = {}
    for weights, mesh in ((INT8, "dp=1"), (W8A8, "dp=1"), (W8A8, "tp=4")):
        model = replace(full.model, weights=weights)
        family = load(model, mesh=mesh, cache_dir=cache_dir, on_progress=ignore_progress, stages=TO_LATENTS)
        latents[weights, mesh] = denoise(family, recipe)
        assert family.revision.endswith(f"+{weights}")
        family.unload()
    plain = generate(full, recipe).pixels
    pixels = {place: full.decode(recipe, own) for place, own in latents.items()}
    assert find_difference(pixels[W8A8, "dp=1"], pixels[INT8, "dp=1"]) > 2, "or no activation was rounded"
    # A number that lies between two steps is rounded this way or that by what is left of sums in another order.
    assert find_psnr(pixels[W8A8, "tp=4"], pixels[W8A8, "dp=1"]) > 40
    assert find_psnr(pixels[W8A8, "dp=1"], plain) > 25
