"""The gradient of conv3x3.py's convolutions by their weights on TPU, as one Pallas kernel.

Where matrix units are 256 x 256, XLA takes up to four times as long as the products alone would (plan/TRIED.md). Here
every tap is a product over all pixels of a block of rows: of what comes back, turned so that its pixels lie along
lanes, and of the picture, a pixel to the left, as it is and a pixel to the right:

    grid (blocks of outputs, blocks of inputs, batch, blocks of rows), the last two in order:
        the picture's rows, the ones above and below, each three times -> `seen`; what comes back -> `turned`
        for each tap of rows and some outputs at a time:
            turned x seen -> added to three sums, one for each tap of columns
        after the last rows: the sums are written

Taps of rows are whole rows away in `seen`, so that they cost nothing; the three of columns lie side by side and fill
the matrix unit together. Pixels are moved by one in pairs, the two halves of a word.

Not here: which convolutions take this way, and how pictures lie on the mesh (convolution_gradient.py).
"""

import functools
import itertools
import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from pipelines.runtime.kernels.conv3x3 import SUBLANES, UNIT, pad_width
from pipelines.runtime.kernels.taps import LANES, TAPS, fill
from pipelines.runtime.kernels.upsample import HALF

NAME = "conv3x3_gradient"
_MOST_PIXELS = 2048  # of a block, where it is more than a row
_MOST_CHANNELS = 1280  # of a block
_MOST_CODE = 3000  # cycles of what is unrolled, of the two matrix units that v6e has
_PUSH = 4  # cycles in which two units take in as many outputs as a tile has
_LEAST = 144  # outputs of a turn: with fewer the matrix units wait for what stays in them
_TURN = 200  # cycles in which the matrix units run dry between two turns of the loop
# Cycles by the schedule on v6e for 640 channels, about: of each number that is moved by a pixel, that is turned, and
# whose sum begins and ends.
_MOVED, _TURNED, _ENDED = 1.3 / 2048, 3 / 2048, 1 / 1024
_SLACK = 17 / 16  # of vector memory, beside what is counted


@dataclass(frozen=True, kw_only=True)
class Blocks:
    """Block sizes: `rows` divide the picture's height, and `turns` of a loop the outputs of a block."""

    rows: int
    outputs: int
    inputs: int
    turns: int
    vmem_bytes: int


def choose_blocks(height: int, width: int, *, inputs: int, outputs: int, vmem_bytes: int) -> Blocks | None:
    """Returns the quickest blocks for which there is room in VMEM, or None if there is none for any."""
    columns = pad_width(width, has_neighbours=False)
    best: tuple[float, Blocks] | None = None
    for rows in (rows for rows in range(1, height + 1) if height % rows == 0):
        steps, pixels = height // rows, fill(rows * columns)
        if rows > 1 and pixels > _MOST_PIXELS:
            continue
        for of_inputs, of_outputs in itertools.product(_list_sizes(inputs), _list_sizes(outputs)):
            needed = _count_vmem_bytes(rows, columns, pixels, of_inputs, of_outputs)
            if needed > vmem_bytes:
                continue
            cells = math.ceil(inputs / of_inputs) * math.ceil(outputs / of_outputs)
            wide = math.ceil(TAPS * fill(of_inputs) / UNIT) * math.ceil(pixels / UNIT)
            turns = _choose_turns(of_outputs, wide=wide)
            of_step = _count_cycles(rows * columns, columns, of_inputs, of_outputs, turns=turns, wide=wide)
            cycles = cells * (steps * of_step + _ENDED * TAPS * TAPS * of_inputs * of_outputs)
            if best is None or cycles < best[0]:
                sizes = {"rows": rows, "outputs": of_outputs, "inputs": of_inputs, "turns": turns}
                best = cycles, Blocks(**sizes, vmem_bytes=needed)
    return None if best is None else best[1]


