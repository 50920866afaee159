"""Long attentions of a model end in the kernel, and the TPU compiler takes it on every chip there is a plan for."""

import functools
import re
from typing import Any

import jax
import jax.numpy as jnp
import pytest
import torch
from jax.sharding import Mesh, NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P
from torch.nn import functional

from pipelines.plan.topologies import find_devices, find_topology
from pipelines.runtime.bridge.modules import TracedModule
from pipelines.runtime.devices.mesh import build_mesh
from pipelines.runtime.kernels.attention import attend_long
from pipelines.runtime.kernels.attention_axes import AttentionAxes
from pipelines.runtime.kernels.splash import attend_with_gradient
from pipelines.runtime.kernels.ulysses import NormAndRotary, gather_tokens
from tests.kept_programs import compile_for_tpu

pytestmark = pytest.mark.tpu_aot

KERNEL = "tpu_custom_call"


class SelfAttention(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.scaled_dot_product_attention(x, x, x)


def compile_attention(
    mesh: Mesh, *, width: int, length: int, axes: AttentionAxes | None, heads: int = 8, dtype: Any = jnp.bfloat16
) -> str:
    """The program's text, for two rows; as it comes to XLA where no kernel is in it, since that compiles anyway."""
    module = TracedModule(SelfAttention())
    place = NamedSharding(mesh, P("dp", None, "sp"))
    x = jax.ShapeDtypeStruct((2, heads, length, width), dtype, sharding=place)
    lowered = jax.jit(lambda x: module.call({}, x, attention=axes)).lower(x)
    text = str(lowered.as_text())
    return compile_for_tpu(lowered, mesh.devices.flat[0]) if KERNEL in text else text


@pytest.mark.parametrize(("width", "trades_heads"), [(128, True), (128, False), (64, True)])
def test_long_attention_is_the_kernel_on_a_mesh(v6e_8: list[Any], width: int, *, trades_heads: bool) -> None:
    mesh = build_mesh("dp=2,sp=4", devices=v6e_8)
    axes = AttentionAxes(mesh=mesh, rows="dp", tokens="sp", trades_heads=trades_heads)
    text = compile_attention(mesh, width=width, length=1100, axes=axes)
    assert KERNEL in text
    assert ("all-to-all" in text) == trades_heads
    assert ("all-gather" in text) != trades_heads
    assert KERNEL not in compile_attention(mesh, width=width, length=512, axes=axes)
    assert KERNEL not in compile_attention(mesh, width=width, length=1100, axes=None)


@pytest.mark.parametrize(
    ("name", "width", "length"),
    [
        ("v4-8", 64, 9001),
        ("v4-8", 128, 9001),
        ("v4-8", 64, 4096),  # divides into the largest tiles
        ("v5p-8", 128, 9001),
    ],
)
def test_smaller_vector_memories_have_room_for_the_kernel(v6e_8: list[Any], name: str, width: int, length: int) -> None:
    mesh = build_mesh("dp=1", devices=find_devices(find_topology(name)))
    assert KERNEL in compile_attention(mesh, width=width, length=length, axes=AttentionAxes(mesh=mesh))


@pytest.mark.parametrize(
    ("name", "width", "is_kernel"),
    [("v4-8", 512, True), ("v5p-8", 1024, True), ("v4-8", 1024, False)],
)
def test_an_autoencoder_has_the_kernel_where_a_chip_has_room_for_it(
    v6e_8: list[Any], name: str, width: int, *, is_kernel: bool
) -> None:
    """One head as wide as all channels, in fp32: 512 are SDXL's, 1024 Wan 2.2's."""
    mesh = build_mesh("dp=1", devices=find_devices(find_topology(name)))
    axes = AttentionAxes(mesh=mesh)
    text = compile_attention(mesh, width=width, length=3520, axes=axes, heads=1, dtype=jnp.float32)
    assert (KERNEL in text) == is_kernel


@pytest.mark.parametrize("trades_heads", [True, False])
def test_a_window_is_compiled_wherever_queries_begin(v6e_8: list[Any], *, trades_heads: bool) -> None:
    mesh = build_mesh("dp=2,sp=4", devices=v6e_8)
    axes = AttentionAxes(mesh=mesh, rows="dp", tokens="sp", trades_heads=trades_heads)
    x = jax.ShapeDtypeStruct((2, 8, 18_432, 128), jnp.bfloat16, sharding=NamedSharding(mesh, P("dp", None, "sp")))
    attend = functools.partial(attend_long, scale=0.1, axes=axes, window=512)
    text = compile_for_tpu(jax.jit(attend).lower(x, x, x), v6e_8[0])
    near = sum(int(flops) for flops in re.findall(r'"flops":"(\d+)"', text))
    whole = 4 * 2 * 8 * 18_432**2 * 128 / len(v6e_8)  # of the two products, a device
    assert 0 < near < 0.7 * whole


def test_where_a_gradient_is_wanted_forward_and_backward_are_kernels(v6e_8: list[Any]) -> None:
    """1100 tokens are filled up and masked, and 64 features too."""
    mesh = build_mesh("dp=8", devices=v6e_8)
    axes = AttentionAxes(mesh=mesh, rows="dp", learns=True)
    module = TracedModule(SelfAttention())
    x = jax.ShapeDtypeStruct((8, 2, 1100, 64), jnp.bfloat16, sharding=NamedSharding(mesh, P("dp")))

    def compute(x: jax.Array) -> jax.Array:
        return module.call({}, x, attention=axes).astype(jnp.float32).sum()

    text = compile_for_tpu(jax.jit(jax.grad(compute)).lower(x), v6e_8[0])
    assert "flash_attention" in text
    assert "splash_mha_dkv_segmented" in text


def test_the_smallest_vector_memory_has_room_to_turn_the_widest_tokens(v6e_8: list[Any]) -> None:
    """Of Wan 14B, 40 heads of 128, all on one chip."""
    chip = find_devices(find_topology("v4-8"))[0]
    one = SingleDeviceSharding(chip)
    x = jax.ShapeDtypeStruct((1, 4096, 40 * 128), jnp.bfloat16, sharding=one)
    shapes = NormAndRotary((4096, 128), (4096, 128), (1, 4096, 1), (40 * 128,))
    turn = NormAndRotary(*(jax.ShapeDtypeStruct(shape, jnp.float32, sharding=one) for shape in shapes))
    cut = jax.jit(lambda x, turn: gather_tokens(x, None, parts=1, turn=turn))
    assert KERNEL in compile_for_tpu(cut.lower(x, turn), chip)


def test_where_a_gradient_is_wanted_as_many_keys_come_at_a_time_as_memory_is_counted_for(v6e_8: list[Any]) -> None:
    """The forward kernel took 0.4 MiB more than was counted, of 32 MiB, for 8128 tokens on v5p."""
    mesh = build_mesh("dp=1", devices=find_devices(find_topology("v5p-8"))[:1])
    x = jax.ShapeDtypeStruct((1, 1, 8128, 128), jnp.bfloat16, sharding=NamedSharding(mesh, P()))
    attend = functools.partial(attend_with_gradient, scale=1.0, mesh=mesh, rows=None, vmem_bytes=32 * 2**20)
    forward = jax.jit(lambda *x: jax.vjp(attend, *x))  # with what the backward kernel starts from
    room = {"xla_tpu_scoped_vmem_limit_kib": str(32 * 1024)}
    text = compile_for_tpu(forward.lower(x, x, x), mesh.devices.flat[0], room)
    assert "splash_mha_fwd_segmented_residuals" in text
