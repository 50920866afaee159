"""A Z-Image with TaylorSeer gives the picture of diffusers' own hook on the transformer's last layer."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from diffusers import ZImagePipeline

from pipelines.generate import generate
from pipelines.recipes.recipe import Recipe
from tests.pipelines.families.z_image.conftest import TEXT
from tests.pipelines.taylor import foresee, put_on

STEPS = 6


def test_foreseen_steps_give_diffusers_own_picture(
    load_z_image: Callable[..., Any],
    draw_recipe: Callable[..., Recipe],
    find_difference: Callable[[np.ndarray, np.ndarray], int],
) -> None:
    plain = draw_recipe(steps=STEPS)
    family = load_z_image(plain.model)
    pipeline: Any = ZImagePipeline.from_pretrained(family.model.path)
    pipeline.set_progress_bar_config(disable=True)
    put_on(pipeline.transformer, cache_identifiers=[r"all_final_layer\.[^.]+"])
    shape = plain.parsed_shape
    pictures = pipeline(
        prompt=plain.prompt,
        negative_prompt=plain.negative_prompt,
        width=shape.width,
        height=shape.height,
        num_inference_steps=STEPS,
        guidance_scale=(plain.guidance_scale or 1.0) - 1,
        generator=torch.Generator("cpu").manual_seed(plain.seed or 0),
        max_sequence_length=TEXT,
        output_type="np",
    ).images
    made = generate(family, foresee(plain)).pixels
    assert find_difference(made, (pictures * 255).round().astype(np.uint8)) <= 2
    assert find_difference(made, generate(family, plain).pixels) > 2, "or nothing was foreseen"
