"""Convolutions of 3 x 3 pixels, over one frame or three, on TPU as one Pallas kernel.

Left to itself XLA cuts a picture's width into eight batches, and copies and fills up every array on the way: nine
tenths of the time of a layer of Wan's autoencoder at 720p. Here channels lie along lanes and the pixels of a row along
sublanes, as the norms between the layers like them too, and nothing is filled up outside: the kernel puts each block of
rows together with what is around it.

    grid (batch, blocks of output channels, blocks of rows, frames)
        at the first frame: all frames' rows, the rows above and below, the columns left and right -> `seen`
        pixels of the rows x (taps of frames and rows, channels) times weights
            -> three sums, for the taps to the left, in the middle and to the right
        output = left, one pixel back, + middle + right, one pixel on

Taps of frames and rows are whole rows away, which costs nothing, so nine of them fill the matrix unit together. Taps of
columns are the three sums, moved by a pixel when all is added up. How busy that keeps the matrix units: plan/TRIED.md.

Not here: which convolutions take this way, and how pictures lie on the mesh (convolution.py).
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

LANES = 128
SUBLANES = 16  # of a tile of bf16
TAPS = 3  # of rows and of columns
PACKED_NDIM = 6
FLAT_NDIM = 3
_MOST_PIXELS = 1536  # held at a time: more gain nothing
_MOST_PIXELS_OF_FEW = {1: 256, 2: 512}  # frames of a video at a time: there code weighs more than time


def pack_taps(weight_OITHW: jax.Array) -> jax.Array:
    """As the kernel wants it: (blocks of outputs, taps of frames, of rows, inputs, taps of columns, LANES), in bf16."""
    outputs, inputs, time_taps, _, _ = weight_OITHW.shape
    blocks, filled = pl.cdiv(outputs, LANES), _fill(inputs)
    pads = ((0, blocks * LANES - outputs), (0, filled - inputs), (0, 0), (0, 0), (0, 0))
    weight = jnp.pad(weight_OITHW.astype(jnp.bfloat16), pads)
    return weight.reshape(blocks, LANES, filled, time_taps, TAPS, TAPS).transpose(0, 3, 4, 2, 5, 1)


def find_flat_shape(weight_shape: tuple[int, ...]) -> tuple[int, int, int]:
    """How a packed weight of one frame (O, I, 3, 3) is kept: a matrix for each block, which no tile of XLA fills up."""
    outputs, inputs, *_ = weight_shape
    return (pl.cdiv(outputs, LANES), TAPS * _fill(inputs), TAPS * LANES)


def unflatten_taps(flat: jax.Array) -> jax.Array:
    """As pack_taps gives it, what was kept in `find_flat_shape`."""
    return flat.reshape(len(flat), 1, TAPS, -1, TAPS, LANES)


def unpack_taps(packed: jax.Array, *, inputs: int, outputs: int) -> jax.Array:
    """The weight (O, I, T, 3, 3) that was packed."""
    blocks, time_taps, _, filled, _, _ = packed.shape
    weight = packed.transpose(0, 5, 3, 1, 2, 4).reshape(blocks * LANES, filled, time_taps, TAPS, TAPS)
    return weight[:outputs, :inputs]


def choose_rows(height: int, width: int, *, frames: int, inputs: int, time_taps: int, vmem_bytes: int) -> int:
    """How many rows of an output to make at a time: they divide its height. 0 where not even one has room."""
    columns = _pad_width(width, has_neighbours=True)
    few = _MOST_PIXELS_OF_FEW.get(frames, _MOST_PIXELS) if time_taps > 1 else _MOST_PIXELS
    most = min(max(few, columns), _MOST_PIXELS)

    def fits(rows: int) -> bool:
        pixels = rows * columns
        taken = 2 * (frames + time_taps - 1) * (rows + TAPS - 1) * columns * _fill(inputs)
        weight = 2 * time_taps * TAPS * _fill(inputs) * TAPS * LANES
        gathered = 2 * pixels * time_taps * TAPS * _fill(inputs)
        sums = 4 * pixels * TAPS * LANES
        out = 4 * pixels * LANES
        # What is read and written is there twice, since the next block comes meanwhile.
        return pixels <= most and 3 * taken + 2 * weight + gathered + 2 * sums + 2 * out <= vmem_bytes

    return max((rows for rows in range(1, height + 1) if height % rows == 0 and fits(rows)), default=0)


def convolve_taps(  # noqa: PLR0917 - arrays by position, as elsewhere
    x_BFHWC: jax.Array,
    before_BFHWC: jax.Array,
    packed: jax.Array,
    bias_O: jax.Array,
    rows_BF2WC: jax.Array | None = None,
    columns_BFH2C: jax.Array | None = None,
    *,
    rows: int,
    dtype: Any,
    vmem_bytes: int,
    interpret: bool = False,
) -> jax.Array:
    """(B, F, H, W, O) in `dtype`; x and everything beside it are bf16.

    `before` are the T - 1 frames before x. `rows_BF2WC` are the rows above and below, `columns_BFH2C` the columns left
    and right of all F + T - 1 frames; zeros where there are none. At most one of the two is given. `rows` at a time are
    what choose_rows says.
    """
    assert rows_BF2WC is None or columns_BFH2C is None, "corners of neighbours in both directions are nowhere"
    batch, frames, height, width, inputs = x_BFHWC.shape
    blocks, time_taps, _, filled, _, _ = packed.shape
    weight = packed.reshape(blocks, time_taps * TAPS * filled, TAPS * LANES)
    (outputs,) = bias_O.shape
    bias = jnp.pad(bias_O.astype(jnp.float32), (0, blocks * LANES - outputs))[None]
    taken = {"x": x_BFHWC, "before": before_BFHWC, "columns": columns_BFH2C}
    taken = {name: one for name, one in taken.items() if one is not None and one.size}
    specs = [spec for one in taken.values() for spec in _spec_rows(one.shape, rows=rows)]
    arrays = [one for one in taken.values() for _ in range(3)]
    if rows_BF2WC is not None:
        specs.append(pl.BlockSpec((None, *rows_BF2WC.shape[1:]), lambda b, n, h, f: (b, 0, 0, 0, 0)))  # noqa: ARG005
        arrays.append(rows_BF2WC)
    out = jax.ShapeDtypeStruct((batch, frames, height, width, outputs), dtype)
    columns = _pad_width(width, has_neighbours=columns_BFH2C is not None)
    seen = (frames + time_taps - 1, rows + TAPS - 1, columns, filled)
    return pl.pallas_call(
        functools.partial(
            _kernel, names=tuple(taken), has_rows=rows_BF2WC is not None, rows=rows, width=width, time_taps=time_taps
        ),
        grid=(batch, blocks, height // rows, frames),
        in_specs=[
            *specs,
            pl.BlockSpec((None, *weight.shape[1:]), lambda b, n, h, f: (n, 0, 0)),  # noqa: ARG005
            pl.BlockSpec((1, LANES), lambda b, n, h, f: (0, n)),  # noqa: ARG005
        ],
        out_specs=pl.BlockSpec((None, None, rows, width, LANES), lambda b, n, h, f: (b, f, h, 0, n)),
        out_shape=out,
        scratch_shapes=[pltpu.VMEM(seen, jnp.bfloat16)],
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "parallel", "parallel", "arbitrary"), vmem_limit_bytes=vmem_bytes
        ),
        cost_estimate=pl.CostEstimate(
            flops=2 * batch * frames * height * columns * weight.size,
            transcendentals=0,
            bytes_accessed=sum(blocks * one.nbytes for one in taken.values())
            + weight.nbytes
            + out.size * out.dtype.itemsize,
        ),
        interpret=interpret,
        name="convolve_taps",
    )(*arrays, weight, bias)


def _fill(channels: int) -> int:
    """Up to whole vectors of lanes."""
    return LANES * pl.cdiv(channels, LANES)


def _pad_width(width: int, *, has_neighbours: bool) -> int:
    """A row, with the pixels left and right of it where there are any, up to whole tiles."""
    return SUBLANES * pl.cdiv(width + (TAPS - 1) * has_neighbours, SUBLANES)


def _spec_rows(shape_BFHWC: tuple[int, ...], *, rows: int) -> list[pl.BlockSpec]:
    """A block of rows, the row above and the row below; at the picture's ends some other row, which nobody looks at."""
    _, frames, height, width, channels = shape_BFHWC
    of_one = None, frames, 1, width, channels
    return [
        pl.BlockSpec((None, frames, rows, width, channels), lambda b, n, h, f: (b, 0, h, 0, 0)),  # noqa: ARG005
        pl.BlockSpec(of_one, lambda b, n, h, f: (b, 0, jnp.maximum(h * rows - 1, 0), 0, 0)),  # noqa: ARG005
        pl.BlockSpec(of_one, lambda b, n, h, f: (b, 0, jnp.minimum(h * rows + rows, height - 1), 0, 0)),  # noqa: ARG005
    ]


