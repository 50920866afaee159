"""diffusers' own pictures of a recipe, for tests that put something of diffusers into its pipeline first."""

from typing import Any

import numpy as np
import torch

from pipelines.recipes.recipe import Recipe


def ask(pipeline: Any, recipe: Recipe, **more: Any) -> np.ndarray:
    """Returns the pipeline's uint8 pictures; `more` is said to it in place of what the recipe says, or beside it."""
    pipeline.set_progress_bar_config(disable=True)
    shape = recipe.parsed_shape
    asked = {
        "prompt": recipe.prompt,
        "width": shape.width,
        "height": shape.height,
        "num_inference_steps": recipe.steps,
        "guidance_scale": recipe.guidance_scale,
        "generator": torch.Generator("cpu").manual_seed(recipe.seed or 0),
    }
    pictures = pipeline(**asked | more, output_type="np").images
    return (pictures * 255).round().astype(np.uint8)
