"""RMS norm and rotary embedding of heads on the way from (tokens, features) to (heads, tokens, features of a head).

This is what FLUX.2 and Wan do between the projections of queries and keys and their attention, where a training needs
the gradient of. XLA takes four passes for it and six for its gradient; a kernel takes one each. By the TPU compiler a
layer of FLUX.2-klein with 4608 tokens on v6e spends 0.26 ms there so, forwards twice and backwards once, in place of
1.5 (plan/TRIED.md).

Pairs (2i, 2i + 1) are turned, as in rotary.py: R(x) = (-x1, x0, -x3, x2, ...) is a product with a matrix of 0 and +-1,
exact, and the tables hold every angle twice. With n = x r weight, r = 1 / sqrt(mean(x^2) + eps), all in fp32:

    out = n cos + R(n) sin = r (x weight cos + R(x) neighbour's weight sin)
    dn  = g cos - R(g) sin, for the gradient g of out, as R is minus its transpose
    dx  = r (dn weight - x r^2 mean(dn weight x)),  dweight = sum over tokens, and heads that share it, of dn x r

Means are over a head, as in FLUX.2, or over all of them, as in Wan.
"""

import functools
from typing import Any, TypeGuard

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import PartitionSpec as P

from pipelines.runtime.kernels.attention_axes import AttentionAxes
from pipelines.runtime.kernels.flash import LANES, SUBLANES
from pipelines.runtime.kernels.heads import choose_spec
from pipelines.runtime.kernels.switches import is_on

NAMES = ("head_norm", "head_norm_gradient", "heads_norm", "heads_norm_gradient")
"""How the kernels are called: over one head and over all, forwards and backwards."""
_ROWS = 256  # tokens that a kernel holds at a time, of some heads
_ROWS_OF_ALL = 128  # of all heads
_AT_ONCE = 64  # of them in the gradient: as many as pay
_MOST_HEADS = 8  # whose norms are their own
_FORWARDS, _BACKWARDS = 6, 14  # operations a number, on the vector unit


def norms_by_kernel(axes: AttentionAxes | None, width: int) -> TypeGuard[AttentionAxes]:
    """Tells whether heads of this width are normed by the kernel: where a gradient is wanted on TPU."""
    return axes is not None and axes.learns and axes.takes_kernels and width == LANES and is_on("head_norm")


def norm_heads(
    x_BLC: jax.Array, weight: jax.Array, cos: jax.Array, sin: jax.Array, *, eps: float, axes: AttentionAxes
) -> jax.Array:
    """Returns (batch, tokens, heads, 128 features), normed and turned; `norms_by_kernel` says where.

    A weight of 128 features is of each head, which is normed by itself; one of all features is of a norm over all.
    The tables are (tokens, 128) for all rows, or (batch, tokens, 128), and get no gradient.
    """
    rows, all_rows = choose_spec(x_BLC, axes), P()
    tables = [table.astype(jnp.float32) for table in (cos, sin)]
    tables = [table[None] if table.ndim == 2 else table for table in tables]
    of_tables = rows if tables[0].shape[0] > 1 else all_rows
    normed = jax.shard_map(
        _norm(eps, axes.interprets),
        mesh=axes.mesh,
        in_specs=(rows, all_rows, of_tables, of_tables),
        out_specs=rows,
        check_vma=False,
    )
    return normed(x_BLC, weight.astype(jnp.float32).reshape(-1, LANES), *tables).swapaxes(1, 2)


@functools.cache
def _norm(eps: float, interpret: bool) -> Any:  # noqa: FBT001
    """Builds the function of x (B, L, C), weight (1 or heads, D), cos and sin (1 or B, L, D), with its gradient."""
    options: Any = {"eps": eps, "interpret": interpret}

    @jax.custom_vjp
    def norm(*arrays: jax.Array) -> jax.Array:
        return _run(*arrays, **options)

    def differentiate(kept: Any, gradient: jax.Array) -> tuple[jax.Array | None, ...]:
        x_BLC, weight_HD, cos, sin = kept
        return (*_run_back(x_BLC, weight_HD, cos, sin, gradient, **options), None, None)

    norm.defvjp(lambda *arrays: (norm(*arrays), arrays), differentiate)
    return norm


