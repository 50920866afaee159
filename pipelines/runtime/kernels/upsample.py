"""Twice the rows and columns by nearest pixels, on TPU as one Pallas kernel.

XLA copies such an array three times to get every pixel beside itself. But two neighbours along sublanes share a word of
bf16, so a pixel and its copy are one word with both halves alike.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from pipelines.runtime.kernels.conv3x3 import LANES

SUBLANES = 8  # of a tile of words
_HALF = 16  # bits of a word
_MOST_VALUES = 2**18  # taken at a time, in whole lanes; with their doubles each needs 20 bytes


def double_pixels(x_BHWC: jax.Array, *, interpret: bool = False) -> jax.Array:
    """(B, 2H, 2W, C) in bf16."""
    batch, height, width, channels = x_BHWC.shape
    row = width * (channels + -channels % LANES)
    fitting = (rows for rows in range(2, height + 1) if height % rows == 0 and rows * row <= _MOST_VALUES)
    rows = max(fitting, default=1)
    out = jax.ShapeDtypeStruct((batch, height, 2, 2 * width, channels), jnp.bfloat16)
    doubled = pl.pallas_call(
        _kernel,
        grid=(batch, height // rows),
        in_specs=[pl.BlockSpec((None, rows, width, channels), lambda b, h: (b, h, 0, 0))],
        out_specs=pl.BlockSpec((None, rows, 2, 2 * width, channels), lambda b, h: (b, h, 0, 0, 0)),
        out_shape=out,
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel")),
        cost_estimate=pl.CostEstimate(
            flops=0, transcendentals=0, bytes_accessed=x_BHWC.nbytes + out.size * out.dtype.itemsize
        ),
        interpret=interpret,
        name="double_pixels",
    )(x_BHWC)
    return doubled.reshape(batch, 2 * height, 2 * width, channels)


def _kernel(x_ref: Any, out_ref: Any) -> None:
    rows, width, channels = x_ref.shape
    x = x_ref[...].astype(jnp.bfloat16).astype(jnp.float32)  # whose lower half is then zero
    if missing := -width % SUBLANES:
        x = jnp.concatenate([x, jnp.zeros((rows, missing, channels), x.dtype)], 1)
    upper = pltpu.bitcast(x, jnp.uint32)
    doubled = pltpu.bitcast(upper | (upper >> _HALF), jnp.bfloat16)[:, : 2 * width]
    out_ref[:, 0] = doubled
    out_ref[:, 1] = doubled
