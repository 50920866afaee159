"""However a recipe is spread over devices, it gives the video of one device.

Latents in fp32 are at most 1e-4 apart (relative), pixels at most 2 of 255.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from jax.sharding import AbstractMesh, PartitionSpec

from pipelines.families.wan.programs import lay_out, list_programs
from pipelines.families.wan.sharding import keep_encoder, keep_transformer
from pipelines.generate import generate, generate_together
from pipelines.models.catalog import load_catalog
from pipelines.recipes.recipe import Recipe
from pipelines.registry import choose_sizes_for, describe_parts
from pipelines.runtime.devices.mesh import AXES, build_mesh
from pipelines.runtime.devices.sharding import apply_rules
from pipelines.runtime.programs.compiled import lower
from tests.pipelines.denoising import TO_LATENTS


@pytest.mark.parametrize(
    ("place", "fields"),
    [
        pytest.param(("t2v", "dp=2,tp=4"), {}, id="slices of weights"),
        pytest.param(("wide", "dp=2,sp=2", TO_LATENTS), {"guidance_scale": 1.0}, id="one row on all devices"),
        pytest.param(("experts", "sp=8", TO_LATENTS), {}, id="two experts, tokens alone"),
        pytest.param(("i2v", "dp=2,sp=4"), {"images": ["photo"]}, id="a first picture, guidance pair and tokens"),
        pytest.param(("ti2v", "dp=2,sp=2,tp=2"), {"images": ["photo"]}, id="a picture, tokens and slices"),
    ],
)
def test_a_mesh_gives_the_video_of_one_device(
    load_wan: Callable[..., Any],
    draw_wan: Callable[..., Recipe],
    assert_same_output: Callable[[Any, Any, Recipe], None],
    place: tuple[Any, ...],
    fields: dict[str, Any],
) -> None:
    """The autoencoder's pictures lie on all devices of every mesh, so some do without it."""
    model = place[0]
    assert_same_output(load_wan(*place), load_wan(model), draw_wan(model, **fields))


@pytest.mark.parametrize("model_id", ["wan2.1-1.3b", "wan2.1-14b", "wan2.1-i2v-14b", "wan2.2-a14b", "wan2.2-ti2v-5b"])
def test_a_model_of_the_catalogue_starts_on_any_number_of_devices(model_id: str) -> None:
    """And of a power of two each has its own tokens of the default shape."""
    model = load_catalog().get(model_id)
    parts = describe_parts(model, build_mesh("dp=1"))
    shapes = {
        component: {name: weight.shape for name, weight in parts.weights[component].items()}
        for component in ("transformer", "text_encoder")
    }
    _, frames, height, width = parts.latents_CTHW(model.default_shape)
    tokens = frames * height * width // math.prod(parts.config_of("transformer").patch_size)
    for devices in range(1, 17):
        sizes = choose_sizes_for(model)(devices)
        mesh: Any = AbstractMesh(tuple(sizes.get(axis, 1) for axis in AXES), AXES)
        apply_rules(keep_transformer(parts.config_of("transformer"), mesh), shapes["transformer"], mesh)
        apply_rules(keep_encoder(parts.config_of("text_encoder"), mesh), shapes["text_encoder"], mesh)
        assert mesh.size == devices
        assert tokens % sizes["sp"] == 0 or devices not in (1, 2, 4, 8, 16)


def test_videos_that_run_together_are_what_each_is_alone(
    load_wan: Callable[..., Any], draw_wan: Callable[..., Recipe], find_difference: Callable[..., int]
) -> None:
    family = load_wan("t2v", "dp=2,tp=4")
    recipes = [draw_wan("t2v"), draw_wan("t2v", prompt="an owl", seed=9, fps=4)]
    together = generate_together(family, recipes).pixels
    alone = np.concatenate([generate(family, recipe).pixels for recipe in recipes])
    assert find_difference(together, alone) <= 2
    assert find_difference(together[:1], together[1:]) > 2


