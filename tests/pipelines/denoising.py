"""The way to latents and no further, or to weights: for tests that are not about what comes after."""

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


def assert_same_weights(family: Any, expected: Any) -> None:
    """Two loaded families have the same weights to the bit."""
    assert family.parts.weights.keys() == expected.parts.weights.keys()
    for component, own in expected.parts.weights.items():
        found = family.parts.weights[component]
        assert found.keys() == own.keys()
        for name, array in own.items():
            np.testing.assert_array_equal(found[name], array, f"{component}.{name}", strict=True)
