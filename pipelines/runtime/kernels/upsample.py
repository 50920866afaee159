"""Twice the rows and columns by nearest pixels, on TPU as one Pallas kernel.

XLA copies such an array three times to get every pixel beside itself. But two neighbours along sublanes share a word of
bf16, so a pixel and its copy are one word with both halves alike.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from pipelines.runtime.kernels.taps import LANES

SUBLANES = 8  # of a tile of words
HALF = 16  # bits of a word
_MOST_VALUES = 2**18  # of the smaller picture taken at a time, in whole lanes; with their doubles each needs 20 bytes


def double_pixels(x_BHWC: jax.Array, *, interpret: bool = False) -> jax.Array:
    """(B, 2H, 2W, C) in bf16."""
    batch, height, width, channels = x_BHWC.shape
    doubled = resample(_kernel, x_BHWC, (height, width), is_wide=False, name="double_pixels", interpret=interpret)
    return doubled.reshape(batch, 2 * height, 2 * width, channels)


def resample(
    kernel: Callable[..., None], x: jax.Array, size: tuple[int, int], *, is_wide: bool, name: str, interpret: bool
) -> jax.Array:
    """Runs a kernel, some rows at a time, between pictures of `size` and of twice its rows and columns, in bf16.

    The larger ones are (B, H, 2, 2W, C); x is one if it `is_wide`, and what is returned otherwise.
    """
    height, width = size
    batch, channels = x.shape[0], x.shape[-1]
    row = width * (channels + -channels % LANES)
    fitting = (rows for rows in range(2, height + 1) if height % rows == 0 and rows * row <= _MOST_VALUES)
    rows = max(fitting, default=1)
    narrow = pl.BlockSpec((None, rows, width, channels), lambda b, h: (b, h, 0, 0))
    wide = pl.BlockSpec((None, rows, 2, 2 * width, channels), lambda b, h: (b, h, 0, 0, 0))
    shape = (batch, height, width, channels) if is_wide else (batch, height, 2, 2 * width, channels)
    out = jax.ShapeDtypeStruct(shape, jnp.bfloat16)
    return pl.pallas_call(
        kernel,
        grid=(batch, height // rows),
        in_specs=[wide if is_wide else narrow],
        out_specs=narrow if is_wide else wide,
        out_shape=out,
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel")),
        cost_estimate=pl.CostEstimate(
            flops=0, transcendentals=0, bytes_accessed=x.nbytes + out.size * out.dtype.itemsize
        ),
        interpret=interpret,
        name=name,
    )(x)


def _kernel(x_ref: Any, out_ref: Any) -> None:
    rows, width, channels = x_ref.shape
    x = x_ref[...].astype(jnp.bfloat16).astype(jnp.float32)  # whose lower half is then zero
    if missing := -width % SUBLANES:
        x = jnp.concatenate([x, jnp.zeros((rows, missing, channels), x.dtype)], 1)
    upper = pltpu.bitcast(x, jnp.uint32)
    doubled = pltpu.bitcast(upper | (upper >> HALF), jnp.bfloat16)[:, : 2 * width]
    out_ref[:, 0] = doubled
    out_ref[:, 1] = doubled
