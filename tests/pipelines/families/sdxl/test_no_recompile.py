"""After warm-up nothing is built again, whatever people ask for; and one family survives cancelling and unloading."""

import dataclasses
import gc
import json
import random
import shutil
import threading
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
from pipelines.stages import PHASES, Progress, ignore_progress

SUBJECTS = ("a red sailboat", "zwölf Boxkämpfer", "日本の山", "😀", "a house " * 60)


def draw_wishes(count: int) -> list[dict[str, Any]]:
    """Recipes that differ in everything that is not a shape, edges of the ranges included."""
    rng = random.Random(0)
    wishes = [
        {
            "prompt": f"{rng.choice(SUBJECTS)} {index}",
            "negative_prompt": rng.choice(["", "a blue house at night"]),
            "seed": rng.randrange(2**32),
            "steps": rng.randint(1, 12),
            "guidance_scale": rng.choice([0.0, 1.0, 1.5, 4.0, 20.0]),
            "scheduler": rng.choice(["euler", "euler_ancestral", "dpmpp_2m", "ddim"]),
        }
        for index in range(count)
    ]
    wishes[0] |= {"steps": 60, "scheduler": "euler_ancestral", "guidance_scale": 7.5}
    wishes[1] |= {"steps": 1, "scheduler": "dpmpp_2m", "guidance_scale": 1.0}
    wishes[2] |= {"steps": 37, "scheduler": "ddim", "guidance_scale": 0.5}
    return wishes


def test_twenty_different_recipes_build_nothing(family: Any, draw_recipe: Callable[..., Recipe]) -> None:
    for guidance_scale in (1.0, 4.0):
        for prompt in ("a house", "a house " * 60):  # of one encoder length, and of two
            generate(family, draw_recipe(guidance_scale=guidance_scale, prompt=prompt))
    built = counter.built
    for wish in draw_wishes(20):
        previews = []

        def watch(progress: Progress, previews: list[Any] = previews) -> None:
            if progress.draw_preview is not None:
                previews.append(progress.draw_preview())

        outcome = generate(family, draw_recipe(**wish), on_progress=watch)
        assert outcome.compiles == 0
        assert previews[-1].shape == (1, 16, 16, 3)
    assert counter.built == built


def test_batches_of_a_class_share_their_programs(family: Any, draw_recipe: Callable[..., Recipe]) -> None:
    generate(family, draw_recipe(batch_size=4))
    built = counter.built
    assert len(generate(family, draw_recipe(batch_size=3)).pixels) == 3
    assert counter.built == built


def test_phases_come_in_order_and_every_step_is_counted(family: Any, draw_recipe: Callable[..., Recipe]) -> None:
    generate(family, draw_recipe())  # a cold one encodes while it compiles
    seen: list[Progress] = []
    generate(family, draw_recipe(steps=23), on_progress=seen.append)
    order = [PHASES.index(progress.phase) for progress in seen]
    assert order == sorted(order)
    steps = [progress.done for progress in seen if progress.phase == "denoising"]
    assert steps == sorted(set(steps))
    assert steps[-1] == 23


def test_prompts_are_read_while_the_other_programs_get_ready(
    local_catalog: Catalog, draw_recipe: Callable[..., Recipe], cache_dir: Path, family: Any
) -> None:
    from pipelines.registry import load
    from pipelines.runtime.programs.aot_packs import Packs
    from pipelines.runtime.programs.compiled import Program

    release = threading.Event()

    class Held(Packs):
        """Keeps every program but the encoder from being compiled until the prompt was read."""

        def find(self, program: Program, lowered: Any) -> Any:
            return None if program.key[0] == "encode" else lambda: release.wait(60) and None

    recipe, seen = draw_recipe(), []

    def watch(progress: Progress) -> None:
        if not seen or seen[-1].phase != progress.phase:
            seen.append(progress)
        if len(seen) == 3:
            release.set()

    fresh = load(local_catalog.get("tiny"), mesh="dp=1", cache_dir=cache_dir, on_progress=ignore_progress)
    fresh.use_packs(Held([], model_id="tiny", mesh=fresh.parts.mesh))
    outcome = generate(fresh, recipe, on_progress=watch)
    assert [progress.phase for progress in seen] == ["compiling", "encoding", "compiling", "denoising", "decoding"]
    assert seen[1].detail == "while 4 programs get ready"
    assert (outcome.pixels == generate(family, recipe).pixels).all()


def test_a_shape_in_memory_is_warm(family: Any, draw_recipe: Callable[..., Recipe]) -> None:
    recipe = draw_recipe()
    generate(family, recipe)
    assert family.shape_state(recipe.parsed_shape) == "warm"


def test_another_checkpoint_under_the_same_name_is_cold(
    local_catalog: Catalog, draw_recipe: Callable[..., Recipe], cache_dir: Path, family: Any, tmp_path: Path
) -> None:
    from pipelines.registry import load

    recipe = draw_recipe()
    generate(family, recipe)
    model = local_catalog.get("tiny")
    assert model.path is not None
    folder = tmp_path / "tiny"
    shutil.copytree(model.path, folder)
    config = folder / "unet" / "config.json"
    states = []
    for content in (config.read_text("utf-8"), json.dumps(json.loads(config.read_text("utf-8")) | {"note": "another"})):
        config.write_text(content, "utf-8")
        copy = dataclasses.replace(model, path=folder)
        other = load(copy, mesh="dp=1", cache_dir=cache_dir, on_progress=ignore_progress)
        states.append(other.shape_state(recipe.parsed_shape))
        other.unload()
    assert states == ["disk", "cold"]


def test_cancelling_ends_denoising_and_the_family_goes_on(family: Any, draw_recipe: Callable[..., Recipe]) -> None:
    recipe = draw_recipe(steps=40)
    before = generate(family, recipe).pixels

    def cancel(progress: Progress) -> None:
        if progress.phase == "denoising":
            raise Cancelled

    with pytest.raises(Cancelled):
        generate(family, recipe, on_progress=cancel)
    assert (generate(family, recipe).pixels == before).all()


def test_an_unloaded_model_leaves_nothing_and_loads_again_from_disk(
    local_catalog: Catalog, draw_recipe: Callable[..., Recipe], cache_dir: Path, family: Any
) -> None:
    from pipelines.registry import load

    recipe = draw_recipe()
    expected = generate(family, recipe).pixels
    gc.collect()  # or what earlier tests left would go in the middle of this one
    baseline = count_live_bytes()
    other = load(local_catalog.get("tiny"), mesh="dp=1", cache_dir=cache_dir, on_progress=ignore_progress)
    assert other.shape_state(recipe.parsed_shape) == "disk"
    compiled = counter.compiled
    assert (generate(other, recipe).pixels == expected).all()
    assert counter.compiled == compiled
    assert count_live_bytes() > baseline
    other.unload()
    assert count_live_bytes() == baseline
    assert (generate(family, recipe).pixels == expected).all()