def _run(
    x_BLC: jax.Array, weight_HD: jax.Array, cos: jax.Array, sin: jax.Array, *, eps: float, interpret: bool
) -> jax.Array:
    batch, length, channels = x_BLC.shape
    places = _Places(x_BLC, weight_HD, cos)
    return pl.pallas_call(
        functools.partial(_kernel, eps=eps),
        grid=places.grid,
        in_specs=[places.tokens, places.table, places.table, places.weights],
        out_specs=places.heads,
        out_shape=jax.ShapeDtypeStruct((batch, channels // LANES, length, LANES), x_BLC.dtype),
        interpret=interpret,
        name=NAMES[2 * places.is_whole],
        **_describe(x_BLC, cos, arrays=2, operations=_FORWARDS),
    )(x_BLC, cos, sin, _put_side_by_side(weight_HD))


def _run_back(
    x_BLC: jax.Array,
    weight_HD: jax.Array,
    cos: jax.Array,
    sin: jax.Array,
    gradient_BHLD: jax.Array,
    *,
    eps: float,
    interpret: bool,
) -> tuple[jax.Array, jax.Array]:
    """Returns the gradients of x and of the weight."""
    places = _Places(x_BLC, weight_HD, cos)
    sums = (len(weight_HD), SUBLANES, LANES)
    of_x, of_weight = pl.pallas_call(
        functools.partial(_gradient_kernel, eps=eps, length=x_BLC.shape[1]),
        grid=places.grid,
        in_specs=[places.tokens, places.table, places.table, places.weights, places.heads],
        out_specs=[places.tokens, pl.BlockSpec((None, None, None, *sums), lambda b, i, h: (b, i, h, 0, 0, 0))],
        out_shape=[
            jax.ShapeDtypeStruct(x_BLC.shape, x_BLC.dtype),
            jax.ShapeDtypeStruct((*places.grid, *sums), jnp.float32),
        ],
        interpret=interpret,
        name=NAMES[2 * places.is_whole + 1],
        **_describe(x_BLC, cos, arrays=3, operations=_BACKWARDS),
    )(x_BLC, cos, sin, _put_side_by_side(weight_HD), gradient_BHLD)
    return of_x, of_weight.sum(axis=(0, 1, 2, 4))


class _Places:
    """Which part of each array a kernel has at a time: some tokens of some heads, or of all."""

    def __init__(self, x_BLC: jax.Array, weight_HD: jax.Array, cos: jax.Array) -> None:
        batch, length, channels = x_BLC.shape
        heads = channels // LANES
        self.is_whole = len(weight_HD) > 1
        group = heads if self.is_whole else next(one for one in range(_MOST_HEADS, 0, -1) if heads % one == 0)
        rows = _ROWS_OF_ALL if self.is_whole else _ROWS
        has_own_tables = cos.shape[0] > 1
        self.grid = (batch, pl.cdiv(length, rows), heads // group)
        self.tokens = pl.BlockSpec((None, rows, group * LANES), lambda b, i, h: (b, i, h))
        self.heads = pl.BlockSpec((None, group, rows, LANES), lambda b, i, h: (b, h, i, 0))
        self.table = pl.BlockSpec((None, rows, LANES), lambda b, i, h: (b if has_own_tables else 0, i, 0))  # noqa: ARG005
        self.weights = pl.BlockSpec((2, len(weight_HD), LANES), lambda b, i, h: (0, 0, 0))  # noqa: ARG005


def _put_side_by_side(weight_HD: jax.Array) -> jax.Array:
    """(2, H, D): the weights, and the neighbour's of each."""
    neighbours = weight_HD.reshape(len(weight_HD), -1, 2)[..., ::-1].reshape(weight_HD.shape)
    return jnp.stack([weight_HD, neighbours])


def _describe(x: jax.Array, table: jax.Array, *, arrays: int, operations: int) -> dict[str, Any]:
    return {
        "compiler_params": pltpu.CompilerParams(dimension_semantics=("parallel", "parallel", "parallel")),
        "cost_estimate": pl.CostEstimate(
            flops=operations * x.size,
            transcendentals=x.size // LANES,
            bytes_accessed=arrays * x.nbytes + 2 * table.nbytes,
        ),
    }


def _kernel(x_ref: Any, cos_ref: Any, sin_ref: Any, weights_ref: Any, out_ref: Any, *, eps: float) -> None:
    heads, count = out_ref.shape[0], weights_ref.shape[1]
    read = lambda head: x_ref[:, _find_part(head)]  # noqa: E731
    weigh = lambda ref, at, head: ref[...] * weights_ref[at, head : head + 1, :]  # noqa: E731
    of_all = _find_scale([read(head) for head in range(heads)], eps) if count > 1 else None
    cos, sin = weigh(cos_ref, 0, 0), weigh(sin_ref, 1, 0)
    for head in range(heads):
        x = read(head)
        if 0 < head < count:
            cos, sin = weigh(cos_ref, 0, head), weigh(sin_ref, 1, head)
        scale = _find_scale([x], eps) if of_all is None else of_all
        turned = x.astype(jnp.float32) * cos + _exchange(x) * sin
        out_ref[head] = (turned * scale).astype(out_ref.dtype)


def _gradient_kernel(  # noqa: PLR0917 - Pallas hands arrays over by position
    x_ref: Any,
    cos_ref: Any,
    sin_ref: Any,
    weights_ref: Any,
    gradient_ref: Any,
    out_ref: Any,
    weight_out_ref: Any,
    *,
    eps: float,
    length: int,
) -> None:
    heads, count = gradient_ref.shape[0], weights_ref.shape[1]
    first = pl.program_id(1) * x_ref.shape[0]
    weight_out_ref[...] = jnp.zeros(weight_out_ref.shape, jnp.float32)

    def differentiate(step: Any, _: None) -> None:
        start = step * _AT_ONCE if isinstance(step, int) else pl.multiple_of(step * _AT_ONCE, _AT_ONCE)
        rows = pl.ds(start, _AT_ONCE)
        cos, sin = cos_ref[rows, :], sin_ref[rows, :]
        row = first + start + jax.lax.broadcasted_iota(jnp.int32, cos.shape, 0)
        weigh = lambda x, head: x * weights_ref[0, head % count : head % count + 1, :]  # noqa: E731

        def read(head: int) -> tuple[jax.Array, jax.Array]:
            """Returns x, and the gradient of what x becomes by norm and weight."""
            gradient = gradient_ref[head, rows, :]
            turned_back = gradient.astype(jnp.float32) * cos - _exchange(gradient) * sin
            return x_ref[rows, _find_part(head)].astype(jnp.float32), turned_back

        def finish(head: int, x: jax.Array, of_norm: jax.Array, scale: jax.Array, mean: jax.Array) -> jax.Array:
            of_x = scale * (weigh(of_norm, head) - x * mean)
            out_ref[rows, _find_part(head)] = of_x.astype(out_ref.dtype)
            return jnp.where(row < length, of_norm * x * scale, 0.0)

        def add_up(at: int, products: jax.Array) -> None:
            weight_out_ref[at] += products.reshape(-1, SUBLANES, LANES).sum(axis=0)

        if count == 1:
            products = jnp.zeros(cos.shape, jnp.float32)
            for head in range(heads):
                x, of_norm = read(head)
                scale = _find_scale([x], eps)
                mean = (weigh(of_norm, head) * x).mean(axis=1, keepdims=True) * scale * scale
                products += finish(head, x, of_norm, scale, mean)
            add_up(0, products)
            return
        scale = _find_scale([x_ref[rows, _find_part(head)] for head in range(heads)], eps)
        across = jnp.zeros(cos.shape, jnp.float32)
        for head in range(heads):
            x, of_norm = read(head)
            across += weigh(of_norm, head) * x
        mean = across.sum(axis=1, keepdims=True) * (1 / (heads * LANES)) * scale * scale
        for head in range(heads):
            add_up(head, finish(head, *read(head), scale, mean))

    if count > 1:
        left = jnp.minimum(length - first, x_ref.shape[0])
        jax.lax.fori_loop(0, pl.cdiv(left, _AT_ONCE), differentiate, None)
        return
    for step in range(x_ref.shape[0] // _AT_ONCE):  # which the compiler mixes: half the cycles
        differentiate(step, None)


def _find_part(head: int) -> slice:
    return slice(head * LANES, (head + 1) * LANES)


def _find_scale(parts: list[jax.Array], eps: float) -> jax.Array:
    """Returns r, (tokens, 1), of features that come in parts."""
    total = functools.reduce(jnp.add, (jnp.square(part.astype(jnp.float32)) for part in parts))
    return jax.lax.rsqrt(total.sum(axis=1, keepdims=True) * (1 / (len(parts) * LANES)) + eps)


def _exchange(x: jax.Array) -> jax.Array:
    """(-x1, x0, -x3, x2, ...) of each row, in fp32, by a product with 0 and +-1, which is exact."""
    row, column = (jax.lax.broadcasted_iota(jnp.int32, (LANES, LANES), axis) for axis in (0, 1))
    to_first = jnp.where((row == column + 1) & (column % 2 == 0), -1.0, 0.0)
    to_second = jnp.where((row == column - 1) & (column % 2 == 1), 1.0, 0.0)
    precision = jax.lax.Precision.HIGHEST if x.dtype == jnp.float32 else None
    matrix = (to_first + to_second).astype(x.dtype)
    return jnp.dot(x, matrix, precision=precision, preferred_element_type=jnp.float32)
