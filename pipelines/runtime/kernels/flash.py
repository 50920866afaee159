"""Attention for long sequences on TPU as one Pallas kernel: logits are never written to memory.

The softmax is the online one (Milakov and Gimelshein 2018; Dao et al. 2022) in base 2: queries come multiplied by
scale * log2(e), so that the weights are exp2 of logits, which the hardware has, and not exp. Statistics and sums are in
fp32. Arrays are (batch, length, heads * width), as projections give them: nothing is transposed, and nothing is filled
up either; what a tile reads past the end is masked.

    grid (batch, groups of heads, tiles of queries, tiles of keys), the last one in order:
        for each `step` keys of the tile: logits -> weights -> sums, and the running maximum
        after the last tile: divide

Three things make it fast by the compiler's own schedule (`python -m pipelines plan --search attention`):

- Keys lie along sublanes and queries along lanes: maxima and sums over keys are sums of whole vectors. The weights are
  then the operand that stays in the matrix unit and fills it, 256 x 256; only logits run at the half of the peak that
  128 features allow.
- Weights are taken relative to the maximum of the keys before, so no logit waits for its neighbours. Sums stand that
  unless a logit is higher by more than EXCESS; then the whole tile of keys is counted again, after its own maximum,
  which is known by then.
- A step is cut into squares, and the products of the next ones are begun before the exponentials of this one.

With `bounds_logits` a tile of queries that cannot have a logit beyond MOST_SMALL, by the lengths of its queries and of
the longest key, takes no maximum at all: its weights are relative to 0, and neither overflow nor vanish.

Not here: which sequences take this way, and how they lie on the mesh (attention.py).
"""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from pipelines.messages import english

LANES = 128
MASKED = -1e30  # finite: a row that has seen masked keys alone must not become nan, and is wiped by its first real key
# Vector memory of a core, by JAX's name of the chip (pltpu.get_tpu_info).
VMEM_BYTES = {
    **dict.fromkeys(("TPU v5", "TPU v5p", "TPU7x"), 64 * 2**20),
    **dict.fromkeys(("TPU v5 lite", "TPU v5e", "TPU v6 lite", "TPU v6e"), 128 * 2**20),
}
CHIPS_OF_LARGE_UNITS = ("TPU v6 lite", "TPU v6e", "TPU7x")
"""Kinds of devices whose matrix units are 256 x 256."""
SMALL_VMEM_BYTES = 16 * 2**20  # of v4, of those before it and of what is not known
USABLE = 0.75  # the rest is the compiler's
SUBLANES = 8
SQUARE = 256  # queries and keys, as the matrix units of v6e and later
AHEAD = 2  # squares whose logits are computed before their turn; as many weights wait for their product with values
EXCESS = 64.0  # weights of 2^64 times some thousand values are still far from the end of fp32 and bf16
FIRST_KEYS = 16  # the maximum of so many is a start
AHEAD_SMALL = 3  # as AHEAD, where no maximum is taken
# 2^96 times 131 072 keys times values of 16 384 is the end of fp32, as of bf16; 2^-96 is 2^30 times the least number.
MOST_SMALL = 96.0

_ROWS_BY_ROWS = (((1,), (1,)), ((), ()))
_QUERIES = range(1024, 2048 + 1, SQUARE)
_STEPS = range(512, 768 + 1, SQUARE)
_LONG_STEP = 1024  # takes 2 % less than 512 for twice the code, which only videos' tokens are worth
_LONG = 16384  # keys, from which on it is taken
_MOST_KEYS = 32768  # of a tile: what is kept to count one again is copied for each but the first
_FEW_KEYS = 4096  # a tile has no fewer while it could have fewer queries instead
_SMALLEST = 256
# What is done beside the products takes as long as so many keys of steps of 512: by the schedule for 2048 queries of a
# head of 128 on v6e, 65 cycles a step, 170 a tile and as many for copies before each but the first, 1090 a row of
# tiles, and 40 % more where keys of a step are masked.
_STEP_KEYS = 18
_TILE_KEYS = 50
_COPY_KEYS = 50
_ROW_KEYS = 300
_MASKS = 0.4
# With a window, masks go by two places: 90 % more, and 110 % of a key for the maximum of one that is masked.
_BAND_MASKS = 0.9
_RAISE = 1.1


