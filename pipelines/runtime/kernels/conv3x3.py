"""Convolutions of 3 x 3 pixels, over one frame or three, on TPU as one Pallas kernel.

Left to itself XLA cuts a picture's width into eight batches, and copies and fills up every array on the way: nine
tenths of the time of a layer of Wan's autoencoder at 720p. Here channels lie along lanes and the pixels of a row along
sublanes, as the norms between the layers like them too, and nothing is filled up outside: the kernel puts each block of
rows together with what is around it.

    grid (batch, blocks of output channels, blocks of rows, frames)
        at the first frame: all frames' rows, the rows above and below, the columns left and right -> `seen`
        for some of (taps of frames and rows, groups of channels) at a time:
            pixels of the rows x those, times weights
                -> added to three sums, for the taps to the left, in the middle and to the right
        output = left, one pixel back, + middle + right, one pixel on

Taps of frames and rows are whole rows away, which costs nothing: taps and channels together fill the matrix unit along
one side, sums of several blocks of outputs along the other. Taps of columns are the three sums, moved by a pixel when
all is added up. The loop over taps and channels is for code: unrolled, programs of many convolutions have 100 MB. How
busy all that keeps the matrix units: plan/TRIED.md.

Not here: which convolutions take this way, and how pictures lie on the mesh (convolution.py).
"""

import functools
import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from pipelines.runtime.kernels.taps import BLOCKED_NDIM, FLAT_NDIM, LANES, TAPS, fill

SUBLANES = 16  # of a tile of bf16
UNIT = 256  # rows and columns of the matrix units of v6e and later
_MOST_PIXELS = 1024  # held at a time: half as many again gain 4 % and are a third more code
_ENOUGH_PIXELS = 512  # with so many, wider blocks gain more than taller ones
_WIDEST = 5  # blocks of outputs at a time
_MOST_CODE = 3000  # cycles, and as many instructions, of what is unrolled
_MOST_WHOLE = 4000  # where that is everything: no loop has to add to sums, and SDXL's largest layers take a sixth less
_OF_ONE = 1.5  # times pixels and code, where one block of outputs is made at a time: a ninth less for Wan's largest
_STACK = 2**19  # bytes: so much more than is counted was taken, where other devices' rows come
_TURN = 200  # cycles in which the matrix units run dry between two turns of the loop


@dataclass(frozen=True, kw_only=True)
class Blocks:
    """Block sizes of the kernel: `rows` divide the picture's height, `wide` the number of blocks of outputs."""

    rows: int
    wide: int


def choose_blocks(
    height: int,
    width: int,
    *,
    frames: int,
    inputs: int,
    blocks: int,
    time_taps: int,
    vmem_bytes: int,
    has_rows: bool = False,
) -> Blocks | None:
    """Chooses blocks that fill the matrix units best, then as tall as VMEM allows; None if not even a row fits.

    `blocks` counts the weight's blocks of outputs. With `has_rows` the rows above and below come from other devices.
    """
    columns = pad_width(width, has_neighbours=True)

    def count_rows(wide: int) -> int:
        def fits(rows: int) -> bool:
            pixels = rows * columns
            row = 2 * (frames + time_taps - 1) * columns * fill(inputs)
            taken = (rows + TAPS - 1) * row
            weight = 2 * time_taps * TAPS * fill(inputs) * TAPS * LANES * wide
            sums = 4 * pixels * TAPS * LANES * wide
            out = 4 * pixels * LANES * wide
            most = max(_MOST_PIXELS * _grow(wide), columns)
            # What is read and written is there twice, since the next block comes meanwhile; sums twice as they grow.
            given = has_rows * (2 * (TAPS - 1) * row + _STACK)
            return pixels <= most and 3 * taken + given + 2 * weight + 2 * sums + 2 * out <= vmem_bytes

        return max((rows for rows in range(1, height + 1) if height % rows == 0 and fits(rows)), default=0)

    narrow = count_rows(1)
    divisors = [wide for wide in range(1, min(blocks, _WIDEST) + 1) if blocks % wide == 0]
    for wide in sorted(divisors, key=lambda wide: (_count_units(wide) / wide, wide)):
        rows = count_rows(wide)
        if rows and rows * columns >= min(_ENOUGH_PIXELS, narrow * columns):
            return Blocks(rows=rows, wide=wide)
    return None


def _grow(wide: int) -> float:
    return _OF_ONE if wide == 1 else 1.0


def _count_units(wide: int) -> int:
    """Number of matrix units side by side that the sums of `wide` blocks fill."""
    return math.ceil(TAPS * wide * LANES / UNIT)


