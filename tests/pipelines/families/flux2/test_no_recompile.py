"""After warm-up nothing is built again, whatever people ask for."""

import gc
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pipelines.errors import Cancelled
from pipelines.generate import generate
from pipelines.models.catalog import Catalog
from pipelines.recipes.recipe import Recipe
from pipelines.runtime.devices.memory import count_live_bytes
from pipelines.runtime.programs.compiled import counter
from pipelines.stages import PHASES, Progress, ignore_progress

SUBJECTS = ("a red boat", "zwölf Boxkämpfer", "日本の山", "😀", "a house " * 60, "")


def draw_wishes(count: int) -> list[dict[str, Any]]:
    """Recipes that differ in everything that is not a shape, edges of the ranges included."""
    rng = random.Random(0)
    wishes = [
        {
            "prompt": f"{rng.choice(SUBJECTS)} {index}",
            "negative_prompt": rng.choice(["", "a blue house at night"]),
            "seed": rng.randrange(2**32),
            "steps": rng.randint(1, 3),
            "guidance_scale": rng.choice([0.0, 1.0, 1.5, 4.0, 20.0]),
        }
        for index in range(count)
    ]
    wishes[0] |= {"steps": 30, "guidance_scale": 7.5}
    return wishes


@pytest.mark.parametrize("model", ["klein", "dev"])
def test_twenty_different_recipes_build_nothing(
    load_flux2: Callable[..., Any], draw_recipe: Callable[..., Recipe], model: str
) -> None:
    family = load_flux2(model)
    for guidance_scale in (1.0, 4.0):
        generate(family, draw_recipe(model=model, guidance_scale=guidance_scale))
    built = counter.built
    for wish in draw_wishes(20):
        assert generate(family, draw_recipe(model=model, **wish)).compiles == 0
    assert counter.built == built


def test_a_distilled_model_has_one_program_whatever_the_guidance(
    load_flux2: Callable[..., Any], draw_recipe: Callable[..., Recipe]
) -> None:
    family = load_flux2("distilled")
    guided, plain = (generate(family, draw_recipe(model="distilled", guidance_scale=scale)) for scale in (4.0, 1.0))
    assert plain.compiles == 0
    assert (plain.pixels == guided.pixels).all()


def test_phases_come_in_order_and_every_step_is_counted(
    load_flux2: Callable[..., Any], draw_recipe: Callable[..., Recipe]
) -> None:
    generate(load_flux2(), draw_recipe())  # a cold one encodes while it compiles
    seen: list[Progress] = []
    generate(load_flux2(), draw_recipe(steps=23), on_progress=seen.append)
    order = [PHASES.index(progress.phase) for progress in seen]
    assert order == sorted(order)
    steps = [progress.done for progress in seen if progress.phase == "denoising"]
    assert steps == sorted(set(steps))
    assert steps[-1] == 23


def test_the_last_preview_is_the_picture_small(
    load_flux2: Callable[..., Any], draw_recipe: Callable[..., Recipe]
) -> None:
    """The map was learnt from the first picture decoded, and learning it compiled nothing."""
    family = load_flux2()
    generate(family, draw_recipe())
    previews: list[Any] = []

    def watch(progress: Progress) -> None:
        if progress.draw_preview is not None:
            previews.append(progress.draw_preview())

    outcome = generate(family, draw_recipe(), on_progress=watch)
    assert outcome.compiles == 0
    small = outcome.pixels[0].reshape(16, 4, 16, 4, 3).mean((1, 3))
    closeness = np.corrcoef(previews[-1][0].ravel(), small.ravel())[0, 1]
    assert closeness > 0.6


def test_cancelling_ends_denoising_and_the_family_goes_on(
    load_flux2: Callable[..., Any], draw_recipe: Callable[..., Recipe]
) -> None:
    family, recipe = load_flux2(), draw_recipe(steps=40)
    before = generate(family, recipe).pixels

    def cancel(progress: Progress) -> None:
        if progress.phase == "denoising":
            raise Cancelled

    with pytest.raises(Cancelled):
        generate(family, recipe, on_progress=cancel)
    assert (generate(family, recipe).pixels == before).all()


def test_an_unloaded_model_leaves_nothing_and_loads_again_from_disk(
    flux2_catalog: Catalog,
    load_flux2: Callable[..., Any],
    draw_recipe: Callable[..., Recipe],
    cache_dir: Any,
) -> None:
    from pipelines.registry import load

    recipe = draw_recipe()
    expected = generate(load_flux2(), recipe).pixels
    gc.collect()
    baseline = count_live_bytes()
    other = load(flux2_catalog.get("klein"), mesh="dp=1", cache_dir=cache_dir, on_progress=ignore_progress)
    assert other.shape_state(recipe.parsed_shape) == "disk"
    compiled = counter.compiled
    assert (generate(other, recipe).pixels == expected).all()
    assert counter.compiled == compiled
    other.unload()
    assert count_live_bytes() == baseline
