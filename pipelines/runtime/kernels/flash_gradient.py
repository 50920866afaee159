"""The gradient of flash.py's attention on TPU as one Pallas kernel, from what that kernel gave and told.

Weights are computed again from the sums of their exponentials (Dao et al. 2022), and the five products of a square of
queries and keys follow on one another, so that neither logits nor weights are written to memory:

    grid (batch, groups of heads, tiles of queries, tiles of keys), the last two in order:
        for each `step` keys of the tile: logits -> weights -> gradients of values, keys and queries
        after the last tile of keys: the queries' gradients; of the last tile of queries: those of keys and values

As in flash.py keys lie along sublanes and queries along lanes. Weights and the logits' gradients are then what stays in
the matrix unit and fills it, 256 x 256, in three of the products; logits and the weights' gradients come at the half of
the peak that 128 features allow, so 71 % is the most there is. A step is cut into squares, and the products of the next
one are begun before the exponentials of this one.

Sums of the keys' and values' gradients stay in vector memory, of all keys of a head; where there is no room for them,
one part of the keys comes after another.

Not here: which attentions take this way (attention_gradient.py).
"""

import functools
import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from pipelines.runtime.kernels.flash import (
    LANES,
    MASKED,
    SQUARE,
    SUBLANES,
    Tiles,
    choose_group,
    choose_tile,
    cut_squares,
)

NAME = "flash_gradient"
_ROWS_BY_ROWS = (((1,), (1,)), ((), ()))
_QUERIES = range(1024, 2048 + 1, SQUARE)
_STEPS = range(512, 768 + 1, SQUARE)
_MOST_KEYS = 8192  # of a tile
_SMALLEST = 256
_SLACK = 17 / 16  # of vector memory, beside what is counted
# What is done beside the products, by the schedule for 1536 queries and 4608 keys of a head of 128 on v6e: 1600 cycles
# a tile of queries, as long as so many keys take, and 1840 for all keys of a head, as long as so many queries.
_ROW_KEYS = 270
_FINISH_QUERIES = 100
# A turn of the loop takes 2201 cycles for 1024 queries and 4021 for 2048 by the same schedule, so what it does for any
# number of them takes as long as 200 more. On chips of smaller matrix units these decide, and a tile's size does not.
_TURN_QUERIES = 200


@dataclass(frozen=True, kw_only=True)
class Part:
    """Tiles, and how many of them hold the keys of a part: the kernel runs once for each part of the keys."""

    tiles: Tiles
    visits: int

    @property
    def keys(self) -> int:
        return self.tiles.keys * self.visits