def choose_groups(total: int, *, lanes: int, pixels: int, wide: int) -> int:
    """How many of the `total` groups (inputs by taps of frames and rows) one turn of the loop multiplies.

    The first turn is the rest, if there is one. Of those with little enough code, the quickest: 16 pixels go through a
    unit in 8 cycles, and there are two units.
    """
    of_unit = pl.cdiv(pixels, SUBLANES) * 4 * _count_units(wide)
    per_unit = UNIT // lanes

    def weigh(groups: int) -> tuple[float, int]:
        rest, turns = total % groups, total // groups
        own, first = (of_unit * pl.cdiv(count, per_unit) for count in (groups, rest))
        code = own + first
        most = max(_MOST_CODE * _grow(wide), _MOST_WHOLE * (groups == total))
        return max(0, code - most), turns * (own + _TURN * (total != groups)) + first

    return min((*range(per_unit, total, per_unit), total), key=weigh)


@functools.partial(jax.jit, static_argnames=("blocks", "dtype", "vmem_bytes", "turned", "interpret"), inline=True)
def convolve_taps(  # noqa: PLR0917 - arrays by position, as elsewhere
    x_BFHWC: jax.Array,
    before_BFHWC: jax.Array,
    weight: jax.Array,
    bias_O: jax.Array,
    rows_BF2WC: jax.Array | None = None,
    columns_BFH2C: jax.Array | None = None,
    *,
    blocks: Blocks,
    dtype: Any,
    vmem_bytes: int,
    turned: bool = False,
    interpret: bool = False,
) -> jax.Array:
    """(B, F, H, W, O) in `dtype`; x and everything beside it are bf16.

    `weight` is what block_taps gives, or, of a single frame, what order_taps gives of a weight as it is; that may be
    `turned`, so that its inputs are what comes out, and its taps come in the opposite order: a convolution's gradient.

    `before` are the T - 1 frames before x. `rows_BF2WC` are the rows above and below, `columns_BFH2C` the columns left
    and right of all F + T - 1 frames; zeros where there are none. At most one of the two is given. `blocks` are what
    choose_blocks says.
    """
    assert rows_BF2WC is None or columns_BFH2C is None, "corners of neighbours in both directions are nowhere"
    batch, frames, height, width, inputs = x_BFHWC.shape
    (outputs,) = bias_O.shape
    rows, wide = blocks.rows, blocks.wide
    if weight.ndim == BLOCKED_NDIM:
        count, time_taps, _, filled, _, _ = weight.shape
        weight = weight.reshape(count, time_taps * TAPS * filled, TAPS * LANES)
        of_weight = pl.BlockSpec((wide, *weight.shape[1:]), lambda b, h, n, f: (n, 0, 0))  # noqa: ARG005
    else:
        time_taps, filled = 1, weight.shape[2 if turned else 3]
        count = pl.cdiv(weight.shape[3 if turned else 2], LANES)
        shape = (filled, wide * LANES) if turned else (wide * LANES, filled)
        of_weight = pl.BlockSpec((TAPS, TAPS, *shape), lambda b, h, n, f: (0, 0, 0, n) if turned else (0, 0, n, 0))  # noqa: ARG005
    bias = jnp.pad(bias_O.astype(jnp.float32), (0, count * LANES - outputs))[None]
    taken = {"x": x_BFHWC, "before": before_BFHWC, "columns": columns_BFH2C}
    taken = {name: one for name, one in taken.items() if one is not None and one.size}
    specs = [spec for one in taken.values() for spec in _spec_rows(one.shape, rows=rows)]
    arrays = [one for one in taken.values() for _ in range(3)]
    if rows_BF2WC is not None:
        specs.append(pl.BlockSpec((None, *rows_BF2WC.shape[1:]), lambda b, h, n, f: (b, 0, 0, 0, 0)))  # noqa: ARG005
        arrays.append(rows_BF2WC)
    out = jax.ShapeDtypeStruct((batch, frames, height, width, outputs), dtype)
    columns = pad_width(width, has_neighbours=columns_BFH2C is not None)
    lanes = UNIT if filled % UNIT == 0 else LANES
    seen = (frames + time_taps - 1, filled // lanes, rows + TAPS - 1, columns, lanes)
    return pl.pallas_call(
        functools.partial(
            _kernel,
            names=tuple(taken),
            has_rows=rows_BF2WC is not None,
            rows=rows,
            width=width,
            time_taps=time_taps,
            wide=wide,
            turned=turned,
        ),
        grid=(batch, height // rows, count // wide, frames),
        in_specs=[
            *specs,
            of_weight,
            pl.BlockSpec((1, wide * LANES), lambda b, h, n, f: (0, n)),  # noqa: ARG005
        ],
        out_specs=pl.BlockSpec((None, None, rows, width, wide * LANES), lambda b, h, n, f: (b, f, h, 0, n)),
        out_shape=out,
        scratch_shapes=[
            pltpu.VMEM(seen, jnp.bfloat16),
            pltpu.VMEM((rows * columns, wide * TAPS * LANES), jnp.float32),
        ],
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "parallel", "arbitrary", "arbitrary"), vmem_limit_bytes=vmem_bytes
        ),
        cost_estimate=pl.CostEstimate(
            flops=2 * batch * frames * height * columns * count * time_taps * TAPS * TAPS * filled * LANES,
            transcendentals=0,
            bytes_accessed=sum(one.nbytes for one in taken.values())
            + batch * height // rows * weight.nbytes
            + out.size * out.dtype.itemsize,
        ),
        interpret=interpret,
        name="convolve_taps",
    )(*arrays, weight, bias)


