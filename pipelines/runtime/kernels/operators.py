"""PyTorch's norms, convolutions and resizing in JAX, with PyTorch's arguments.

They keep the numerics that PyTorch has under bf16 (statistics of norms in fp32) and give each backend the layout that
it runs fastest. A model calls them hundreds of times with the same few shapes, so each is traced once a shape: jitted
inline, a function leaves nothing of itself in the program.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp

_FEWEST_ROWS = 128  # whose sum is worth a product
_ALIKE = 8  # rows of ones: as many as a tile has


def group_norm(
    input: jax.Array,
    num_groups: int,
    weight: jax.Array | None = None,
    bias: jax.Array | None = None,
    eps: float = 1e-5,
) -> jax.Array:
    """Statistics in fp32."""
    return _group_norm(input, weight, bias, num_groups=num_groups, eps=eps)


@functools.partial(jax.jit, static_argnames=("num_groups", "eps"), inline=True)
def _group_norm(
    input: jax.Array, weight: jax.Array | None, bias: jax.Array | None, *, num_groups: int, eps: float
) -> jax.Array:
    batch, channels, *spatial = input.shape
    x = input.reshape(batch, num_groups, -1).astype(jnp.float32)
    mean, variance = find_moments(x, -1)
    scale = jax.lax.rsqrt(variance + eps)
    per_channel = (1, channels, *(1 for _ in spatial))
    # Folding scale and shift into one multiply-add per channel leaves a single pass over the large tensor.
    gain = jnp.repeat(scale[..., 0], channels // num_groups, axis=1)
    shift = -jnp.repeat((mean * scale)[..., 0], channels // num_groups, axis=1)
    if weight is not None:
        gain, shift = gain * weight, shift * weight
    if bias is not None:
        shift = shift + bias
    gain, shift = (value.reshape(batch, *per_channel[1:]) for value in (gain, shift))
    return (input.astype(jnp.float32) * gain + shift).astype(input.dtype)


def layer_norm(
    input: jax.Array,
    normalized_shape: tuple[int, ...],
    weight: jax.Array | None = None,
    bias: jax.Array | None = None,
    eps: float = 1e-5,
) -> jax.Array:
    """Statistics in fp32."""
    return _layer_norm(input, weight, bias, axes=tuple(range(-len(normalized_shape), 0)), eps=eps)


@functools.partial(jax.jit, static_argnames=("axes", "eps"), inline=True)
def _layer_norm(
    input: jax.Array, weight: jax.Array | None, bias: jax.Array | None, *, axes: tuple[int, ...], eps: float
) -> jax.Array:
    x = input.astype(jnp.float32)
    mean, variance = find_moments(x, axes)
    x = (x - mean) * jax.lax.rsqrt(variance + eps)
    if weight is not None:
        x = x * weight.astype(jnp.float32)
    if bias is not None:
        x = x + bias.astype(jnp.float32)
    return x.astype(input.dtype)


@functools.partial(jax.jit, inline=True)
def multiply(input: jax.Array, weight_OI: jax.Array) -> jax.Array:
    """Returns a linear layer's product, (..., I) to (..., O)."""
    # Weights kept in fp32 are meant to be exact; a TPU would round them to bf16 for a product.
    precision = jax.lax.Precision.HIGHEST if input.dtype == weight_OI.dtype == jnp.float32 else None
    return jnp.einsum("...i,oi->...o", input, weight_OI, precision=precision)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def add_bias(
    out: jax.Array,
    bias_O: jax.Array,
    on_matrix_units: bool = False,  # noqa: ARG001, FBT001, FBT002 - for the gradient; a place, as custom_vjp counts them
) -> jax.Array:
    """Adds a layer's bias, (..., O). Its gradient is summed up in fp32, which takes a TPU less time than bf16.

    A sum of many rows in bf16 may be a product with ones, `on_matrix_units`: exact as well, and of SDXL's feed-forward
    with all gradients, 316 us on v6e by the compiler's estimate, it leaves 286.
    """
    return out + bias_O


def _add_keeping(out: jax.Array, bias_O: jax.Array, _on_matrix_units: bool) -> tuple[jax.Array, jax.Array]:  # noqa: FBT001
    return out + bias_O, bias_O


def _sum_bias(on_matrix_units: bool, bias_O: jax.Array, gradient: jax.Array) -> tuple[jax.Array, jax.Array]:  # noqa: FBT001
    return gradient, sum_rows(gradient, on_matrix_units=on_matrix_units).astype(bias_O.dtype)


