"""Convolutions of pictures that are split over a mesh, through the kernel of conv3x3.py.

A device has a band of columns or of rows; it gets its neighbours' outermost ones, and zeros where the picture ends.
"""

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import jax
import jax.numpy as jnp
import torch
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from pipelines.runtime.devices.sharding import count_parts
from pipelines.runtime.kernels import operators
from pipelines.runtime.kernels.attention_axes import AttentionAxes
from pipelines.runtime.kernels.conv3x3 import Blocks, choose_blocks, convolve_taps
from pipelines.runtime.kernels.flash import CHIPS_OF_LARGE_UNITS, find_vmem_bytes
from pipelines.runtime.kernels.switches import is_on
from pipelines.runtime.kernels.taps import BLOCKED_NDIM, LANES, TAPS, block_taps, restore_taps, unblock_taps
from pipelines.runtime.kernels.upsample import double_pixels


def has_kernels(mesh: Mesh) -> bool:
    """Whether the mesh's devices run the kernel for convolutions."""
    return mesh.devices.flat[0].platform == "tpu" and is_on("conv3x3")


@dataclass(frozen=True, kw_only=True)
class PictureAxes:
    """How videos (batch, channels, frames, height, width) lie on a mesh: `spec` may split all but the two between.

    At most one of height and width may be split. With `interprets` TPU kernels run on any devices, slowly.
    With `learns` a gradient is wanted (convolution_gradient.py).
    """

    mesh: Mesh
    spec: P
    interprets: bool = False
    learns: bool = False

    @classmethod
    def of_videos(cls, sharding: NamedSharding) -> "PictureAxes":
        return cls(mesh=cast(Mesh, sharding.mesh), spec=sharding.spec)

    @classmethod
    def of_pictures(cls, sharding: NamedSharding) -> "PictureAxes":
        """The axes of pictures (batch, channels, height, width) with this sharding."""
        batch, channels, *sides = (*sharding.spec, None, None)[:4]
        return cls(mesh=cast(Mesh, sharding.mesh), spec=P(batch, channels, None, *sides))

    @property
    def takes_kernels(self) -> bool:
        return (self.interprets and is_on("conv3x3")) or has_kernels(self.mesh)

    @property
    def vmem_bytes(self) -> int:
        return find_vmem_bytes(self.mesh.devices.flat[0].device_kind)

    @property
    def takes_weight_gradients(self) -> bool:
        """Whether gradients by the weight are the kernel's; chips of smaller units run XLA's own as fast."""
        return is_on("conv3x3_gradient") and (
            self.interprets or self.mesh.devices.flat[0].device_kind in CHIPS_OF_LARGE_UNITS
        )

    @property
    def split(self) -> tuple[Any, Any, Any]:
        """Mesh axes that split the batch, the height and the width."""
        spec = (*self.spec, None, None, None, None, None)
        return spec[0], spec[3], spec[4]

    @property
    def attention(self) -> AttentionAxes:
        """Mesh axes of attentions between the convolutions: a frame's pixels are its tokens."""
        batch, tall, wide = self.split
        return AttentionAxes(
            mesh=self.mesh, rows=batch, tokens=tall or wide, trades_heads=False, interprets=self.interprets
        )

    def divides(self, shape_BHW: tuple[int, ...]) -> bool:
        """Whether the mesh divides this shape evenly among its devices."""
        return not any(size % count_parts(self.mesh, axis) for size, axis in zip(shape_BHW, self.split, strict=True))

    def choose_blocks(self, shape_BCFHW: tuple[int, ...], *, blocks: int, time_taps: int) -> Blocks | None:
        """Kernel block sizes for this shape and `blocks` of outputs, or None if the kernel does not apply."""
        batch, inputs, frames, height, width = shape_BCFHW
        if not self.divides((batch, height, width)):
            return None
        _, tall, wide = self.split
        return choose_blocks(
            height // count_parts(self.mesh, tall),
            width // count_parts(self.mesh, wide),
            frames=frames,
            inputs=inputs,
            blocks=blocks,
            time_taps=time_taps,
            vmem_bytes=self.vmem_bytes,
            has_rows=count_parts(self.mesh, tall) > 1,
        )


def convolve_split(
    x_BCFHW: jax.Array,
    weight: jax.Array,
    bias_O: jax.Array,
    before_BCFHW: jax.Array | None = None,
    *,
    axes: PictureAxes,
    turned: bool = False,
) -> jax.Array:
    """The causal convolution (B, O, F, H, W) of x in the bias's dtype: zeros around each frame and before the first.

    `before` are frames that come before x; missing ones are zeros. `weight` is as block_taps gives it, or, for a
    single frame, as order_taps does with this `turned`. Products are of bf16, as of XLA's own on TPU, and their sums
    in fp32. Where the kernel has no room, or the mesh does not divide a picture, it is XLA's own.
    """
    count, time_taps, *_ = weight.shape if weight.ndim == BLOCKED_NDIM else (math.ceil(len(bias_O) / LANES), 1)
    batch, tall, wide = axes.split
    blocks = axes.choose_blocks(x_BCFHW.shape, blocks=count, time_taps=time_taps)
    if blocks is None:
        return _convolve_plainly(x_BCFHW, weight, bias_O, before_BCFHW, turned=turned)

    def run(x: jax.Array, weight: jax.Array, bias: jax.Array, *before: jax.Array) -> jax.Array:
        own, earlier = _to_kernel(x), [_to_kernel(one) for one in before]
        missing = time_taps - 1 - sum(one.shape[1] for one in earlier)
        if missing:
            earlier.insert(0, jnp.zeros((own.shape[0], missing, *own.shape[2:]), own.dtype))
        earlier = jnp.concatenate(earlier, 1) if earlier else own[:, :0]
        find = functools.partial(_find_neighbours, earlier, own)
        out = convolve_taps(
            own,
            earlier,
            weight,
            bias,
            find(2, tall, devices=count_parts(axes.mesh, tall)),
            find(3, wide, devices=count_parts(axes.mesh, wide)),
            blocks=blocks,
            dtype=bias.dtype,
            vmem_bytes=axes.vmem_bytes,
            turned=turned,
            interpret=axes.interprets,
        )
        return jnp.moveaxis(out, -1, 1)

    spec = P(batch, None, None, tall, wide)
    before = () if before_BCFHW is None else (before_BCFHW,)
    specs = (spec, P(), P(), *(spec for _ in before))
    return jax.shard_map(run, mesh=axes.mesh, in_specs=specs, out_specs=spec, check_vma=False)(
        x_BCFHW, weight, bias_O, *before
    )


