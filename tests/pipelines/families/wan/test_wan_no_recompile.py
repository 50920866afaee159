"""After warm-up nothing is built again, whatever people ask for; and a Wan survives cancelling and unloading."""

import gc
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipelines.errors import Cancelled
from pipelines.generate import generate
from pipelines.models.catalog import Catalog
from pipelines.recipes.recipe import Recipe
from pipelines.runtime.devices.memory import count_live_bytes
from pipelines.runtime.programs.compiled import counter
from pipelines.stages import Progress, ignore_progress

SUBJECTS = ("a red sailboat", "zwölf Boxkämpfer", "日本の山", "😀", "a house " * 60)
Draw = Callable[..., Recipe]


def draw_wishes(count: int, *, takes_pictures: bool) -> list[dict[str, Any]]:
    """Recipes that differ in everything that is not a shape, edges of the ranges included."""
    rng = random.Random(0)
    wishes = [
        {
            "prompt": f"{rng.choice(SUBJECTS)} {index}",
            "negative_prompt": rng.choice(["", "a blue house at night"]),
            "seed": rng.randrange(2**32),
            "steps": rng.randint(1, 12),
            "guidance_scale": rng.choice([0.0, 1.0, 1.5, 4.0, 20.0]),
            "scheduler": rng.choice(["unipc", "flow_match_euler"]),
            "flow_shift": rng.choice([1.0, 3.0, 5.0, 12.0]),
            "images": ["photo"] if takes_pictures and rng.random() < 0.5 else [],
        }
        for index in range(count)
    ]
    wishes[0] |= {"steps": 60, "guidance_scale": 7.5}
    wishes[1] |= {"steps": 1, "guidance_scale": 1.0}
    return wishes


@pytest.mark.parametrize("model", ["experts", "ti2v"])
def test_many_different_recipes_build_nothing(load_wan: Callable[..., Any], draw_wan: Draw, model: str) -> None:
    family = load_wan(model)
    generate(family, draw_wan(model))
    built = counter.built
    for wish in draw_wishes(12, takes_pictures=model == "ti2v"):
        previews = []

        def watch(progress: Progress, previews: list[Any] = previews) -> None:
            if progress.draw_preview is not None:
                previews.append(progress.draw_preview())

        recipe = draw_wan(model, **wish)
        outcome = generate(family, recipe, on_progress=watch)
        assert outcome.compiles == 0
        assert outcome.pixels.shape == (1, 9, 32, 32, 3)
        _, frames, height, width = family.latents_shape(recipe.parsed_shape)
        assert previews[-1].shape == (1, frames, 2 * height, 2 * width, 3)
    assert counter.built == built


def test_every_step_is_counted_across_both_experts(load_wan: Callable[..., Any], draw_wan: Draw) -> None:
    seen: list[Progress] = []
    generate(load_wan("experts"), draw_wan("experts", steps=23), on_progress=seen.append)
    steps = [progress.done for progress in seen if progress.phase == "denoising"]
    assert steps == sorted(set(steps))
    assert steps[-1] == 23


def test_cancelling_ends_denoising_and_the_family_goes_on(load_wan: Callable[..., Any], draw_wan: Draw) -> None:
    family, recipe = load_wan(), draw_wan(steps=40)
    before = generate(family, recipe).pixels

    def cancel(progress: Progress) -> None:
        if progress.phase == "denoising":
            raise Cancelled

    with pytest.raises(Cancelled):
        generate(family, recipe, on_progress=cancel)
    assert (generate(family, recipe).pixels == before).all()


def test_an_unloaded_model_leaves_nothing_and_loads_again_from_disk(
    wan_catalog: Catalog, load_wan: Callable[..., Any], draw_wan: Draw, cache_dir: Path
) -> None:
    from pipelines.registry import load

    recipe = draw_wan()
    expected = generate(load_wan(), recipe).pixels
    gc.collect()
    baseline = count_live_bytes()
    other = load(wan_catalog.get("t2v"), mesh="dp=1", cache_dir=cache_dir, on_progress=ignore_progress)
    assert other.shape_state(recipe.parsed_shape) == "disk"
    compiled = counter.compiled
    assert (generate(other, recipe).pixels == expected).all()
    assert counter.compiled == compiled
    assert other.shape_state(recipe.parsed_shape) == "warm"
    assert count_live_bytes() > baseline
    other.unload()
    assert count_live_bytes() == baseline
