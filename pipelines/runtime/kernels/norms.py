"""Layer and group norms for a training: gradients take two passes over what was normed, and moments are kept.

Left to itself JAX differentiates mean and variance one by one, and computes both again where a layer is computed again:
four passes. By the TPU compiler a step of a LoRA of FLUX.2-klein takes 227 ms so, in place of 231 (plan/TRIED.md).
The moments, two numbers a token or a group, carry the name MOMENTS: what a rematerialisation may keep.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from pipelines.runtime.kernels.operators import find_moments, sum_rows

MOMENTS = "moments"


def norm_layer(
    input: jax.Array,
    weight: jax.Array | None,
    bias: jax.Array | None,
    *,
    axes: int,
    eps: float,
    on_matrix_units: bool,
    sums_apart: bool = False,
) -> jax.Array:
    """Does what operators.layer_norm does, over the last `axes` axes; gradients of weight and bias are summed in fp32.

    `on_matrix_units` sums as `add_bias` does. With `sums_apart` XLA cannot sum up what goes back within the product
    that makes it, which takes a TPU v5p twice as long then where it is one of a wide feed-forward (plan/TRIED.md).
    """
    norm: Any = _build_layer(axes, eps, on_matrix_units, sums_apart)
    return norm(input, weight, bias)


def norm_groups(
    input: jax.Array, weight: jax.Array | None, bias: jax.Array | None, *, groups: int, eps: float
) -> jax.Array:
    """Does what operators.group_norm does; gradients of weight and bias are summed in fp32."""
    norm: Any = _build_groups(groups, eps)
    return norm(input, weight, bias)


@functools.cache
def _build_layer(axes: int, eps: float, on_matrix_units: bool, sums_apart: bool) -> Any:  # noqa: FBT001
    over = tuple(range(-axes, 0))

    @jax.custom_vjp
    def norm(input: jax.Array, weight: jax.Array | None, bias: jax.Array | None) -> jax.Array:
        return run(input, weight, bias)[0]

    def run(input: jax.Array, weight: jax.Array | None, bias: jax.Array | None) -> tuple[jax.Array, Any]:
        x = input.astype(jnp.float32)
        mean, scale = _find_scale(x, over, eps)
        x = (x - mean) * scale
        if weight is not None:
            x = x * weight.astype(jnp.float32)
        if bias is not None:
            x = x + bias.astype(jnp.float32)
        return x.astype(input.dtype), (input, weight, bias, mean, scale)

    def run_back(kept: Any, gradient: jax.Array) -> tuple[jax.Array | None, ...]:
        input, weight, bias, mean, scale = kept
        if bias is not None and sums_apart:
            gradient = jax.lax.optimization_barrier(gradient)
        normed = (input.astype(jnp.float32) - mean) * scale
        of_normed = own = gradient.astype(jnp.float32)
        if weight is not None:
            of_normed = own * weight.astype(jnp.float32)
        along, across = of_normed.mean(over, keepdims=True), (of_normed * normed).mean(over, keepdims=True)
        of_input = scale * (of_normed - along - normed * across)
        rows = tuple(range(input.ndim - axes))
        return (
            of_input.astype(input.dtype),
            None if weight is None else (own * normed).sum(rows).astype(weight.dtype),
            None if bias is None else _sum_bias(gradient, axes, on_matrix_units).astype(bias.dtype),
        )

    norm.defvjp(run, run_back)
    return norm


@functools.cache
def _build_groups(groups: int, eps: float) -> Any:
    """Builds the norm of (B, C, ...), each of whose passes has a factor and a summand for each row and channel."""

    def spread(value_BG1: jax.Array, x: jax.Array) -> jax.Array:
        return _put_by_channel(jnp.repeat(value_BG1[..., 0], x.shape[1] // groups, axis=1), x)

    @jax.custom_vjp
    def norm(input: jax.Array, weight: jax.Array | None, bias: jax.Array | None) -> jax.Array:
        return run(input, weight, bias)[0]

    def run(input: jax.Array, weight: jax.Array | None, bias: jax.Array | None) -> tuple[jax.Array, Any]:
        x = input.astype(jnp.float32)
        mean, scale = _find_scale(x.reshape(len(x), groups, -1), -1, eps)
        gain, shift = spread(scale, x), spread(-mean * scale, x)
        if weight is not None:
            gain, shift = (one * _put_by_channel(weight.astype(jnp.float32)[None], x) for one in (gain, shift))
        if bias is not None:
            shift = shift + _put_by_channel(bias.astype(jnp.float32)[None], x)
        return (x * gain + shift).astype(input.dtype), (input, weight, bias, mean, scale)

    def run_back(kept: Any, gradient: jax.Array) -> tuple[jax.Array | None, ...]:
        input, weight, bias, mean, scale = kept
        x, own = input.astype(jnp.float32), gradient.astype(jnp.float32)
        pixels = tuple(range(2, x.ndim))
        of_bias_BC, of_weight_BC = own.sum(pixels), (own * (x - spread(mean, x))).sum(pixels)
        of_weight_BC = of_weight_BC * jnp.repeat(scale[..., 0], x.shape[1] // groups, axis=1)
        factor_C = jnp.ones(x.shape[1]) if weight is None else weight.astype(jnp.float32)
        count = x[0].size // groups
        along, across = (
            (one * factor_C).reshape(len(x), groups, -1).sum(-1, keepdims=True) / count
            for one in (of_bias_BC, of_weight_BC)
        )
        by_x = -across * scale * scale
        of_input = own * (spread(scale, x) * _put_by_channel(factor_C[None], x))
        of_input = of_input + x * spread(by_x, x) - spread(mean * by_x + along * scale, x)
        return (
            of_input.astype(input.dtype),
            None if weight is None else of_weight_BC.sum(0).astype(weight.dtype),
            None if bias is None else of_bias_BC.sum(0).astype(bias.dtype),
        )

    norm.defvjp(run, run_back)
    return norm


def _find_scale(x: jax.Array, over: int | tuple[int, ...], eps: float) -> tuple[jax.Array, jax.Array]:
    """Returns mean and 1 / sqrt(variance + eps), by their name."""
    mean, variance = find_moments(x, over)
    return checkpoint_name(mean, MOMENTS), checkpoint_name(jax.lax.rsqrt(variance + eps), MOMENTS)


def _put_by_channel(value_BC: jax.Array, x: jax.Array) -> jax.Array:
    return value_BC.reshape(*value_BC.shape, *(1 for _ in x.shape[2:]))


def _sum_bias(gradient: jax.Array, axes: int, on_matrix_units: bool) -> jax.Array:  # noqa: FBT001
    if axes == 1:
        return sum_rows(gradient, on_matrix_units=on_matrix_units)
    return gradient.astype(jnp.float32).sum(tuple(range(gradient.ndim - axes)))
