"""Gradients of twice and of half the rows and columns, on TPU as Pallas kernels.

What doubling gave comes back as sums of four pixels each, what was taken of every second pixel as pixels between zeros.
XLA does both with strides along sublanes, pixel by pixel: of a step of SDXL's the two strided convolutions alone took
3.3 ms so. Here, as in upsample.py, two neighbours along sublanes are the halves of one word.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from pipelines.runtime.kernels.conv3x3 import LANES
from pipelines.runtime.kernels.upsample import SUBLANES

_HALF = 16  # bits of a word
_UPPER = 0xFFFF0000
_MOST_VALUES = 2**18  # of the smaller picture taken at a time, in whole lanes


def add_up_pixels(x_BHWC: jax.Array, *, interpret: bool = False) -> jax.Array:
    """Returns (B, H / 2, W / 2, C) in bf16: the sum of every two by two pixels of x in bf16, added up in fp32."""
    batch, height, width, channels = x_BHWC.shape
    pairs = x_BHWC.astype(jnp.bfloat16).reshape(batch, height // 2, 2, width, channels)
    return _run(_add_up, pairs, (height // 2, width // 2), is_wide=True, interpret=interpret)


def spread_pixels(x_BHWC: jax.Array, *, interpret: bool = False) -> jax.Array:
    """Returns (B, 2H, 2W, C) in bf16: pixels of x in even rows and columns, zeros in the others."""
    batch, height, width, channels = x_BHWC.shape
    spread = _run(_spread, x_BHWC.astype(jnp.bfloat16), (height, width), is_wide=False, interpret=interpret)
    return spread.reshape(batch, 2 * height, 2 * width, channels)


def _run(
    kernel: Callable[..., None], x: jax.Array, size: tuple[int, int], *, is_wide: bool, interpret: bool
) -> jax.Array:
    """Runs a kernel from pictures of two by two times `size` to those of `size` if x `is_wide`, else from those."""
    height, width = size
    batch, channels = x.shape[0], x.shape[-1]
    row = width * (channels + -channels % LANES)
    fitting = (rows for rows in range(2, height + 1) if height % rows == 0 and rows * row <= _MOST_VALUES)
    rows = max(fitting, default=1)
    wide = pl.BlockSpec((None, rows, 2, 2 * width, channels), lambda b, h: (b, h, 0, 0, 0))
    narrow = pl.BlockSpec((None, rows, width, channels), lambda b, h: (b, h, 0, 0))
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
        name=kernel.__name__.removeprefix("_") + "_pixels",
    )(x)


def _add_up(x_ref: Any, out_ref: Any) -> None:
    width = out_ref.shape[1]
    total: Any = 0
    for row in range(2):
        words = pltpu.bitcast(_fill_up(x_ref[:, row], 2 * SUBLANES), jnp.uint32)
        for half in (words << _HALF, words & jnp.uint32(_UPPER)):
            total += pltpu.bitcast(half, jnp.float32)
    out_ref[...] = total[:, :width].astype(out_ref.dtype)


def _spread(x_ref: Any, out_ref: Any) -> None:
    width = x_ref.shape[1]
    words = pltpu.bitcast(_fill_up(x_ref[...], SUBLANES).astype(jnp.float32), jnp.uint32) >> _HALF
    spread = pltpu.bitcast(words, jnp.bfloat16)[:, : 2 * width]
    out_ref[:, 0] = spread
    out_ref[:, 1] = jnp.zeros_like(spread)


def _fill_up(x_RWC: Any, whole: int) -> Any:
    """Returns rows whose pixels are a multiple of `whole`, with zeros at their ends."""
    rows, width, channels = x_RWC.shape
    missing = -width % whole
    return jnp.concatenate([x_RWC, jnp.zeros((rows, missing, channels), x_RWC.dtype)], 1) if missing else x_RWC
