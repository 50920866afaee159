"""Convolutions of 3 x 3 pixels with a gradient, on TPU through the kernel of conv3x3.py.

The gradient by the picture is a convolution too: of what comes back, with the weight turned round and inputs and
outputs changed over, so it takes the kernel as well; where only every second pixel was made, with zeros for the others.
That by the weight has a kernel of its own (conv3x3_gradient.py), and is XLA's where only every second pixel was made;
where the weight does not learn, XLA leaves it out. XLA's own convolutions take some 3 s of a processor each to compile
for a TPU, and the kernels half a second to a second; a UNet has 40 of them, three or four times in a step.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

from pipelines.runtime.devices.sharding import count_parts
from pipelines.runtime.kernels import operators
from pipelines.runtime.kernels.conv3x3_gradient import choose_blocks, differentiate_taps
from pipelines.runtime.kernels.convolution import PictureAxes, convolve_split, double_split, resample_split
from pipelines.runtime.kernels.taps import TAPS, order_taps
from pipelines.runtime.kernels.upsample_gradient import add_up_pixels, spread_pixels


def has_kernel(
    x_shape: tuple[int, ...], weight_shape: tuple[int, ...], *, stride: Any, padding: Any, dilation: Any, groups: int
) -> bool:
    """Returns whether `convolve_learning` computes this convolution, told in PyTorch's words."""

    is_halved = _is_all(stride, 2) and not any(side % 2 for side in x_shape[2:])
    is_plain = (_is_all(stride, 1) or is_halved) and _is_all(padding, 1) and _is_all(dilation, 1) and groups == 1
    return is_plain and weight_shape[2:] == (TAPS, TAPS)


def is_of_single_pixels(
    weight_shape: tuple[int, ...],
    *,
    stride: Any,
    padding: Any,
    groups: int,
    dilation: Any = 1,  # noqa: ARG001 - there is nothing between
) -> bool:
    """Returns whether `mix_channels` computes this convolution, told in PyTorch's words."""
    return weight_shape[2:] == (1, 1) and _is_all(stride, 1) and _is_all(padding, 0) and groups == 1


def mix_channels(x_BCHW: jax.Array, weight_OI11: jax.Array, bias_O: jax.Array | None) -> jax.Array:
    """Returns a convolution of single pixels, (B, O, H, W), as a product, and its gradients are products, too.

    XLA's own convolutions take a TPU up to twenty times as long as such a product (plan/TRIED.md).
    """
    pixels_BHWC = jnp.moveaxis(x_BCHW.astype(weight_OI11.dtype), 1, -1)  # as conv3x3.py leaves them
    mixed = jnp.einsum("bhwi,oi->bhwo", pixels_BHWC, weight_OI11[:, :, 0, 0])
    return jnp.moveaxis(mixed if bias_O is None else mixed + bias_O, -1, 1)


def _is_all(value: Any, one: int) -> bool:
    return not isinstance(value, str) and {*value} == {one} if isinstance(value, tuple | list) else value == one


@functools.partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def convolve_learning(
    x_BCHW: jax.Array, weight_OIHW: jax.Array, bias_O: jax.Array, axes: PictureAxes, stride: int = 1
) -> jax.Array:
    """Returns the convolution (B, O, H / stride, W / stride) of pictures with zeros around them, in the bias's dtype.

    Products are of bf16, their sums in fp32; so are those of the gradient by the picture. With a stride of 2, which
    wants even sides, what goes forwards is XLA's own.
    """
    if stride == 1:
        return _convolve(x_BCHW, weight_OIHW, bias_O, axes, turned=False)
    return operators.convolve(x_BCHW, weight_OIHW, bias_O, stride=stride, padding=1)


def _convolve(
    x_BCHW: jax.Array, weight_OIHW: jax.Array, bias: jax.Array, axes: PictureAxes, *, turned: bool
) -> jax.Array:
    ordered = order_taps(weight_OIHW, turned=turned)
    return convolve_split(x_BCHW[:, :, None], ordered, bias, axes=axes, turned=turned)[:, :, 0]


def _run(
    x_BCHW: jax.Array, weight_OIHW: jax.Array, bias_O: jax.Array, axes: PictureAxes, stride: int
) -> tuple[jax.Array, Any]:
    return convolve_learning(x_BCHW, weight_OIHW, bias_O, axes, stride), (x_BCHW, weight_OIHW, bias_O)


def _pull_back(
    axes: PictureAxes, stride: int, kept: Any, out_BOHW: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    x_BCHW, weight_OIHW, bias_O = kept
    spread = out_BOHW if stride == 1 else resample_split(spread_pixels, out_BOHW, axes=axes)
    by_x = _convolve(spread, weight_OIHW, jnp.zeros(weight_OIHW.shape[1], out_BOHW.dtype), axes, turned=True)
    by_weight = _differentiate(x_BCHW, out_BOHW, axes, weight_OIHW.dtype) if stride == 1 else None
    if by_weight is None:
        x = x_BCHW.astype(weight_OIHW.dtype)
        convolve = functools.partial(operators.convolve, x, stride=stride, padding=1)
        (by_weight,) = jax.linear_transpose(convolve, weight_OIHW)(out_BOHW.astype(weight_OIHW.dtype))
    by_bias = out_BOHW.astype(jnp.float32).sum((0, 2, 3)).astype(bias_O.dtype)
    return by_x.astype(x_BCHW.dtype), by_weight, by_bias


def _differentiate(x_BCHW: jax.Array, out_BOHW: jax.Array, axes: PictureAxes, dtype: Any) -> jax.Array | None:
    """Returns the gradient by the weight, (O, I, 3, 3) in `dtype`, by the kernel; None where it does not apply."""
    batch, tall, wide = axes.split
    rows, inputs, height, width = x_BCHW.shape
    is_split = count_parts(axes.mesh, tall) * count_parts(axes.mesh, wide) > 1 or rows % count_parts(axes.mesh, batch)
    if is_split or not axes.takes_weight_gradients:
        return None
    blocks = choose_blocks(height, width, inputs=inputs, outputs=out_BOHW.shape[1], vmem_bytes=axes.vmem_bytes)
    if blocks is None:
        return None

    def run(x: jax.Array, out: jax.Array) -> jax.Array:
        x, out = (jnp.moveaxis(one.astype(jnp.bfloat16), 1, -1) for one in (x, out))
        return differentiate_taps(x, out, blocks=blocks, dtype=dtype, interpret=axes.interprets)[None]

    split = jax.shard_map(run, mesh=axes.mesh, in_specs=P(batch), out_specs=P(batch), check_vma=False)
    # Added up in its own dtype, as XLA adds up what chips find of a weight.
    total = jax.lax.reduce(split(x_BCHW, out_BOHW), jnp.zeros((), dtype), jax.lax.add, (0,))
    return total.transpose(2, 3, 0, 1)


convolve_learning.defvjp(_run, _pull_back)


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def double_learning(x_BCHW: jax.Array, axes: PictureAxes) -> jax.Array:
    """Returns (B, C, 2H, 2W) of pictures in bf16 by nearest pixels."""
    return double_split(x_BCHW, axes=axes)


def _double(x_BCHW: jax.Array, axes: PictureAxes) -> tuple[jax.Array, None]:
    return double_learning(x_BCHW, axes), None


def _halve(axes: PictureAxes, _kept: None, out_BCHW: jax.Array) -> tuple[jax.Array]:
    return (resample_split(add_up_pixels, out_BCHW, axes=axes),)


double_learning.defvjp(_double, _halve)
