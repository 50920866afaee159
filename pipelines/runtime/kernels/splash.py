"""Attention whose gradient a TPU computes by kernels, too: JAX's splash attention, forward and backward.

The kernel of flash.py is faster, but has no gradient, so a training takes this one for long sequences. It wants lengths
that its tiles divide and heads as wide as a vector register: tokens are filled up and the added keys masked, features
are filled up with zeros, which change no product. The scale is multiplied into the queries.

Outputs, and the sums that the backward kernel starts from, carry the name KEPT: what a rematerialisation may keep.
Not here: which attentions take this way (attention.py).
"""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental.pallas.ops.tpu import splash_attention as splash
from jax.sharding import PartitionSpec as P

from pipelines.runtime.devices.sharding import count_parts

KEPT = "attention"
LANES = 128
_TILES = range(512, 1024 + 1, LANES)
LEAST_VMEM_BYTES = 12 * 2**20
"""Vector memory that each program's operations may use (compiler_options.py); with more, more keys come at a time."""
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
    query = (query_BHLD.astype(jnp.float32) * scale).astype(query_BHLD.dtype)
    spec = P(rows) if rows is not None and batch % count_parts(mesh, rows) == 0 else P()

    def run(*parts: jax.Array) -> jax.Array:
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
    heads, length, _ = query_HLD.shape
    key_length = key_HLD.shape[1]
    (size, count), (key_size, key_count) = choose_tile(length), choose_tile(key_length)
    padded, key_padded = size * count, key_size * key_count
    # For each part of the keys the backward kernel writes the queries' gradients once, so these are few.
    parts = [part for part in range(1, key_count + 1) if key_count % part == 0]
    most_bytes = _USABLE * vmem_bytes
    at_once = max(part for part in parts if part == 1 or count_vmem_bytes(size, key_size, part) <= most_bytes)
    kernel: Any = splash.make_splash_mha(
        splash.MultiHeadMask([splash.FullMask((padded, key_padded))] * heads),
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
    segments = None
    if seen is not None or key_padded != key_length:
        is_real = (jnp.arange(key_padded) < (key_length if seen is None else seen)).astype(jnp.int32)
        segments = splash.SegmentIds(q=jnp.ones(padded, jnp.int32), kv=is_real)
    out: Any = kernel(_fill(query_HLD, padded), _fill(key_HLD, key_padded), _fill(value_HLD, key_padded), segments)
    return out


def _fill(x_HLD: jax.Array, length: int) -> jax.Array:
    _, own_length, width = x_HLD.shape
    return jnp.pad(x_HLD, ((0, 0), (0, length - own_length), (0, -width % LANES)))
