"""A FLUX.2 with TaylorSeer gives the picture of diffusers' own hook in its lite mode, on many devices too."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from diffusers import DiffusionPipeline

from pipelines.generate import generate
from pipelines.recipes.recipe import Recipe
from tests.pipelines.families.flux2.conftest import OUT_LAYERS
from tests.pipelines.reference import ask
from tests.pipelines.taylor import foresee, put_on

MAX_DIFFERENCE = 3
STEPS = 6
Draw = Callable[..., Recipe]


@pytest.mark.parametrize(("model", "mesh"), [("klein", "dp=2,sp=4"), ("dev", "dp=1")])
def test_foreseen_steps_give_diffusers_own_picture(
    load_flux2: Callable[..., Any],
    draw_recipe: Draw,
    find_difference: Callable[[np.ndarray, np.ndarray], int],
    model: str,
    mesh: str,
) -> None:
    """Klein runs a pair of rows, dev one row through scans."""
    family, plain = load_flux2(model, mesh), draw_recipe(model=model, steps=STEPS)
    pipeline: Any = DiffusionPipeline.from_pretrained(family.model.path)
    put_on(pipeline.transformer)
    expected = ask(pipeline, plain, text_encoder_out_layers=OUT_LAYERS)
    made = generate(family, foresee(plain)).pixels
    assert find_difference(made, expected) <= MAX_DIFFERENCE
    assert find_difference(made, generate(family, plain).pixels) > MAX_DIFFERENCE, "or nothing was foreseen"
