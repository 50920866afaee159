"""TPU7x (Ironwood): two devices a chip, and collectives that its compiler wraps in asynchronous calls."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from pipelines.plan.estimate import LATENCY_S, estimate
from pipelines.plan.hlo import Module
from pipelines.plan.topologies import TOPOLOGIES, V7X, find_devices
from tests.kept_programs import compile_for_tpu

LAYERS, ROWS, WIDTH = 3, 512, 1024


@pytest.fixture(scope="module")
def mesh() -> Mesh:
    return Mesh(np.asarray(find_devices(TOPOLOGIES["v7x-8"])), ("all",))


def test_four_chips_are_eight_devices(mesh: Mesh) -> None:
    topology = TOPOLOGIES["v7x-8"]
    assert (topology.chips, topology.devices, mesh.size) == (4, 8, 8)
    assert {device.device_kind for device in mesh.devices.flat} == {V7X.name}
    assert len({tuple(device.coords) for device in mesh.devices.flat}) == topology.chips
    assert TOPOLOGIES["v6e-8"].devices == 8 and TOPOLOGIES["v5p-8"].devices == 4


@pytest.mark.tpu_aot
def test_what_its_compiler_gathers_and_scatters_is_counted(mesh: Mesh) -> None:
    """Weights are gathered layer by layer, and the rows' sums scattered: each in a call of its own, on a SparseCore."""

    def run(x: jax.Array, weights: jax.Array) -> jax.Array:
        def layer(x: jax.Array, weight: jax.Array) -> tuple[jax.Array, None]:
            whole = jax.lax.all_gather(weight, "all", axis=0, tiled=True)
            return jnp.tanh(x @ whole), None

        x, _ = jax.lax.scan(layer, x, weights)
        return jax.lax.psum_scatter(x @ x.T, "all", scatter_dimension=0, tiled=True)

    split = jax.shard_map(run, mesh=mesh, in_specs=(P("all"), P(None, "all")), out_specs=P("all"), check_vma=False)
    x, weights = (
        jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=NamedSharding(mesh, spec))
        for shape, spec in (((8 * ROWS, WIDTH), P("all")), ((LAYERS, WIDTH, WIDTH), P(None, "all")))
    )
    text = compile_for_tpu(jax.jit(split).lower(x, weights), mesh.devices.flat[0])
    assert "PrepareAsyncCallStart" in text and "call-start" in text, "it is what this test is about"
    cost = estimate(Module(text), V7X).run
    assert cost.counts == {"all-gather": LAYERS, "reduce-scatter": 1}
    assert cost.moved_bytes["all-gather"] == LAYERS * 2 * WIDTH * WIDTH * 7 // 8
    assert cost.moved_bytes["reduce-scatter"] == 2 * ROWS * ROWS * 7 // 8
    moved_s = sum(cost.moved_bytes.values()) / V7X.ici_bytes_per_s
    assert cost.exposed_s + cost.hidden_s == pytest.approx(moved_s, rel=0.01, abs=5 * LATENCY_S)


COPIES = """
%called (param: bf16[5,2304,3072]) -> bf16[5,2304,3072] {
  %param = bf16[5,2304,3072]{2,1,0:T(8,128)(2,1)} parameter(0)
  ROOT %copy.3 = bf16[5,2304,3072]{2,1,0:T(16,128)(2,1)} copy(%param), backend_config={"estimated_cycles":"MANY"}
}, execution_thread="sparsecore"

ENTRY %main (param.1: bf16[5,2304,3072]) -> bf16[5,2304,3072] {
  %param.1 = bf16[5,2304,3072]{2,1,0:T(8,128)(2,1)} parameter(0)
  %start = ((bf16[5,2304,3072]), bf16[5,2304,3072], u32[]) call-start(%param.1), to_apply=%called
  ROOT %done = bf16[5,2304,3072]{2,1,0:T(16,128)(2,1)} call-done(%start)
}
"""


def test_a_copy_of_which_the_compiler_knows_no_cycles_takes_what_its_bytes_take() -> None:
    """FLUX.2 klein's programs for it have copies whose cycles are given as 2^63 - 1."""
    cost = estimate(Module(COPIES.replace("MANY", str(2**63 - 1))), V7X).run
    assert cost.total_s == pytest.approx(2 * 2 * 5 * 2304 * 3072 / V7X.hbm_bytes_per_s)
    assert not cost.counts
