"""A model's own window and centred keys, on devices without the kernel: what they change of a video, and what not."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipelines.generate import generate
from pipelines.models.catalog import AttentionOptions, Catalog
from pipelines.recipes.recipe import Recipe
from pipelines.registry import load
from pipelines.stages import ignore_progress
from tests.pipelines.denoising import TO_LATENTS, denoise


@pytest.mark.parametrize(
    ("options", "is_changed"),
    [
        (AttentionOptions(smooths_keys=True), False),
        (AttentionOptions(window=1000), False),
        (AttentionOptions(window=3), True),
    ],
    ids=["centred keys", "a window over everything", "a small window"],
)
def test_only_a_window_that_hides_tokens_changes_a_video(  # noqa: PLR0917 - fixtures
    load_wan: Callable[..., Any],
    draw_wan: Callable[..., Recipe],
    find_difference: Callable[..., int],
    wan_catalog: Catalog,
    cache_dir: Path,
    options: AttentionOptions,
    *,
    is_changed: bool,
) -> None:
    recipe = draw_wan("t2v", steps=2)
    model = replace(wan_catalog.get("t2v"), attention=options)
    family = load(model, mesh="dp=1", cache_dir=cache_dir, on_progress=ignore_progress, stages=TO_LATENTS)
    whole = load_wan("t2v")
    expected = generate(whole, recipe).pixels
    difference = find_difference(whole.decode(recipe, denoise(family, recipe)), expected)
    assert (difference > 2) == is_changed


def test_a_window_gives_the_same_on_a_mesh(
    draw_wan: Callable[..., Recipe],
    assert_same_output: Callable[[Any, Any, Recipe], None],
    wan_catalog: Catalog,
    cache_dir: Path,
) -> None:
    model = replace(wan_catalog.get("t2v"), attention=AttentionOptions(smooths_keys=True, window=3))
    one, several = (
        load(model, mesh=mesh, cache_dir=cache_dir, on_progress=ignore_progress, stages=TO_LATENTS)
        for mesh in ("dp=1", "sp=4")
    )
    assert_same_output(several, one, draw_wan("t2v", steps=2))
