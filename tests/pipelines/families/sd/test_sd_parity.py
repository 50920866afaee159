"""Stable Diffusion 1 and 2 give diffusers' own pictures: at most 2 of 255 apart in fp32, on one device and on eight."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pipelines.families.sd.architecture import read_index, spell
from pipelines.generate import generate
from pipelines.recipes.recipe import Recipe
from tests.pipelines.made_loras import RANK, draw_pairs, read_deltas, write_kohya, write_peft
from tests.pipelines.schedulers import choose_scheduler

MAX_DIFFERENCE = 2
LONG = "a red sailboat on the ocean at sunset, a house, " * 10

Draw = Callable[..., Recipe]
Find = Callable[[np.ndarray, np.ndarray], int]


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"model": "sd-one"}, id="1, the scheduler that stands in for its own"),
        pytest.param({"model": "sd-one", "scheduler": "euler_ancestral"}, id="1, noise at each step"),
        pytest.param({"model": "sd-one", "guidance_scale": 1.0, "scheduler": "euler"}, id="1, unguided"),
        pytest.param({"model": "sd-two", "negative_prompt": "a blue house at night"}, id="2, its own scheduler"),
        pytest.param({"model": "sd-two", "scheduler": "dpmpp_2m", "steps": 7}, id="2, two-step rule"),
        pytest.param({"model": "sd-two", "scheduler": "euler"}, id="2, velocities by Euler"),
    ],
)
def test_the_picture_is_diffusers_own(
    load_family: Callable[..., Any],
    draw_recipe: Draw,
    ask_diffusers: Any,
    find_difference: Find,
    fields: dict[str, Any],
) -> None:
    family, recipe = load_family(fields["model"]), draw_recipe(**fields)
    pixels = generate(family, recipe).pixels
    assert find_difference(pixels, ask_diffusers(family.model.path, recipe)) <= MAX_DIFFERENCE
    other = generate(family, draw_recipe(**fields | {"prompt": "a green cactus"})).pixels
    assert find_difference(pixels, other) > 5 * MAX_DIFFERENCE, "the comparison would notice"


def test_it_starts_from_a_picture_as_in_diffusers(
    load_family: Callable[..., Any], draw_recipe: Draw, find_difference: Find, tmp_path: Path
) -> None:
    import torch
    from diffusers import StableDiffusionImg2ImgPipeline

    blots = np.random.default_rng(0).integers(0, 255, (4, 4, 3), np.uint8)
    picture = Image.fromarray(blots).resize((64, 64), Image.Resampling.BICUBIC)
    picture.save(tmp_path / "blots.png")
    family = load_family("sd-two")
    recipe = draw_recipe(model="sd-two", images=[str(tmp_path / "blots.png")], strength=0.5, steps=8)
    pipeline = StableDiffusionImg2ImgPipeline.from_pretrained(family.model.path, dtype=torch.float32)
    pipeline.set_progress_bar_config(disable=True)
    pipeline.scheduler = choose_scheduler(dict(pipeline.scheduler.config), recipe.scheduler)
    expected = pipeline(
        prompt=recipe.prompt,
        image=picture,
        strength=recipe.strength,
        num_inference_steps=recipe.steps,
        guidance_scale=recipe.guidance_scale,
        generator=torch.Generator("cpu").manual_seed(recipe.seed or 0),
        output_type="np",
    ).images
    pixels = generate(family, recipe).pixels
    assert find_difference(pixels, (expected * 255).round().astype(np.uint8)) <= MAX_DIFFERENCE


@pytest.mark.parametrize(
    ("mesh", "fields"),
    [
        pytest.param("dp=2,sp=4", {"model": "sd-one"}, id="1, guidance pair and rows"),
        pytest.param("dp=2,tp=4", {"model": "sd-two"}, id="2, slices of weights"),
    ],
)
def test_eight_devices_give_the_picture_of_one(
    load_family: Callable[..., Any], draw_recipe: Draw, assert_same_output: Any, mesh: str, fields: dict[str, Any]
) -> None:
    model = fields["model"]
    assert_same_output(load_family(model, mesh), load_family(model), draw_recipe(**fields))


@pytest.mark.parametrize("model", ["sd-one", "sd-two"])
def test_loras_are_those_of_merged_weights(
    load_family: Callable[..., Any], borrow: Callable[[Any], Any], draw_recipe: Draw, ask_diffusers: Any, model: str
) -> None:
    family = borrow(load_family(model))
    pairs = draw_pairs(family, "unet", "text_encoder")
    folder = family.model.loras_dir
    write_peft(folder / f"{model}-peft.safetensors", pairs)
    recipe = draw_recipe(model=model, loras=[{"ref": f"{model}-peft", "scale": 0.8}])
    expected = ask_diffusers(family.model.path, recipe, pairs=pairs, scale=0.8)
    assert np.abs(generate(family, recipe).pixels.astype(int) - expected).max() <= MAX_DIFFERENCE
    prefixes = {"unet": "lora_unet_", "text_encoder": "lora_te_text_model_"}
    own = {name: pair for name, pair in pairs.items() if "block" in name or "encoder.layers" in name}
    write_peft(folder / f"{model}-part.safetensors", own)
    doubled = {name: (2 * up, down) for name, (up, down) in own.items()}
    write_kohya(folder / f"{model}-kohya.safetensors", doubled, prefixes=prefixes, alpha=RANK / 2)
    part, kohya = (read_deltas(family, f"{model}-{name}", spell, "unet", "text_encoder") for name in ("part", "kohya"))
    assert {component: {*found} for component, found in kohya.items()} == {
        component: {*found} for component, found in part.items()
    }
    assert {*kohya} == {"unet", "text_encoder"}
    for component, found in part.items():
        for weight, update in found.items():
            np.testing.assert_allclose(kohya[component][weight], update, atol=1e-6, err_msg=weight)


def test_long_prompts_are_read_in_chunks_and_words_are_weighed(
    load_family: Callable[..., Any], draw_recipe: Draw
) -> None:
    family, recipe = load_family("sd-one"), draw_recipe(model="sd-one", prompt=LONG)
    generate(family, draw_recipe(model="sd-one"))  # which compiles the encoder
    embeddings, length = family.encode(recipe), family.parts.text_length
    assert embeddings["prompt_embeds"].shape == (1, family.count_text_chunks(recipe) * length, 32)
    assert family.count_text_chunks(recipe) > 1
    assert {*embeddings} == {*family.embedding_shapes()} == {"prompt_embeds", "negative_prompt_embeds"}
    plain, weighed = (
        family.encode(draw_recipe(model="sd-one", prompt=prompt))["prompt_embeds"]
        for prompt in ("a red sailboat", "a (red:1.4) sailboat")
    )
    assert np.abs(plain - weighed).max() > 0.01


def test_a_safety_checker_is_told_not_to_run_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    index = {"safety_checker": ["stable_diffusion", "StableDiffusionSafetyChecker"]}
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            read_index(tmp_path, index)
        read_index(tmp_path / "other", {"safety_checker": [None, None]})
    assert [record.getMessage() for record in caplog.records] == [
        f"{tmp_path} names a safety checker, which does not run here: pictures come as they are made"
    ]
