"""A Z-Image with TaylorSeer gives the picture of diffusers' own hook on the transformer's last layer."""

from collections.abc import Callable
from typing import Any

import numpy as np
from diffusers import ZImagePipeline

from pipelines.generate import generate
from pipelines.recipes.recipe import Recipe
from tests.pipelines.families.z_image.conftest import TEXT
from tests.pipelines.reference import ask
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
    put_on(pipeline.transformer, cache_identifiers=[r"all_final_layer\.[^.]+"])
    expected = ask(
        pipeline,
        plain,
        negative_prompt=plain.negative_prompt,
        guidance_scale=(plain.guidance_scale or 1.0) - 1,
        max_sequence_length=TEXT,
    )
    made = generate(family, foresee(plain)).pixels
    assert find_difference(made, expected) <= 2
    assert find_difference(made, generate(family, plain).pixels) > 2, "or nothing was foreseen"
