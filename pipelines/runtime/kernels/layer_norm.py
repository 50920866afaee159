"""Layer norm for a training: its gradient takes two passes over what was normed, from the moments that forwards found.

Left to itself JAX differentiates mean and variance one by one, and computes both again where a layer is computed again:
four passes. By the TPU compiler a step of a LoRA of FLUX.2-klein takes 227 ms so, in place of 231 (plan/TRIED.md).
The moments, two numbers a token, carry the name MOMENTS: what a rematerialisation may keep.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from pipelines.runtime.kernels.operators import find_moments, sum_rows

MOMENTS = "moments"


def norm_learning(
    input: jax.Array,
    weight: jax.Array | None,
    bias: jax.Array | None,
    *,
    axes: int,
    eps: float,
    on_matrix_units: bool,
) -> jax.Array:
    """Does what operators.layer_norm does, over the last `axes` axes; gradients of weight and bias are summed in fp32.

    `on_matrix_units` sums as `add_bias` does.
    """
    norm: Any = _build(axes, eps, on_matrix_units)
    return norm(input, weight, bias)


@functools.cache
def _build(axes: int, eps: float, on_matrix_units: bool) -> Any:  # noqa: FBT001
    over = tuple(range(-axes, 0))

    @jax.custom_vjp
    def norm(input: jax.Array, weight: jax.Array | None, bias: jax.Array | None) -> jax.Array:
        return run(input, weight, bias)[0]

    def run(input: jax.Array, weight: jax.Array | None, bias: jax.Array | None) -> tuple[jax.Array, Any]:
        x = input.astype(jnp.float32)
        mean, variance = find_moments(x, over)
        mean, scale = (checkpoint_name(one, MOMENTS) for one in (mean, jax.lax.rsqrt(variance + eps)))
        x = (x - mean) * scale
        if weight is not None:
            x = x * weight.astype(jnp.float32)
        if bias is not None:
            x = x + bias.astype(jnp.float32)
        return x.astype(input.dtype), (input, weight, bias, mean, scale)

    def run_back(kept: Any, gradient: jax.Array) -> tuple[jax.Array | None, ...]:
        input, weight, bias, mean, scale = kept
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


def _sum_bias(gradient: jax.Array, axes: int, on_matrix_units: bool) -> jax.Array:  # noqa: FBT001
    if axes == 1:
        return sum_rows(gradient, on_matrix_units=on_matrix_units)
    return gradient.astype(jnp.float32).sum(tuple(range(gradient.ndim - axes)))