@dataclass(frozen=True, kw_only=True)
class Tiles:
    """Queries and keys held at a time, and keys per multiplication (`step`, which divides `keys`)."""

    queries: int
    keys: int
    step: int

    def __post_init__(self) -> None:
        if self.keys % self.step or self.step % LANES or self.queries % LANES:
            raise ValueError(english(f"{self}: step is a multiple of {LANES} that divides keys, as queries are"))


def find_vmem_bytes(device_kind: str) -> int:
    """Bytes of a chip's vector memory (VMEM) that the kernel may use."""
    return int(USABLE * VMEM_BYTES.get(device_kind, SMALL_VMEM_BYTES))


def choose_tiles(
    query_length: int,
    key_length: int,
    *,
    group: int,
    width: int,
    itemsize: int,
    vmem_bytes: int,
) -> Tiles:
    """Large and even, so that little is computed past the end, and no larger than there is room for.

    75 600 tokens of 81 frames of 720p become 37 tiles of 2048 queries, 0.2 % more, and 3 tiles of keys.
    `group` heads of `width` features, each of `itemsize` bytes, lie side by side.
    """
    queries, most_keys = choose_tile(query_length, _QUERIES), _MOST_KEYS
    step = _LONG_STEP if key_length >= _LONG else choose_tile(key_length, _STEPS)
    while True:
        keys = step * min(most_keys // step, math.ceil(key_length / step))
        tiles = Tiles(queries=queries, keys=keys, step=step)
        if count_vmem_bytes(tiles, group=group, width=width, itemsize=itemsize) <= vmem_bytes:
            return tiles
        if most_keys > _FEW_KEYS:
            most_keys //= 2
            continue
        if queries <= _SMALLEST and keys == step:
            return tiles  # there are none smaller: see has_room
        queries = min(queries, max(_SMALLEST, LANES * math.ceil(queries / 2 / LANES)))
        step = min(step, _STEPS[0])
        most_keys = max(step, most_keys // 2)


def has_room(*, heads: int, width: int, itemsize: int, vmem_bytes: int) -> bool:
    """Whether the smallest tiles of the kernel fit: on v4 those of a head of 1024 features in fp32 do not."""
    smallest = Tiles(queries=_SMALLEST, keys=_STEPS[0], step=_STEPS[0])
    group = choose_group(heads, width)
    return count_vmem_bytes(smallest, group=group, width=width, itemsize=itemsize) <= vmem_bytes


def count_vmem_bytes(tiles: Tiles, *, group: int, width: int, itemsize: int) -> int:
    """VMEM bytes: double-buffered inputs and output, running statistics, and the squares in flight.

    The output of several heads is put together from pieces, each filled up to LANES.
    """
    block = group * width
    pieces = itemsize * tiles.queries * (group * LANES if group > 1 else 0)
    streamed = 2 * itemsize * block * (2 * tiles.queries + 2 * tiles.keys)
    scaled = itemsize * group * tiles.queries * max(block, LANES)
    kept = 2 * 4 * tiles.queries * (block + 2 * group * SUBLANES)
    return streamed + scaled + kept + pieces + (2 * AHEAD + 2) * SQUARE * SQUARE * (4 + 2)


def choose_tile(length: int, sizes: range) -> int:
    if length <= sizes[0]:
        return LANES * math.ceil(length / LANES)
    return min(sizes, key=lambda size: (-length % size, -size))


_STATIC = ("heads", "scale", "tiles", "vmem_bytes", "window", "key_length", "bounds_logits", "tells_sums", "interpret")


@functools.partial(jax.jit, static_argnames=_STATIC, inline=True)
def flash_attention(
    query_BLC: jax.Array,
    key_BLC: jax.Array,
    value_BLC: jax.Array,
    *,
    heads: int,
    scale: float,
    tiles: Tiles | None = None,
    vmem_bytes: int = int(USABLE * VMEM_BYTES["TPU v6e"]),
    window: int | None = None,
    first_query: jax.Array | int = 0,
    key_length: int | None = None,
    key_lengths_B: jax.Array | None = None,
    query_gain_BL1: jax.Array | None = None,
    bounds_logits: bool = False,
    tells_sums: bool = False,
    interpret: bool = False,
) -> Any:
    """softmax(q k^T * scale) v of every head, (batch, length, heads * width), in the dtype of `value`.

    `vmem_bytes` is what find_vmem_bytes says of the chip; tiles are chosen to fit. With a `window`, query i sees the
    keys j with |i - j| <= window, and `first_query` is the first one's i. Keys from `key_length` on are seen by nobody,
    and those from a row's own length on by nobody of that row: at least FIRST_KEYS, known when the kernel runs; there
    is no window then. Queries are multiplied by their gain, fp32, first. With `bounds_logits` tiles whose logits are
    small take no maximum; the others do. With `tells_sums` it is a pair, with the binary logarithms of the
    exponentials' sums, fp32, (batch, heads filled up to whole groups, query length), from which flash_gradient.py
    starts. `interpret` runs the kernel without a TPU.
    """
    assert window is None or key_lengths_B is None, "rows of their own lengths have no window"
    batch, query_length, channels = query_BLC.shape
    key_length = key_BLC.shape[1] if key_length is None else key_length
    width = channels // heads
    group = choose_group(heads, width)
    blocks = pl.cdiv(heads, group)
    block = group * width
    itemsize = max(x.dtype.itemsize for x in (query_BLC, key_BLC, value_BLC))
    if tiles is None:
        near = key_length if window is None else min(key_length, max(window, _FEW_KEYS))
        sizes = {"group": group, "width": width, "itemsize": itemsize, "vmem_bytes": vmem_bytes}
        tiles = choose_tiles(query_length, near, **sizes)
    band = _Band(tiles=tiles, key_length=key_length, window=window)
    grid = (batch, blocks, pl.cdiv(query_length, tiles.queries), band.visits)
    by_query = lambda b, h, i, j, *_: (b, i, h)  # noqa: ARG005, E731 - Pallas's index maps
    by_key = lambda b, h, i, j, *places: (b, band.find_first(i, *places[: window is not None]) + j, h)  # noqa: E731
    places = () if window is None else (jnp.full((1,), first_query, jnp.int32),)
    if key_lengths_B is not None:
        places = (jnp.minimum(key_lengths_B, key_length).astype(jnp.int32),)
    if bounds_logits:
        places += (find_longest(key_BLC[:, :key_length], width=width, group=group),)
    kept = [
        pltpu.VMEM((group, SUBLANES, tiles.queries), jnp.float32),
        pltpu.VMEM((group, SUBLANES, tiles.queries), jnp.float32),
        pltpu.VMEM((block, tiles.queries), jnp.float32),
    ]
    gains = () if query_gain_BL1 is None else (query_gain_BL1,)
    kernel = functools.partial(
        _kernel,
        has_gain=bool(gains),
        has_lengths=key_lengths_B is not None,
        bounds_logits=bounds_logits,
        band=band,
        width=width,
        left=heads - (blocks - 1) * group,
        factor=scale * math.log2(math.e),
        query_length=query_length,
        tells_sums=tells_sums,
    )
    out_shape: Any = jax.ShapeDtypeStruct(query_BLC.shape, value_BLC.dtype)
    out_specs: Any = pl.BlockSpec((None, tiles.queries, block), by_query)
    if tells_sums:
        sums = jax.ShapeDtypeStruct((batch, blocks, group, query_length), jnp.float32)
        by_head = lambda b, h, i, j, *_: (b, h, 0, i)  # noqa: ARG005, E731
        out_shape = out_shape, sums
        out_specs = out_specs, pl.BlockSpec((None, None, group, tiles.queries), by_head)
    found = pl.pallas_call(
        kernel,
        out_shape=out_shape,
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=len(places),
            grid=grid,
            in_specs=[
                pl.BlockSpec((None, tiles.queries, block), by_query),
                pl.BlockSpec((None, tiles.keys, block), by_key),
                pl.BlockSpec((None, tiles.keys, block), by_key),
                *[pl.BlockSpec((None, tiles.queries, 1), lambda b, h, i, j, *_: (b, i, 0)) for _ in gains],  # noqa: ARG005
            ],
            out_specs=out_specs,
            scratch_shapes=[
                pltpu.VMEM((group, tiles.queries, block), query_BLC.dtype),
                pltpu.VMEM((SUBLANES, tiles.queries), jnp.float32),
                *kept,
                *(kept if band.visits > 1 else ()),
                *([pltpu.SMEM((1,), jnp.int32)] if bounds_logits else []),
            ],
        ),
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "parallel", "parallel", "arbitrary"), vmem_limit_bytes=vmem_bytes
        ),
        cost_estimate=pl.CostEstimate(
            flops=count_flops(
                batch=batch,
                heads=heads,
                block=block,
                queries=grid[2] * tiles.queries,
                keys=count_keys(tiles, key_length, window),
            ),
            transcendentals=batch * heads * query_length * band.count_seen(),
            bytes_accessed=2 * query_BLC.nbytes
            + int(grid[2] * band.visits * tiles.keys / key_BLC.shape[1] * (key_BLC.nbytes + value_BLC.nbytes)),
        ),
        interpret=interpret,
        name="flash_attention",
    )(*places, query_BLC, key_BLC, value_BLC, *gains)
    return (found[0], found[1].reshape(batch, -1, query_length)) if tells_sums else found


