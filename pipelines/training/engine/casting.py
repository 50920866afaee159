"""Weights as a step computes with them, cast from their masters."""

from typing import Any

import jax
import jax.numpy as jnp


def cast(value: jax.Array, dtype: Any, *, is_large: bool) -> jax.Array:
    """Casts a weight; what counts in whole numbers stays as it is.

    Large ones are rounded from fp32 to bf16 before they are cast, which changes nothing but how it is compiled: for a
    TPU XLA fuses the two, and takes twice as long for a cast alone (plan/TRIED.md).
    """
    if is_large and value.dtype == jnp.float32 and dtype == jnp.bfloat16:
        return _round(value)
    return value.astype(dtype) if jnp.issubdtype(value.dtype, jnp.floating) else value


@jax.custom_jvp
def _round(value: jax.Array) -> jax.Array:
    return jax.lax.reduce_precision(value, exponent_bits=8, mantissa_bits=7).astype(jnp.bfloat16)


@_round.defjvp
def _round_tangent(values: Any, tangents: Any) -> tuple[jax.Array, jax.Array]:
    return _round(*values), tangents[0].astype(jnp.bfloat16)
