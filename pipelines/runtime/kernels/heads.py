"""Heads taken apart for an attention that learns, and put together again, by kernels that move whole tiles.

From (tokens, features) attention_gradient.py makes (heads, tokens, features of a head). Left to itself XLA turns the
array round twice on the way, there and back and once more for the gradient, each time through memory: by the TPU
compiler a sixth of a step of Wan 1.3B. The kernels of ulysses.py do it in one pass, and each is the other's gradient.
What comes between sees (batch, tokens, heads, features) and stays where the heads lie. Queries and keys that are normed
and turned are taken apart by head_norm.py on the way.
"""

import functools
from typing import Any

import jax
from jax.sharding import PartitionSpec as P

from pipelines.runtime.devices.sharding import count_parts
from pipelines.runtime.kernels.attention_axes import AttentionAxes
from pipelines.runtime.kernels.switches import is_on
from pipelines.runtime.kernels.ulysses import LANES, cut_features, join_features


def split_heads(x_BLC: jax.Array, heads: int, *, axes: AttentionAxes | None) -> jax.Array:
    """Returns (batch, tokens, heads, features of a head)."""
    batch, length, channels = x_BLC.shape
    if axes is None or not _takes_kernel(axes, channels // heads):
        return x_BLC.reshape(batch, length, heads, channels // heads)
    found: Any = _split(x_BLC, heads, axes)  # its type is lost in custom_vjp
    return found.swapaxes(1, 2)


def merge_heads(x_BLHD: jax.Array, *, axes: AttentionAxes | None) -> jax.Array:
    """Undoes `split_heads`: (batch, tokens, all features)."""
    batch, length, heads, width = x_BLHD.shape
    if axes is None or not _takes_kernel(axes, width):
        return x_BLHD.reshape(batch, length, heads * width)
    return _merge(x_BLHD.swapaxes(1, 2), axes)


def _takes_kernel(axes: AttentionAxes, width: int) -> bool:
    return axes.learns and axes.takes_kernels and width % LANES == 0 and is_on("ulysses")


@functools.partial(jax.custom_vjp, nondiff_argnums=(1, 2))
def _split(x_BLC: jax.Array, heads: int, axes: AttentionAxes) -> jax.Array:
    spec = choose_spec(x_BLC, axes)
    cut = functools.partial(cut_features, parts=heads, interpret=axes.interprets)
    return jax.shard_map(cut, mesh=axes.mesh, in_specs=spec, out_specs=spec, check_vma=False)(x_BLC)


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def _merge(x_BHLD: jax.Array, axes: AttentionAxes) -> jax.Array:
    spec = choose_spec(x_BHLD, axes)
    join = functools.partial(join_features, interpret=axes.interprets)
    return jax.shard_map(join, mesh=axes.mesh, in_specs=spec, out_specs=spec, check_vma=False)(x_BHLD)


def choose_spec(x: jax.Array, axes: AttentionAxes) -> P:
    """Returns how kernels for a training split an array: its rows, where the mesh divides them."""
    is_even = axes.rows is not None and x.shape[0] % count_parts(axes.mesh, axes.rows) == 0
    return P(axes.rows) if is_even else P()


_split.defvjp(
    lambda x, heads, axes: (_split(x, heads, axes), None),
    lambda _heads, axes, _kept, out: (_merge(out, axes),),
)
_merge.defvjp(
    lambda x, axes: (_merge(x, axes), x.shape[1]),
    lambda axes, heads, out: (_split(out, heads, axes),),
)
