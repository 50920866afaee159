"""Scaled dot-product attention, as each backend runs it best.

Plain XLA with the softmax in fp32 is exact and good enough for few queries, and the only way on a CPU. Many of them on
a TPU take the kernel of flash.py, which XLA cannot split by itself: `AttentionAxes` says over which axes it is split.
Where a gradient is wanted they take attention_gradient.py's, on one device each.
"""

import functools
from collections.abc import Iterable
from typing import Any, NamedTuple, TypeGuard

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

from pipelines.runtime.devices.sharding import count_parts
from pipelines.runtime.kernels import cudnn
from pipelines.runtime.kernels.attention_axes import AttentionAxes
from pipelines.runtime.kernels.attention_gradient import attend_with_gradient
from pipelines.runtime.kernels.blocks import attend_in_blocks
from pipelines.runtime.kernels.flash import MASKED, center_keys, find_vmem_bytes, flash_attention, has_room
from pipelines.runtime.kernels.head_norm import norm_heads, norms_by_kernel
from pipelines.runtime.kernels.heads import merge_heads, split_heads
from pipelines.runtime.kernels.operators import find_gain, scale
from pipelines.runtime.kernels.rotary import rotate_pairs
from pipelines.runtime.kernels.switches import is_on
from pipelines.runtime.kernels.ulysses import NormAndRotary, gather_features, gather_tokens

LONG = 896  # queries; below, the logits fit where the matrix unit leaves them
_MANY_KEYS = 384  # with a gradient; SDXL's 77 of a text would fill three fifths of a tile


def attend(
    query_BHLD: jax.Array,
    key_BHLD: jax.Array,
    value_BHLD: jax.Array,
    *,
    mask: jax.Array | None,
    is_causal: bool,
    scale: float | None,
    has_grouped_heads: bool,
    window: int | None = None,
    key_lengths: jax.Array | None = None,
    axes: AttentionAxes | None = None,
) -> jax.Array:
    """softmax(q k^T * scale + mask) v. `mask` is boolean (True attends) or added to the logits.

    Shapes are PyTorch's: (batch, heads, length, head_dim); `scale` defaults to head_dim ** -0.5. With
    `has_grouped_heads`, key and value have fewer heads, each shared by a run of query heads. With a `window`, query i
    sees the keys j with |i - j| <= window; that is plain XLA's alone, since cuDNN looks back only. With `key_lengths`
    (batch,) in place of a mask, queries of a row see as many keys, the first ones.
    """
    if key_lengths is not None:
        assert mask is None and not is_causal and window is None, "key lengths are a mask of their own"
        if not _has_kernel(axes, query_BHLD, key_BHLD):
            mask = (jnp.arange(key_BHLD.shape[-2]) < key_lengths[:, None])[:, None, None]
    learns = axes is not None and axes.learns
    is_fused = window is None and is_on("cudnn") and cudnn.has_cuda()
    if is_fused and cudnn.takes(query_BHLD, key_BHLD, mask=mask, learns=learns):
        return attend_fused(query_BHLD, key_BHLD, value_BHLD, is_causal=is_causal, scale=scale, axes=axes)
    if has_grouped_heads:
        repeats = query_BHLD.shape[-3] // key_BHLD.shape[-3]
        key_BHLD, value_BHLD = (jnp.repeat(x, repeats, axis=-3) for x in (key_BHLD, value_BHLD))
    factor = query_BHLD.shape[-1] ** -0.5 if scale is None else scale
    is_plain = mask is None and not is_causal and window is None
    if is_plain and _takes_kernel(axes, query_BHLD.swapaxes(1, 2), is_self=_is_like(query_BHLD, key_BHLD)):
        return attend_long(query_BHLD, key_BHLD, value_BHLD, scale=factor, key_lengths=key_lengths, axes=axes)
    if is_plain and _takes_gradient_kernel(axes, query_BHLD, key_BHLD):
        return attend_with_gradient(
            query_BHLD, key_BHLD, value_BHLD,
            scale=factor, mesh=axes.mesh, rows=axes.rows, key_lengths=key_lengths,
            interpret=axes.interprets,
        )  # fmt: skip
    logits = jnp.einsum("...qd,...kd->...qk", query_BHLD, key_BHLD, preferred_element_type=jnp.float32) * factor
    if is_causal:
        allowed = jnp.tril(jnp.ones(logits.shape[-2:], bool))
        logits = jnp.where(allowed, logits, -jnp.inf)
    if window is not None:
        query_index, key_index = jnp.arange(logits.shape[-2])[:, None], jnp.arange(logits.shape[-1])
        logits = jnp.where(jnp.abs(query_index - key_index) <= window, logits, MASKED)
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
        NormAndRotary(cos, sin, find_gain(x, eps), weight.astype(jnp.float32))
        for x, weight in ((query_BLC, query_weight_C), (key_BLC, key_weight_C))
    )
    window = axes.window if axes else None
    key_BLC = _widen(key_BLC, axes)
    if _takes_kernel(axes, query_BLC.reshape(batch, length, heads, width), is_self=True):
        return attend_merged(
            *(query_BLC, key_BLC, value_BLC),
            heads=heads,
            scale=width**-0.5,
            axes=axes,
            is_self=True,
            turns=turns,
            key_length=key_length,
            window=window,
        )
    if axes is not None and axes.learns:
        split = functools.partial(split_heads, heads=heads, axes=axes)
        normed = zip((query_BLC, key_BLC), turns, strict=True)
        if norms_by_kernel(axes, width):
            norm = functools.partial(norm_heads, cos=cos, sin=sin, eps=eps, axes=axes)
            query, key = (norm(x, turn.weight) for x, turn in normed)
        else:
            query, key = (rotate_pairs(split(scale(x, turn.gain, turn.weight)), cos, sin) for x, turn in normed)
        own = (query, key[:, :key_length], split(value_BLC)[:, :key_length])
        return _attend_split((x.swapaxes(1, 2) for x in own), window=window, axes=axes)
    query, key = (turn.apply(x) for x, turn in zip((query_BLC, key_BLC), turns, strict=True))
    own = (query, key[:, :key_length], value_BLC[:, :key_length])
    return _attend_in_heads(*own, heads=heads, window=window, axes=axes)


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
    batch, length, channels = query_BLC.shape
    width = channels // heads
    if _takes_kernel(axes, query_BLC.reshape(batch, length, heads, width), is_self=False):
        key = scale(_widen(key_BKC, axes), jnp.ones((), jnp.float32), weight_C)
        merged = (query_BLC, key, value_BKC)
        return attend_merged(*merged, heads=heads, scale=width**-0.5, axes=axes, is_self=False, query_gain=gain)
    return _attend_in_heads(scale(query_BLC, gain, weight_C), key_BKC, value_BKC, heads=heads, axes=axes)


