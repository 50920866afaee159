"""A LoRA's products on TPU: those with many outputs by a kernel, those with few named, so that they can be kept.

A LoRA adds to what its layer gives the product of 16 numbers a token with its second matrix, and to what goes back that
of 16 others with its first. XLA writes such a product at a third of the memory's bandwidth, or reads what the layer
gave back from memory to add it: for 14 040 tokens of 5120 features on v6e 281 us by the compiler's estimate, or 389,
where writing them takes 88. The kernel takes what memory does, and the layer adds it while it writes its own product.
It pays for a clip's tokens; with a picture's 4608, XLA keeps much in vector memory, and is faster (plan/TRIED.md).

The 16 numbers are few to keep, and to compute them again all features have to be made and read again. They carry the
name LOW_RANK: what a rematerialisation may keep.
"""

import functools
from typing import Any, TypeGuard

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import PartitionSpec as P

from pipelines.runtime.kernels.attention_axes import AttentionAxes
from pipelines.runtime.kernels.flash import LANES
from pipelines.runtime.kernels.heads import choose_spec
from pipelines.runtime.kernels.switches import is_on

LOW_RANK = "low rank"
"""What the few numbers of a token are called, for a rematerialisation that keeps them."""
NAME = "raise_rank"
MOST_RANK = LANES
FEWEST_TOKENS = 8192
_ROWS = (256, 128, 64, 32, 16)  # tokens that the kernel holds at a time
_FEWEST_FEATURES = 1024
_MOST_BYTES = 8 * 2**20  # of them, twice, as one is written while the next is made
_TOKENS_BY_TOKENS = (((0, 1), (0, 1)), ((), ()))


def multiplies_by_kernel(axes: AttentionAxes | None, x: jax.Array, weight_OI: jax.Array) -> TypeGuard[AttentionAxes]:
    """Tells whether a product without a bias, or its gradient, is made by the kernel: a LoRA's, by its shape."""
    if axes is None or not axes.learns or not axes.takes_kernels or not is_on("low_rank"):
        return False
    narrow, wide = sorted(weight_OI.shape)
    if x.ndim != 3 or x.dtype != weight_OI.dtype or x.dtype.itemsize != 2 or narrow > MOST_RANK or wide % LANES:
        return False
    return x.shape[1] >= FEWEST_TOKENS and wide >= _FEWEST_FEATURES


def multiply(x_BLI: jax.Array, weight_OI: jax.Array, axes: AttentionAxes) -> jax.Array:
    """Returns a linear layer's product (B, L, O), of a weight with few inputs or with few outputs, and its gradient."""
    product: Any = _raise if weight_OI.shape[0] > weight_OI.shape[1] else _lower  # its type is lost in custom_vjp
    return product(x_BLI, weight_OI, axes)


def name_few(product: jax.Array, weight_OI: jax.Array) -> jax.Array:
    """Names a product LOW_RANK that has as few outputs as a LoRA's first."""
    outputs, inputs = weight_OI.shape
    return checkpoint_name(product, LOW_RANK) if outputs <= min(MOST_RANK, inputs // 4) else product


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def _raise(x_BLR: jax.Array, weight_OR: jax.Array, axes: AttentionAxes) -> jax.Array:
    return _run(x_BLR, weight_OR.T, axes)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def _lower(x_BLI: jax.Array, weight_RI: jax.Array, axes: AttentionAxes) -> jax.Array:  # noqa: ARG001 - its gradient's
    return jnp.einsum("bli,ri->blr", x_BLI, weight_RI)


def _raise_back(_axes: AttentionAxes, kept: Any, gradient_BLO: jax.Array) -> tuple[jax.Array, jax.Array]:
    x_BLR, weight_OR = kept
    return jnp.einsum("blo,or->blr", gradient_BLO, weight_OR), _multiply_tokens(gradient_BLO, x_BLR)


def _lower_back(axes: AttentionAxes, kept: Any, gradient_BLR: jax.Array) -> tuple[jax.Array, jax.Array]:
    x_BLI, weight_RI = kept
    return _run(gradient_BLR, weight_RI, axes), _multiply_tokens(gradient_BLR, x_BLI)


_raise.defvjp(lambda x, weight, axes: (_raise(x, weight, axes), (x, weight)), _raise_back)
_lower.defvjp(lambda x, weight, axes: (_lower(x, weight, axes), (x, weight)), _lower_back)


def _multiply_tokens(first_BLO: jax.Array, second_BLI: jax.Array) -> jax.Array:
    return jax.lax.dot_general(first_BLO, second_BLI, _TOKENS_BY_TOKENS)


def _run(x_BLR: jax.Array, weight_RO: jax.Array, axes: AttentionAxes) -> jax.Array:
    spec = choose_spec(x_BLR, axes)
    run = functools.partial(raise_rank, interpret=axes.interprets)
    return jax.shard_map(run, mesh=axes.mesh, in_specs=(spec, P()), out_specs=spec, check_vma=False)(x_BLR, weight_RO)


def raise_rank(x_BLR: jax.Array, weight_RO: jax.Array, *, interpret: bool = False) -> jax.Array:
    """Returns x times weight, (B, L, O), summed up in fp32."""
    batch, length, rank = x_BLR.shape
    wide = weight_RO.shape[1]
    rows = next((rows for rows in _ROWS if 2 * rows * wide * x_BLR.dtype.itemsize <= _MOST_BYTES), _ROWS[-1])
    moved = batch * length * (LANES + wide) + weight_RO.size  # few numbers lie in a vector of their own
    return pl.pallas_call(
        _kernel,
        grid=(batch, pl.cdiv(length, rows)),
        in_specs=[
            pl.BlockSpec((None, rows, rank), lambda b, i: (b, i, 0)),
            pl.BlockSpec((rank, wide), lambda b, i: (0, 0)),  # noqa: ARG005 - Pallas's index maps
        ],
        out_specs=pl.BlockSpec((None, rows, wide), lambda b, i: (b, i, 0)),
        out_shape=jax.ShapeDtypeStruct((batch, length, wide), x_BLR.dtype),
        interpret=interpret,
        name=NAME,
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel")),
        cost_estimate=pl.CostEstimate(
            flops=2 * batch * length * rank * wide, transcendentals=0, bytes_accessed=moved * x_BLR.dtype.itemsize
        ),
    )(x_BLR, weight_RO)


def _kernel(x_ref: Any, weight_ref: Any, out_ref: Any) -> None:
    out_ref[...] = jnp.dot(x_ref[...], weight_ref[...], preferred_element_type=jnp.float32).astype(out_ref.dtype)
