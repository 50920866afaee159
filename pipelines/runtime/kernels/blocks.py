"""The attention of flash.py by XLA alone: what is computed where that kernel is switched off.

Queries are taken in blocks, one after the other, so that logits of one block are in memory and not of all: 75 600
tokens of a video against themselves would be 23 GB a head.
"""

from typing import Any

import jax
import jax.numpy as jnp

MOST_LOGITS = 2**26
"""A block has as many logits: 256 MB in fp32, and half as much again for their weights in the inputs' precision."""
_MASKED = -1e30


def attend_in_blocks(
    query_BLC: jax.Array,
    key_BLC: jax.Array,
    value_BLC: jax.Array,
    *,
    heads: int,
    scale: float,
    window: int | None = None,
    first_query: jax.Array | int = 0,
    key_length: int | None = None,
    key_lengths_B: jax.Array | None = None,
    query_gain_BL1: jax.Array | None = None,
    most_logits: int = MOST_LOGITS,
    **_of_the_kernel: Any,
) -> jax.Array:
    """Returns what flash_attention does, with its arguments; those that say how it computes have no effect."""
    batch, length, channels = query_BLC.shape
    if query_gain_BL1 is not None:
        query_BLC = (query_BLC.astype(jnp.float32) * query_gain_BL1).astype(query_BLC.dtype)
    key_BLC, value_BLC = key_BLC[:, :key_length], value_BLC[:, :key_length]
    query, key, value = (x.reshape(batch, -1, heads, channels // heads) for x in (query_BLC, key_BLC, value_BLC))
    key_count = key.shape[1]
    rows = max(1, min(length, most_logits // (batch * heads * key_count)))
    blocks = -(-length // rows)
    padded = jnp.pad(query, ((0, 0), (0, blocks * rows - length), (0, 0), (0, 0)))
    parts = jnp.moveaxis(padded.reshape(batch, blocks, rows, heads, -1), 1, 0)

    def attend_block(part: tuple[jax.Array, jax.Array]) -> jax.Array:
        number, query = part
        logits = jnp.einsum("bqhd,bkhd->bhqk", query, key, preferred_element_type=jnp.float32) * scale
        if window is not None:
            place = first_query + number * rows + jnp.arange(rows)
            is_seen = jnp.abs(place[:, None] - jnp.arange(key_count)) <= window
            logits = jnp.where(is_seen, logits, _MASKED)
        if key_lengths_B is not None:
            logits = jnp.where(jnp.arange(key_count) < key_lengths_B[:, None, None, None], logits, _MASKED)
        weights = jax.nn.softmax(logits, axis=-1).astype(value.dtype)
        return jnp.einsum("bhqk,bkhd->bqhd", weights, value)

    out = jax.lax.map(attend_block, (jnp.arange(blocks), parts))
    return jnp.moveaxis(out, 0, 1).reshape(batch, blocks * rows, channels)[:, :length].astype(value_BLC.dtype)