def _widen(key: jax.Array, axes: AttentionAxes | None) -> jax.Array:
    """Keys that will be centred stay in fp32 until then: what bf16 has rounded away does not come back."""
    return key.astype(jnp.float32) if axes is not None and axes.smooths_keys else key


def _is_like(query_BHLD: jax.Array, key_BHLD: jax.Array) -> bool:
    """Whether keys may lie as queries do: in self-attention, and in any other of one length, where it does no harm."""
    return query_BHLD.shape[-2] == key_BHLD.shape[-2]


def _has_kernel(axes: AttentionAxes | None, query_BHLD: jax.Array, key_BHLD: jax.Array) -> bool:
    """Whether one of the two kernels for TPU applies."""
    is_self = _is_like(query_BHLD, key_BHLD)
    return _takes_kernel(axes, query_BHLD.swapaxes(1, 2), is_self=is_self) or _takes_gradient_kernel(
        axes, query_BHLD, key_BHLD
    )


def _takes_kernel(axes: AttentionAxes | None, query_BLHD: jax.Array, *, is_self: bool) -> TypeGuard[AttentionAxes]:
    """Whether the flash kernel applies: many queries on a TPU, whose smallest tiles fit into VMEM."""
    if axes is None or axes.learns or not axes.takes_kernels or query_BLHD.shape[1] < LONG:
        return False
    share = _divide(axes, query_BLHD.shape[:3], is_self=is_self)
    return has_room(
        heads=(share.heads + share.empty) // (share.devices if share.is_traded else 1),
        width=query_BLHD.shape[3],
        itemsize=query_BLHD.dtype.itemsize,
        vmem_bytes=find_vmem_bytes(axes.mesh.devices.flat[0].device_kind),
    )


def _takes_gradient_kernel(
    axes: AttentionAxes | None, query_BHLD: jax.Array, key_BHLD: jax.Array
) -> TypeGuard[AttentionAxes]:
    if axes is None or not axes.learns or not axes.takes_kernels or query_BHLD.ndim != 4:
        return False
    has_kernels = is_on("flash") and is_on("flash_gradient")
    return has_kernels and query_BHLD.shape[2] >= LONG and key_BHLD.shape[2] >= _MANY_KEYS


class _Share(NamedTuple):
    """One device's share: `heads` are counted before they are traded among the `devices` that split keys.

    `empty` heads of zeros are added where they do not divide.
    """

    spec: P
    devices: int
    heads: int
    is_traded: bool
    empty: int = 0


MOST_EMPTY = 1 / 8
"""This share of empty heads still costs less than gathering all keys and values."""


def _divide(axes: AttentionAxes, shape_BLH: tuple[int, ...], *, is_self: bool, adds_heads: bool = True) -> _Share:
    spec = axes.choose_spec(shape_BLH)
    _, tokens, head_axis = spec
    devices = count_parts(axes.mesh, tokens) if is_self else 1
    heads = shape_BLH[2] // count_parts(axes.mesh, head_axis)
    empty = -heads % devices
    is_traded = devices > 1 and axes.trades_heads and empty <= (MOST_EMPTY * heads if adds_heads else 0)
    return _Share(spec, devices, heads, is_traded, empty if is_traded else 0)


