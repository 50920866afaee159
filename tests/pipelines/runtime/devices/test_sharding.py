"""Sharding rules are data that must fit: no weight without a rule, no rule without a weight, no uneven split.

The families' own rules are held against full-size models, built without memory.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

import jax
import pytest
from diffusers import UNet2DConditionModel
from jax.sharding import PartitionSpec as P

from pipelines.families.flux2 import sharding as flux2
from pipelines.families.language_model import make_text_rules
from pipelines.families.unet.sharding import UNET_RULES
from pipelines.families.wan import sharding as wan
from pipelines.models.catalog import load_catalog
from pipelines.registry import describe_parts
from pipelines.runtime.bridge.modules import TracedModule, parameters_on_meta
from pipelines.runtime.devices.mesh import build_mesh
from pipelines.runtime.devices.sharding import (
    Rules,
    ShardingRuleError,
    apply_rules,
    batch_class,
    count_at_once,
)

# unet/config.json of stabilityai/stable-diffusion-xl-base-1.0
SDXL_BASE_UNET = {
    "sample_size": 128,
    "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
    "up_block_types": ("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
    "block_out_channels": (320, 640, 1280),
    "layers_per_block": 2,
    "transformer_layers_per_block": (1, 2, 10),
    "attention_head_dim": (5, 10, 20),
    "cross_attention_dim": 2048,
    "addition_embed_type": "text_time",
    "addition_time_embed_dim": 256,
    "projection_class_embeddings_input_dim": 2816,
    "use_linear_projection": True,
}

Shapes = Mapping[str, tuple[int, ...]]


@pytest.fixture(scope="module")
def base_shapes() -> Shapes:
    with parameters_on_meta():
        return TracedModule(UNet2DConditionModel(**SDXL_BASE_UNET)).parameter_shapes()


def find_unused_rules(rules: Rules, shapes: Mapping[str, tuple[int, ...]]) -> list[str]:
    """Patterns that win no weight: typing mistakes, or rules hidden by an earlier one."""
    used = set()
    for name in shapes:
        used.add(next((pattern for pattern, _ in rules if re.search(pattern, name)), None))
    return [pattern for pattern, _ in rules if pattern not in used]


def test_the_first_rule_that_matches_wins() -> None:
    rules = ((r"\.weight$", P("tp")), (r"", P()))
    shardings = apply_rules(rules, {"a.weight": (8,), "a.bias": (8,)}, build_mesh("tp=4"))
    assert {name: sharding.spec for name, sharding in shardings.items()} == {"a.weight": P("tp"), "a.bias": P()}


def test_a_stack_is_placed_like_each_of_its_layers() -> None:
    shapes = {"blocks.every_layer.weight": (3, 8, 2), "blocks.0.weight": (8, 2)}
    shardings = apply_rules(((r"\.weight$", P("tp", None)),), shapes, build_mesh("tp=4"))
    assert [sharding.spec for sharding in shardings.values()] == [P(None, "tp", None), P("tp", None)]


def test_a_weight_without_a_rule_is_refused() -> None:
    with pytest.raises(ShardingRuleError, match=r"no sharding rule names a\.bias \(8,\)"):
        apply_rules(((r"\.weight$", P("tp")),), {"a.weight": (8,), "a.bias": (8,)}, build_mesh("tp=4"))


@pytest.mark.parametrize("spec", [P("tp"), P(("dp", "tp"))])
def test_an_uneven_split_is_refused(spec: P) -> None:
    with pytest.raises(ShardingRuleError, match=r"a \(6, 2\) does not divide"):
        apply_rules(((r"", spec),), {"a": (6, 2)}, build_mesh("dp=2,tp=4"))


def test_rules_that_win_nothing_are_found() -> None:
    rules = ((r"\.weight$", P("tp")), (r"\.wieght$", P()), (r"^a\.weight$", P()), (r"", P()))
    assert find_unused_rules(rules, {"a.weight": (8,), "a.bias": (8,)}) == [r"\.wieght$", r"^a\.weight$"]


def test_the_full_size_unet_uses_every_rule(base_shapes: Shapes) -> None:
    assert sum(map(math.prod, base_shapes.values())) == 2_567_463_684  # as published
    assert find_unused_rules(UNET_RULES, base_shapes) == []


@pytest.mark.parametrize("model_id", ["flux2-klein-4b", "flux2-dev"])
def test_full_size_flux2_uses_every_rule(model_id: str) -> None:
    mesh = build_mesh("tp=2", devices=jax.devices()[:2])
    modules = describe_parts(load_catalog().get(model_id), mesh).modules
    encoder = modules["text_encoder"]
    assert find_unused_rules(flux2.TRANSFORMER_RULES, modules["transformer"].parameter_shapes()) == []
    assert find_unused_rules(make_text_rules(encoder.module.config, mesh), encoder.parameter_shapes()) == []


@pytest.mark.parametrize("model_id", ["wan2.1-1.3b", "wan2.1-i2v-14b"])
def test_full_size_wan_uses_every_rule(model_id: str) -> None:
    """What runs and what is kept: of the latter the rules for stacks alone, which hide some of the others."""
    mesh = build_mesh("dp=2,sp=2,tp=2")
    modules = describe_parts(load_catalog().get(model_id), mesh).modules
    for name, run, keep in (
        ("transformer", wan.choose_transformer_rules, wan.keep_transformer),
        ("text_encoder", wan.choose_encoder_rules, wan.keep_encoder),
    ):
        config, shapes = modules[name].module.config, modules[name].parameter_shapes()
        assert find_unused_rules(run(config, 2), shapes) == []
        of_stacks = keep(config, mesh)[: -len(run(config, 2))]
        assert of_stacks
        assert find_unused_rules(of_stacks, shapes) == []


@pytest.mark.parametrize("mesh", ["tp=2", "tp=4", "tp=8", "dp=2,tp=4"])
def test_the_full_size_unet_divides_over_the_mesh(base_shapes: Shapes, mesh: str) -> None:
    assert apply_rules(UNET_RULES, base_shapes, build_mesh(mesh)).keys() == base_shapes.keys()


def test_no_large_matrix_of_the_full_size_unet_is_replicated_by_accident(base_shapes: Shapes) -> None:
    """Attention and feed-forward hold most weights; what stays whole are convolutions and what feeds them."""
    shardings = apply_rules(UNET_RULES, base_shapes, build_mesh("tp=8"))
    whole = {name: math.prod(shape) for name, shape in base_shapes.items() if shardings[name].is_fully_replicated}
    in_transformers = {name for name, size in whole.items() if ".transformer_blocks." in name and size > 100_000}
    assert in_transformers == set()
    kinds = ("conv", "proj_in", "proj_out", "time_emb", "add_embedding", "time_embedding")
    assert [name for name, size in whole.items() if size > 1_000_000 and not any(kind in name for kind in kinds)] == []


@pytest.mark.parametrize(("images", "rows"), [(1, 1), (2, 2), (3, 4), (4, 4), (5, 8), (8, 8)])
def test_few_programs_serve_every_batch(images: int, rows: int) -> None:
    assert batch_class(images) == rows


@dataclass(frozen=True)
class Batch:
    row_count: int


@pytest.mark.parametrize(
    ("mesh", "rows_each", "outputs"),
    [
        ("dp=8", 2, 8),
        ("dp=4,sp=2", 2, 4),
        ("dp=2,sp=4", 1, 2),
        ("dp=2,sp=4", 2, 1),  # the branches of guidance have both halves of the devices
        ("sp=8", 2, 1),
    ],
)
def test_as_many_outputs_at_once_as_cost_no_more_than_one(mesh: str, rows_each: int, outputs: int) -> None:
    def lay_out(count: int) -> Batch:
        return Batch(rows_each * batch_class(count))

    assert count_at_once(build_mesh(mesh), lay_out) == outputs


def test_devices_that_a_batch_does_not_divide_over_make_one_output() -> None:
    assert (
        count_at_once(build_mesh("dp=6", devices=jax.devices()[:6]), lambda count: Batch(2 * batch_class(count))) == 1
    )
