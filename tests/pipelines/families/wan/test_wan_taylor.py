"""A Wan with TaylorSeer gives the video of diffusers' own hook in its lite mode; strengths build nothing."""

from collections.abc import Callable
from typing import Any

import numpy as np

from pipelines.generate import generate
from pipelines.recipes.recipe import Recipe
from pipelines.recipes.taylor import Foresight
from pipelines.runtime.programs.compiled import counter
from tests.pipelines.families.wan.test_wan_step_cache import FIRST_STEPS, MAX_DIFFERENCE, STEPS, ask_diffusers
from tests.pipelines.taylor import configure, foresee

Draw = Callable[..., Recipe]


def test_foreseen_steps_give_diffusers_own_video_and_strengths_build_nothing(
    load_wan: Callable[..., Any], draw_wan: Draw, find_difference: Callable[[np.ndarray, np.ndarray], int]
) -> None:
    family, plain = load_wan("t2v"), draw_wan("t2v", steps=STEPS)
    before = generate(family, plain).pixels
    expected = ask_diffusers(family.model.path, plain, transformer=configure())
    made = generate(family, foresee(plain)).pixels
    assert find_difference(made, expected) <= MAX_DIFFERENCE
    assert find_difference(made, before) > MAX_DIFFERENCE, "or nothing was foreseen"
    built = counter.built
    every_step = generate(family, foresee(plain, foresight=Foresight(interval=1, first=1))).pixels
    assert find_difference(every_step, before) <= 1
    assert np.array_equal(generate(family, plain).pixels, before)
    assert counter.built == built


def test_each_expert_foresees_from_its_own_steps_only(
    load_wan: Callable[..., Any], draw_wan: Draw, find_difference: Callable[[np.ndarray, np.ndarray], int]
) -> None:
    family = load_wan("experts")
    plain = draw_wan("experts", steps=STEPS, guidance_scale=1.0)
    expected = ask_diffusers(family.model.path, plain, transformer=configure(), transformer_2=configure())
    recipe = foresee(plain, FIRST_STEPS, STEPS - FIRST_STEPS)
    assert find_difference(generate(family, recipe).pixels, expected) <= MAX_DIFFERENCE


def test_a_mesh_foresees_as_one_device_does(
    load_wan: Callable[..., Any], draw_wan: Draw, find_difference: Callable[[np.ndarray, np.ndarray], int]
) -> None:
    recipe = foresee(draw_wan("t2v", steps=STEPS))
    one, many = (generate(load_wan("t2v", place), recipe).pixels for place in ("dp=1", "dp=2,sp=2,tp=2"))
    assert find_difference(one, many) <= 2
