"""Linear layers that train fast on a CPU: bf16 matmuls with fp32 accumulation, and gradients without transposed copies.

By default XLA:CPU transposes a copy of the incoming gradient for each weight's gradient, and recomputes the whole chain
of residual additions for every such copy, which is most of a training step. Here a matmul with the identity transposes
the gradient. The gradients of one step of the video demo, on a busy machine, took 4.2 s before, 1.9 s in fp32 and 1.4 s
in bf16, which processors with matrix units multiply five times as fast. Weights, sums and activations stay fp32.
"""

import contextlib
import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from pipelines.runtime.bridge.environment import linear_layers_as

FEWEST_ROWS = 256  # fewer rows are not worth it
FEATURES = 32  # both sides of a weight must be a multiple of this
TURNED_TOGETHER = 192  # features transposed by one matmul


def linear(input: jax.Array, weight: jax.Array, bias: jax.Array | None = None) -> jax.Array:
    """Replaces torch.nn.functional.linear: input (..., I), weight (O, I), bias (O) -> (..., O)."""
    rows = input.reshape(-1, input.shape[-1])
    if rows.shape[0] < FEWEST_ROWS or any(side % FEATURES for side in weight.shape):
        out = rows @ weight.T
    else:
        # in fp32, as the gradients are that come back
        out = _multiply_rows(rows.astype(jnp.float32), weight.astype(jnp.float32)).astype(input.dtype)
    out = out.reshape(*input.shape[:-1], weight.shape[0])
    return out if bias is None else out + bias


def choose_layers(mesh: Mesh, *, exact: bool = False) -> Callable[[], AbstractContextManager[Any]]:
    """Returns what to trace in: a context with these layers on a CPU, unless a step is to be `exact`, else none."""
    if exact or mesh.devices.flat[0].platform != "cpu":
        return contextlib.nullcontext
    choose_dtype()  # not while tracing
    return functools.partial(linear_layers_as, linear)


@functools.cache
def choose_dtype() -> jnp.dtype:
    """Returns bf16 if this machine's XLA has a bf16 matmul with fp32 accumulation, else fp32."""
    side = jnp.ones((FEWEST_ROWS, TURNED_TOGETHER), jnp.bfloat16)
    try:
        jax.block_until_ready(jax.jit(lambda side: _contract(side, side, 1, 1))(side))
    except jax.errors.JaxRuntimeError:
        return jnp.dtype(jnp.float32)
    return jnp.dtype(jnp.bfloat16)


@jax.custom_vjp
def _multiply_rows(rows_MI: jax.Array, weight_OI: jax.Array) -> jax.Array:
    return _multiply_keeping(rows_MI, weight_OI)[0]


def _multiply_keeping(rows_MI: jax.Array, weight_OI: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    dtype = choose_dtype()
    rows, weight = rows_MI.astype(dtype), weight_OI.astype(dtype)
    return _contract(rows, weight, 1, 1), (rows, weight)


def _multiply_back(kept: tuple[jax.Array, jax.Array], gradient_MO: jax.Array) -> tuple[jax.Array, jax.Array]:
    rows, weight = kept
    gradient = gradient_MO.astype(rows.dtype)
    parts = [_contract(part, rows, 1, 0) for part in _turn(gradient)]
    return _contract(gradient, weight, 1, 0), jnp.concatenate(parts)


_multiply_rows.defvjp(_multiply_keeping, _multiply_back)


def _turn(gradient_MO: jax.Array) -> list[jax.Array]:
    """Transposes to (O, M), in chunks of O, by exact matmuls with the identity: XLA:CPU would copy single elements."""
    count = gradient_MO.shape[1]
    together = TURNED_TOGETHER if count % TURNED_TOGETHER == 0 else count
    identity = jnp.eye(together, dtype=gradient_MO.dtype)
    parts = (gradient_MO[:, first : first + together] for first in range(0, count, together))
    return [_contract(identity, part, 1, 1).astype(gradient_MO.dtype) for part in parts]


def _contract(left: jax.Array, right: jax.Array, left_axis: int, right_axis: int) -> jax.Array:
    axes = (((left_axis,), (right_axis,)), ((), ()))
    return jax.lax.dot_general(left, right, axes, preferred_element_type=jnp.float32)