def pad_width(width: int, *, has_neighbours: bool) -> int:
    """Rounds a row, with the pixels left and right of it where there are any, up to whole tiles."""
    return SUBLANES * pl.cdiv(width + (TAPS - 1) * has_neighbours, SUBLANES)


def _spec_rows(shape_BFHWC: tuple[int, ...], *, rows: int) -> list[pl.BlockSpec]:
    """Specs of a block of rows, the row above and the row below; at the picture's ends any row, as it is unused."""
    _, frames, height, width, channels = shape_BFHWC
    of_one = None, frames, 1, width, channels
    return [
        pl.BlockSpec((None, frames, rows, width, channels), lambda b, h, n, f: (b, 0, h, 0, 0)),  # noqa: ARG005
        pl.BlockSpec(of_one, lambda b, h, n, f: (b, 0, jnp.maximum(h * rows - 1, 0), 0, 0)),  # noqa: ARG005
        pl.BlockSpec(of_one, lambda b, h, n, f: (b, 0, jnp.minimum(h * rows + rows, height - 1), 0, 0)),  # noqa: ARG005
    ]


def _kernel(
    *refs: Any,
    names: tuple[str, ...],
    has_rows: bool,
    rows: int,
    width: int,
    time_taps: int,
    wide: int,
    turned: bool,
) -> None:
    taken = {name: refs[3 * at : 3 * at + 3] for at, name in enumerate(names)}
    rows_ref = refs[3 * len(names)] if has_rows else None
    weight_ref, bias_ref, out_ref, seen_ref, sums_ref = refs[-5:]
    frame, block = pl.program_id(3), pl.program_id(1)
    ends = block == 0, block == pl.num_programs(1) - 1
    _, groups, _, columns, lanes = seen_ref.shape

    @pl.when((frame == 0) & (pl.program_id(2) == 0))
    def _() -> None:
        _put_together(seen_ref, taken, width=width, time_taps=time_taps)
        _close_ends(seen_ref, rows_ref, ends)

    def see(at: Any) -> jax.Array:
        """Pixels of the rows as one tap of frames and rows sees them, some of their channels."""
        tap, group = jax.lax.div(at, jnp.int32(groups)), jax.lax.rem(at, jnp.int32(groups))
        time_tap, tap = jax.lax.div(tap, jnp.int32(TAPS)), jax.lax.rem(tap, jnp.int32(TAPS))
        return seen_ref[frame + time_tap, group, pl.ds(tap, rows)].reshape(rows * columns, lanes)

    def multiply(first: Any, count: int) -> jax.Array:
        seen = jnp.concatenate([see(jnp.int32(first + at)) for at in range(count)], -1)
        if weight_ref.ndim == FLAT_NDIM:
            own = pl.ds(first * lanes, count * lanes)
            weight = jnp.concatenate([weight_ref[one, own, :] for one in range(wide)], -1)
            return jnp.dot(seen, weight, preferred_element_type=jnp.float32)
        read = functools.partial(_read_taps, weight_ref, groups=groups, lanes=lanes, turned=turned)
        weight = jnp.concatenate([read(jnp.int32(first + at)) for at in range(count)], 0 if turned else 1)
        axes = (((1,), (0 if turned else 1,)), ((), ()))
        return jax.lax.dot_general(seen, weight, axes, preferred_element_type=jnp.float32)

    total = time_taps * TAPS * groups
    count = choose_groups(total, lanes=lanes, pixels=rows * columns, wide=wide)
    rest = total % count
    if rest:
        sums_ref[...] = multiply(0, rest)

    def add(turn: Any, _: None) -> None:
        before = sums_ref[...] if rest else jnp.where(turn == 0, 0.0, sums_ref[...])
        sums_ref[...] = before + multiply(rest + turn * count, count)

    is_unrolled = total == count
    if is_unrolled:
        sums_ref[...] = multiply(0, total)
    else:
        jax.lax.fori_loop(0, total // count, add, None)

    def finish(row: Any, _: None) -> None:
        own = pl.ds(row * columns, columns)
        left, middle, right = (
            jnp.concatenate([sums_ref[own, LANES * at : LANES * (at + 1)] for at in range(tap, wide * TAPS, TAPS)], -1)
            for tap in range(TAPS)
        )
        left, right = pltpu.roll(left, 1, 0), pltpu.roll(right, columns - 1, 0)
        if "columns" not in taken:  # what came round from the other end is nobody's neighbour
            column = jax.lax.broadcasted_iota(jnp.int32, left.shape, 0)
            left, right = jnp.where(column == 0, 0.0, left), jnp.where(column == width - 1, 0.0, right)
        out_ref[row] = (left + middle + right + bias_ref[...])[:width].astype(out_ref.dtype)

    jax.lax.fori_loop(0, rows, finish, None, unroll=is_unrolled)


def _read_taps(weight_ref: Any, at: Any, *, groups: int, lanes: int, turned: bool) -> jax.Array:
    """Reads what `lanes` inputs of one tap of rows are multiplied with, for blocks of outputs and taps of columns.

    Returns (outputs, inputs), and (inputs, outputs) if `turned`.
    """
    tap, group = jax.lax.div(at, jnp.int32(groups)), jax.lax.rem(at, jnp.int32(groups))
    own = pl.ds(pl.multiple_of(group * lanes, lanes), lanes)
    row = TAPS - 1 - tap if turned else tap
    starts = range(0, weight_ref.shape[3 if turned else 2], LANES)
    columns = range(TAPS)[::-1] if turned else range(TAPS)
    if turned:
        return jnp.concatenate(
            [weight_ref[row, column, own, start : start + LANES] for start in starts for column in columns], 1
        )
    return jnp.concatenate(
        [weight_ref[row, column, start : start + LANES, own] for start in starts for column in columns], 0
    )


def _put_together(seen_ref: Any, taken: dict[str, Any], *, width: int, time_taps: int) -> None:
    """Assembles rows in VMEM: its pixels, the one to the right of them, zeros, and last the one to the left."""
    _, groups, tall, columns, size = seen_ref.shape
    inputs = taken["x"][0].shape[-1]
    whole = width // SUBLANES * SUBLANES
    frames = {"x": slice(time_taps - 1, None), "before": slice(0, time_taps - 1), "columns": slice(None)}

    def put(to: Any, part: int, row: Any) -> None:
        if whole < columns:
            seen_ref[:, :, to, whole:] = jnp.zeros_like(seen_ref[:, :, 0, whole:])
        if inputs % size:
            seen_ref[:, groups - 1, to] = jnp.zeros_like(seen_ref[:, groups - 1, 0])
        for group in range(groups):
            own = slice(group * size, min(inputs, (group + 1) * size))
            lanes = slice(0, own.stop - own.start)
            for name, refs in taken.items():
                pixels = refs[part][:, row, :, own]
                if name == "columns":
                    seen_ref[:, group, to, columns - 1 :, lanes] = pixels[:, :1]
                    seen_ref[:, group, to, width : width + 1, lanes] = pixels[:, 1:]
                else:
                    seen_ref[frames[name], group, to, :width, lanes] = pixels

    jax.lax.fori_loop(0, tall - 2, lambda row, _: put(row + 1, 0, row), None)
    put(0, 1, 0)
    put(tall - 1, 2, 0)


def _close_ends(seen_ref: Any, rows_ref: Any, ends: tuple[Any, Any]) -> None:
    """Above the first row and below the last are the neighbours' or zeros."""
    _, groups, tall, _, size = seen_ref.shape
    for side, (row, is_end) in enumerate(zip((0, tall - 1), ends, strict=True)):

        @pl.when(is_end)
        def _(side: int = side, row: int = row) -> None:
            seen_ref[:, :, row] = jnp.zeros_like(seen_ref[:, :, row])
            if rows_ref is not None:
                _, _, width, inputs = rows_ref.shape
                for group in range(groups):
                    own = slice(group * size, min(inputs, (group + 1) * size))
                    seen_ref[:, group, row, :width, : own.stop - own.start] = rows_ref[:, side, :, own]
