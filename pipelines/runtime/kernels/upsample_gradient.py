"""Gradients of twice and of half the rows and columns, on TPU as Pallas kernels.

What doubling gave comes back as sums of four pixels each, what was taken of every second pixel as pixels between zeros.
XLA does both with strides along sublanes, pixel by pixel: of a step of SDXL's the two strided convolutions alone took
3.3 ms so. Here, as in upsample.py, two neighbours along sublanes are the halves of one word.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental.pallas import tpu as pltpu

from pipelines.runtime.kernels.upsample import HALF, SUBLANES, resample

_UPPER = 0xFFFF0000  # half of a word


def add_up_pixels(x_BHWC: jax.Array, *, interpret: bool = False) -> jax.Array:
    """Returns (B, H / 2, W / 2, C) in bf16: the sum of every two by two pixels of x in bf16, added up in fp32."""
    batch, height, width, channels = x_BHWC.shape
    pairs = x_BHWC.astype(jnp.bfloat16).reshape(batch, height // 2, 2, width, channels)
    size = height // 2, width // 2
    return resample(_add_up, pairs, size, is_wide=True, name="add_up_pixels", interpret=interpret)


def spread_pixels(x_BHWC: jax.Array, *, interpret: bool = False) -> jax.Array:
    """Returns (B, 2H, 2W, C) in bf16: pixels of x in even rows and columns, zeros in the others."""
    batch, height, width, channels = x_BHWC.shape
    x, size = x_BHWC.astype(jnp.bfloat16), (height, width)
    spread = resample(_spread, x, size, is_wide=False, name="spread_pixels", interpret=interpret)
    return spread.reshape(batch, 2 * height, 2 * width, channels)


def _add_up(x_ref: Any, out_ref: Any) -> None:
    width = out_ref.shape[1]
    total: Any = 0
    for row in range(2):
        words = pltpu.bitcast(_fill_up(x_ref[:, row], 2 * SUBLANES), jnp.uint32)
        for half in (words << HALF, words & jnp.uint32(_UPPER)):
            total += pltpu.bitcast(half, jnp.float32)
    out_ref[...] = total[:, :width].astype(out_ref.dtype)


def _spread(x_ref: Any, out_ref: Any) -> None:
    width = x_ref.shape[1]
    words = pltpu.bitcast(_fill_up(x_ref[...], SUBLANES).astype(jnp.float32), jnp.uint32) >> HALF
    spread = pltpu.bitcast(words, jnp.bfloat16)[:, : 2 * width]
    out_ref[:, 0] = spread
    out_ref[:, 1] = jnp.zeros_like(spread)


def _fill_up(x_RWC: Any, whole: int) -> Any:
    """Returns rows whose pixels are a multiple of `whole`, with zeros at their ends."""
    rows, width, channels = x_RWC.shape
    missing = -width % whole
    return jnp.concatenate([x_RWC, jnp.zeros((rows, missing, channels), x_RWC.dtype)], 1) if missing else x_RWC
