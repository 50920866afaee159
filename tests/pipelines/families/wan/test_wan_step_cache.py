"""A Wan with a step cache gives the video of diffusers' own MagCache, and builds nothing between strengths."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import MagCacheConfig, WanPipeline

from pipelines.generate import generate
from pipelines.recipes.recipe import Recipe
from pipelines.recipes.step_cache import StepCache, Strength
from pipelines.runtime.programs.compiled import counter
from pipelines.stages import ignore_progress

MAX_DIFFERENCE = 3
STRENGTH = Strength.parse("0.3,2,0.2")
STEPS = 8
FIRST_STEPS = 4  # of the first expert, at a boundary ratio of 0.8 and a shift of 3
Draw = Callable[..., Recipe]


def fill_ratios(steps: int, ratio: float) -> list[float]:
    return [1.0, *[ratio] * (steps - 1)]


def reuse(recipe: Recipe, *ratios: Sequence[float]) -> Recipe:
    """The recipe with the steps that these ratios make reusable, of one expert after the other."""
    reused: list[int] = []
    start = 0
    for own in ratios:
        cache = StepCache(ratios=(tuple(own),), mild=STRENGTH, strong=STRENGTH)
        reused += [start + step for step in cache.list_reused(STRENGTH, steps=len(own))]
        start += len(own)
    assert start == recipe.steps
    assert reused
    return recipe.model_copy(update={"step_cache": str(STRENGTH), "reused_steps": tuple(reused)})


def ask_diffusers(folder: Path, recipe: Recipe, **caches: Any) -> np.ndarray:
    """The video of diffusers' pipeline, whose transformers named in `caches` have its own hook."""
    torch.set_num_threads(1)
    pipeline: Any = WanPipeline.from_pretrained(folder, dtype=torch.float32)
    pipeline.set_progress_bar_config(disable=True)
    for name, config in caches.items():
        getattr(pipeline, name).enable_cache(config)
    shape = recipe.parsed_shape
    videos = pipeline(
        prompt=recipe.prompt,
        negative_prompt=recipe.negative_prompt,
        width=shape.width,
        height=shape.height,
        num_frames=shape.frames,
        num_inference_steps=recipe.steps,
        guidance_scale=recipe.guidance_scale,
        generator=torch.Generator("cpu").manual_seed(recipe.seed or 0),
    ).frames
    return (videos * 255).round().astype(np.uint8)


def configure(ratios: Sequence[float], **options: Any) -> MagCacheConfig:
    return MagCacheConfig(
        threshold=STRENGTH.threshold,
        max_skip_steps=STRENGTH.most,
        retention_ratio=STRENGTH.retention,
        num_inference_steps=len(ratios),
        mag_ratios=torch.tensor(ratios),
        **options,
    )


def test_reused_steps_give_diffusers_own_video(
    load_wan: Callable[..., Any], draw_wan: Draw, find_difference: Callable[[np.ndarray, np.ndarray], int]
) -> None:
    family, ratios = load_wan("t2v"), fill_ratios(STEPS, 0.95)
    plain = draw_wan("t2v", steps=STEPS)
    expected = ask_diffusers(family.model.path, plain, transformer=configure(ratios))
    made = generate(family, reuse(plain, ratios)).pixels
    assert find_difference(made, expected) <= MAX_DIFFERENCE
    assert find_difference(made, generate(family, plain).pixels) > MAX_DIFFERENCE, "or nothing was reused"


def test_each_expert_reuses_its_own_steps_only(
    load_wan: Callable[..., Any], draw_wan: Draw, find_difference: Callable[[np.ndarray, np.ndarray], int]
) -> None:
    family = load_wan("experts")
    plain = draw_wan("experts", steps=STEPS, guidance_scale=1.0)
    first, second = fill_ratios(FIRST_STEPS, 0.97), fill_ratios(STEPS - FIRST_STEPS, 0.96)
    expected = ask_diffusers(family.model.path, plain, transformer=configure(first), transformer_2=configure(second))
    recipe = reuse(plain, first, second)
    assert find_difference(generate(family, recipe).pixels, expected) <= MAX_DIFFERENCE
    wrong = recipe.model_copy(update={"reused_steps": (*recipe.reused_steps, FIRST_STEPS)})
    assert np.array_equal(generate(family, wrong).pixels, generate(family, recipe).pixels), "its first is computed"


def test_strengths_build_nothing_and_off_stays_what_it_was(load_wan: Callable[..., Any], draw_wan: Draw) -> None:
    family, plain = load_wan("t2v"), draw_wan("t2v", steps=STEPS)
    before = generate(family, plain).pixels
    generate(family, reuse(plain, fill_ratios(STEPS, 0.95)))
    built = counter.built
    for ratio in (0.9, 0.95, 0.99):
        generate(family, reuse(plain, fill_ratios(STEPS, ratio)))
    assert np.array_equal(generate(family, plain).pixels, before)
    assert counter.built == built


def test_a_mesh_reuses_as_one_device_does(
    load_wan: Callable[..., Any],
    draw_wan: Draw,
    find_difference: Callable[[np.ndarray, np.ndarray], int],
) -> None:
    recipe = reuse(draw_wan("t2v", steps=STEPS), fill_ratios(STEPS, 0.95))
    one, many = (generate(load_wan("t2v", place), recipe).pixels for place in ("dp=1", "dp=2,sp=2,tp=2"))
    assert find_difference(one, many) <= 2


def test_calibrating_finds_the_ratios_that_diffusers_finds(
    load_wan: Callable[..., Any], draw_wan: Draw, capsys: pytest.CaptureFixture[str]
) -> None:
    family, recipe = load_wan("t2v"), draw_wan("t2v", steps=STEPS)
    ask_diffusers(family.model.path, recipe, transformer=MagCacheConfig(calibrate=True, num_inference_steps=STEPS))
    printed = [line for line in capsys.readouterr().out.splitlines() if line.startswith("[1.0,")]
    expected = [float(ratio) for ratio in printed[0].strip("[]").split(",")]  # of the prompt; the negative one follows
    (found,) = family.find_ratios(recipe, on_progress=ignore_progress)
    np.testing.assert_allclose(found, expected, rtol=2e-3)