def _kernel(*refs: Any, names: tuple[str, ...], has_rows: bool, rows: int, width: int, time_taps: int) -> None:
    taken = {name: refs[3 * at : 3 * at + 3] for at, name in enumerate(names)}
    rows_ref = refs[3 * len(names)] if has_rows else None
    weight_ref, bias_ref, out_ref, seen_ref = refs[-4:]
    frame, block = pl.program_id(3), pl.program_id(2)
    ends = block == 0, block == pl.num_programs(2) - 1
    _, _, columns, filled = seen_ref.shape

    @pl.when(frame == 0)
    def _() -> None:
        _put_together(seen_ref, taken, width=width, time_taps=time_taps)
        _close_ends(seen_ref, rows_ref, ends)

    pixels = rows * columns
    seen = [
        seen_ref[frame + time_tap, tap : tap + rows].reshape(pixels, filled)
        for time_tap in range(time_taps)
        for tap in range(TAPS)
    ]
    sums = jnp.dot(jnp.concatenate(seen, -1), weight_ref[...], preferred_element_type=jnp.float32)
    left, middle, right = (
        sums[:, LANES * tap : LANES * (tap + 1)].reshape(rows, columns, LANES) for tap in range(TAPS)
    )
    left, right = pltpu.roll(left, 1, 1), pltpu.roll(right, columns - 1, 1)
    if "columns" not in taken:  # what came round from the other end is nobody's neighbour
        column = jax.lax.broadcasted_iota(jnp.int32, left.shape, 1)
        left, right = jnp.where(column == 0, 0.0, left), jnp.where(column == width - 1, 0.0, right)
    out = left + middle + right + bias_ref[...]
    out_ref[...] = out[:, :width].astype(out_ref.dtype)


