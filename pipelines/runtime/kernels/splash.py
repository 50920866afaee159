"""Attention whose gradient a TPU computes by kernels, too: JAX's splash attention, forward and backward.

The kernel of flash.py is faster where matrix units are wide, but has no gradient. There it goes forward, and tells the
sums of exponentials that splash attention's backward kernel starts from; elsewhere splash attention does both. It wants
lengths that its tiles divide and heads as wide as a vector register: tokens are filled up and the added keys masked,
features are filled up with zeros, which change no product. The scale is multiplied into the queries.

Outputs, and the sums that the backward kernel starts from, carry the name KEPT: what a rematerialisation may keep.
Not here: which attentions take this way (attention.py).
"""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.experimental.pallas.ops.tpu import splash_attention as splash
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel
from jax.sharding import PartitionSpec as P

from pipelines.runtime.devices.sharding import count_parts
from pipelines.runtime.kernels.flash import flash_attention
from pipelines.runtime.kernels.switches import is_on

KEPT = "attention"
LANES = 128
_TILES = range(512, 1024 + 1, LANES)
LEAST_VMEM_BYTES = 12 * 2**20
"""Vector memory that each program's operations may use (compiler_options.py); with more, more keys come at a time."""
WIDE_UNITS = {"TPU v6 lite", "TPU v6e", "TPU7x"}
"""Chips, by JAX's names, where flash.py's kernel has 56 % of the peak and splash attention's forward one 27 %.

The others have matrix units of 128 x 128, which heads of 128 features fill either way (plan/TRIED.md).
"""
_USABLE = 15 / 16
"""Share of it that is counted on: the forward kernel with masks takes up to 3 % more than is counted, on v5p."""


def attend_with_gradient(
    query_BHLD: jax.Array,
    key_BHLD: jax.Array,
    value_BHLD: jax.Array,
    *,
    scale: float,
    mesh: jax.sharding.Mesh,
    rows: str | None,
    key_lengths: jax.Array | None = None,
    vmem_bytes: int = LEAST_VMEM_BYTES,
    interpret: bool = False,
) -> jax.Array:
    """softmax(q k^T * scale) v, every device of the mesh axis `rows` with its own rows of the batch.

    With `key_lengths` (batch,) queries of a row see as many keys, the first ones.
    """
    batch, _, length, width = query_BHLD.shape
    spec = P(rows) if rows is not None and batch % count_parts(mesh, rows) == 0 else P()

    takes_flash = mesh.devices.flat[0].device_kind in WIDE_UNITS and is_on("flash")
    query = query_BHLD if takes_flash else _scale(query_BHLD, scale)

    def run(*parts: jax.Array) -> jax.Array:
        if takes_flash:
            lengths = parts[3] if len(parts) > 3 else None
            return _attend_by_flash(*parts[:3], lengths, scale, vmem_bytes, interpret)
        return jax.vmap(lambda *row: _attend_row(*row, vmem_bytes=vmem_bytes, interpret=interpret))(*parts)

    arrays = (query, key_BHLD, value_BHLD, *(() if key_lengths is None else (key_lengths,)))
    out = jax.shard_map(run, mesh=mesh, in_specs=(spec,) * len(arrays), out_specs=spec, check_vma=False)(*arrays)
    return out[:, :, :length, :width]


def choose_tile(length: int) -> tuple[int, int]:
    """Returns tokens a tile, and how many tiles: those that fill up least, and of these the largest."""
    tiles = [min(size, length + -length % LANES) for size in _TILES]
    size = min(tiles, key=lambda size: (math.ceil(length / size) * size, -size))
    return size, math.ceil(length / size)


def count_vmem_bytes(queries: int, keys: int, at_once: int) -> int:
    """Returns about what the backward kernel needs in bf16, for `at_once` tiles of keys: 9.5 MB where XLA says 8.9."""
    streamed = 24 * at_once * keys * LANES + 16 * queries * LANES
    return streamed + 11 * queries * keys // 2


@functools.partial(jax.jit, static_argnames=("vmem_bytes", "interpret"), inline=True)
def _attend_row(
    query_HLD: jax.Array,
    key_HLD: jax.Array,
    value_HLD: jax.Array,
    seen: jax.Array | None = None,
    *,
    vmem_bytes: int,
    interpret: bool,
) -> jax.Array:
    kernel, padded, key_padded = _build_kernel(query_HLD, key_HLD, vmem_bytes=vmem_bytes, interpret=interpret)
    segments = _mark_seen(padded, key_padded, key_HLD.shape[1], seen)
    out: Any = kernel(_fill(query_HLD, padded), _fill(key_HLD, key_padded), _fill(value_HLD, key_padded), segments)
    return out


@functools.partial(jax.custom_vjp, nondiff_argnums=(4, 5, 6))
def _attend_by_flash(*arguments: Any) -> jax.Array:
    """Takes what `_run_flash` takes."""
    return _run_flash(*arguments)[0]


Kept = tuple[jax.Array, jax.Array, jax.Array, jax.Array | None, jax.Array, jax.Array]


