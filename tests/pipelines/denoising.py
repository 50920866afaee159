"""The way to latents and no further: for tests that are not about the autoencoder."""

from typing import Any

import numpy as np

from pipelines.generate import find_references, uses_cfg
from pipelines.recipes.recipe import Recipe
from pipelines.stages import ignore_progress

TO_LATENTS = ("encode", "denoise")
"""The stages to load a family with."""


def warm(family: Any, recipe: Recipe) -> None:
    """Compiles what a loaded family needs for a recipe."""
    family.warm(
        recipe.parsed_shape,
        batch_size=recipe.batch_size,
        uses_cfg=uses_cfg(recipe),
        references=find_references(family.model, recipe),
        on_progress=ignore_progress,
    )


def denoise(family: Any, recipe: Recipe) -> np.ndarray:
    """The latents that a loaded family makes of a recipe."""
    warm(family, recipe)
    family.apply_loras(recipe.loras, on_progress=ignore_progress)
    return np.asarray(family.denoise(recipe, family.encode(recipe), on_progress=ignore_progress))
