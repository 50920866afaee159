"""Convolutions and doublings of real sizes are the kernels, and the TPU compiler takes them on every chip of a plan."""

import functools
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

from pipelines.plan.topologies import find_devices, find_topology
from pipelines.runtime.devices.mesh import build_mesh
from pipelines.runtime.kernels.convolution import PictureAxes, convolve_split, double_split
from pipelines.runtime.kernels.convolution_gradient import convolve_learning
from pipelines.runtime.kernels.taps import block_taps
from pipelines.runtime.kernels.upsample import double_pixels
from tests.kept_programs import compile_for_tpu

pytestmark = pytest.mark.tpu_aot

CHIPS = ("v4-8", "v5e-1", "v5p-8")  # v6e is what most other tests compile for
COLUMNS = ("dp", "sp")


def lay(name: str) -> PictureAxes:
    """Columns over all chips."""
    mesh = build_mesh(devices=find_devices(find_topology(name)))
    return PictureAxes(mesh=mesh, spec=P(None, None, None, None, COLUMNS))


def is_kernel(name: str, run: Callable[..., jax.Array], axes: PictureAxes, *args: jax.ShapeDtypeStruct) -> bool:
    """Whether the compiled program calls the kernel of this name; without any kernel it is not compiled."""
    lowered = jax.jit(functools.partial(run, axes=axes)).lower(*args)
    if "tpu_custom_call" not in lowered.as_text():
        return False
    text = compile_for_tpu(lowered, axes.mesh.devices.flat[0])
    return any(f"%{name}" in line and 'custom_call_target="tpu_custom_call"' in line for line in text.splitlines())


def is_convolved_by_the_kernel(axes: PictureAxes, *, channels: int, height: int, width: int) -> bool:
    """Of a causal convolution of two frames after two others."""
    split, whole = NamedSharding(axes.mesh, axes.spec), NamedSharding(axes.mesh, P())
    x = jax.ShapeDtypeStruct((1, channels, 2, height, width), jnp.bfloat16, sharding=split)
    weight = jax.ShapeDtypeStruct((channels, channels, 3, 3, 3), jnp.bfloat16)
    packed = jax.eval_shape(block_taps, weight).update(sharding=whole)
    bias = jax.ShapeDtypeStruct((channels,), jnp.bfloat16, sharding=whole)
    return is_kernel("convolve_taps", convolve_split, axes, x, packed, bias, x)


@pytest.mark.parametrize("name", CHIPS)
def test_every_chip_has_room_for_the_convolutions_of_wan_2_1_at_720p(v6e_8: list[Any], name: str) -> None:
    assert is_convolved_by_the_kernel(lay(name), channels=384, height=180, width=320)


def test_v4_has_no_room_for_a_thousand_channels_and_leaves_them_to_xla(v6e_8: list[Any]) -> None:
    """Weights alone, of Wan 2.2, take 9 MiB of its 16, and come twice."""
    assert not is_convolved_by_the_kernel(lay("v4-8"), channels=1024, height=44, width=80)
    assert is_convolved_by_the_kernel(lay("v5p-8"), channels=1024, height=44, width=80)


@pytest.mark.parametrize(
    ("weight_shape", "height", "width"),
    [((640, 960, 1, 3, 3), 128, 64), ((320, 160, 3, 3, 3), 176, 320)],
    ids=["sdxl", "wan 2.2, encoding"],
)
def test_v4_has_room_for_rows_with_those_of_other_chips(
    v6e_8: list[Any], weight_shape: tuple[int, ...], height: int, width: int
) -> None:
    """Sizes that once took all of it but for what the rows above and below take, which come twice as well."""
    mesh = build_mesh(devices=find_devices(find_topology("v4-8")))
    rows = PictureAxes(mesh=mesh, spec=P(None, None, None, COLUMNS))
    split, whole = NamedSharding(mesh, rows.spec), NamedSharding(mesh, P())
    outputs, inputs, *_ = weight_shape
    x = jax.ShapeDtypeStruct((1, inputs, 1, height, width), jnp.bfloat16, sharding=split)
    packed = jax.eval_shape(block_taps, jax.ShapeDtypeStruct(weight_shape, jnp.bfloat16)).update(sharding=whole)
    bias = jax.ShapeDtypeStruct((outputs,), jnp.float32, sharding=whole)
    assert is_kernel("convolve_taps", convolve_split, rows, x, packed, bias)


@pytest.mark.parametrize(
    ("name", "learnt"), [("v6e-8", 0), ("v5p-8", 0), ("v4-8", 0), ("v6e-8", 1), ("v7x-8", 1)], ids=str
)
def test_no_convolution_of_a_gradient_is_xlas_own(v6e_8: list[Any], name: str, learnt: int) -> None:
    """XLA's compile for seconds each, and a UNet's step has more than a hundred.

    What learns is the picture or the weight; chips of small units leave gradients by the weight to XLA.
    """
    devices = find_devices(find_topology(name))
    mesh = build_mesh(f"dp={len(devices)}", devices=devices)
    axes = PictureAxes(mesh=mesh, spec=P("dp"), learns=True)
    x = jax.ShapeDtypeStruct((len(devices), 320, 64, 64), jnp.bfloat16, sharding=NamedSharding(mesh, P("dp")))
    weight = jax.ShapeDtypeStruct((320, 320, 3, 3), jnp.bfloat16, sharding=NamedSharding(mesh, P()))
    bias = jax.ShapeDtypeStruct((320,), jnp.bfloat16, sharding=NamedSharding(mesh, P()))

    def learn(x: jax.Array, weight: jax.Array, bias: jax.Array) -> jax.Array:
        return (convolve_learning(x, weight, bias, axes).astype(jnp.float32) ** 2).sum()

    options = {"xla_tpu_scoped_vmem_limit_kib": str(12 * 1024)}
    text = compile_for_tpu(jax.jit(jax.grad(learn, learnt)).lower(x, weight, bias), devices[0], options)
    assert len(re.findall(r"%convolve_taps[\w.]* = ", text)) == 2 - learnt  # forwards, and backwards to the picture
    assert len(re.findall(r"%conv3x3_gradient[\w.]* = ", text)) == learnt  # what nobody asked for is not there
    assert " convolution(" not in text


@pytest.mark.parametrize(
    ("frames", "channels", "height", "width"), [(4, 384, 180, 320), (2, 1024, 88, 160)], ids=["wan 2.1", "wan 2.2"]
)
@pytest.mark.parametrize("name", CHIPS)
def test_every_chip_has_room_for_the_doublings_of_720p(  # noqa: PLR0917 - what is parametrized
    v6e_8: list[Any], name: str, frames: int, channels: int, height: int, width: int
) -> None:
    """In fp32, as diffusers hands them over."""
    axes = lay(name)
    place = NamedSharding(axes.mesh, P(None, None, None, COLUMNS))
    x = jax.ShapeDtypeStruct((frames, channels, height, width), jnp.float32, sharding=place)
    assert is_kernel("double_pixels", double_split, axes, x)


def test_a_doubling_counts_whole_lanes_where_a_program_has_little_vector_memory(v6e_8: list[Any]) -> None:
    """Of few channels: with as many pixels at a time as 128 would have, it took 8 MiB."""
    chip = find_devices(find_topology("v5e-1"))[0]
    one = SingleDeviceSharding(chip)
    x = jax.ShapeDtypeStruct((4, 64, 64, 32), jnp.bfloat16, sharding=one)
    text = compile_for_tpu(jax.jit(double_pixels).lower(x), chip, {"xla_tpu_scoped_vmem_limit_kib": "6144"})
    assert "%double_pixels" in text
