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
from pipelines.runtime.kernels import flash_gradient
from pipelines.runtime.kernels.attention import attend_long
from pipelines.runtime.kernels.attention_axes import AttentionAxes
from pipelines.runtime.kernels.flash import find_vmem_bytes
from pipelines.runtime.kernels.flash_gradient import differentiate
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


@pytest.mark.parametrize("width", [40, 64])
def test_where_a_gradient_is_wanted_forward_and_backward_are_kernels(v6e_8: list[Any], width: int) -> None:
    """1100 tokens fill no tile; features of 40 are filled up, those of 64 lie side by side."""
    mesh = build_mesh("dp=8", devices=v6e_8)
    axes = AttentionAxes(mesh=mesh, rows="dp", learns=True)
    module = TracedModule(SelfAttention())
    x = jax.ShapeDtypeStruct((8, 2, 1100, width), jnp.bfloat16, sharding=NamedSharding(mesh, P("dp")))

    def compute(x: jax.Array) -> jax.Array:
        return module.call({}, x, attention=axes).astype(jnp.float32).sum()

    text = compile_for_tpu(jax.jit(jax.grad(compute)).lower(x), v6e_8[0])
    assert "flash_attention" in text
    assert flash_gradient.NAME in text


def test_the_smallest_vector_memory_has_room_to_turn_the_widest_tokens(v6e_8: list[Any]) -> None:
    """Of Wan 14B, 40 heads of 128, all on one chip."""
    chip = find_devices(find_topology("v4-8"))[0]
    one = SingleDeviceSharding(chip)
    x = jax.ShapeDtypeStruct((1, 4096, 40 * 128), jnp.bfloat16, sharding=one)
    shapes = NormAndRotary((4096, 128), (4096, 128), (1, 4096, 1), (40 * 128,))
    turn = NormAndRotary(*(jax.ShapeDtypeStruct(shape, jnp.float32, sharding=one) for shape in shapes))
    cut = jax.jit(lambda x, turn: gather_tokens(x, None, parts=1, turn=turn))
    assert KERNEL in compile_for_tpu(cut.lower(x, turn), chip)


@pytest.mark.parametrize(("name", "length"), [("v4-8", 1536), ("v5p-8", 14_040), ("v6e-1", 32_760)])
def test_the_gradient_takes_no_more_vector_memory_than_is_counted(v6e_8: list[Any], name: str, length: int) -> None:
    """Also of rows of their own lengths, which need masks; on v4 the keys come in parts."""
    mesh = build_mesh("dp=1", devices=find_devices(find_topology(name))[:1])
    chip, one = mesh.devices.flat[0], NamedSharding(mesh, P())
    x = jax.ShapeDtypeStruct((1, length, 128), jnp.bfloat16, sharding=one)
    sums = jax.ShapeDtypeStruct((1, 1, length), jnp.float32, sharding=one)
    seen = jax.ShapeDtypeStruct((1,), jnp.int32, sharding=one)

    def run(*arrays: jax.Array) -> tuple[jax.Array, ...]:
        *others, seen = arrays
        vmem_bytes = find_vmem_bytes(chip.device_kind)
        return differentiate(*others, key_lengths_B=seen, heads=1, scale=1.0, vmem_bytes=vmem_bytes)

    assert flash_gradient.NAME in compile_for_tpu(jax.jit(run).lower(x, x, x, x, sums, x, seen), chip)
