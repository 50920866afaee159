"""Latents of a picture with attention as on TPU, through the kernel, interpreted here, are those of plain attention."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from pipelines.families.flux2 import sharding
from pipelines.models.catalog import Catalog
from pipelines.recipes.recipe import Recipe
from pipelines.registry import load
from pipelines.stages import ignore_progress
from tests.pipelines.denoising import TO_LATENTS, warm


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
        family = load(
            flux2_catalog.get("klein"), mesh=mesh, cache_dir=cache_dir, on_progress=ignore_progress, stages=TO_LATENTS
        )
        warm(family, recipe)
    assert kernels == {"flash_attention"}
    assert_same_output(family, load_flux2("klein"), recipe)
