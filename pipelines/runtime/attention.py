"""Scaled dot-product attention, as each backend runs it best.

Plain XLA with the softmax in fp32 is exact and good enough for few queries, and the only way on a CPU. Many of them on
a TPU take the kernel of flash.py, which XLA cannot split by itself: `AttentionAxes` says over which axes it is split.
"""

import functools
from dataclasses import dataclass
from typing import Any, TypeGuard

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from pipelines.runtime import cudnn
from pipelines.runtime.flash import find_vmem_bytes, flash_attention, has_room
from pipelines.runtime.operators import find_gain, scale
from pipelines.runtime.sharding import Axes, count_parts
from pipelines.runtime.ulysses import Turn, gather_features, gather_tokens

LONG = 896  # queries; below, the logits fit where the matrix unit leaves them


@dataclass(frozen=True, kw_only=True)
class AttentionAxes:
    """Which mesh axes split an attention's batch, heads and tokens; None splits nothing.

    `entered` are axes whose `shard_map` the caller is in already. Without `trades_heads`, devices that split tokens
    gather keys and values instead: two collectives, not four, for short sequences whose collectives mostly wait.
    With `interprets` the kernels for TPU run on any devices, slowly.
    """

    mesh: Mesh
    rows: str | None = None
    heads: str | None = None
    tokens: Axes = None
    entered: frozenset[str] = frozenset()
    trades_heads: bool = True
    interprets: bool = False

    @property
    def takes_kernels(self) -> bool:
        return self.interprets or self.mesh.devices.flat[0].platform == "tpu"

    def choose_spec(self, shape_BLHD: tuple[int, ...]) -> P:
        """Of what divides, with heads and their features as one axis; the rest is whole on every device."""
        axes = zip(shape_BLHD, (self.rows, self.tokens, self.heads), strict=False)
        return P(*(axis if size % count_parts(self.mesh, axis) == 0 else None for size, axis in axes))


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
        return attend_fused(query_BHLD, key_BHLD, value_BHLD, is_causal=is_causal, scale=scale, axes=axes)
    if has_grouped_heads:
        repeats = query_BHLD.shape[-3] // key_BHLD.shape[-3]
        key_BHLD, value_BHLD = (jnp.repeat(x, repeats, axis=-3) for x in (key_BHLD, value_BHLD))
    factor = query_BHLD.shape[-1] ** -0.5 if scale is None else scale
    if mask is None and not is_causal and _takes_kernel(axes, query_BHLD.shape[-2]) and _fits(query_BHLD, axes):
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


def attend_fused(
    query_BHLD: jax.Array,
    key_BHLD: jax.Array,
    value_BHLD: jax.Array,
    *,
    is_causal: bool,
    axes: AttentionAxes | None,
    **options: Any,
) -> jax.Array:
    """cudnn.py's kernel, every device with its own rows, heads and queries, and all the keys they attend to.

    XLA would split it by rows and heads by itself, but it refuses queries that are split, and axes that are left over.
    """
    fused = functools.partial(cudnn.attend_fused, is_causal=is_causal, **options)
    if axes is None or axes.mesh.size == 1:
        return fused(query_BHLD, key_BHLD, value_BHLD)
    batch, key_heads, _, _ = key_BHLD.shape
    rows, tokens, heads = axes.choose_spec((batch, query_BHLD.shape[2], key_heads))
    spec, key_spec = P(rows, heads, None if is_causal else tokens), P(rows, heads)
    return jax.shard_map(
        fused,
        mesh=None if axes.entered else axes.mesh,
        in_specs=(spec, key_spec, key_spec),
        out_specs=spec,
        axis_names={*axes.mesh.axis_names} - axes.entered,
        check_vma=False,
    )(query_BHLD, key_BHLD, value_BHLD)


def attend_rotated(  # noqa: PLR0917 - arrays of a traced module come by position
    query_BLC: jax.Array,
    key_BLC: jax.Array,
    value_BLC: jax.Array,
    cos_LD: jax.Array,
    sin_LD: jax.Array,
    query_weight_C: jax.Array,
    key_weight_C: jax.Array,
    *,
    heads: int,
    eps: float,
    axes: AttentionAxes | None = None,
) -> jax.Array:
    """Self-attention, RMS norms over all heads of queries and keys and a rotary embedding before it.

    All are (batch, tokens, heads * head_dim). The tables hold every angle twice, for the tokens there are; further ones
    of the arrays, which only fill them up, are attended to by nobody, and what is returned for them means nothing.
    """
    batch, length, channels = query_BLC.shape
    key_length, width = cos_LD.shape
    cos, sin = (jnp.pad(table.astype(jnp.float32), ((0, length - key_length), (0, 0))) for table in (cos_LD, sin_LD))
    turns = tuple(
        Turn(cos, sin, find_gain(x, eps), weight.astype(jnp.float32))
        for x, weight in ((query_BLC, query_weight_C), (key_BLC, key_weight_C))
    )
    if _takes_kernel(axes, length):
        merged = (query_BLC, key_BLC, value_BLC)
        return attend_merged(*merged, heads=heads, scale=width**-0.5, axes=axes, turns=turns, key_length=key_length)
    query, key = (turn.apply(x) for x, turn in zip((query_BLC, key_BLC), turns, strict=True))
    return _attend_in_heads(query, key[:, :key_length], value_BLC[:, :key_length], heads=heads, axes=axes)