def test_weights_are_split_over_tp_and_each_device_holds_its_slice(load_wan: Callable[..., Any]) -> None:
    weights = load_wan("t2v", "dp=2,tp=4").parts.weights
    for component, split_layers in (
        ("transformer", {"to_q", "to_k", "to_v", "to_out", "net"}),
        ("text_encoder", {"q", "k", "v", "o", "wi_0", "wi_1", "wo", "shared"}),
    ):
        split = {name: array for name, array in weights[component].items() if not array.sharding.is_fully_replicated}
        assert all(any(layer in name.split(".") for name in split) for layer in split_layers)
        for name, array in split.items():
            is_kept_in_parts = name == "shared.weight" or ("every_layer" in name and array.ndim == 3)
            parts = 8 if is_kept_in_parts else 4
            assert {shard.data.size for shard in array.addressable_shards} == {array.size // parts}


@pytest.mark.parametrize(
    ("component", "layers"),
    [
        ("transformer", {"to_q", "to_k", "to_v", "0", "proj", "2"}),
        ("text_encoder", {"q", "k", "v", "o", "wi_0", "wi_1", "wo", "relative_attention_bias"}),
    ],
)
def test_of_layers_in_a_stack_a_device_keeps_an_equal_part_over_all_axes(
    load_wan: Callable[..., Any], component: str, layers: set[str]
) -> None:
    family = load_wan("t2v", "dp=2,sp=4")
    matrices = {name: array for name, array in family.parts.weights[component].items() if "every_layer" in name}
    matrices = {name: array for name, array in matrices.items() if name.endswith(".weight") and array.ndim == 3}
    assert {name.split(".")[-2] for name in matrices} == layers
    for array in matrices.values():
        assert {shard.data.size for shard in array.addressable_shards} == {array.size // 8}


def test_what_does_not_divide_is_replicated(load_wan: Callable[..., Any]) -> None:
    weights = load_wan("t2v", "tp=8").parts.weights  # four heads
    assert all(array.sharding.is_fully_replicated for own in weights.values() for array in own.values())


def test_tokens_and_pictures_are_split_between_devices(
    load_wan: Callable[..., Any], draw_wan: Callable[..., Recipe]
) -> None:
    family = load_wan("t2v", "dp=2,sp=4")
    recipe = draw_wan()
    layout = family._choose_layout(recipe.parsed_shape, 1, uses_cfg=True)
    assert layout.tokens.spec == PartitionSpec("dp", "sp")
    assert layout.pictures.spec[3:] == (("dp", "sp", "tp"), None)
    texts = {program.key[0]: lower(program).as_text() for program in list_programs(family.parts, layout)}
    tokens, width = 3 * 4 * 4, 48
    assert f"tensor<2x{tokens}x{width}xf32>" in texts["denoise"]
    layers = [*family.parts.modules["transformer"].module.blocks.children()]
    assert texts["denoise"].count("sharding_constraint") >= len(layers)


@pytest.mark.parametrize(
    ("model_id", "expected"),
    [("wan2.1-14b", {"dp": 1, "sp": 8, "tp": 1}), ("wan2.1-1.3b", {"dp": 2, "sp": 4, "tp": 1})],
)
def test_one_row_lies_on_all_devices_if_its_heads_divide(model_id: str, expected: dict[str, int]) -> None:
    """And nothing else moves: latents, pictures and guided rows lie as ever."""
    model = load_catalog().get(model_id)
    parts = describe_parts(model, build_mesh("dp=2,sp=4"))
    guided, single = (
        lay_out(parts, model.default_shape, batch_size=1, uses_cfg=uses_cfg) for uses_cfg in (True, False)
    )
    assert dict(single.tokens.mesh.shape) == expected
    assert single.tokens.mesh.devices.flatten().tolist() == parts.mesh.devices.flatten().tolist()
    assert guided.tokens.mesh == guided.rows.mesh == parts.mesh
    assert (single.latents, single.pictures) == (guided.latents, guided.pictures)
