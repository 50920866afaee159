"""Scaled dot-product attention, as each backend runs it best.

Plain XLA with the softmax in fp32 is exact and good enough for few queries, and the only way on a CPU. Many of them on
a TPU take the kernel of flash.py, which XLA cannot split by itself: `AttentionAxes` says over which axes it is split.
"""

import functools
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from pipelines.runtime import cudnn
from pipelines.runtime.flash import find_vmem_bytes, flash_attention

LONG = 1024  # queries; below, the logits fit where the matrix unit leaves them


@dataclass(frozen=True, kw_only=True)
class AttentionAxes:
    """Which mesh axes split an attention's batch, heads and tokens; None splits nothing.

    `entered` are axes whose `shard_map` the caller is in already. Without `trades_heads`, devices that split tokens
    gather keys and values instead: two collectives, not four, for short sequences whose collectives mostly wait.
    """

    mesh: Mesh
    rows: str | None = None
    heads: str | None = None
    tokens: str | None = None
    entered: frozenset[str] = frozenset()
    trades_heads: bool = True

    @property
    def is_tpu(self) -> bool:
        return self.mesh.devices.flat[0].platform == "tpu"

    def choose_spec(self, shape_BLHD: tuple[int, ...]) -> P:
        """Of what divides, with heads and their features as one axis; the rest is whole on every device."""
        axes = zip(shape_BLHD, (self.rows, self.tokens, self.heads), strict=False)
        return P(*(axis if axis is not None and size % self.mesh.shape[axis] == 0 else None for size, axis in axes))


def attend(
    query_BHLD: jax.Array,
    key_BHLD: jax.Array,
    value_BHLD: jax.Array,
    *,
    mask: jax.Array | None,
    is_causal: bool,
    scale: float | None,
    has_grouped_heads: bool,
    axes: AttentionAxes | None = None,
) -> jax.Array:
    """softmax(q k^T * scale + mask) v. `mask` is boolean (True attends) or added to the logits.

    Shapes are PyTorch's: (batch, heads, length, head_dim); `scale` defaults to head_dim ** -0.5. With
    `has_grouped_heads`, key and value have fewer heads, each shared by a run of query heads.
    """
    if cudnn.has_cuda() and cudnn.takes(query_BHLD, mask=mask):
        return cudnn.attend_fused(query_BHLD, key_BHLD, value_BHLD, is_causal=is_causal, scale=scale)
    if has_grouped_heads:
        repeats = query_BHLD.shape[-3] // key_BHLD.shape[-3]
        key_BHLD, value_BHLD = (jnp.repeat(x, repeats, axis=-3) for x in (key_BHLD, value_BHLD))
    factor = query_BHLD.shape[-1] ** -0.5 if scale is None else scale
    is_long = query_BHLD.shape[-2] >= LONG
    if axes is not None and axes.is_tpu and is_long and mask is None and not is_causal:
        return attend_long(query_BHLD, key_BHLD, value_BHLD, scale=factor, axes=axes)
    logits = jnp.einsum("...qd,...kd->...qk", query_BHLD, key_BHLD, preferred_element_type=jnp.float32) * factor
    if is_causal:
        allowed = jnp.tril(jnp.ones(logits.shape[-2:], bool))
        logits = jnp.where(allowed, logits, -jnp.inf)
    if mask is not None:
        logits = jnp.where(mask, logits, -jnp.inf) if mask.dtype == jnp.bool_ else logits + mask.astype(jnp.float32)
    weights = jax.nn.softmax(logits, axis=-1)
    if mask is not None and mask.dtype == jnp.bool_:
        weights = jnp.where(mask, weights, 0)  # a query that may attend to nothing gives zeros, as in PyTorch
    weights = weights.astype(value_BHLD.dtype)
    return jnp.einsum("...qk,...kd->...qd", weights, value_BHLD)


def attend_long(
    query_BHLD: jax.Array,
    key_BHLD: jax.Array,
    value_BHLD: jax.Array,
    *,
    scale: float,
    axes: AttentionAxes,
    **kernel_options: Any,
) -> jax.Array:
    """Attention through the kernel, every device with its own rows and heads, and all the tokens it attends to.

    Where the tokens of a self-attention are split, devices trade them for heads before and back after (Ulysses: Jacobs
    et al. 2023); heads that do not divide stay, and keys and values are gathered for a device's own queries. Keys of
    another length, such as a text's, are whole everywhere.
    """
    batch, heads, length, width = query_BHLD.shape
    spec = axes.choose_spec((batch, length, heads))
    rows, tokens, head_axis = spec
    is_self = key_BHLD.shape[2] == length
    devices = 1 if tokens is None or not is_self else axes.mesh.shape[tokens]
    own_heads = heads if head_axis is None else heads // axes.mesh.shape[head_axis]
    flash = functools.partial(
        flash_attention,
        scale=scale,
        vmem_bytes=find_vmem_bytes(axes.mesh.devices.flat[0].device_kind),
        **kernel_options,
    )

    def run(query: jax.Array, key: jax.Array, value: jax.Array) -> jax.Array:
        if devices == 1:
            return flash(query, key, value, heads=own_heads)
        if own_heads % devices or not axes.trades_heads:
            key, value = (jax.lax.all_gather(x, tokens, axis=1, tiled=True) for x in (key, value))
            return flash(query, key, value, heads=own_heads)
        query, key, value = (_gather_tokens(x, tokens, own_heads) for x in (query, key, value))
        out = flash(query, key, value, heads=own_heads // devices)
        return _gather_heads(out, tokens, own_heads // devices)

    key_spec = spec if is_self else P(rows, None, head_axis)
    sharded = jax.shard_map(
        run,
        mesh=None if axes.entered else axes.mesh,
        in_specs=(spec, key_spec, key_spec),
        out_specs=spec,
        axis_names={*axes.mesh.axis_names} - axes.entered,
        check_vma=False,
    )
    # Tokens first, as the projections give them: XLA drops these transpositions against those before and after.
    merged = (x.swapaxes(1, 2).reshape(batch, -1, heads * width) for x in (query_BHLD, key_BHLD, value_BHLD))
    return sharded(*merged).reshape(batch, length, heads, width).swapaxes(1, 2)


def _gather_tokens(x_BLC: jax.Array, axis: Any, own_heads: int) -> jax.Array:
    """All tokens of a device's part of the heads, for its own tokens of all heads.

    Heads stand before tokens meanwhile: asked to split features themselves, XLA:TPU lays them out one by one.
    """
    batch, length, channels = x_BLC.shape
    heads_BHLD = x_BLC.reshape(batch, length, own_heads, channels // own_heads).swapaxes(1, 2)
    parts_BHLD = jax.lax.all_to_all(heads_BHLD, axis, 1, 2, tiled=True)
    return parts_BHLD.swapaxes(1, 2).reshape(batch, parts_BHLD.shape[2], -1)


def _gather_heads(x_BLC: jax.Array, axis: Any, own_heads: int) -> jax.Array:
    """The way back."""
    batch, length, channels = x_BLC.shape
    parts_BHLD = x_BLC.reshape(batch, length, own_heads, channels // own_heads).swapaxes(1, 2)
    heads_BHLD = jax.lax.all_to_all(parts_BHLD, axis, 2, 1, tiled=True)
    return heads_BHLD.swapaxes(1, 2).reshape(batch, heads_BHLD.shape[2], -1)