def attend_text(
    query_BLC: jax.Array,
    key_BKC: jax.Array,
    value_BKC: jax.Array,
    weight_C: jax.Array,
    *,
    heads: int,
    eps: float,
    axes: AttentionAxes | None = None,
) -> jax.Array:
    """Attention to other tokens, an RMS norm over all heads of the queries before it.

    Its weights may as well multiply the keys, which are few; the kernel takes its gains, and queries as they are.
    """
    gain = find_gain(query_BLC, eps)
    if _takes_kernel(axes, query_BLC.shape[1]):
        factor = (query_BLC.shape[-1] // heads) ** -0.5
        key = scale(key_BKC, jnp.ones((), jnp.float32), weight_C)
        return attend_merged(query_BLC, key, value_BKC, heads=heads, scale=factor, axes=axes, query_gain=gain)
    return _attend_in_heads(scale(query_BLC, gain, weight_C), key_BKC, value_BKC, heads=heads, axes=axes)


def _takes_kernel(axes: AttentionAxes | None, length: int) -> TypeGuard[AttentionAxes]:
    return axes is not None and axes.takes_kernels and length >= LONG


def _fits(query_BHLD: jax.Array, axes: AttentionAxes) -> bool:
    heads, width = query_BHLD.shape[-3], query_BHLD.shape[-1]
    vmem_bytes = find_vmem_bytes(axes.mesh.devices.flat[0].device_kind)
    return has_room(heads=heads, width=width, itemsize=query_BHLD.dtype.itemsize, vmem_bytes=vmem_bytes)


def _attend_in_heads(
    query: jax.Array, key: jax.Array, value: jax.Array, *, heads: int, axes: AttentionAxes | None
) -> jax.Array:
    batch, length, channels = query.shape
    split = (x.reshape(batch, -1, heads, channels // heads).swapaxes(1, 2) for x in (query, key, value))
    out = attend(*split, mask=None, is_causal=False, scale=None, has_grouped_heads=False, axes=axes)
    return out.swapaxes(1, 2).reshape(batch, length, channels)


def attend_long(
    query_BHLD: jax.Array,
    key_BHLD: jax.Array,
    value_BHLD: jax.Array,
    *,
    scale: float,
    axes: AttentionAxes,
    **kernel_options: Any,
) -> jax.Array:
    """`attend_merged` of arrays as PyTorch has them."""
    batch, heads, length, width = query_BHLD.shape
    # Tokens first, as the projections give them: XLA drops these transpositions against those before and after.
    merged = (x.swapaxes(1, 2).reshape(batch, -1, heads * width) for x in (query_BHLD, key_BHLD, value_BHLD))
    out = attend_merged(*merged, heads=heads, scale=scale, axes=axes, **kernel_options)
    return out.reshape(batch, length, heads, width).swapaxes(1, 2)


def attend_merged(
    query_BLC: jax.Array,
    key_BLC: jax.Array,
    value_BLC: jax.Array,
    *,
    heads: int,
    scale: float,
    axes: AttentionAxes,
    turns: tuple[Turn, ...] = (),
    query_gain: jax.Array | None = None,
    key_length: int | None = None,
    **kernel_options: Any,
) -> jax.Array:
    """Attention through the kernel, every device with its own rows and heads, and all the tokens it attends to.

    Where the tokens of a self-attention are split, devices trade them for heads before and back after (ulysses.py);
    heads that do not divide stay, and keys and values are gathered for a device's own queries. Keys of another length,
    such as a text's, are whole everywhere. `turns` are for queries and for keys; `query_gain` is flash.py's.
    """
    batch, length, _ = query_BLC.shape
    assert query_gain is None or key_BLC.shape[1] != length, "queries that are traded have gains of their own"
    spec = axes.choose_spec((batch, length, heads))
    rows, tokens, head_axis = spec
    is_self = key_BLC.shape[1] == length
    devices = count_parts(axes.mesh, tokens) if is_self else 1
    own_heads = heads // count_parts(axes.mesh, head_axis)
    flash = functools.partial(
        flash_attention,
        scale=scale,
        vmem_bytes=find_vmem_bytes(axes.mesh.devices.flat[0].device_kind),
        key_length=key_length,
        interpret=axes.interprets,
        **kernel_options,
    )

    def run(query: jax.Array, key: jax.Array, value: jax.Array, turns: tuple[Turn, ...], gain: Any) -> jax.Array:
        is_traded = devices > 1 and axes.trades_heads and own_heads % devices == 0
        parts = devices if is_traded else 1
        trade = functools.partial(gather_tokens, axis=tokens, parts=parts, interpret=axes.interprets)
        if turns:
            query, key = (trade(x, turn=turn) for x, turn in zip((query, key), turns, strict=True))
        elif is_traded:
            query, key = trade(query), trade(key)
        if is_traded:
            out = flash(query, key, trade(value), heads=own_heads // devices)
            return gather_features(out, tokens, parts=devices, interpret=axes.interprets)
        if devices > 1:
            key, value = (jax.lax.all_gather(x, tokens, axis=1, tiled=True) for x in (key, value))
        return flash(query, key, value, heads=own_heads, query_gain_BL1=gain)

    key_spec = spec if is_self else P(rows, None, head_axis)
    sharded = jax.shard_map(
        run,
        mesh=None if axes.entered else axes.mesh,
        in_specs=(
            spec,
            key_spec,
            key_spec,
            tuple(Turn._make((P(tokens), P(tokens), P(rows, tokens), P(head_axis))) for _ in turns),
            None if query_gain is None else P(rows, tokens),
        ),
        out_specs=spec,
        axis_names={*axes.mesh.axis_names} - axes.entered,
        check_vma=False,
    )
    return sharded(query_BLC, key_BLC, value_BLC, turns, query_gain)