def block_convolutions(
    module: torch.nn.Module, weights: Mapping[str, jax.Array], *, also: tuple[type, ...] = ()
) -> dict[str, jax.Array]:
    """Blocks the weights that convolve_split may take, once and not at every step; the others stay as they are.

    These are weights of plain convolutions of 3 x 3 pixels, whose forward then calls it (bridge/environment.py), and of
    submodules that are one of `also`.
    """
    names = _list_weights(module, lambda one: isinstance(one, also) or _is_plain(one))
    return {**weights, **{name: block_taps(_with_time(weights[name])) for name in names}}


def list_plain_convolutions(module: torch.nn.Module) -> list[str]:
    """Names of the weights that may be blocked at load (weights/permuted.py): those of plain 3 x 3 convolutions."""
    return _list_weights(module, _is_plain)


def _list_weights(module: torch.nn.Module, chooses: Callable[[torch.nn.Module], bool]) -> list[str]:
    return [f"{name}.weight" for name, one in module.named_modules() if chooses(one)]


def _is_plain(module: torch.nn.Module) -> bool:
    if not isinstance(module, torch.nn.Conv2d) or module.bias is None:
        return False
    settings = module.kernel_size, module.stride, module.padding, module.dilation, module.groups
    return settings == ((TAPS, TAPS), (1, 1), (1, 1), (1, 1), 1)


def _with_time(weight: jax.Array) -> jax.Array:
    """(O, I, T, 3, 3) of a convolution in two or three dimensions."""
    return weight if weight.ndim == 5 else weight[:, :, None]


def double_split(x_BCHW: jax.Array, *, axes: PictureAxes) -> jax.Array:
    """(B, C, 2H, 2W) by nearest pixels, in bf16: what comes next on TPU rounds to that."""
    return resample_split(double_pixels, x_BCHW, axes=axes)


def resample_split(kernel: Callable[..., jax.Array], x_BCHW: jax.Array, *, axes: PictureAxes) -> jax.Array:
    """Runs a kernel from (B, H, W, C) to another size on what each device has of pictures (B, C, H, W)."""
    batch, tall, wide = axes.split
    spec = P(*((batch, None, tall, wide) if axes.divides((x_BCHW.shape[0], *x_BCHW.shape[2:])) else ()))

    def run(x: jax.Array) -> jax.Array:
        return jnp.moveaxis(kernel(_to_kernel(x), interpret=axes.interprets), -1, 1)

    return jax.shard_map(run, mesh=axes.mesh, in_specs=spec, out_specs=spec, check_vma=False)(x_BCHW)


def _convolve_plainly(
    x_BCFHW: jax.Array, weight: jax.Array, bias_O: jax.Array, before_BCFHW: jax.Array | None, *, turned: bool
) -> jax.Array:
    sizes = {"inputs": x_BCFHW.shape[1], "outputs": len(bias_O)}
    if weight.ndim == BLOCKED_NDIM:
        weight = unblock_taps(weight, **sizes)
    else:
        weight = restore_taps(weight, **sizes, turned=turned)[:, :, None]
    before = [] if before_BCFHW is None else [before_BCFHW]
    x = jnp.concatenate([*before, x_BCFHW], 2)
    missing = weight.shape[2] - 1 - (x.shape[2] - x_BCFHW.shape[2])
    return operators.convolve(
        jnp.pad(x, ((0, 0), (0, 0), (missing, 0), (0, 0), (0, 0))),
        weight.astype(bias_O.dtype),
        bias_O,
        padding=(0, 1, 1),
    )


def _to_kernel(x_BCFHW: jax.Array) -> jax.Array:
    return jnp.moveaxis(x_BCFHW.astype(jnp.bfloat16), 1, -1)


def _find_neighbours(earlier: jax.Array, own: jax.Array, axis: int, names: Any, *, devices: int) -> jax.Array | None:
    """The neighbours' lines before the first and after the last along `axis`; None on a single device."""
    if devices == 1:
        return None
    first, last = (
        jnp.concatenate([jax.lax.slice_in_dim(one, at, at + 1, axis=axis) for one in (earlier, own)], 1)
        for at in (0, own.shape[axis] - 1)
    )
    onwards = [(device, device + 1) for device in range(devices - 1)]
    before = jax.lax.ppermute(last, names, onwards)
    after = jax.lax.ppermute(first, names, [(b, a) for a, b in onwards])
    return jnp.concatenate([before, after], axis)
