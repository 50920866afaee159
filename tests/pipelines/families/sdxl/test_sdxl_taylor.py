"""An SDXL with TaylorSeer gives the picture of diffusers' own hook on the UNet's last convolution."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import DiffusionPipeline

from pipelines.generate import generate
from pipelines.recipes.recipe import Recipe
from tests.pipelines.reference import ask
from tests.pipelines.schedulers import choose_scheduler
from tests.pipelines.taylor import foresee, put_on

STEPS = 11  # more than a chunk


@pytest.mark.parametrize("scheduler", ["euler", "euler_ancestral"])
def test_foreseen_steps_give_diffusers_own_picture(
    family: Any,
    draw_recipe: Callable[..., Recipe],
    find_difference: Callable[[np.ndarray, np.ndarray], int],
    scheduler: str,
) -> None:
    plain = draw_recipe(scheduler=scheduler, steps=STEPS, guidance_scale=4.0)
    torch.set_num_threads(1)
    pipeline: Any = DiffusionPipeline.from_pretrained(family.model.path, dtype=torch.float32)
    pipeline.scheduler = choose_scheduler(dict(pipeline.scheduler.config), scheduler)
    put_on(pipeline.unet, cache_identifiers=["conv_out"])
    expected = ask(pipeline, plain)
    made = generate(family, foresee(plain)).pixels
    assert find_difference(made, expected) <= 2
    assert find_difference(made, generate(family, plain).pixels) > 2, "or nothing was foreseen"
