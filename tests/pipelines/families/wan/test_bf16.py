"""On accelerators the transformer computes in bf16, with the few weights in fp32 that diffusers keeps so."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pipelines.families.wan.family import WanFamily
from pipelines.families.wan.load import list_precise
from pipelines.families.wan.parts import Parts
from pipelines.families.wan.sharding import REPLICATED
from pipelines.recipes.recipe import Recipe
from pipelines.runtime.devices.mesh import build_mesh
from pipelines.runtime.weights.components import describe_component, load_component
from pipelines.stages import ignore_progress


@pytest.fixture
def bf16_parts(load_wan: Callable[..., Any]) -> Parts:
    """The tiny Wan as an accelerator would hold it."""
    family = load_wan()
    folder = family.model.path / "transformer"
    weights = {
        name: value if name.startswith("rope") else value.astype(jnp.bfloat16)
        for name, value in family.parts.weights["transformer"].items()
    }
    module = family.parts.modules["transformer"]
    weights |= load_component(
        folder,
        module,
        mesh=build_mesh("dp=1"),
        rules=REPLICATED,
        dtype=jnp.float32,
        variant="",
        on_progress=ignore_progress,
        names=list_precise(module),
    )
    return replace(family.parts, weights=family.parts.weights | {"transformer": weights}, dtype=jnp.bfloat16)


def test_timesteps_modulation_and_norms_stay_in_fp32(bf16_parts: Parts) -> None:
    precise = {name for name, value in bf16_parts.weights["transformer"].items() if value.dtype == jnp.float32}
    assert precise >= {"scale_shift_table", "blocks.every_layer.scale_shift_table", "blocks.every_layer.norm2.weight"}
    assert any(name.startswith("condition_embedder.time_embedder") for name in precise)
    assert not any(".to_q." in name or ".ffn." in name for name in precise)


def test_a_plan_describes_the_same_weights_in_fp32(load_wan: Callable[..., Any]) -> None:
    family = load_wan()
    module = family.parts.modules["transformer"]
    described = describe_component(
        family.model.path,
        module,
        mesh=build_mesh("dp=1"),
        rules=REPLICATED,
        dtype=jnp.float32,
        names=list_precise(module),
    )
    assert described.keys() == list_precise(module)
    assert {one.dtype for one in described.values()} == {jnp.dtype(jnp.float32)}


def test_latents_stay_near_those_of_fp32(
    bf16_parts: Parts, load_wan: Callable[..., Any], draw_wan: Callable[..., Recipe], tmp_path: Any
) -> None:
    recipe = draw_wan()
    single = load_wan()
    single.warm(recipe.parsed_shape, batch_size=1, uses_cfg=True, on_progress=ignore_progress)
    embeddings = single.encode(recipe)
    expected = np.asarray(single.denoise(recipe, embeddings, on_progress=ignore_progress))
    half = WanFamily(single.model, replace(bf16_parts, stages=frozenset({"denoise"})), cache_dir=tmp_path, load_s=0.0)
    half.warm(recipe.parsed_shape, batch_size=1, uses_cfg=True, on_progress=ignore_progress)
    found = np.asarray(jax.device_get(half.denoise(recipe, embeddings, on_progress=ignore_progress)))
    assert found.dtype == np.float32
    assert np.abs(found - expected).mean() < 0.03 * np.abs(expected).mean()
    assert (found != expected).any()
