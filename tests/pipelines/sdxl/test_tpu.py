"""The programs the worker runs, compiled by the real TPU compiler for chips that are not here."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding

from pipelines.runtime.compiled import lower
from pipelines.runtime.mesh import build_mesh
from pipelines.sdxl.parts import Parts
from pipelines.sdxl.programs import lay_out, list_programs

# Programs for chips that are not here are compiled, cached, but not read back: JAX warns and compiles again.
pytestmark = [pytest.mark.tpu_aot, pytest.mark.filterwarnings("ignore:Error reading persistent compilation cache")]


def move_to(parts: Parts, mesh: Any) -> Parts:
    """The same model in bf16 on another mesh, as shapes only."""

    def move(array: jax.Array) -> jax.ShapeDtypeStruct:
        dtype = jnp.bfloat16 if array.dtype == jnp.float32 else array.dtype
        return jax.ShapeDtypeStruct(array.shape, dtype, sharding=NamedSharding(mesh, array.sharding.spec))

    weights = {name: {key: move(value) for key, value in own.items()} for name, own in parts.weights.items()}
    return replace(parts, mesh=mesh, weights=weights, dtype=jnp.bfloat16)


def test_every_program_compiles_for_v6e_8_with_the_guidance_pair_on_dp_and_rows_on_sp(
    v6e_8: list[Any], load_family: Callable[..., Any]
) -> None:
    family = load_family(mesh="dp=2,sp=4")
    parts = move_to(family.parts, build_mesh("dp=2,sp=4", devices=v6e_8))
    layout = lay_out(parts, family.model.default_shape, batch_size=1, uses_cfg=True)
    compiled = {program.key[0]: lower(program).compile() for program in list_programs(parts, layout)}
    assert compiled.keys() == {"encode", "condition", "denoise", "preview", "decode"}
    text = compiled["denoise"].as_text()
    assert "collective-permute" in text  # the halos of convolutions over split rows
    assert "all-reduce" in text or "all-gather" in text  # the statistics of norms over split rows
