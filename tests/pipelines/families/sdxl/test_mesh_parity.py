"""However a recipe is spread over devices, it gives the picture of one device.

Latents in fp32 are at most 1e-4 apart (relative), pixels at most 2 of 255.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

from pipelines.generate import generate, generate_together
from pipelines.models.catalog import load_catalog
from pipelines.recipes.recipe import Recipe
from pipelines.registry import choose_sizes_for, describe_parts
from pipelines.runtime.devices.mesh import build_mesh
from tests.pipelines.denoising import TO_LATENTS

SLICES: dict[str, Any] = {"mesh": "dp=2,tp=4", "stages": TO_LATENTS}


@pytest.mark.parametrize(
    ("place", "fields"),
    [
        pytest.param({"mesh": "dp=2,sp=4"}, {}, id="guidance pair and rows"),
        pytest.param({"mesh": "dp=8"}, {"batch_size": 4, "scheduler": "euler_ancestral"}, id="four guided pictures"),
        pytest.param(SLICES, {}, id="slices of weights"),
        pytest.param({"mesh": "sp=8", "stages": TO_LATENTS}, {"guidance_scale": 1.0}, id="rows alone"),
        pytest.param({"mesh": "dp=2,sp=4"}, {"guidance_scale": 1.0}, id="one row on all devices"),
        pytest.param({"mesh": "dp=2,sp=2,tp=2"}, {}, id="all at once"),
    ],
)
def test_a_mesh_gives_the_picture_of_one_device(
    load_family: Callable[..., Any],
    draw_recipe: Callable[..., Recipe],
    assert_same_output: Callable[[Any, Any, Recipe], None],
    place: dict[str, Any],
    fields: dict[str, Any],
) -> None:
    assert_same_output(load_family(**place), load_family(), draw_recipe(**fields))


def test_a_unet_with_fewer_rows_in_its_middle_than_devices_gives_the_picture_of_one(
    load_family: Callable[..., Any],
    draw_recipe: Callable[..., Recipe],
    assert_same_output: Callable[[Any, Any, Recipe], None],
) -> None:
    """Rows of its latents divide among the devices, but are halved twice: four rows would lie on eight devices."""
    recipe = draw_recipe(model="middle", steps=1, guidance_scale=1.0)
    assert_same_output(load_family("middle", mesh="sp=8", stages=TO_LATENTS), load_family("middle"), recipe)


def test_pictures_of_the_catalogue_are_spread_over_any_power_of_two() -> None:
    model = load_catalog().get("sdxl-base")
    parts = describe_parts(model, build_mesh("dp=1"))
    for devices in (1, 2, 4, 8, 16):
        sizes = choose_sizes_for(model)(devices)
        assert sizes["dp"] * sizes["sp"] == devices
        assert not any(parts.latents_CHW(shape)[1] % sizes["sp"] for shape in model.shapes)


def test_weights_are_split_over_tp_and_each_device_holds_its_slice(load_family: Callable[..., Any]) -> None:
    weights = load_family(**SLICES).parts.weights["unet"]
    split = {name: array for name, array in weights.items() if not array.sharding.is_fully_replicated}
    assert {name.rsplit(".", 2)[-2] for name in split} >= {"to_q", "to_k", "to_v", "proj", "2", "0"}
    for array in split.values():
        assert {shard.data.size for shard in array.addressable_shards} == {array.size // 4}


def test_latents_are_spread_over_the_devices(
    load_family: Callable[..., Any], draw_recipe: Callable[..., Recipe]
) -> None:
    family = load_family(mesh="dp=2,sp=4")
    recipe = draw_recipe()
    generate(family, recipe)
    latents = family.denoise(recipe, family.encode(recipe), on_progress=lambda _progress: None)
    rows = {shard.data.shape[2] for shard in latents.addressable_shards}
    assert (len(latents.sharding.device_set), rows) == (jax.device_count(), {latents.shape[2] // 4})


def test_recipes_that_run_together_on_a_throughput_mesh_give_what_each_gives_alone(
    load_family: Callable[..., Any], draw_recipe: Callable[..., Recipe], find_difference: Callable[..., int]
) -> None:
    many, single = load_family(mesh="throughput"), load_family()
    assert (many.outputs_at_once, single.outputs_at_once) == (8, 1)
    ancestral = {"scheduler": "euler_ancestral"}  # a draw of each row's own at every step
    recipes = [
        draw_recipe(**ancestral),
        draw_recipe(prompt="a bridge in the rain", negative_prompt="people", seed=40, batch_size=2, **ancestral),
        draw_recipe(prompt="an owl", seed=9, **ancestral),
    ]
    together = generate_together(many, recipes).pixels
    alone = np.concatenate([generate(single, recipe).pixels for recipe in recipes])
    assert find_difference(together, alone) <= 2
    assert find_difference(together[:1], together[3:]) > 20
    assert generate(many, recipes[0]).compiles == 0, "a job alone runs the same programs"