def _put_together(seen_ref: Any, taken: dict[str, Any], *, width: int, time_taps: int) -> None:
    """A row is its pixels, the one to the right of them, zeros, and last of all the one to the left."""
    _, tall, columns, _ = seen_ref.shape
    inputs = taken["x"][0].shape[-1]
    seen_ref[...] = jnp.zeros_like(seen_ref)
    for part, lines in enumerate((slice(1, tall - 1), slice(0, 1), slice(tall - 1, tall))):
        seen_ref[time_taps - 1 :, lines, :width, :inputs] = taken["x"][part][...]
        if "before" in taken:
            seen_ref[: time_taps - 1, lines, :width, :inputs] = taken["before"][part][...]
        if "columns" in taken:
            seen_ref[:, lines, columns - 1 :, :inputs] = taken["columns"][part][:, :, :1]
            seen_ref[:, lines, width : width + 1, :inputs] = taken["columns"][part][:, :, 1:]


def _close_ends(seen_ref: Any, rows_ref: Any, ends: tuple[Any, Any]) -> None:
    """Above the first row and below the last are the neighbours' or zeros."""
    for side, (row, is_end) in enumerate(zip((0, seen_ref.shape[1] - 1), ends, strict=True)):

        @pl.when(is_end)
        def _(side: int = side, row: int = row) -> None:
            seen_ref[:, row] = jnp.zeros_like(seen_ref[:, row])
            if rows_ref is not None:
                _, _, width, inputs = rows_ref.shape
                seen_ref[:, row, :width, :inputs] = rows_ref[:, side]
