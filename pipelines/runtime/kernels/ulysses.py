"""Tokens traded for heads between the devices of an axis, and back (Ulysses: Jacobs et al. 2023).

Each device holds some tokens of all heads; attention wants all tokens of some heads. The exchange itself is cheap. What
costs a TPU is laying out what is exchanged: asked to split features, or to put heads before tokens, XLA copies whole
arrays three to five times. So a kernel moves tiles of 8 x 128 as they are, from (tokens, features) to (parts, tokens,
features of a part). On the way it scales queries and keys by their norms and turns them by their rotary angles, which
then costs nothing more. By the TPU compiler, one layer of Wan 14B at 1280x720x81 on a chip of four: 9.6 ms beside the
attention itself, 30 before.

Joining the parts' tokens is free where a device's tokens fill whole tiles: TOKENS divides their number.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from pipelines.runtime.kernels.operators import scale
from pipelines.runtime.kernels.rotary import rotate_pairs
from pipelines.runtime.kernels.switches import is_on

TOKENS = 16  # rows of a tile of bf16
LANES = 128
_ROWS = 256  # tokens a kernel holds at a time, of two bytes a number; half of them in fp32


class NormAndRotary(NamedTuple):
    """Norm and rotary embedding of a device's own L tokens: x * gain * weight, each head then turned, in fp32.

    `cos` and `sin` (L, D) hold every angle twice; `gain` (B, L, 1) is a norm's for each token, `weight` (C,) its
    features'.
    """

    cos: jax.Array
    sin: jax.Array
    gain: jax.Array
    weight: jax.Array

    def apply(self, x_BLC: jax.Array) -> jax.Array:
        """Computes the same with XLA's operations instead of the kernel."""
        heads_BLHD = scale(x_BLC, self.gain, self.weight).reshape(*x_BLC.shape[:2], -1, self.cos.shape[-1])
        return rotate_pairs(heads_BLHD, self.cos, self.sin).reshape(x_BLC.shape)


def gather_tokens(
    x_BLC: jax.Array, axis: Any, *, parts: int, turn: NormAndRotary | None = None, interpret: bool = False
) -> jax.Array:
    """Trades a device's L tokens of all C features for all tokens of its features: (B, parts * L, C / parts).

    For use inside a `shard_map` over `axis`, which has `parts` devices.
    """
    batch, length, channels = x_BLC.shape
    parts_BPLC = cut_features(x_BLC, parts, turn, interpret=interpret)
    if parts > 1:
        parts_BPLC = jax.lax.all_to_all(parts_BPLC, axis, 1, 1, tiled=True)
    return parts_BPLC.reshape(batch, parts * length, channels // parts)


def gather_features(x_BLC: jax.Array, axis: Any, *, parts: int, interpret: bool = False) -> jax.Array:
    """Undoes gather_tokens: (B, L / parts, C * parts)."""
    batch, length, channels = x_BLC.shape
    parts_BPLC = x_BLC.reshape(batch, parts, length // parts, channels)
    return join_features(jax.lax.all_to_all(parts_BPLC, axis, 1, 1, tiled=True), interpret=interpret)


def cut_features(
    x_BLC: jax.Array, parts: int, turn: NormAndRotary | None = None, *, interpret: bool = False
) -> jax.Array:
    """Returns (B, parts, L, C / parts), turned where it is said how."""
    batch, length, channels = x_BLC.shape
    width = channels // parts
    is_plain = width % LANES or not is_on("ulysses")
    if turn is not None and (is_plain or LANES % turn.cos.shape[-1]):
        x_BLC, turn = turn.apply(x_BLC), None
    if is_plain:
        return x_BLC.reshape(batch, length, parts, width).swapaxes(1, 2)
    rows = 2 * _ROWS // x_BLC.dtype.itemsize
    by_part = pl.BlockSpec((None, rows, width), lambda b, i, p: (b, i, p))
    kernel, inputs, specs = _copy_kernel, (x_BLC,), [by_part]
    if turn is not None:
        cos, sin = (jnp.tile(table, (1, LANES // table.shape[-1])) for table in (turn.cos, turn.sin))
        kernel, inputs = _turn_kernel, (x_BLC, cos, sin, turn.gain, turn.weight[None])
        by_token = pl.BlockSpec((rows, LANES), lambda b, i, p: (i, 0))  # noqa: ARG005 - Pallas's index maps
        by_row = pl.BlockSpec((None, rows, 1), lambda b, i, p: (b, i, 0))  # noqa: ARG005
        by_feature = pl.BlockSpec((1, width), lambda b, i, p: (0, p))  # noqa: ARG005
        specs += [by_token, by_token, by_row, by_feature]
    return pl.pallas_call(
        kernel,
        grid=(batch, pl.cdiv(length, rows), parts),
        in_specs=specs,
        out_specs=pl.BlockSpec((None, None, rows, width), lambda b, i, p: (b, p, i, 0)),
        out_shape=jax.ShapeDtypeStruct((batch, parts, length, width), x_BLC.dtype),
        interpret=interpret,
        name="cut_features",
        **_describe(x_BLC, flops=8 if turn else 0),
    )(*inputs)


def join_features(x_BPLC: jax.Array, *, interpret: bool = False) -> jax.Array:
    """Returns (B, L, parts * C)."""
    batch, parts, length, width = x_BPLC.shape
    if width % LANES or not is_on("ulysses"):
        return x_BPLC.swapaxes(1, 2).reshape(batch, length, parts * width)
    return pl.pallas_call(
        _copy_kernel,
        grid=(batch, pl.cdiv(length, _ROWS), parts),
        in_specs=[pl.BlockSpec((None, None, _ROWS, width), lambda b, i, p: (b, p, i, 0))],
        out_specs=pl.BlockSpec((None, _ROWS, width), lambda b, i, p: (b, i, p)),
        out_shape=jax.ShapeDtypeStruct((batch, length, parts * width), x_BPLC.dtype),
        interpret=interpret,
        name="join_features",
        **_describe(x_BPLC, flops=0),
    )(x_BPLC)


def _describe(x: jax.Array, *, flops: int) -> dict[str, Any]:
    return {
        "compiler_params": pltpu.CompilerParams(dimension_semantics=("parallel", "parallel", "parallel")),
        "cost_estimate": pl.CostEstimate(flops=flops * x.size, transcendentals=0, bytes_accessed=2 * x.nbytes),
    }


def _copy_kernel(x_ref: Any, out_ref: Any) -> None:
    out_ref[...] = x_ref[...]


def _turn_kernel(  # noqa: PLR0917 - Pallas hands arrays over by position
    x_ref: Any, cos_ref: Any, sin_ref: Any, gain_ref: Any, weight_ref: Any, out_ref: Any
) -> None:
    """Gives x cos + (-x1, x0, -x3, x2, ...) sin of x scaled, 128 features at a time: neighbours are a lane apart."""
    cos, sin = cos_ref[...] * gain_ref[...], sin_ref[...] * gain_ref[...]
    is_first = jax.lax.broadcasted_iota(jnp.int32, sin.shape, 1) % 2 == 0
    of_next, of_previous = jnp.where(is_first, -sin, 0.0), jnp.where(is_first, 0.0, sin)
    for start in range(0, x_ref.shape[-1], LANES):
        part = slice(start, start + LANES)
        x = x_ref[:, part].astype(jnp.float32) * weight_ref[:, part]
        turned = x * cos + pltpu.roll(x, LANES - 1, 1) * of_next + pltpu.roll(x, 1, 1) * of_previous
        out_ref[:, part] = turned.astype(out_ref.dtype)