def sum_rows(gradient: jax.Array, *, on_matrix_units: bool) -> jax.Array:
    """Sums all rows (..., O) in fp32, as `add_bias` says."""
    rows = tuple(range(gradient.ndim - 1))
    if on_matrix_units and gradient.dtype == jnp.bfloat16 and gradient.shape[-2] >= _FEWEST_ROWS:
        # The barrier hides that it is a sum, and eight rows of ones that it is a product with a vector.
        ones = jax.lax.optimization_barrier(jnp.ones((_ALIKE, *gradient.shape[:-1]), gradient.dtype))
        contracted = tuple(row + 1 for row in rows), rows
        return jax.lax.dot_general(ones, gradient, (contracted, ((), ())), preferred_element_type=jnp.float32)[0]
    # Without the barrier XLA would make a sum in bf16 of it and of whatever it is cast to.
    return jax.lax.optimization_barrier(gradient.astype(jnp.float32).sum(rows))


add_bias.defvjp(_add_keeping, _sum_bias)


def find_gain(x_BLC: jax.Array, eps: float) -> jax.Array:
    """Factor by which an RMS norm (Zhang and Sennrich 2019) multiplies each token: (B, L, 1), fp32."""
    return jax.lax.rsqrt(jnp.square(x_BLC.astype(jnp.float32)).mean(-1, keepdims=True) + eps)


def scale(x_BLC: jax.Array, gain_BL1: jax.Array, weight_C: jax.Array) -> jax.Array:
    """Applies the gain of `find_gain` and the norm's weight, rounding once."""
    return (x_BLC.astype(jnp.float32) * gain_BL1 * weight_C.astype(jnp.float32)).astype(x_BLC.dtype)


def find_moments(x: jax.Array, axes: int | tuple[int, ...]) -> tuple[jax.Array, jax.Array]:
    """Mean and variance in one pass, which is also one sum over devices and not two.

    Features spread about as wide as they lie off zero, so little cancels.
    """
    mean = x.mean(axes, keepdims=True)
    return mean, jnp.maximum(jnp.square(x).mean(axes, keepdims=True) - jnp.square(mean), 0.0)


def convolve(  # noqa: PLR0917 - PyTorch's own signature
    input: jax.Array,
    weight: jax.Array,
    bias: jax.Array | None = None,
    stride: int | tuple[int, ...] = 1,
    padding: int | tuple[int, ...] | str = 0,
    dilation: int | tuple[int, ...] = 1,
    groups: int = 1,
) -> jax.Array:
    """Convolutions in two or three dimensions, channels-last inside.

    XLA:CPU runs that up to 3x faster (24 -> 8 ms for 32x64x16x16); TPU lays out by itself.
    """
    spatial = weight.ndim - 2
    stride, dilation = (tuple(v) if isinstance(v, tuple | list) else (v,) * spatial for v in (stride, dilation))
    if isinstance(padding, str):
        pads: Any = padding
    else:
        pads = tuple((pad, pad) for pad in (padding if isinstance(padding, tuple | list) else (padding,) * spatial))
    return _convolve(input, weight, bias, stride=stride, pads=pads, dilation=dilation, groups=groups)


@functools.partial(jax.jit, static_argnames=("stride", "pads", "dilation", "groups"), inline=True)
def _convolve(
    input: jax.Array,
    weight: jax.Array,
    bias: jax.Array | None,
    *,
    stride: tuple[int, ...],
    pads: Any,
    dilation: tuple[int, ...],
    groups: int,
) -> jax.Array:
    # diffusers' Upsample hands fp32 to a bf16 convolution: PyTorch's own type_as is lost in the tracing.
    input = jnp.moveaxis(input.astype(weight.dtype), 1, -1)
    kernel = jnp.moveaxis(weight, (0, 1), (-1, -2))
    as_it_is = functools.partial(_convolve_channels_last, stride=stride, pads=pads, dilation=dilation, groups=groups)
    if len(stride) == 3 and not isinstance(pads, str):
        in_planes = functools.partial(_convolve_planes, stride=stride, pads=pads, dilation=dilation, groups=groups)
        out = jax.lax.platform_dependent(input, kernel, cpu=in_planes, default=as_it_is)
    else:
        out = as_it_is(input, kernel)
    if bias is not None:
        out = out + bias
    return jnp.moveaxis(out, -1, 1)


