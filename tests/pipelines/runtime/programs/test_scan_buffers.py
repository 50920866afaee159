"""What scans collect for a gradient: not written first on TPU, begun with zeros elsewhere."""

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from pipelines.plan.topologies import find_devices, find_topology
from pipelines.runtime.devices.mesh import build_mesh
from pipelines.runtime.programs.compiled import Program, lower
from tests.kept_programs import compile_for_tpu

LAYERS, WIDTH = 3, 256


def run_twice(x: jax.Array, weights: jax.Array) -> jax.Array:
    """Two scans that collect arrays of the same shapes."""

    def layer(x: jax.Array, weight: jax.Array) -> tuple[jax.Array, None]:
        return x + jnp.sin(jnp.tanh(x @ weight)), None

    for _ in range(2):
        x, _ = jax.lax.scan(layer, jnp.cos(x), weights)
    return x.astype(jnp.float32).sum()


def build(mesh: jax.sharding.Mesh, *, learns: bool) -> Program:
    split, whole = NamedSharding(mesh, P("dp")), NamedSharding(mesh, P())
    x = jax.ShapeDtypeStruct((8, 512, WIDTH), jnp.bfloat16, sharding=split)
    weights = jax.ShapeDtypeStruct((LAYERS, WIDTH, WIDTH), jnp.bfloat16, sharding=whole)
    return Program(key=("twice",), function=jax.grad(run_twice), arguments=(x, weights), learns=learns)


@pytest.mark.tpu_aot
def test_a_tpu_writes_no_zeros_where_two_scans_collect_the_same() -> None:
    """Each device has room for its own rows alone."""
    devices = find_devices(find_topology("v6e-8"))
    mesh = build_mesh("dp=8", devices=devices)
    texts = [compile_for_tpu(lower(build(mesh, learns=learns)), devices[0]) for learns in (True, False)]
    collected = f"bf16[{LAYERS},1,512,{WIDTH}]"
    zeros = [re.findall(rf"= {re.escape(collected)}\S* broadcast\(", text) for text in texts]
    assert not zeros[0] and texts[0].count("AllocateBuffer") >= 2
    assert f"[{LAYERS},8,512,{WIDTH}]" not in texts[0]
    assert zeros[1], "the compiler leaves them out by itself now: scan_buffers.py has served its time"


def test_elsewhere_nothing_changes() -> None:
    mesh = build_mesh("dp=2", devices=jax.devices()[:2])
    plain, learning = (lower(build(mesh, learns=learns)) for learns in (False, True))
    assert learning.as_text() == plain.as_text()
    generator = np.random.default_rng(0)
    arrays: list[Any] = [
        jnp.asarray(generator.standard_normal(x.shape), x.dtype) for x in build(mesh, learns=True).arguments
    ]
    found, expected = (lowered.compile()(*arrays) for lowered in (learning, plain))
    assert (np.asarray(found, np.float32) == np.asarray(expected, np.float32)).all()
