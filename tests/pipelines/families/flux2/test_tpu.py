"""The programs the worker runs, compiled by the real TPU compiler for chips that are not here."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding

from pipelines.families.flux2.parts import Parts
from pipelines.families.flux2.programs import lay_out, list_programs
from pipelines.runtime.devices.mesh import build_mesh
from pipelines.runtime.programs.compiled import lower
from tests.kept_programs import compile_for_tpu

pytestmark = pytest.mark.tpu_aot


def move_to(parts: Parts, mesh: Any) -> Parts:
    """The same model in bf16 on another mesh, as shapes only."""

    def move(array: jax.Array) -> jax.ShapeDtypeStruct:
        dtype = jnp.bfloat16 if array.dtype == jnp.float32 else array.dtype
        return jax.ShapeDtypeStruct(array.shape, dtype, sharding=NamedSharding(mesh, array.sharding.spec))

    weights = {name: {key: move(value) for key, value in own.items()} for name, own in parts.weights.items()}
    return replace(parts, mesh=mesh, weights=weights, dtype=jnp.bfloat16)


def test_every_program_compiles_for_v6e_8_on_all_three_axes(v6e_8: list[Any], load_flux2: Callable[..., Any]) -> None:
    mesh = "dp=2,sp=2,tp=2"
    family = load_flux2("dev", mesh)
    parts = move_to(family.parts, build_mesh(mesh, devices=v6e_8))
    layout = lay_out(parts, family.model.default_shape, batch_size=1, uses_cfg=True)
    compiled = {
        program.key[0]: compile_for_tpu(lower(program), v6e_8[0], program.options)
        for program in list_programs(parts, layout)
    }
    assert compiled.keys() == {"encode", "denoise", "preview", "decode"}
    assert "all-reduce" in compiled["denoise"]  # the branches' sums over slices of weights