def find_longest(key_BLC: jax.Array, *, width: int, group: int) -> jax.Array:
    """Returns at least the squared length of the longest key of a group of heads, (batch, groups), fp32.

    A product with ones sums up on the matrix units what would be taken apart in memory to be summed up by heads.
    """
    batch, _, channels = key_BLC.shape
    head_of = jnp.arange(channels) // width
    ones_CH = (head_of[:, None] == jnp.arange(channels // width)).astype(jnp.bfloat16)
    squares = jnp.square(key_BLC.astype(jnp.float32)).astype(jnp.bfloat16)
    sums_BLH = jnp.einsum("blc,ch->blh", squares, ones_CH, preferred_element_type=jnp.float32)
    most_BH = sums_BLH.max(1)
    if left := most_BH.shape[1] % group:
        most_BH = jnp.pad(most_BH, ((0, 0), (0, group - left)))
    return 1.01 * most_BH.reshape(batch, -1, group).max(2)  # bf16 has rounded by up to 0.4 %


def count_flops(*, batch: int, heads: int, block: int, queries: int, keys: int) -> int:
    """Floating-point operations of the matrix units: heads share a block of features, each over all of its lanes."""
    return 4 * batch * heads * queries * keys * max(LANES, block)


def count_keys(tiles: Tiles, key_length: int, window: int | None = None) -> int:
    """Cost of a row of tiles, as the number of keys that would take equally long in steps of 512."""
    band = _Band(tiles=tiles, key_length=key_length, window=window)
    beside = _TILE_KEYS * band.visits + _COPY_KEYS * (band.visits - 1) + _ROW_KEYS
    if window is not None:  # some steps are masked at both ends; the keys that are new to a query are read twice
        seen = min(key_length, band.count_seen() + tiles.step)
        masked = min(seen, 2 * (tiles.queries + tiles.step))
        raised = min(seen, tiles.queries + tiles.keys)
        return int(seen + _BAND_MASKS * masked + _RAISE * raised) + beside
    whole = key_length // tiles.step
    cut = LANES * math.ceil(key_length % tiles.step / LANES)
    masks = int(_MASKS * cut) if key_length % LANES else 0
    saved = _STEP_KEYS * (whole * tiles.step // _STEPS[0] - whole)
    return whole * tiles.step + cut + masks - saved + beside


def choose_group(heads: int, width: int) -> int:
    """Heads that lie side by side in a block: those whose features fill whole vectors of 128 lanes together.

    The last block may hold fewer, if a vector holds several heads; else it is all heads where none divide so.
    """
    if LANES % width == 0 and heads * width > LANES:
        return LANES // width
    fitting = (group for group in range(1, heads) if heads % group == 0 and group * width % LANES == 0)
    return next(fitting, heads)


def center_keys(key_BLC: jax.Array, length: int | None = None) -> jax.Array:
    """Keys less the mean of the first `length`: every logit of a query moves alike, so attention stays.

    What is left is smaller, so bf16 rounds less away. The first half of SageAttention's smoothing (Zhang et al. 2024).
    """
    mean = key_BLC[:, :length].mean(1, keepdims=True, dtype=jnp.float32)
    return (key_BLC.astype(jnp.float32) - mean).astype(key_BLC.dtype)


@dataclass(frozen=True, kw_only=True)
class _Band:
    """Which tiles of keys a tile of queries sees: all, or with a window those around it."""

    tiles: Tiles
    key_length: int
    window: int | None

    @property
    def visits(self) -> int:
        """Tiles of keys for each of queries."""
        most = pl.cdiv(self.key_length, self.tiles.keys)
        if self.window is None:
            return most
        return min(most, pl.cdiv(self.tiles.queries + 2 * self.window - 1, self.tiles.keys) + 1)

    def count_seen(self) -> int:
        """Keys that some query of a tile sees."""
        return self.key_length if self.window is None else min(self.key_length, self.tiles.queries + 2 * self.window)

    def find_first(self, row: Any, place_ref: Any = None) -> Any:
        """The first tile of keys for a tile of queries; `place_ref` holds where queries begin."""
        if self.window is None:
            return 0
        most = pl.cdiv(self.key_length, self.tiles.keys)
        earliest = place_ref[0] + row * self.tiles.queries - self.window
        return jnp.clip(jax.lax.div(jnp.maximum(earliest, 0), self.tiles.keys), 0, most - self.visits)


@dataclass(frozen=True, kw_only=True)
class _Square:
    """Some keys of a step, counted from its first, and some queries of the tile, for one head."""

    head: int
    queries: slice
    offset: int
    size: int


def _kernel(
    *refs: Any,
    has_gain: bool,
    has_lengths: bool,
    bounds_logits: bool,
    band: _Band,
    width: int,
    left: int,
    factor: float,
    query_length: int,
    tells_sums: bool,
) -> None:
    """One tile of queries against one tile of keys; maxima, totals and sums of earlier keys are in VMEM.

    A maximum is the same in all sublanes; a total is the sum over its sublanes. The last block holds the heads that are
    `left`.
    """
    tiles, window = band.tiles, band.window
    length_refs, refs = refs[:has_lengths], refs[has_lengths:]
    key_length: Any = length_refs[0][pl.program_id(0)] if length_refs else band.key_length
    place_refs, refs = refs[: window is not None], refs[window is not None :]
    longest_refs, (query_ref, key_ref, value_ref, *others) = refs[:bounds_logits], refs[bounds_logits:]
    gain_ref = others[0] if has_gain else None
    longest_key: Any = longest_refs[0][pl.program_id(0), pl.program_id(1)] if longest_refs else None
    small_ref = others.pop() if bounds_logits else None
    out_ref, *others = others[has_gain:]
    sums_ref = others.pop(0) if tells_sums else None
    scaled_ref, excess_ref, maximum_ref, total_ref, sum_ref, *saved_refs = others
    row, column, last = pl.program_id(2), pl.program_id(3), pl.num_programs(3) - 1
    first_key = (band.find_first(row, *place_refs) + column) * tiles.keys
    first_query = row * tiles.queries + (place_refs[0][0] if place_refs else 0)
    group = scaled_ref.shape[0]
    is_uneven = left < group
    is_last_block = pl.program_id(1) == pl.num_programs(1) - 1 if is_uneven else None
    kept_refs = (maximum_ref, total_ref, sum_ref)

    def clear() -> None:
        total_ref[...] = jnp.zeros_like(total_ref)
        sum_ref[...] = jnp.zeros_like(sum_ref)

    def has_small_logits() -> jax.Array:
        """No product of two vectors is longer than that of their lengths; what is no number is not small."""
        own = [jnp.square(scaled_ref[head].astype(jnp.float32)).sum(axis=-1, keepdims=True) for head in range(group)]
        longest = functools.reduce(jnp.maximum, own).max()
        return longest * longest_key <= MOST_SMALL**2

    @pl.when(column == 0)
    def _start() -> None:
        query = query_ref[...].astype(jnp.float32) * (factor if gain_ref is None else factor * gain_ref[...])
        index = row * tiles.queries + jax.lax.broadcasted_iota(jnp.int32, query.shape, 0)
        lane = jax.lax.broadcasted_iota(jnp.int32, query.shape, 1)
        for head in range(group):  # what lies past the end may be anything, and must not look like an excess
            is_own = (index < query_length) & (lane >= head * width) & (lane < (head + 1) * width)
            if is_last_block is not None and head >= left:
                is_own &= ~is_last_block
            scaled_ref[head] = jnp.where(is_own, query, 0.0).astype(scaled_ref.dtype)
        maximum_ref[...] = jnp.full_like(maximum_ref, MASKED)
        clear()
        if small_ref is not None:
            small_ref[0] = has_small_logits().astype(jnp.int32)

    def compute_logits(first: Any, count: int, head: int, queries: slice, *, is_masked: bool, heads: int) -> jax.Array:
        """(count / 8, 8, queries), of the keys from `first` of the tile on, in a block of so many heads."""
        lanes = slice(None) if heads == group else slice(0, heads * width)  # behind them may be anything
        key, query = key_ref[pl.ds(first, count), lanes], scaled_ref[head, queries, lanes]
        logits = jax.lax.dot_general(key, query, _ROWS_BY_ROWS, preferred_element_type=jnp.float32)
        if is_masked:
            logits = jnp.where(is_seen(first_key + first, first_query + queries.start, logits.shape), logits, MASKED)
        return logits.reshape(count // SUBLANES, SUBLANES, -1)

    def is_seen(from_key: Any, from_query: Any, shape: tuple[int, ...]) -> jax.Array:
        key_index = from_key + jax.lax.broadcasted_iota(jnp.int32, shape, 0)
        if window is None:
            return key_index < key_length
        query_index = from_query + jax.lax.broadcasted_iota(jnp.int32, shape, 1)
        return (key_index < key_length) & (jnp.abs(query_index - key_index) <= window)

    def read_values(first: Any, count: int, head: int, *, is_masked: bool) -> jax.Array:
        """(width, count), of one head."""
        value = value_ref[pl.ds(first, count), :]
        if is_masked:  # 0 * nan is nan
            index = first_key + first + jax.lax.broadcasted_iota(jnp.int32, (count, 1), 0)
            value = jnp.where(index < key_length, value, jnp.zeros_like(value))
        return value.T[head * width : (head + 1) * width]

    def raise_maximum(first: Any, count: int, *, is_masked: bool, heads: int) -> None:
        """Raises the running maximum to that of these keys; totals and sums become relative to it."""
        compute = functools.partial(compute_logits, is_masked=is_masked, heads=heads)
        for head in range(heads):
            for queries in cut_squares(tiles.queries):
                highest = before = maximum_ref[head, :, queries]
                for keys in cut_squares(count):
                    own = compute(first + keys.start, keys.stop - keys.start, head, queries)
                    highest = jnp.maximum(highest, own.max(axis=0))
                change(head, queries, before, highest)

    def change(  # noqa: PLR0917
        head: int, queries: slice, before: jax.Array, highest: jax.Array, total: Any = 0.0, sums: Any = 0.0
    ) -> None:
        """Adds to total and sums, and goes from one maximum to another, which may still differ between sublanes."""
        highest = jnp.broadcast_to(highest.max(axis=0, keepdims=True), highest.shape)
        fade = jnp.exp2(before - highest)
        rows = slice(head * width, (head + 1) * width)
        maximum_ref[head, :, queries] = highest
        total_ref[head, :, queries] = fade * (total_ref[head, :, queries] + total)
        sum_ref[rows, queries] = fade[:1] * (sum_ref[rows, queries] + sums)

    def add_keys(first: Any, count: int, *, is_masked: bool, heads: int, is_small: bool = False) -> None:
        """Runs one step: while logits of one square are computed, so are weights of another and sums of a third."""
        ahead = AHEAD_SMALL if is_small else AHEAD
        squares = [
            _Square(head=head, queries=queries, offset=keys.start, size=keys.stop - keys.start)
            for head in range(heads)
            for queries in cut_squares(tiles.queries)
            for keys in cut_squares(count)
        ]
        compute = functools.partial(compute_logits, is_masked=is_masked, heads=heads)
        logits: dict[int, jax.Array] = {}
        weights: dict[int, jax.Array] = {}
        statistics: dict[int, tuple[jax.Array, jax.Array, jax.Array]] = {}
        sums = jnp.zeros(())
        for turn in range(len(squares) + 2 * ahead):
            if turn < len(squares):
                square = squares[turn]
                at = first + square.offset
                logits[turn] = compute(at, square.size, square.head, square.queries)
            if 0 <= (now := turn - ahead) < len(squares):
                square, own = squares[now], logits.pop(now)
                if square.offset == 0:
                    before = maximum_ref[square.head, :, square.queries]
                    highest, total = before, jnp.zeros_like(before)
                else:
                    before, highest, total = statistics.pop(now - 1)
                part = jnp.exp2(own if is_small else own - before)
                highest = highest if is_small else jnp.maximum(highest, own.max(axis=0))
                statistics[now] = before, highest, total + part.sum(axis=0)
                weights[now] = part.reshape(square.size, -1).astype(value_ref.dtype)
            if 0 <= (now := turn - 2 * ahead) < len(squares):
                square = squares[now]
                value = read_values(first + square.offset, square.size, square.head, is_masked=is_masked)
                product = jnp.dot(value, weights.pop(now), preferred_element_type=jnp.float32)
                sums = product if square.offset == 0 else sums + product
                if square.offset + square.size == count:
                    before, highest, total = statistics.pop(now)
                    if is_small:
                        rows = slice(square.head * width, (square.head + 1) * width)
                        total_ref[square.head, :, square.queries] += total
                        sum_ref[rows, square.queries] += sums
                        continue
                    excess = excess_ref[:, square.queries]
                    excess_ref[:, square.queries] = jnp.maximum(excess, highest - before)
                    change(square.head, square.queries, before, highest, total, sums)

    rest = band.key_length - (pl.cdiv(band.key_length, tiles.keys) - 1) * tiles.keys  # keys of the last tile
    is_cut = window is not None or rest % LANES != 0

    def each_step(run: Callable[..., None]) -> None:
        """Calls `run` for every step of a tile in a loop; of the last tile only for steps that hold keys."""
        steps = tiles.keys // tiles.step
        if has_lengths:
            left = jnp.clip(key_length - first_key, 0, tiles.keys)
            whole = jax.lax.div(left, tiles.step)
            jax.lax.fori_loop(0, whole, lambda step, _: run(step * tiles.step, tiles.step, is_masked=False), None)
            pl.when(left > whole * tiles.step)(lambda: run(whole * tiles.step, tiles.step, is_masked=True))
            return
        whole = jnp.where(column == last, rest // tiles.step, steps)
        jax.lax.fori_loop(0, whole, lambda step, _: run(step * tiles.step, tiles.step, is_masked=False), None)
        if rest % tiles.step:
            size = LANES * pl.cdiv(rest % tiles.step, LANES)
            pl.when(column == last)(lambda: run(rest // tiles.step * tiles.step, size, is_masked=is_cut))

    def each_near_step(run: Callable[..., None], *, is_masked: bool = False) -> None:
        """Calls `run` for steps in which some query sees some keys; with masks where not all see all."""
        assert window is not None
        first, after = first_query - window - first_key, first_query + tiles.queries + window - first_key
        until = jnp.minimum(pl.cdiv(key_length - first_key, tiles.step), tiles.keys // tiles.step)

        def take(step: jax.Array, _: None) -> None:
            start = step * tiles.step
            if is_masked:
                run(start, tiles.step, is_masked=True)
                return
            is_whole = (start >= first + tiles.queries - 1) & (start + tiles.step <= after - tiles.queries + 1)
            is_whole &= first_key + start + tiles.step <= key_length
            pl.when(is_whole)(lambda: run(start, tiles.step, is_masked=False))
            pl.when(~is_whole)(lambda: run(start, tiles.step, is_masked=True))

        start = jax.lax.div(jnp.maximum(first, 0), tiles.step)
        stop = jnp.minimum(jax.lax.div(jnp.maximum(after, 0) + tiles.step - 1, tiles.step), until)
        jax.lax.fori_loop(start, stop, take, None)

    each = each_step if window is None else each_near_step

    def count_tile() -> None:
        """Counts a tile of keys for the heads of its block."""
        if is_last_block is not None:
            pl.when(is_last_block)(lambda: count_heads(left))
            pl.when(~is_last_block)(lambda: count_heads(group))
        else:
            count_heads(group)

    def count_heads(heads: int) -> None:
        """Counts it in the way that its queries allow."""
        if small_ref is None:
            count_relative(heads)
        else:
            pl.when(small_ref[0] == 1)(lambda: each(functools.partial(add_keys, heads=heads, is_small=True)))
            pl.when(small_ref[0] == 0)(lambda: count_relative(heads))

    def count_relative(heads: int) -> None:
        """Relative to the maximum of the keys before; once more, after their own, where that was too far off."""
        if window is None:
            pl.when(column == 0)(lambda: raise_maximum(0, FIRST_KEYS, is_masked=is_cut, heads=heads))
        else:  # a query that has seen no key yet has no maximum to start from
            is_new = (column == 0) | (first_key <= first_query + tiles.queries - 1 - window)
            pl.when(is_new)(lambda: each_near_step(functools.partial(raise_maximum, heads=heads), is_masked=True))
        if saved_refs:
            pl.when(column > 0)(save)

        def attempt(is_second: jax.Array) -> jax.Array:
            pl.when(is_second == 1)(restore)
            excess_ref[...] = jnp.zeros_like(excess_ref)
            each(functools.partial(add_keys, heads=heads))
            return jnp.where((is_second == 0) & (excess_ref[...].max() > EXCESS), 1, 2)

        jax.lax.while_loop(lambda turn: turn < 2, attempt, jnp.int32(0))

    def save() -> None:
        for kept_ref, saved_ref in zip(kept_refs, saved_refs, strict=True):
            saved_ref[...] = kept_ref[...]

    def restore() -> None:
        """Totals and sums as they were, relative to the maximum that is known by now."""
        if saved_refs:
            pl.when(column > 0)(bring_back)
            pl.when(column == 0)(clear)
        else:
            clear()

    def bring_back() -> None:
        saved_maximum_ref, saved_total_ref, saved_sum_ref = saved_refs
        for head in range(group):
            rows = slice(head * width, (head + 1) * width)
            fade = jnp.exp2(saved_maximum_ref[head] - maximum_ref[head])
            total_ref[head] = fade * saved_total_ref[head]
            sum_ref[rows, :] = fade[:1] * saved_sum_ref[rows, :]

    if window is None:
        count_tile()
    else:
        is_near = (first_key + tiles.keys > first_query - window) & (first_key < first_query + tiles.queries + window)
        pl.when(is_near)(count_tile)

    @pl.when(column == last)
    def _finish() -> None:
        for head in range(group):
            rows = slice(head * width, (head + 1) * width)
            total = total_ref[head].sum(axis=0, keepdims=True)
            if window is not None or is_uneven:  # tokens that only fill up may see no key, and no head has any there
                total = jnp.maximum(total, jnp.finfo(jnp.float32).tiny)
            sum_ref[rows, :] = sum_ref[rows, :] / total
            if sums_ref is not None:
                sums_ref[head, :] = (maximum_ref[head, :1, :] + jnp.log2(total))[0]
        out_ref[...] = sum_ref[...].T.astype(out_ref.dtype)


def cut_squares(length: int) -> list[slice]:
    """Cuts a length into the sides of squares; the last one may be smaller."""
    return [slice(start, min(start + SQUARE, length)) for start in range(0, length, SQUARE)]