def _convolve_channels_last(
    input: jax.Array, kernel: jax.Array, *, stride: Any, pads: Any, dilation: Any, groups: int
) -> jax.Array:
    layout = {2: ("NHWC", "HWIO", "NHWC"), 3: ("NDHWC", "DHWIO", "NDHWC")}[kernel.ndim - 2]
    return jax.lax.conv_general_dilated(
        input,
        kernel,
        window_strides=stride,
        padding=pads,
        rhs_dilation=dilation,
        feature_group_count=groups,
        dimension_numbers=layout,
    )


def _convolve_planes(
    input: jax.Array, kernel: jax.Array, *, stride: Any, pads: Any, dilation: Any, groups: int
) -> jax.Array:
    """Convolves in 3D as a sum of 2D convolutions over the kernel's planes, with frames in the batch.

    XLA:CPU has no fast path for three: this runs 5 to 11x faster (175 -> 33 ms for 3x16x9x64x64).
    """
    batch = input.shape[0]
    input = jnp.pad(input, ((0, 0), *pads, (0, 0)))
    planes = kernel.shape[0]
    frames = (input.shape[1] - dilation[0] * (planes - 1) - 1) // stride[0] + 1
    last = stride[0] * (frames - 1) + 1
    is_plain = {*stride[1:], *dilation[1:], groups} == {1}
    total: Any = 0
    for plane in range(planes):
        first = dilation[0] * plane
        seen = input[:, first : first + last : stride[0]]
        seen = seen.reshape(-1, *seen.shape[2:])
        if is_plain:
            total += _convolve_plane(seen, kernel[plane])
        else:
            total += _convolve_channels_last(
                seen, kernel[plane], stride=stride[1:], pads="VALID", dilation=dilation[1:], groups=groups
            )
    return total.reshape(batch, frames, *total.shape[1:])


@jax.custom_vjp
def _convolve_plane(input_NHWC: jax.Array, kernel_HWIO: jax.Array) -> jax.Array:
    """No padding, no strides. Its gradients are written as the two convolutions that XLA:CPU has fast code for."""
    return _convolve_channels_last(input_NHWC, kernel_HWIO, stride=(1, 1), pads="VALID", dilation=(1, 1), groups=1)


def _convolve_plane_keeping(input: jax.Array, kernel: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return _convolve_plane(input, kernel), (input, kernel)


def _convolve_plane_back(kept: tuple[jax.Array, jax.Array], gradient: jax.Array) -> tuple[jax.Array, jax.Array]:
    input, kernel = kept
    height, width = (side - 1 for side in kernel.shape[:2])
    padded = jnp.pad(gradient, ((0, 0), (height, height), (width, width), (0, 0)))
    to_input = _convolve_plane(padded, jnp.flip(kernel, (0, 1)).swapaxes(2, 3))
    to_kernel = _convolve_plane(input.transpose(3, 1, 2, 0), gradient.transpose(1, 2, 0, 3))
    return to_input, to_kernel.transpose(1, 2, 0, 3)


_convolve_plane.defvjp(_convolve_plane_keeping, _convolve_plane_back)


def interpolate(
    input: jax.Array,
    size: tuple[int, ...] | None = None,
    scale_factor: float | tuple[float, ...] | None = None,
    mode: str = "nearest",
    **_unused: Any,
) -> jax.Array:
    """Nearest pixels at whole scales by repeating them: torchax's gather would not split over a mesh.

    Raises NotImplementedError for everything else.
    """
    factors = _find_factors(input, scale_factor)
    if size is not None or mode not in _NEAREST or any(f is None or f % 1 for f in factors):
        raise NotImplementedError(f"interpolate {mode=} {size=} {scale_factor=}")
    for axis, factor in enumerate(factors, start=2):
        input = jnp.repeat(input, int(factor or 1), axis=axis)
    return input


def is_doubling(
    input: jax.Array,
    size: tuple[int, ...] | None = None,
    scale_factor: float | tuple[float, ...] | None = None,
    mode: str = "nearest",
    **_unused: Any,
) -> bool:
    """Whether `interpolate` would make two of every row and column of pictures (B, C, H, W)."""
    return size is None and mode in _NEAREST and _find_factors(input, scale_factor) == (2, 2)


def _find_factors(input: jax.Array, scale_factor: float | tuple[float, ...] | None) -> tuple[float | None, ...]:
    return tuple(scale_factor) if isinstance(scale_factor, tuple | list) else (scale_factor,) * (input.ndim - 2)


_NEAREST = ("nearest", "nearest-exact")
