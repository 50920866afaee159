"""Convolutions of 3 x 3 pixels with a gradient, on TPU through the kernel of conv3x3.py.

The gradient by the picture is a convolution too: of what comes back, with the weight turned round and inputs and
outputs changed over, so it takes the kernel as well. That by the weight is XLA's own, which compiles fast; where the
weight does not learn, XLA leaves it out. XLA's own convolutions take some 3 s of a processor each to compile for a
TPU, forwards and backwards alike, and the kernel half a second; a UNet has 40 of them, three or four times in a step.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp

from pipelines.runtime.kernels import operators
from pipelines.runtime.kernels.conv3x3 import TAPS, block_taps
from pipelines.runtime.kernels.convolution import PictureAxes, convolve_split


def has_kernel(weight_shape: tuple[int, ...], *, stride: Any, padding: Any, dilation: Any, groups: int) -> bool:
    """Returns whether the kernel computes this convolution, told in PyTorch's words."""

    def is_all(value: Any, one: int) -> bool:
        return not isinstance(value, str) and {*value} == {one} if isinstance(value, tuple | list) else value == one

    is_plain = is_all(stride, 1) and is_all(padding, 1) and is_all(dilation, 1) and groups == 1
    return is_plain and weight_shape[2:] == (TAPS, TAPS)


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def convolve_learning(x_BCHW: jax.Array, weight_OIHW: jax.Array, bias_O: jax.Array, axes: PictureAxes) -> jax.Array:
    """Returns the convolution (B, O, H, W) of pictures with zeros around them, in the bias's dtype.

    Products are of bf16, their sums in fp32; so are those of the gradient by the picture.
    """
    return _convolve(x_BCHW, weight_OIHW, bias_O, axes)


def _convolve(x_BCHW: jax.Array, weight_OIHW: jax.Array, bias_O: jax.Array, axes: PictureAxes) -> jax.Array:
    return convolve_split(x_BCHW[:, :, None], block_taps(weight_OIHW[:, :, None]), bias_O, axes=axes)[:, :, 0]


def _run(x_BCHW: jax.Array, weight_OIHW: jax.Array, bias_O: jax.Array, axes: PictureAxes) -> tuple[jax.Array, Any]:
    return _convolve(x_BCHW, weight_OIHW, bias_O, axes), (x_BCHW, weight_OIHW, bias_O)


def _turn(weight_OIHW: jax.Array) -> jax.Array:
    """Returns (I, O, H, W) with the taps turned round, put together of pieces: XLA is slower to reverse them."""
    taps = [weight_OIHW[:, :, row, column].swapaxes(0, 1) for row in range(TAPS) for column in range(TAPS)]
    return jnp.stack(taps[::-1], axis=-1).reshape(*taps[0].shape, TAPS, TAPS)


def _pull_back(axes: PictureAxes, kept: Any, out_BOHW: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    x_BCHW, weight_OIHW, bias_O = kept
    by_x = _convolve(out_BOHW, _turn(weight_OIHW), jnp.zeros(weight_OIHW.shape[1], out_BOHW.dtype), axes)
    x = x_BCHW.astype(weight_OIHW.dtype)
    (by_weight,) = jax.linear_transpose(functools.partial(operators.convolve, x, padding=1), weight_OIHW)(
        out_BOHW.astype(weight_OIHW.dtype)
    )
    by_bias = out_BOHW.astype(jnp.float32).sum((0, 2, 3)).astype(bias_O.dtype)
    return by_x.astype(x_BCHW.dtype), by_weight, by_bias


convolve_learning.defvjp(_run, _pull_back)