def choose_part(
    query_length: int,
    key_length: int,
    *,
    group: int,
    width: int,
    itemsize: int,
    vmem_bytes: int,
    has_large_units: bool = False,
) -> Part:
    """Returns all keys at once where there is room for their gradients, and tiles as large and even as they can be.

    `group` heads of `width` features, each of `itemsize` bytes, lie side by side. With large matrix units the quickest
    tiles need not be even: 14 040 tokens are 7 of 2048 then, in place of 11 of 1280.
    """
    queries = (_choose_quickest if has_large_units else choose_tile)(query_length, _QUERIES)
    step, most_keys = choose_tile(key_length, _STEPS), _MOST_KEYS
    while True:
        keys = step * min(max(1, most_keys // step), math.ceil(key_length / step))
        tiles = Tiles(queries=queries, keys=keys, step=step)
        parts = [Part(tiles=tiles, visits=visits) for visits in range(math.ceil(key_length / keys), 0, -1)]
        sizes = (count_vmem_bytes(part, group=group, width=width, itemsize=itemsize) for part in parts)
        fitting = next((part for part, size in zip(parts, sizes, strict=True) if size <= vmem_bytes), None)
        if fitting is not None:
            return fitting
        if keys > step:
            most_keys = max(step, most_keys // 2)
        elif queries > _SMALLEST:
            queries = max(_SMALLEST, LANES * math.ceil(queries / 2 / LANES))
        elif step > _SMALLEST:
            step = _SMALLEST
        else:
            return parts[-1]  # there is no smaller one


def _choose_quickest(length: int, sizes: range) -> int:
    """Larger tiles take fewer turns, and compute more past the end."""
    if length <= sizes[0]:
        return choose_tile(length, sizes)
    return min(sizes, key=lambda size: (math.ceil(length / size) * (size + _TURN_QUERIES), -size))


def name_kernel(tiles: Tiles, group: int) -> str:
    """The kernel's name, by which a program tells how large its tiles are: how busy they keep the matrix units."""
    return f"{NAME}_{tiles.queries}x{tiles.step}x{group}"


def count_vmem_bytes(part: Part, *, group: int, width: int, itemsize: int) -> int:
    """VMEM bytes: double-buffered inputs and outputs, queries in four forms, sums, and what is in flight."""
    tiles, block = part.tiles, max(LANES, group * width)
    streamed = 2 * itemsize * block * 4 * (tiles.queries + tiles.keys)
    prepared = itemsize * tiles.queries * (2 * group + 2) * block
    told = 4 * SUBLANES * tiles.queries * (2 * group + 2 * math.ceil(group / SUBLANES))
    sums = 4 * block * (tiles.queries + 2 * part.keys)
    turned = 4 * block * max(2 * tiles.queries, tiles.keys)
    return streamed + prepared + told + sums + turned + 3 * SQUARE * SQUARE * 2 * (4 + itemsize)


_STATIC = ("heads", "scale", "part", "vmem_bytes", "has_large_units", "interpret")


@functools.partial(jax.jit, static_argnames=_STATIC, inline=True)
def differentiate(  # noqa: PLR0917 - arrays
    query_BLC: jax.Array,
    key_BLC: jax.Array,
    value_BLC: jax.Array,
    out_BLC: jax.Array,
    sums_BHL: jax.Array,
    gradient_BLC: jax.Array,
    *,
    heads: int,
    scale: float,
    vmem_bytes: int,
    key_lengths_B: jax.Array | None = None,
    has_large_units: bool = False,
    part: Part | None = None,
    interpret: bool = False,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Returns the gradients of queries, keys and values, each as the array itself: (batch, length, heads * width).

    `out` and `sums` are what flash_attention gave with `tells_sums`, of the same `scale` and `key_lengths`, and
    `gradient` is that of `out`. `vmem_bytes` is what find_vmem_bytes says of the chip; the part is chosen to fit.
    `interpret` runs the kernel without a TPU.
    """
    batch, query_length, channels = query_BLC.shape
    key_length, width = key_BLC.shape[1], channels // heads
    group = choose_group(heads, width)
    itemsize = query_BLC.dtype.itemsize
    if part is None:
        sizes = {"group": group, "width": width, "itemsize": itemsize, "vmem_bytes": vmem_bytes}
        part = choose_part(query_length, key_length, **sizes, has_large_units=has_large_units)
    needed = int(_SLACK * count_vmem_bytes(part, group=group, width=width, itemsize=itemsize))
    sums = sums_BHL.reshape(batch, -1, group, query_length)
    query_gradients, key_gradients, value_gradients = [], [], []
    for start in range(0, key_length, part.keys):
        keys = slice(start, start + part.keys)
        found = _run(
            *(query_BLC, key_BLC[:, keys], value_BLC[:, keys], out_BLC, sums, gradient_BLC),
            None if key_lengths_B is None else key_lengths_B - start,
            heads=heads,
            scale=scale,
            tiles=part.tiles,
            # What it reserves other operations cannot keep there, so it is no more than it needs.
            vmem_bytes=min(vmem_bytes, needed),
            wide=key_length > part.keys,
            interpret=interpret,
        )
        for gradients, one in zip((query_gradients, key_gradients, value_gradients), found, strict=True):
            gradients.append(one)
    if len(key_gradients) == 1:
        return query_gradients[0], key_gradients[0], value_gradients[0]
    return (
        functools.reduce(jnp.add, query_gradients).astype(query_BLC.dtype),
        jnp.concatenate(key_gradients, axis=1),
        jnp.concatenate(value_gradients, axis=1),
    )


def _run(  # noqa: PLR0917 - arrays
    query_BLC: jax.Array,
    key_BLC: jax.Array,
    value_BLC: jax.Array,
    out_BLC: jax.Array,
    sums_BNGL: jax.Array,
    gradient_BLC: jax.Array,
    key_lengths_B: jax.Array | None,
    *,
    heads: int,
    scale: float,
    tiles: Tiles,
    vmem_bytes: int,
    wide: bool,
    interpret: bool,
) -> Any:
    """Runs the kernel for all keys that it is given; the queries' gradients are in fp32 if they are `wide`."""
    batch, query_length, channels = query_BLC.shape
    key_length, width = key_BLC.shape[1], channels // heads
    _, blocks, group, _ = sums_BNGL.shape
    block = group * width
    dtype = query_BLC.dtype
    visits = pl.cdiv(key_length, tiles.keys)
    rows = pl.cdiv(query_length, tiles.queries)
    by_query = lambda b, h, i, j, *_: (b, i, h)  # noqa: ARG005, E731 - Pallas's index maps
    by_key = lambda b, h, i, j, *_: (b, j, h)  # noqa: ARG005, E731
    by_head = lambda b, h, i, j, *_: (b, h, 0, i)  # noqa: ARG005, E731
    # Until the last tile of queries it stays at the first tile of keys, so that nothing is written out.
    by_key_at_last = lambda b, h, i, j, *_: (b, jnp.where(i == rows - 1, j, 0), h)  # noqa: E731
    of_queries = pl.BlockSpec((None, tiles.queries, block), by_query)
    of_keys = pl.BlockSpec((None, tiles.keys, block), by_key)
    out_of_keys = pl.BlockSpec((None, tiles.keys, block), by_key_at_last)
    of_sums = pl.BlockSpec((None, None, group, tiles.queries), by_head)
    places = () if key_lengths_B is None else (jnp.clip(key_lengths_B, 0, key_length).astype(jnp.int32),)
    counted = count_flops(
        batch=batch,
        heads=heads,
        block=block,
        queries=rows * tiles.queries,
        keys=tiles.step * (key_length // tiles.step) + LANES * pl.cdiv(key_length % tiles.step, LANES),
    )
    return pl.pallas_call(
        functools.partial(
            _kernel,
            tiles=tiles,
            width=width,
            left=heads - (blocks - 1) * group,
            scale=scale,
            query_length=query_length,
            key_length=key_length,
            has_lengths=bool(places),
        ),
        out_shape=[
            jax.ShapeDtypeStruct(query_BLC.shape, jnp.float32 if wide else dtype),
            jax.ShapeDtypeStruct(key_BLC.shape, key_BLC.dtype),
            jax.ShapeDtypeStruct(value_BLC.shape, value_BLC.dtype),
        ],
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=len(places),
            grid=(batch, blocks, rows, visits),
            in_specs=[of_queries, of_keys, of_keys, of_queries, of_sums, of_queries],
            out_specs=[of_queries, out_of_keys, out_of_keys],
            scratch_shapes=[
                *[pltpu.VMEM((group, tiles.queries, block), dtype) for _ in range(2)],
                *[pltpu.VMEM((block, tiles.queries), dtype) for _ in range(2)],
                *[pltpu.VMEM((group, SUBLANES, tiles.queries), jnp.float32) for _ in range(2)],
                pltpu.VMEM((block, tiles.queries), jnp.float32),
                *[pltpu.VMEM((visits, block, tiles.keys), jnp.float32) for _ in range(2)],
            ],
        ),
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "parallel", "arbitrary", "arbitrary"), vmem_limit_bytes=vmem_bytes
        ),
        cost_estimate=pl.CostEstimate(
            flops=counted,
            transcendentals=batch * heads * query_length * key_length,
            bytes_accessed=4 * query_BLC.nbytes + 2 * (1 + (rows if visits > 1 else 1)) * key_BLC.nbytes,
        ),
        interpret=interpret,
        name=name_kernel(tiles, group),
    )(*places, query_BLC, key_BLC, value_BLC, out_BLC, sums_BNGL, gradient_BLC)


def count_flops(*, batch: int, heads: int, block: int, queries: int, keys: int) -> int:
    """Floating-point operations of the five products, and of as many as fit into the time of what is done beside them.

    Heads share a block of features, each over all of its lanes.
    """
    beside = queries * _ROW_KEYS + keys * _FINISH_QUERIES
    return 10 * batch * heads * (queries * keys + beside) * max(LANES, block)


def _kernel(
    *refs: Any, tiles: Tiles, width: int, left: int, scale: float, query_length: int, key_length: int, has_lengths: bool
) -> None:
    """One tile of queries against one tile of keys; sums over earlier tiles are in VMEM.

    Those of queries are of this tile of queries, (features, queries); those of keys and values of all tiles of keys,
    (tile, features, keys). The last block holds the heads that are `left`.
    """
    length_refs, others = refs[:has_lengths], list(refs[has_lengths:])
    query_ref, key_ref, value_ref, out_ref, told_ref, gradient_ref, *others = others
    query_out_ref, key_out_ref, value_out_ref, *others = others
    scaled_ref, slope_ref, scaled_by_feature_ref, slope_by_feature_ref, *others = others
    logs_ref, means_ref, query_sum_ref, key_sum_ref, value_sum_ref = others
    row, column = pl.program_id(2), pl.program_id(3)
    first_key = column * tiles.keys
    group, dtype = scaled_ref.shape[0], scaled_ref.dtype
    seen: Any = length_refs[0][pl.program_id(0)] if length_refs else key_length

    @pl.when(column == 0)
    def _start() -> None:
        """What lies past the end may be anything: its queries and gradients become 0, and its weights."""
        is_real = row * tiles.queries + jax.lax.broadcasted_iota(jnp.int32, query_ref.shape, 0) < query_length
        lane = jax.lax.broadcasted_iota(jnp.int32, query_ref.shape, 1)
        scaled = jnp.where(is_real, query_ref[...].astype(jnp.float32) * (scale * math.log2(math.e)), 0.0)
        slope = jnp.where(is_real, gradient_ref[...].astype(jnp.float32), 0.0)
        products_by_feature = jnp.where(is_real, slope * out_ref[...].astype(jnp.float32), 0.0).T
        scaled, slope = scaled.astype(dtype), slope.astype(dtype)
        scaled_by_feature_ref[...], slope_by_feature_ref[...] = scaled.T, slope.T
        is_known = row * tiles.queries + jax.lax.broadcasted_iota(jnp.int32, logs_ref.shape[1:], 1) < query_length
        for head in range(group):
            is_own = (lane >= head * width) & (lane < (head + 1) * width)
            for ref, whole in ((scaled_ref, scaled), (slope_ref, slope)):
                ref[head] = whole if group == 1 else jnp.where(is_own, whole, jnp.zeros_like(whole))
            mean = products_by_feature[head * width : (head + 1) * width].sum(axis=0, keepdims=True)
            means_ref[head] = jnp.broadcast_to(mean, means_ref.shape[1:])
            told = jnp.broadcast_to(told_ref[head, :][None], logs_ref.shape[1:])
            logs_ref[head] = jnp.where(is_known, told, -MASKED)
        query_sum_ref[...] = jnp.zeros_like(query_sum_ref)

    @pl.when(row == 0)
    def _clear() -> None:
        key_sum_ref[column] = jnp.zeros(key_sum_ref.shape[1:], jnp.float32)
        value_sum_ref[column] = jnp.zeros(value_sum_ref.shape[1:], jnp.float32)

    def read(ref: Any, first: Any, count: int, lanes: slice = slice(None), *, is_masked: bool) -> jax.Array:
        found = ref[pl.ds(first, count), lanes]
        if is_masked:  # 0 * nan is nan
            index = first_key + first + jax.lax.broadcasted_iota(jnp.int32, (count, 1), 0)
            found = jnp.where(index < key_length, found, jnp.zeros_like(found))
        return found

    def compute_logits(first: Any, square: "_Square", *, is_masked: bool, heads: int) -> tuple[jax.Array, jax.Array]:
        """Returns logits and the weights' gradients, (keys, queries), in a block of so many heads."""
        at, queries = first + square.keys.start, square.queries
        lanes = slice(None) if heads == group else slice(0, heads * width)  # behind them may be anything
        key, value = (read(ref, at, square.size, lanes, is_masked=is_masked) for ref in (key_ref, value_ref))
        logits = _multiply(key, scaled_ref[square.head, queries, lanes])
        if is_masked:
            index = first_key + at + jax.lax.broadcasted_iota(jnp.int32, logits.shape, 0)
            logits = jnp.where(index < seen, logits, MASKED)
        return logits, _multiply(value, slope_ref[square.head, queries, lanes])

    def compute_weights(square: "_Square", logits: jax.Array, slopes: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Returns weights and the logits' gradients, (keys, queries)."""
        logs, means = logs_ref[square.head, :, square.queries], means_ref[square.head, :, square.queries]
        by_sublanes = (square.size // SUBLANES, SUBLANES, -1)
        weights = jnp.exp2(logits.reshape(by_sublanes) - logs)
        slopes = weights * (slopes.reshape(by_sublanes) - means)
        return weights.reshape(logits.shape).astype(dtype), slopes.reshape(logits.shape).astype(dtype)

    def add_keys(first: Any, count: int, *, is_masked: bool, heads: int) -> None:
        """Runs one step: while logits of one square are computed, so are weights of another and sums of a third."""
        squares = [
            _Square(head=head, queries=queries, keys=keys)
            for head in range(heads)
            for keys in cut_squares(count)
            for queries in cut_squares(tiles.queries)
        ]
        logits: dict[int, tuple[jax.Array, jax.Array]] = {}
        weights: dict[int, tuple[jax.Array, jax.Array]] = {}
        sums: tuple[jax.Array, ...] = ()
        for turn in range(len(squares) + 2):
            if turn < len(squares):
                logits[turn] = compute_logits(first, squares[turn], is_masked=is_masked, heads=heads)
            if 0 <= (now := turn - 1) < len(squares):
                weights[now] = compute_weights(squares[now], *logits.pop(now))
            if 0 <= (now := turn - 2) < len(squares):
                square, (own_weights, slopes) = squares[now], weights.pop(now)
                rows = slice(square.head * width, (square.head + 1) * width)
                at = pl.multiple_of(first + square.keys.start, LANES)
                key = read(key_ref, at, square.size, is_masked=is_masked)
                found = (
                    _multiply(slope_by_feature_ref[rows, square.queries], own_weights),
                    _multiply(scaled_by_feature_ref[rows, square.queries], slopes),
                )
                sums = tuple(map(jnp.add, sums, found)) if square.queries.start else found
                query_sum_ref[rows, square.queries] += jnp.dot(key.T[rows], slopes, preferred_element_type=jnp.float32)
                if square.queries.stop == tiles.queries:
                    for ref, one in zip((value_sum_ref, key_sum_ref), sums, strict=True):
                        ref[column, rows, pl.ds(at, square.size)] += one

    rest = key_length % tiles.keys  # keys of the last tile; 0 if it is full
    here = jnp.clip(seen - first_key, 0, tiles.keys)
    whole = jax.lax.div(here, tiles.step)

    def add_tile(heads: int) -> None:
        add = functools.partial(add_keys, heads=heads)
        jax.lax.fori_loop(0, whole, lambda step, _: add(step * tiles.step, tiles.step, is_masked=False), None)
        if has_lengths:
            pl.when(here > whole * tiles.step)(lambda: add(whole * tiles.step, tiles.step, is_masked=True))
        elif rest % tiles.step:
            size = LANES * pl.cdiv(rest % tiles.step, LANES)
            start = rest // tiles.step * tiles.step
            pl.when(here == rest)(lambda: add(start, size, is_masked=rest % LANES != 0))

    if left < group:
        is_last_block = pl.program_id(1) == pl.num_programs(1) - 1
        pl.when(is_last_block)(lambda: add_tile(left))
        pl.when(~is_last_block)(lambda: add_tile(group))
    else:
        add_tile(group)

    @pl.when(column == pl.num_programs(3) - 1)
    def _finish_queries() -> None:
        query_out_ref[...] = (scale * query_sum_ref[...]).T.astype(query_out_ref.dtype)

    @pl.when(row == pl.num_programs(2) - 1)
    def _finish_keys() -> None:
        key_out_ref[...] = (math.log(2) * key_sum_ref[column]).T.astype(key_out_ref.dtype)
        value_out_ref[...] = value_sum_ref[column].T.astype(value_out_ref.dtype)


@dataclass(frozen=True, kw_only=True)
class _Square:
    """Some keys of a step, counted from its first, and some queries of the tile, for one head."""

    head: int
    queries: slice
    keys: slice

    @property
    def size(self) -> int:
        return self.keys.stop - self.keys.start


def _multiply(left: jax.Array, right: jax.Array) -> jax.Array:
    """Multiplies `left` by `right` transposed, in fp32."""
    return jax.lax.dot_general(left, right, _ROWS_BY_ROWS, preferred_element_type=jnp.float32)
