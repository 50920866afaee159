"""The whole way of a picture as on TPU, its attention through the kernel, interpreted here, gives the same picture."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from pipelines.catalog import Catalog
from pipelines.flux2 import sharding
from pipelines.generate import uses_cfg
from pipelines.recipe import Recipe
from pipelines.registry import load
from pipelines.stages import ignore_progress


def test_attention_by_the_kernel_is_xlas_own(  # noqa: PLR0917 - fixtures
    load_flux2: Callable[..., Any],
    draw_recipe: Callable[..., Recipe],
    assert_same_output: Callable[[Any, Any, Recipe], None],
    interpret_attention: Callable[[Any, str], AbstractContextManager[list[int]]],
    flux2_catalog: Catalog,
    cache_dir: Path,
) -> None:
    recipe = draw_recipe(steps=2)
    with interpret_attention(sharding, "attend_long") as used:
        family = load(
            flux2_catalog.get("klein"), mesh="dp=2,sp=2,tp=2", cache_dir=cache_dir, on_progress=ignore_progress
        )
        shape = recipe.parsed_shape
        family.warm(shape, batch_size=1, uses_cfg=uses_cfg(recipe), on_progress=ignore_progress)
    assert used
    assert_same_output(family, load_flux2("klein"), recipe)
