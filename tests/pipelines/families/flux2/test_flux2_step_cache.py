"""A FLUX.2 with a step cache gives the picture of diffusers' own MagCache, on one device and on many."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import DiffusionPipeline, MagCacheConfig

from pipelines.generate import generate
from pipelines.recipes.recipe import Recipe
from pipelines.recipes.step_cache import StepCache, Strength
from tests.pipelines.families.flux2.conftest import OUT_LAYERS
from tests.pipelines.reference import ask

MAX_DIFFERENCE = 3
STRENGTH = Strength.parse("0.3,2,0.2")
STEPS = 6
RATIOS = [1.0, *[0.95] * (STEPS - 1)]
Draw = Callable[..., Recipe]


def reuse(recipe: Recipe) -> Recipe:
    cache = StepCache(ratios=(tuple(RATIOS),), mild=STRENGTH, strong=STRENGTH)
    reused = cache.list_reused(STRENGTH, steps=STEPS)
    assert reused
    return recipe.model_copy(update={"step_cache": str(STRENGTH), "reused_steps": reused})


@pytest.mark.parametrize("model", ["klein", "dev"])
def test_reused_steps_give_diffusers_own_picture(
    load_flux2: Callable[..., Any],
    draw_recipe: Draw,
    find_difference: Callable[[np.ndarray, np.ndarray], int],
    model: str,
) -> None:
    """Klein runs a pair of rows, dev one row through scans."""
    family, plain = load_flux2(model), draw_recipe(model=model, steps=STEPS)
    pipeline: Any = DiffusionPipeline.from_pretrained(family.model.path)
    config = MagCacheConfig(
        threshold=STRENGTH.threshold,
        max_skip_steps=STRENGTH.most,
        retention_ratio=STRENGTH.retention,
        num_inference_steps=STEPS,
        mag_ratios=torch.tensor(RATIOS),
    )
    pipeline.transformer.enable_cache(config)
    expected = ask(pipeline, plain, text_encoder_out_layers=OUT_LAYERS)
    made = generate(family, reuse(plain)).pixels
    assert find_difference(made, expected) <= MAX_DIFFERENCE
    assert find_difference(made, generate(family, plain).pixels) > MAX_DIFFERENCE, "or nothing was reused"


@pytest.mark.parametrize(("model", "mesh"), [("klein", "tp=8"), ("klein", "dp=2,sp=4")])
def test_a_mesh_reuses_as_one_device_does(
    load_flux2: Callable[..., Any],
    draw_recipe: Draw,
    find_difference: Callable[[np.ndarray, np.ndarray], int],
    model: str,
    mesh: str,
) -> None:
    """With tokens split over `tp`, and with rows of the picture over `sp`."""
    recipe = reuse(draw_recipe(model=model, steps=STEPS))
    one, many = (generate(load_flux2(model, place), recipe).pixels for place in ("dp=1", mesh))
    assert find_difference(one, many) <= 2
