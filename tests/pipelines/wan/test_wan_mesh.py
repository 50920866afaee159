"""However a recipe is spread over devices, it gives the video of one device: at most 2 of 255 apart."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from jax.sharding import PartitionSpec

from pipelines.generate import generate
from pipelines.recipe import Recipe
from pipelines.runtime.compiled import lower
from pipelines.wan.programs import list_programs

MAX_DIFFERENCE = 2


@pytest.mark.parametrize(
    ("place", "fields"),
    [
        pytest.param(("t2v", "dp=2,sp=4"), {}, id="guidance pair and tokens"),
        pytest.param(("ti2v", "dp=2,sp=2,tp=2"), {"images": ["photo"]}, id="a picture, tokens and slices"),
    ],
)
def test_a_mesh_gives_the_video_of_one_device(
    load_wan: Callable[..., Any],
    draw_wan: Callable[..., Recipe],
    find_difference: Callable[[np.ndarray, np.ndarray], int],
    place: tuple[str, str],
    fields: dict[str, Any],
) -> None:
    model, mesh = place
    recipe = draw_wan(model, **fields)
    sharded = generate(load_wan(model, mesh), recipe)
    assert find_difference(sharded.pixels, generate(load_wan(model), recipe).pixels) <= MAX_DIFFERENCE


def test_weights_are_split_over_tp_and_each_device_holds_its_slice(load_wan: Callable[..., Any]) -> None:
    weights = load_wan("t2v", "dp=2,tp=4").parts.weights
    for component, split_layers in (
        ("transformer", {"to_q", "to_k", "to_v", "to_out", "net"}),
        ("text_encoder", {"q", "k", "v", "o", "wi_0", "wi_1", "wo", "shared"}),
    ):
        split = {name: array for name, array in weights[component].items() if not array.sharding.is_fully_replicated}
        assert all(any(layer in name.split(".") for name in split) for layer in split_layers)
        for array in split.values():
            assert {shard.data.size for shard in array.addressable_shards} == {array.size // 4}


def test_what_does_not_divide_is_replicated(load_wan: Callable[..., Any]) -> None:
    weights = load_wan("t2v", "tp=8").parts.weights  # four heads
    assert all(array.sharding.is_fully_replicated for own in weights.values() for array in own.values())


def test_tokens_and_pictures_are_split_between_devices(
    load_wan: Callable[..., Any], draw_wan: Callable[..., Recipe]
) -> None:
    family = load_wan("t2v", "dp=2,sp=4")
    recipe = draw_wan()
    layout = family._choose_layout(recipe.parsed_shape, 1, uses_cfg=True)
    assert (layout.tokens.spec, layout.pictures.spec[-1]) == (PartitionSpec("dp", "sp"), ("dp", "sp", "tp"))
    texts = {program.key[0]: lower(program).as_text() for program in list_programs(family.parts, layout)}
    tokens, width = 3 * 4 * 4, 48
    assert f"tensor<2x{tokens}x{width}xf32>" in texts["denoise"]
    assert texts["denoise"].count("sharding_constraint") >= family.parts.config_of("transformer").num_layers