def _attend_in_heads(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    *,
    heads: int,
    axes: AttentionAxes | None,
    window: int | None = None,
) -> jax.Array:
    if axes is not None and axes.smooths_keys:
        key = center_keys(key).astype(value.dtype)
    split = (split_heads(x, heads, axes=axes).swapaxes(1, 2) for x in (query, key, value))
    return _attend_split(split, window=window, axes=axes)


def _attend_split(heads_first: Iterable[jax.Array], *, axes: AttentionAxes | None, window: int | None) -> jax.Array:
    out = attend(
        *heads_first, mask=None, is_causal=False, scale=None, has_grouped_heads=False, window=window, axes=axes
    )
    return merge_heads(out.swapaxes(1, 2), axes=axes)


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
    is_self = _is_like(query_BHLD, key_BHLD)
    out = attend_merged(*merged, heads=heads, scale=scale, axes=axes, is_self=is_self, **kernel_options)
    return out.reshape(batch, length, heads, width).swapaxes(1, 2)


def attend_merged(
    query_BLC: jax.Array,
    key_BLC: jax.Array,
    value_BLC: jax.Array,
    *,
    heads: int,
    scale: float,
    axes: AttentionAxes,
    is_self: bool,
    turns: tuple[NormAndRotary, ...] = (),
    query_gain: jax.Array | None = None,
    key_length: int | None = None,
    key_lengths: jax.Array | None = None,
    window: int | None = None,
    **kernel_options: Any,
) -> jax.Array:
    """Attention through the kernel, every device with its own rows and heads, and all the tokens it attends to.

    Where the tokens of a self-attention are split, devices trade them for heads before and back after (ulysses.py);
    heads that do not divide get a few empty ones beside them, or else stay, and keys and values are gathered for a
    device's own queries. Keys of other tokens, such as a text's, are whole everywhere. Where the kernel is switched
    off, every device computes the same by XLA (blocks.py). `turns` are for queries and for keys; `query_gain`,
    `key_lengths` (batch,) and `window` are flash.py's, a window for self-attention alone.
    """
    batch, length, _ = query_BLC.shape
    assert query_gain is None or not is_self, "queries that are traded have gains of their own"
    assert window is None or is_self, "tokens of another kind have no distance"
    spec, devices, own_heads, is_traded, empty = _divide(
        axes, (batch, length, heads), is_self=is_self, adds_heads=not turns
    )
    rows, tokens, head_axis = spec
    flash = functools.partial(
        flash_attention if is_on("flash") else attend_in_blocks,
        scale=scale,
        vmem_bytes=find_vmem_bytes(axes.mesh.devices.flat[0].device_kind),
        window=window,
        key_length=key_length,
        bounds_logits=axes.bounds_logits and is_self,
        interpret=axes.interprets,
        **kernel_options,
    )

    def run(  # noqa: PLR0917 - shard_map hands arrays over by position
        query: jax.Array, key: jax.Array, value: jax.Array, turns: tuple[NormAndRotary, ...], gain: Any, lengths: Any
    ) -> jax.Array:
        width = query.shape[-1]
        if empty:
            added = ((0, 0), (0, 0), (0, empty * (width // own_heads)))
            query, key, value = (jnp.pad(x, added) for x in (query, key, value))
        parts = devices if is_traded else 1
        trade = functools.partial(gather_tokens, axis=tokens, parts=parts, interpret=axes.interprets)
        first_query: Any = 0
        if turns:
            query, key = (trade(x, turn=turn) for x, turn in zip((query, key), turns, strict=True))
        elif is_traded:
            query, key = trade(query), trade(key)
        if is_traded:
            value = trade(value)
        elif devices > 1:
            key, value = (jax.lax.all_gather(x, tokens, axis=1, tiled=True) for x in (key, value))
            first_query = jax.lax.axis_index(tokens) * query.shape[1]
        if axes.smooths_keys:
            key = center_keys(key, key_length).astype(value.dtype)
        if not is_traded:
            placed = {"query_gain_BL1": gain, "first_query": first_query, "key_lengths_B": lengths}
            return flash(query, key, value, heads=own_heads, **placed)
        out = flash(query, key, value, heads=(own_heads + empty) // devices, key_lengths_B=lengths)
        return gather_features(out, tokens, parts=devices, interpret=axes.interprets)[..., :width]

    key_spec = spec if is_self else P(rows, None, head_axis)
    sharded = jax.shard_map(
        run,
        mesh=None if axes.entered else axes.mesh,
        in_specs=(
            spec,
            key_spec,
            key_spec,
            tuple(NormAndRotary._make((P(tokens), P(tokens), P(rows, tokens), P(head_axis))) for _ in turns),
            None if query_gain is None else P(rows, tokens),
            None if key_lengths is None else P(rows),
        ),
        out_specs=spec,
        axis_names={*axes.mesh.axis_names} - axes.entered,
        check_vma=False,
    )
    return sharded(query_BLC, key_BLC, value_BLC, turns, query_gain, key_lengths)