def _count_cycles(pixels: int, columns: int, inputs: int, outputs: int, *, turns: int, wide: int) -> float:
    """Estimates cycles of a block of rows on v6e, whose `wide` squares stay in the matrix units one after the other."""
    of_turn = max(math.ceil(outputs / turns / SUBLANES), _LEAST // SUBLANES)
    moved = _MOVED * (pixels + (TAPS - 1) * columns) * TAPS * fill(inputs)
    return TAPS * turns * (_PUSH * wide * of_turn + _TURN) + moved + _TURNED * pixels * outputs


def _list_sizes(channels: int) -> list[int]:
    """Lists sizes of a block of channels: all of them, or whole vectors of lanes."""
    return [*range(LANES, min(channels, _MOST_CHANNELS), LANES), *([channels] if channels <= _MOST_CHANNELS else [])]


def _choose_turns(outputs: int, *, wide: int) -> int:
    of_row = _PUSH * wide / SUBLANES
    parts = [turns for turns in range(1, outputs + 1) if outputs % turns == 0 and (outputs // turns) % SUBLANES == 0]
    return next((turns for turns in parts if outputs / turns * of_row <= _MOST_CODE), parts[-1] if parts else 1)


def _count_vmem_bytes(rows: int, columns: int, pixels: int, inputs: int, outputs: int) -> int:
    """VMEM bytes: double-buffered inputs and outputs, pictures in three forms, what is turned, sums."""
    inputs, outputs = fill(inputs), fill(outputs)
    streamed = 2 * 2 * columns * ((rows + 2) * inputs + rows * outputs)
    seen = 2 * (pixels + 2 * columns) * TAPS * inputs
    turned = 2 * pixels * outputs * 3  # as it is, as it is turned, and kept
    sums = 4 * TAPS * TAPS * outputs * inputs
    return int(_SLACK * (streamed + seen + turned + 2 * sums))  # written in half the bytes, but two at a time


@functools.partial(jax.jit, static_argnames=("blocks", "dtype", "interpret"), inline=True)
def differentiate_taps(
    x_BHWI: jax.Array, out_BHWO: jax.Array, *, blocks: Blocks, dtype: Any, interpret: bool = False
) -> jax.Array:
    """Returns the gradient by the weight, (rows' taps, columns' taps, O, I) in `dtype`.

    `x` is the picture that was convolved, with zeros around it, and `out` the gradient of what came of it; both are
    bf16, their products are summed up in fp32. `blocks` are what choose_blocks says.
    """
    batch, height, width, inputs = x_BHWI.shape
    outputs = out_BHWO.shape[-1]
    rows, columns = blocks.rows, pad_width(width, has_neighbours=False)
    pixels, filled = fill(rows * columns), fill(blocks.inputs)
    cells = pl.cdiv(outputs, blocks.outputs), pl.cdiv(inputs, blocks.inputs)
    grid = (*cells, batch, height // rows)
    of_row = None, 1, width, blocks.inputs
    above = lambda o, i, b, h: (b, jnp.maximum(h * rows - 1, 0), 0, i)  # noqa: ARG005, E731 - Pallas's index maps
    below = lambda o, i, b, h: (b, jnp.minimum(h * rows + rows, height - 1), 0, i)  # noqa: ARG005, E731
    out = jax.ShapeDtypeStruct((TAPS, TAPS, outputs, inputs), dtype)
    return pl.pallas_call(
        functools.partial(_kernel, width=width, turns=blocks.turns),
        grid=grid,
        in_specs=[
            pl.BlockSpec((None, rows, width, blocks.inputs), lambda o, i, b, h: (b, h, 0, i)),  # noqa: ARG005
            pl.BlockSpec(of_row, above),
            pl.BlockSpec(of_row, below),
            pl.BlockSpec((None, rows, width, blocks.outputs), lambda o, i, b, h: (b, h, 0, o)),  # noqa: ARG005
        ],
        out_specs=pl.BlockSpec((TAPS, TAPS, blocks.outputs, blocks.inputs), lambda o, i, _b, _h: (0, 0, o, i)),
        out_shape=out,
        scratch_shapes=[
            pltpu.VMEM((pixels + (TAPS - 1) * columns, TAPS * filled), jnp.bfloat16),
            pltpu.VMEM((blocks.outputs, pixels), jnp.bfloat16),
            pltpu.VMEM((TAPS, blocks.outputs, TAPS * filled), jnp.float32),
        ],
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "parallel", "arbitrary", "arbitrary"), vmem_limit_bytes=blocks.vmem_bytes
        ),
        cost_estimate=pl.CostEstimate(
            flops=2 * TAPS * math.prod(grid) * blocks.outputs * pixels * TAPS * filled,
            transcendentals=0,
            bytes_accessed=cells[0] * x_BHWI.nbytes + cells[1] * out_BHWO.nbytes + out.size * out.dtype.itemsize,
        ),
        interpret=interpret,
        name=NAME,
    )(x_BHWI, x_BHWI, x_BHWI, out_BHWO)


def _kernel(  # noqa: PLR0917 - Pallas's references
    x_ref: Any,
    above_ref: Any,
    below_ref: Any,
    gradient_ref: Any,
    out_ref: Any,
    seen_ref: Any,
    turned_ref: Any,
    sums_ref: Any,
    *,
    width: int,
    turns: int,
) -> None:
    rows, _, inputs = x_ref.shape
    outputs, pixels = turned_ref.shape
    columns, filled = (len(seen_ref) - pixels) // (TAPS - 1), seen_ref.shape[1] // TAPS
    block, last = pl.program_id(3), pl.num_programs(3) - 1

    @pl.when((pl.program_id(2) == 0) & (block == 0))
    def _start() -> None:
        sums_ref[...] = jnp.zeros_like(sums_ref)
        if pixels > rows * columns:  # what is past the end is multiplied by zeros
            seen_ref[(rows + TAPS - 1) * columns :] = jnp.zeros((pixels - rows * columns, TAPS * filled), jnp.bfloat16)

    def see(at: Any, row_WI: jax.Array) -> None:
        for tap, moved in enumerate(_move(_fill_up(row_WI, columns, filled))):
            seen_ref[pl.ds(pl.multiple_of(at * columns, SUBLANES), columns), tap * filled : (tap + 1) * filled] = moved

    see(0, jnp.where(block == 0, jnp.zeros_like(above_ref[0]), above_ref[0]))
    jax.lax.fori_loop(0, rows, lambda row, _: see(row + 1, x_ref[row]), None)
    see(rows + 1, jnp.where(block == last, jnp.zeros_like(below_ref[0]), below_ref[0]))
    gradient = gradient_ref[...]
    if columns > width:
        gradient = jnp.pad(gradient, ((0, 0), (0, columns - width), (0, 0)))
    gradient = gradient.reshape(rows * columns, outputs)
    if pixels > rows * columns:
        gradient = jnp.pad(gradient, ((0, pixels - rows * columns), (0, 0)))
    turned_ref[...] = gradient.T
    size = outputs // turns

    def add(turn: Any, _: None) -> None:
        tap, part = jax.lax.div(turn, jnp.int32(turns)), jax.lax.rem(turn, jnp.int32(turns))
        own = pl.ds(pl.multiple_of(part * size, 8), size)
        seen = seen_ref[pl.ds(pl.multiple_of(tap * columns, SUBLANES), pixels), :]
        sums_ref[tap, own, :] += jnp.dot(turned_ref[own, :], seen, preferred_element_type=jnp.float32)

    jax.lax.fori_loop(0, TAPS * turns, add, None)

    @pl.when((pl.program_id(2) == pl.num_programs(2) - 1) & (block == last))
    def _finish() -> None:
        for row in range(TAPS):
            for column in range(TAPS):
                own = sums_ref[row, :, column * filled : column * filled + inputs]
                out_ref[row, column] = own.astype(out_ref.dtype)


def _fill_up(row_WI: jax.Array, columns: int, filled: int) -> jax.Array:
    """Returns a row with zeros to the right and for channels that are not there."""
    width, inputs = row_WI.shape
    return (
        jnp.pad(row_WI, ((0, columns - width), (0, filled - inputs))) if row_WI.shape != (columns, filled) else row_WI
    )


def _move(row_WI: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Returns what is to the left of each pixel, the pixel, and what is to its right, with zeros beyond the ends."""
    words = pltpu.bitcast(row_WI, jnp.uint32)
    at = jax.lax.broadcasted_iota(jnp.int32, words.shape, 0)
    count = len(words)
    before = jnp.where(at == 0, jnp.zeros_like(words), pltpu.roll(words, 1, 0))
    after = jnp.where(at == count - 1, jnp.zeros_like(words), pltpu.roll(words, count - 1, 0))
    left, right = (before >> HALF) | (words << HALF), (words >> HALF) | (after << HALF)
    return pltpu.bitcast(left, jnp.bfloat16), row_WI, pltpu.bitcast(right, jnp.bfloat16)
