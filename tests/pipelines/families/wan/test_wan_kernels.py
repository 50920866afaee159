"""Latents of a video with attention as on TPU, through the kernels, interpreted here, are those of plain attention."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from pipelines.families.wan import programs
from pipelines.models.catalog import Catalog
from pipelines.recipes.recipe import Recipe
from pipelines.registry import load
from pipelines.stages import ignore_progress
from tests.pipelines.denoising import TO_LATENTS, warm


@pytest.mark.parametrize(
    ("model", "mesh", "expected"),
    [
        pytest.param("t2v", "dp=2,sp=2,tp=2", {"flash_attention"}, id="all of it in slices"),
        pytest.param(
            "wide", "dp=2,sp=4", {"flash_attention", "cut_features", "join_features"}, id="eight chips' own mesh"
        ),
    ],
)
def test_attention_by_the_kernels_is_xlas_own(  # noqa: PLR0917 - fixtures
    load_wan: Callable[..., Any],
    draw_wan: Callable[..., Recipe],
    assert_same_output: Callable[[Any, Any, Recipe], None],
    interpret_attention: Callable[[Any], AbstractContextManager[set[str]]],
    wan_catalog: Catalog,
    cache_dir: Path,
    model: str,
    mesh: str,
    expected: set[str],
) -> None:
    """Heads traded for tokens, norms and rotation on the way; then the text."""
    recipe = draw_wan(model, steps=2)
    with interpret_attention(programs) as kernels:
        family = load(
            wan_catalog.get(model), mesh=mesh, cache_dir=cache_dir, on_progress=ignore_progress, stages=TO_LATENTS
        )
        warm(family, recipe)
    assert kernels == expected
    assert_same_output(family, load_wan(model), recipe)
