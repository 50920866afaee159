"""The programs the worker runs, compiled by the real TPU compiler for chips that are not here."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding

from pipelines.families.wan.parts import Parts
from pipelines.families.wan.programs import lay_out, list_programs
from pipelines.runtime.devices.mesh import build_mesh
from pipelines.runtime.programs.compiled import lower
from tests.kept_programs import compile_for_tpu

pytestmark = pytest.mark.tpu_aot


def move_to(parts: Parts, mesh: Any) -> Parts:
    """The same model on another mesh as shapes only, all but the autoencoder in bf16."""

    def move(array: jax.Array, *, keeps_dtype: bool) -> jax.ShapeDtypeStruct:
        dtype = array.dtype if keeps_dtype or array.dtype != jnp.float32 else jnp.bfloat16
        return jax.ShapeDtypeStruct(array.shape, dtype, sharding=NamedSharding(mesh, array.sharding.spec))

    weights = {
        name: {key: move(value, keeps_dtype=name == "vae") for key, value in own.items()}
        for name, own in parts.weights.items()
    }
    return replace(parts, mesh=mesh, weights=weights, dtype=jnp.bfloat16)


def test_every_program_compiles_for_v6e_8_with_the_guidance_pair_on_dp_and_tokens_on_sp(
    v6e_8: list[Any], load_wan: Callable[..., Any]
) -> None:
    family = load_wan("ti2v", "dp=2,sp=2,tp=2")
    parts = move_to(family.parts, build_mesh("dp=2,sp=2,tp=2", devices=v6e_8))
    layout = lay_out(parts, family.model.default_shape, batch_size=1, uses_cfg=True)
    programs = {program.key[0]: program for program in list_programs(parts, layout)}
    lowered = {name: lower(program) for name, program in programs.items()}
    compiled = {name: compile_for_tpu(one, v6e_8[0], programs[name].options) for name, one in lowered.items()}
    assert compiled.keys() == {"encode", "denoise", "preview", "condition", "decode"}
    assert "all-gather" in compiled["denoise"]  # keys and values of the other tokens
    assert "all-reduce" in compiled["denoise"]  # sums over slices of the weights
    assert "collective-permute" in compiled["decode"]  # the halos of convolutions over split columns
    assert programs["decode"].options["xla_tpu_scoped_vmem_limit_kib"] == "12288"  # for short code
    # Or else XLA compiles how latents are scaled and turned at 720p nine times over.
    assert "optimization_barrier" in lowered["denoise"].as_text()