def _run_flash(  # noqa: PLR0917
    query_BHLD: jax.Array,
    key_BHLD: jax.Array,
    value_BHLD: jax.Array,
    seen_B: jax.Array | None,
    scale: float,
    vmem_bytes: int,
    interpret: bool,  # noqa: FBT001
) -> tuple[jax.Array, Kept]:
    """Every head is a row of the kernel's batch: tokens and features lie as the backward kernel wants them."""
    batch, heads, length, width = query_BHLD.shape
    rows = (_fill(x.reshape(batch * heads, -1, width), x.shape[2]) for x in (query_BHLD, key_BHLD, value_BHLD))
    lengths = None if seen_B is None else jnp.repeat(seen_B, heads)
    out, sums = flash_attention(
        *rows,
        heads=1,
        scale=scale,
        vmem_bytes=vmem_bytes,
        key_lengths_B=lengths,
        tells_sums=True,
        interpret=interpret,
    )
    out = checkpoint_name(out.reshape(batch, heads, length, -1), KEPT)
    sums = checkpoint_name(sums.reshape(batch, heads, length), KEPT)
    return out[..., :width], (query_BHLD, key_BHLD, value_BHLD, seen_B, out, sums)


def _run_back(
    scale: float,
    vmem_bytes: int,
    interpret: bool,  # noqa: FBT001
    kept: Kept,
    gradient_BHLD: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array, None]:
    query_BHLD, key_BHLD, value_BHLD, seen_B, out_BHLD, sums_BHL = kept
    _, length, width = query_BHLD.shape[1:]
    key_length = key_BHLD.shape[2]

    def run(query: jax.Array, key: jax.Array, value: jax.Array, *others: jax.Array) -> Any:
        out, sums, gradient, *seen = others
        kernel, padded, key_padded = _build_kernel(query, key, vmem_bytes=vmem_bytes, interpret=interpret)
        rows = [_fill(query, padded), _fill(key, key_padded), _fill(value, key_padded)]
        segments = _mark_seen(padded, key_padded, key_length, seen[0] if seen else None)
        sums = jnp.pad(sums, ((0, 0), (0, padded - length)))
        residuals: Any = (*rows, segments, None, _fill(out, padded), sums, None, kernel.dkv_mask_info)
        found: Any = splash_attention_kernel._splash_attention_bwd(  # noqa: SLF001 - it has no public name
            res=residuals, do=_fill(gradient, padded), **kernel.kwargs
        )
        return found[3:6]

    lengths = () if seen_B is None else (seen_B,)
    arrays = (_scale(query_BHLD, scale), key_BHLD, value_BHLD, out_BHLD, sums_BHL, gradient_BHLD)
    query, key, value = jax.vmap(run)(*arrays, *lengths)
    return (
        _scale(query[:, :, :length, :width], scale),
        key[:, :, :key_length, :width],
        value[:, :, :key_length, :width],
        None,
    )


_attend_by_flash.defvjp(_run_flash, _run_back)


def _build_kernel(
    query_HLD: jax.Array, key_HLD: jax.Array, *, vmem_bytes: int, interpret: bool
) -> tuple[Any, int, int]:
    """Returns JAX's kernel, and the lengths that it wants of queries and of keys."""
    heads, length, _ = query_HLD.shape
    (size, count), (key_size, key_count) = choose_tile(length), choose_tile(key_HLD.shape[1])
    # For each part of the keys the backward kernel writes the queries' gradients once, so these are few.
    parts = [part for part in range(1, key_count + 1) if key_count % part == 0]
    most_bytes = _USABLE * vmem_bytes
    at_once = max(part for part in parts if part == 1 or count_vmem_bytes(size, key_size, part) <= most_bytes)
    kernel: Any = splash.make_splash_mha(
        splash.MultiHeadMask([splash.FullMask((size * count, key_size * key_count))] * heads),
        block_sizes=splash.BlockSizes(
            block_q=size,
            block_kv=key_size * at_once,
            block_kv_compute=key_size,
            block_q_dkv=size,
            block_kv_dkv=key_size * at_once,
            block_kv_dkv_compute=key_size,
            use_fused_bwd_kernel=True,
        ),
        head_shards=1,
        q_seq_shards=1,
        residual_checkpoint_name=KEPT,
        interpret=interpret,
    )
    return kernel, size * count, key_size * key_count


def _mark_seen(padded: int, key_padded: int, key_length: int, seen: jax.Array | None) -> Any:
    """Returns splash attention's segments, in which keys that are not seen are another one than all queries."""
    if seen is None and key_padded == key_length:
        return None
    is_real = (jnp.arange(key_padded) < (key_length if seen is None else seen)).astype(jnp.int32)
    return splash.SegmentIds(q=jnp.ones(padded, jnp.int32), kv=is_real)


def _scale(x: jax.Array, scale: float) -> jax.Array:
    return (x.astype(jnp.float32) * scale).astype(x.dtype)


def _fill(x_HLD: jax.Array, length: int) -> jax.Array:
    _, own_length, width = x_HLD.shape
    return jnp.pad(x_HLD, ((0, 0), (0, length - own_length), (0, -width % LANES)))
