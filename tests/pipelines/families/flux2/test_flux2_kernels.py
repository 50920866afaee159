"""The whole way of a picture as on TPU, its attention through the kernel, interpreted here, gives the same picture."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from pipelines.families.flux2 import sharding
from pipelines.generate import uses_cfg
from pipelines.models.catalog import Catalog
from pipelines.recipes.recipe import Recipe
from pipelines.registry import load
from pipelines.stages import ignore_progress


@pytest.mark.parametrize(
    "mesh",
    [pytest.param("tp=8", id="eight chips' own mesh, tokens split"), pytest.param("dp=2,sp=2,tp=2", id="all at once")],
)
def test_attention_by_the_kernel_is_xlas_own(  # noqa: PLR0917 - fixtures
    load_flux2: Callable[..., Any],
    draw_recipe: Callable[..., Recipe],
    assert_same_output: Callable[[Any, Any, Recipe], None],
    interpret_attention: Callable[[Any], AbstractContextManager[set[str]]],
    flux2_catalog: Catalog,
    cache_dir: Path,
    mesh: str,
) -> None:
    recipe = draw_recipe(steps=2)
    with interpret_attention(sharding) as kernels:
        family = load(flux2_catalog.get("klein"), mesh=mesh, cache_dir=cache_dir, on_progress=ignore_progress)
        shape = recipe.parsed_shape
        family.warm(shape, batch_size=1, uses_cfg=uses_cfg(recipe), on_progress=ignore_progress)
    assert kernels == {"flash_attention"}
    assert_same_output(family, load_flux2("klein"), recipe)
